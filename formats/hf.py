"""Hugging Face's folders, read and written.

(transformers' modeling_llama.py, modeling_rope_utils.py)
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import torch
from tqdm import tqdm

from data.tokenizer import GENERATION
from errors import UserError, say
from files import read_json, stage_json
from formats import names
from formats.run import Exported
from formats.tensors import Stored, check_size, check_tensors, stored_safetensors
from formats.tokenizers import write_hf_tokenizer
from gyre.checkpoint import write_safetensors
from model.config import ModelConfig, RopeScaling

SHARD = 5 * 10**9  # bytes; where Hugging Face splits

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


class Rope(msgspec.Struct, forbid_unknown_fields=True, tag_field="rope_type", tag="default",
           kw_only=True):
    """rope_scaling or rope_parameters. Unknown fields are refused: they would change rotations."""

    rope_theta: float | None = None


class Proportional(Rope, tag="proportional"):
    partial_rotary_factor: float = 1.0


class Linear(Rope, tag="linear"):
    factor: float


class Dynamic(Linear, tag="dynamic"):
    """The same fields."""


class Yarn(Linear, tag="yarn"):
    original_max_position_embeddings: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None


class Llama3(Linear, tag="llama3", kw_only=True):
    original_max_position_embeddings: int | None = None
    low_freq_factor: float
    high_freq_factor: float


ROPES = {"linear": Linear, "dynamic": Dynamic, "yarn": Yarn, "llama3": Llama3}
AnyRope = Rope | Proportional | Linear | Dynamic | Yarn | Llama3


class Llama(msgspec.Struct, kw_only=True):
    """The fields of config.json that we read."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int
    original_max_position_embeddings: int | None = None
    rms_norm_eps: float
    hidden_act: str | None = None
    tie_word_embeddings: bool | None = None
    layer_types: list[str] | None = None
    rope_theta: float | None = None
    rope_scaling: AnyRope | None = None
    rope_parameters: AnyRope | None = None


# In messages about config.json, our other fields have its names too.
SPELLINGS = SIZES | {
    "max_positions": "max_position_embeddings", "norm_eps": "rms_norm_eps", "theta": "rope_theta",
    "partial": "partial_rotary_factor",
    "rope_scaling.original_positions": "rope_scaling.original_max_position_embeddings",
}

# Fields that we have no counterpart for, with the value that they have where they are absent.
WITHOUT_COUNTERPART = {
    "attention_bias": False, "mlp_bias": False,
    "sliding_window": None, "no_rope_layers": None, "num_local_experts": None,
    "partial_rotary_factor": 1, "rope_interleaved": False,
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
    from huggingface_hub import split_torch_state_dict_into_shards  # slow to import

    weights, tokenizer, model = exported.weights, exported.tokenizer, exported.config.model
    ours = {theirs: name for name, theirs in exported.names.items()}
    like = {theirs: weights[name].to("meta", dtype) for theirs, name in ours.items()}
    folder.mkdir(parents=True)
    ends = tokenizer.eos_ids if len(tokenizer.eos_ids) > 1 else tokenizer.eos_id
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": ends,
           "pad_token_id": tokenizer.pad_id}
    dtype_name = str(dtype or exported.dtype).removeprefix("torch.")
    # transformers 4 reads torch_dtype, 5 dtype.
    config = to_config(model) | ids | {"torch_dtype": dtype_name, "dtype": dtype_name}
    stage_json(folder / "config.json", config)
    if (reach := from_config(config).max_positions) != model.max_positions:
        say(f"note: an import of it will have model.max_positions {reach}, where RoPE's scaling "
            f"reaches to, and not {model.max_positions}")
    write_hf_tokenizer(exported.run.path, tokenizer, folder, model.max_positions)
    if not (folder / GENERATION).exists():  # an imported model has brought one
        stage_json(folder / GENERATION, ids)

    split = split_torch_state_dict_into_shards(like, max_shard_size=SHARD)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        stage_json(folder / "model.safetensors.index.json", index)
    for file, shard in split.filename_to_tensors.items():
        with tqdm(shard, f"writing {file}", unit="tensor", delay=2) as bar:
            tensors = (names.to_hf(ours[name], weights[ours[name]].to(like[name].dtype),
                                   model.head_dim) for name in bar)
            write_safetensors(folder / file, {name: like[name] for name in shard}, tensors)


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

    With linear and dynamic, max_position_embeddings is the length before scaling: dynamic reads it
    as that, and servers multiply it by the factor. With yarn and llama3 it is the length after.
    For yarn it is exactly factor times the length before, since transformers 4.53 takes the ratio
    of the two for the factor.
    """
    theta, scaling = names.theta_and_scaling(config)
    table: dict[str, Any] = {"rope_type": "default"}
    positions = config.max_positions
    if scaling is not None:
        known = vars(scaling) | {"original_max_position_embeddings": scaling.original_positions}
        fields = ROPES[scaling.type].__struct_fields__
        table = {"rope_type": scaling.type}
        table |= {name: known[name] for name in fields if known.get(name) is not None}
        if scaling.type in ("linear", "dynamic"):
            positions = scaling.original_positions
        elif scaling.type == "yarn":
            positions = scaling.reach
    elif config.partial != 1:
        table = {"rope_type": "proportional", "partial_rotary_factor": config.partial}
    return {
        "max_position_embeddings": positions,
        "rope_theta": theta,
        "rope_scaling": None if table == {"rope_type": "default"} else table,
        "rope_parameters": {"rope_theta": theta, **table},
    }


# --- in -------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a Hugging Face folder, with tensors by our names and in our layout.

    Raises UserError, which names file and field or tensor, for what we have no counterpart for, for
    damaged files, and for files of different models.
    """
    file = folder / "config.json"
    config = read_json(file)
    try:
        model = from_config(config)
        stored = stored_safetensors(folder)
        check_size(stored, model, file)
        theirs = names.tensor_names(model, "hf")
    except ValueError as error:
        words = re.sub(r"model\.([\w.]*\w)", lambda field: SPELLINGS.get(field[1], field[1]),
                       str(error))
        raise UserError(f"{file}: {words}") from None
    # Old folders hold this table too, which follows from the configuration.
    stored = {name: t for name, t in stored.items() if not name.endswith("rotary_emb.inv_freq")}
    head, embeddings = stored.get("lm_head.weight"), stored.get("model.embed_tokens.weight")
    if model.tie_embeddings and head and embeddings:
        if not torch.equal(head.read(), embeddings.read()):
            raise UserError(f"{head.file} holds another lm_head.weight than embed_tokens.weight, "
                            f"and {file} says tie_word_embeddings: one of them is wrong")
        del stored["lm_head.weight"]
    shapes = names.tensor_shapes(model)
    check_tensors(stored, {theirs[name]: shape for name, shape in shapes.items()})
    tensors = {ours: stored[name] for ours, name in theirs.items()}
    for name in filter(names.is_rotated, tensors):
        read = tensors[name].read
        tensors[name].read = lambda read=read: names.relayout(read(), model.head_dim, "pairs")
    return model, tensors


def from_config(config: dict[str, Any]) -> ModelConfig:
    """The model of a config.json; absent fields have transformers' defaults.

    Llama, and Mistral without its window, are this architecture. Fields that neither reads do not
    matter. Raises ValueError that names the field we have no counterpart for.
    """
    kind = config.get("model_type")
    if kind not in ("llama", "mistral"):
        raise ValueError(f"model_type {kind!r} is neither llama nor mistral")
    if kind == "mistral" and "sliding_window" not in config:
        raise ValueError("mistral without sliding_window has a window of 4096, which we have not")
    for name, value in WITHOUT_COUNTERPART.items():
        if config.get(name) not in (None, value):
            raise ValueError(f"{name} {config[name]!r}: we have no counterpart for it")
    tables = {name: _clean(config.get(name)) for name in ("rope_scaling", "rope_parameters")}
    llama = msgspec.convert(config | tables, Llama)
    if others := set(llama.layer_types or []) - {"full_attention"}:
        raise ValueError(f"layer_types {', '.join(sorted(others))}: we have full_attention")
    if llama.hidden_act not in (None, "silu", "swish"):
        raise ValueError(f"hidden_act {llama.hidden_act!r}: we have silu")
    sizes: dict[str, Any] = {ours: getattr(llama, theirs) for ours, theirs in SIZES.items()}
    return ModelConfig(**sizes, **from_rope(llama), norm_eps=llama.rms_norm_eps,
                       tie_embeddings=bool(llama.tie_word_embeddings))


def _clean(table: Any) -> Any:
    """A table of RoPE with its type called rope_type, without fields that have no effect."""
    if not table or not isinstance(table, dict):
        return table or None
    # A truncate of null is not the default, true: nothing is rounded to whole pairs then.
    fields = {name: value for name, value in table.items()
              if (name, value) not in (("partial_rotary_factor", 1), ("truncate", True))
              and (value is not None or name == "truncate")}
    old_name = fields.pop("type", "default")
    return {"rope_type": old_name, **fields}


def from_rope(llama: Llama) -> dict[str, Any]:
    """The fields of ModelConfig about positions, from any spelling of config.json (`to_rope`).

    Raises ValueError where versions of transformers would read different rotations.
    """
    tables = {name: table for name in ("rope_scaling", "rope_parameters")
              if (table := getattr(llama, name)) is not None}
    thetas = {where: part.rope_theta for where, part in {"config.json": llama, **tables}.items()
              if part.rope_theta is not None}
    if thetas and llama.rope_scaling and llama.rope_theta is None:
        # transformers 4 reads none in a table, and 5 none in rope_parameters beside rope_scaling.
        thetas["config.json, by transformers' default"] = 10000.0
    if len(set(thetas.values())) > 1:
        places = " and ".join(f"{theta:g} in {where}" for where, theta in thetas.items())
        raise ValueError(f"rope_theta is {places}: versions of transformers take either")
    ropes = [msgspec.structs.replace(table, rope_theta=None) for table in tables.values()]
    if ropes and ropes[0] != ropes[-1]:
        raise ValueError("rope_scaling and rope_parameters say different things")
    rope = ropes[0] if ropes else Rope()
    kind: Any = rope.__struct_config__.tag
    positions, scaling, partial = llama.max_position_embeddings, None, 1.0
    if isinstance(rope, Proportional):
        partial = rope.partial_rotary_factor
    elif isinstance(rope, Yarn | Llama3):
        fields = msgspec.structs.asdict(rope)
        original = fields.pop("original_max_position_embeddings")
        if (top := llama.original_max_position_embeddings) is not None:
            # transformers 5 takes this field. 4 does not know it, takes the other, or for llama3
            # fails.
            if original is None:
                original = positions if llama.rope_scaling and isinstance(rope, Yarn) else top
            if top != original:
                raise ValueError(f"original_max_position_embeddings is {top}, beside a RoPE of "
                                 f"{original}: versions of transformers take either")
        del fields["rope_theta"]
        original = positions if original is None else original
        scaling = RopeScaling(kind, original_positions=original, **fields)
    elif isinstance(rope, Linear):
        scaling = RopeScaling(kind, rope.factor, positions)
        positions = scaling.reach
    theta = next(iter(thetas.values()), 10000.0)
    return {"theta": theta, "partial": partial, "rope_scaling": scaling, "max_positions": positions}
