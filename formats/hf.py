"""Hugging Face's folders, read and written.

(transformers' modeling_llama.py, modeling_rope_utils.py)
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from tqdm import tqdm

from data.tokenizer import GENERATION_FILE
from errors import say
from files import stage_json
from formats import names
from formats.run import Exported
from formats.tensors import Stored, check_size, check_tensors, stored_safetensors
from formats.tokenizers import write_hf_tokenizer
from gyre.checkpoint import write_safetensors
from model.config import ModelConfig, RopeScaling

SHARD = 5 * 10**9  # bytes of a file of weights at most, the default of huggingface_hub

# Sizes: ours, and in config.json.
SIZES = {
    "vocab_size": "vocab_size",
    "dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}
ORIGINAL = "original_max_position_embeddings"
# Messages about config.json have its names for our other fields too.
SPELLINGS = SIZES | {"max_positions": "max_position_embeddings", "norm_eps": "rms_norm_eps",
                     "theta": "rope_theta", "partial": "partial_rotary_factor",
                     "original_positions": ORIGINAL, "tie_embeddings": "tie_word_embeddings"}

# Fields of a table of RoPE that have another name in RopeScaling.
SCALING_NAMES = {ORIGINAL: "original_positions"}
# The types of RoPE in config.json, with their fields beside rope_theta. Other fields are refused:
# they would change rotations.
ROPES = {
    "default": (),
    "proportional": ("partial_rotary_factor",),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", ORIGINAL, "beta_fast", "beta_slow", "attention_factor"),
    "llama3": ("factor", ORIGINAL, "low_freq_factor", "high_freq_factor"),
}

# Fields that we have no counterpart for, with the value that they have where they are absent.
WITHOUT_COUNTERPART = {
    "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
    "is_causal": True, "attention_chunk_size": None,
    "sliding_window": None, "no_rope_layers": None, "num_local_experts": None,
    "partial_rotary_factor": 1,  # read only in a table of RoPE
    "rope_interleaved": False,
    "qk_norm": False, "use_qk_norm": False,
    "attn_logit_softcapping": None, "final_logit_softcapping": None,
    "embedding_multiplier": 1, "residual_multiplier": 1, "logits_scaling": 1,
    "attention_multiplier": None, "query_pre_attn_scalar": None,
    "quantization_config": None, "auto_map": None,
}

# --- out ------------------------------------------------------------------------------------------


def write_folder(exported: Exported, folder: Path, dtype: torch.dtype | None) -> None:
    """Write a folder that stock transformers loads, without code of ours.

    dtype: of all weights, None for those of the run. Raises UserError where no tokenizer.json gives
    the run's ids.
    """
    model = exported.model
    tokenizer = exported.tokenizer
    folder.mkdir(parents=True)
    ends = tokenizer.eos_ids if len(tokenizer.eos_ids) > 1 else tokenizer.eos_id
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": ends, "pad_token_id": tokenizer.pad_id}
    dtype_name = str(dtype or exported.dtype).removeprefix("torch.")
    # transformers 4.53 reads torch_dtype only; 4.57 and 5 read both, and prefer dtype.
    config = to_config(model) | ids | {"torch_dtype": dtype_name, "dtype": dtype_name}
    stage_json(folder / "config.json", config)
    imported_positions = from_config(config).max_positions
    if imported_positions != model.max_positions:
        say(f"note: an import of it will have model.max_positions {imported_positions}, where "
            f"RoPE's scaling reaches to, and not {model.max_positions}")
    write_hf_tokenizer(exported.run.path, tokenizer, folder, model.max_positions)
    if not (folder / GENERATION_FILE).exists():  # an imported model has brought one
        stage_json(folder / GENERATION_FILE, ids)
    write_weights(exported, folder, dtype)


def write_weights(exported: Exported, folder: Path, dtype: torch.dtype | None) -> None:
    """Write the weights in files of at most SHARD bytes, with an index if there are several."""
    from huggingface_hub import split_torch_state_dict_into_shards  # slow to import

    ours = {theirs: name for name, theirs in exported.names.items()}
    like = {theirs: exported.weights[name].to("meta", dtype) for theirs, name in ours.items()}

    def convert(theirs: str) -> Tensor:
        name = ours[theirs]
        weight = exported.weights[name].to(like[theirs].dtype)
        return names.relayout(name, weight, exported.model.head_dim, "halves")

    split = split_torch_state_dict_into_shards(like, max_shard_size=SHARD)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        stage_json(folder / "model.safetensors.index.json", index)
    for file, shard in split.filename_to_tensors.items():
        with tqdm(shard, f"writing {file}", unit="tensor", delay=2) as bar:
            write_safetensors(folder / file, {name: like[name] for name in shard},
                              map(convert, bar))


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of config.json about the model, for LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{theirs: getattr(config, ours) for ours, theirs in SIZES.items()},
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        **to_rope(config),
    }


def to_rope(config: ModelConfig) -> dict[str, Any]:
    """The fields of config.json about positions.

    transformers 4 reads rope_theta and rope_scaling, 5 reads rope_parameters; both say the same.

    max_position_embeddings is the length after scaling, up to which transformers generates without
    a warning. With dynamic it is the length before, which transformers computes with. For yarn it
    is exactly factor times the length before, because transformers 4.53 takes the ratio of the two
    for the factor, and later versions warn if they differ. With linear, the length before stands
    beside it: transformers warns of a field in the table that it does not read.
    """
    theta, scaling = names.theta_and_scaling(config)
    table: dict[str, Any] = {"rope_type": "default"}
    lengths = {"max_position_embeddings": config.max_positions}
    if scaling is not None:
        table = {"rope_type": scaling.type}
        for name in ROPES[scaling.type]:
            value = getattr(scaling, SCALING_NAMES.get(name, name))
            if value is not None:
                table[name] = value
        if scaling.type == "linear":
            lengths[ORIGINAL] = scaling.original_positions
        elif scaling.type == "dynamic":
            lengths["max_position_embeddings"] = scaling.original_positions
        elif scaling.type == "yarn":
            lengths["max_position_embeddings"] = scaling.reach
    elif config.partial != 1:
        table = {"rope_type": "proportional", "partial_rotary_factor": config.partial}
    return {
        **lengths,
        "rope_theta": theta,
        "rope_scaling": None if table == {"rope_type": "default"} else table,
        "rope_parameters": {"rope_theta": theta, **table},
    }


# --- in -------------------------------------------------------------------------------------------


def read_folder(folder: Path, config: dict[str, Any]) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a folder with this config.json, and its tensors by our names, in our order and
    layout.

    Raises ValueError and UserError, which name field, file or tensor, for what we have no
    counterpart for, for damaged files, and for files of different models.
    """
    model = from_config(config)
    stored = stored_safetensors(folder)
    check_size(stored, model)
    theirs = names.tensor_names(model, "hf")
    # Old folders hold this table too, which follows from the configuration.
    stored = {name: t for name, t in stored.items() if not name.endswith("rotary_emb.inv_freq")}
    head = stored.get("lm_head.weight")
    embeddings = stored.get("model.embed_tokens.weight")
    if model.tie_embeddings and head and embeddings:
        if not torch.equal(head.read(), embeddings.read()):
            raise ValueError(f"tie_word_embeddings is true, and {head.file} holds another "
                             "lm_head.weight than embed_tokens.weight: one of them is wrong")
        del stored["lm_head.weight"]
    shapes = names.tensor_shapes(model)
    check_tensors(stored, {theirs[name]: shape for name, shape in shapes.items()})

    def read(ours: str) -> Tensor:
        weight = stored[theirs[ours]].read()
        return names.relayout(ours, weight, model.head_dim, "pairs")

    tensors = {ours: replace(stored[name], read=partial(read, ours))
               for ours, name in theirs.items()}
    return model, tensors


def from_config(config: dict[str, Any]) -> ModelConfig:
    """The model of a config.json.

    Llama, and Mistral without its window, are this architecture. Fields that neither reads do not
    matter. Raises ValueError that names the field we have no counterpart for, or one that has to be
    stated: vocab_size, hidden_size, the numbers of layers and of query heads, rms_norm_eps and
    max_position_embeddings. Where intermediate_size and the number of key/value heads are absent
    they have our defaults, which the shapes of the weights are checked against. Other absent fields
    have transformers' defaults.
    """
    kind = config.get("model_type")
    if kind not in ("llama", "mistral"):
        raise ValueError(f"model_type {kind!r} is neither llama nor mistral")
    if kind == "mistral" and "sliding_window" not in config:
        raise ValueError("mistral without sliding_window has a window of 4096, which we have not")
    for name, value in WITHOUT_COUNTERPART.items():
        if config.get(name) not in (None, value):
            raise ValueError(f"{name} {config[name]!r}: we have no counterpart for it")
    other_layers = set(config.get("layer_types") or ()) - {"full_attention"}
    if other_layers:
        raise ValueError(f"layer_types {other_layers}: we have full_attention")
    sizes = {ours: config.get(theirs) for ours, theirs in SIZES.items()}
    positions = from_rope(config)
    with names.respelling(SPELLINGS):
        return names.to_model({**sizes, **positions, "norm_eps": config.get("rms_norm_eps"),
                               "tie_embeddings": config.get("tie_word_embeddings") or False})


def from_rope(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of ModelConfig about positions, from any spelling of config.json (`to_rope`).

    Raises ValueError where versions of transformers would read different rotations, with two
    exceptions, which are read as by transformers 5. Version 4 does not read a table that is called
    rope_parameters, if that stands alone. For yarn the stated factor is taken, whatever the lengths
    are: that 4.53 takes their ratio instead was a mistake, and such files are common.
    """
    tables = {name: read_table(name, config[name]) for name in ("rope_scaling", "rope_parameters")
              if config.get(name)}
    theta = read_theta(config, tables)
    ropes = [table | {"rope_theta": theta} for table in tables.values()]
    rope = ropes[0] if ropes else {"rope_type": "default"}
    if any(other != rope for other in ropes):
        raise ValueError("rope_scaling and rope_parameters say different things")
    kind = rope["rope_type"]
    fields = {"theta": theta, "max_positions": config.get("max_position_embeddings"),
              "partial": rope.get("partial_rotary_factor")}
    if kind in ("default", "proportional"):
        return fields
    scaling = read_scaling(config, rope)
    fields["rope_scaling"] = scaling
    # transformers takes max_position_embeddings for the length before scaling with dynamic, and
    # where no other length is stated. docs/interop.md has a table of the cases.
    has_original = rope.get(ORIGINAL) is not None or config.get(ORIGINAL) is not None
    if kind == "dynamic" or not has_original:
        fields["max_positions"] = scaling.reach
    return fields


def read_theta(config: dict[str, Any], tables: dict[str, dict[str, Any]]) -> float:
    """The base of RoPE, by a config.json or one of its tables of RoPE; by default 10000.

    Raises ValueError where versions of transformers would read different ones, unless there is
    rope_parameters alone.
    """
    parts = {"config.json": config, **tables}
    thetas = {where: part["rope_theta"] for where, part in parts.items()
              if part.get("rope_theta") is not None}
    if not thetas:
        return 10000.0
    if "rope_scaling" in tables and "config.json" not in thetas:
        # transformers 4 reads none in a table, and 5 none in rope_parameters beside rope_scaling.
        thetas["config.json, by transformers' default"] = 10000.0
    theta = next(iter(thetas.values()))
    if any(other != theta for other in thetas.values()):
        raise ValueError(f"rope_theta is {thetas}: versions of transformers take either")
    return theta


def read_scaling(config: dict[str, Any], rope: dict[str, Any]) -> RopeScaling:
    """The scaling of a config.json, by its table of RoPE.

    Raises ValueError for wrong types and values, and where versions of transformers would read
    different lengths.
    """
    kind = rope["rope_type"]
    original = rope.get(ORIGINAL, config.get("max_position_embeddings"))
    outside = config.get(ORIGINAL)
    if kind in ("yarn", "llama3") and outside not in (None, original):
        # transformers 5 takes the field outside of the table, and 4 the one in it.
        raise ValueError(f"{ORIGINAL} is {outside}, beside a RoPE of {original}: versions of "
                         "transformers take either")
    if kind == "linear" and outside is not None:
        original = outside  # see `to_rope`; with dynamic, transformers does not read it
    fields = {name: rope[name] for name in ROPES[kind] if name in rope and name != ORIGINAL}
    with names.respelling(SPELLINGS):
        return msgspec.convert({"type": kind, "original_positions": original, **fields},
                               RopeScaling)


def read_table(field: str, table: Any) -> dict[str, Any]:
    """A table of RoPE with its type called rope_type, without fields that have no effect.

    `field` is its name in config.json. Raises ValueError for a value that is no table, and for a
    type or field that we have no counterpart for.
    """
    if not isinstance(table, dict):
        raise ValueError(f"{field} is {table!r}, where a table belongs")
    fields = {}
    for name, value in table.items():
        if name == "truncate":
            # transformers reads null as false: it then rounds nothing to whole pairs.
            is_default = value == 1  # true is 1, too
        else:
            is_default = value is None or (name == "partial_rotary_factor" and value == 1)
        if not is_default:
            fields[name] = value
    kind = fields.pop("type", "default")  # the older name of rope_type
    kind = fields.setdefault("rope_type", kind)
    if kind not in ROPES:
        raise ValueError(f"rope_type {kind!r}: we have {', '.join(ROPES)}")
    others = fields.keys() - {"rope_type", "rope_theta", *ROPES[kind]}
    if others:
        raise ValueError(f"{sorted(others)[0]} of rope_type {kind}: we have no counterpart for it")
    return fields
