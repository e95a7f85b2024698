"""Hugging Face's folders, both ways. (transformers' modeling_llama.py, modeling_rope_utils.py)"""

import json
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from tqdm import tqdm

from data.tokenizer import GENERATION
from errors import UserError
from files import check_shape, read_json, require_space, stage_json
from formats import names
from formats.run import Exported, Imported
from formats.tensors import DTYPES, check_count, check_tensors, stored_safetensors
from formats.tokenizers import write_hf_tokenizer
from gyre.checkpoint import write_safetensors
from model.config import ModelConfig, RopeScaling
from model.position import check_position

SHARD = 5 * 10**9  # bytes; what Hugging Face splits at

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


class Rope(TypedDict, total=False):
    """rope_scaling or rope_parameters, of any type."""

    rope_type: str | None
    type: str | None
    rope_theta: float | None


class Unscaled(TypedDict):
    """Rotations by theta alone."""


class Scaled(TypedDict):
    factor: float


class Yarn(Scaled, total=False):
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    attention_factor: float


class Llama3(Scaled):
    original_max_position_embeddings: NotRequired[int]
    low_freq_factor: float
    high_freq_factor: float


# What each type of RoPE has beside. Any other field is refused: it would change the rotations.
ROPES: dict[str, Any] = {"default": Unscaled, "linear": Scaled, "dynamic": Scaled, "yarn": Yarn,
                         "llama3": Llama3}


class Sizes(TypedDict):
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    rms_norm_eps: float


class Llama(Sizes, total=False):
    """What is read of a config.json."""

    num_key_value_heads: int | None
    head_dim: int | None
    original_max_position_embeddings: int | None
    hidden_act: str | None
    tie_word_embeddings: bool | None
    layer_types: list[str] | None
    rope_theta: float | None
    rope_scaling: Rope | None
    rope_parameters: Rope | None


# Fields that we have no counterpart for, with the value that they have where they are not there.
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


def write_folder(
    exported: Exported, folder: Path, to_dtype: str | None, card: dict[str, str | None]
) -> None:
    """Write a folder that stock transformers loads, without code of ours. Weights are of type
    `to_dtype`, None for that of the run; `card` are fields of the model card, None for none.

    Raises UserError where the disk has no room, or no tokenizer.json gives the run's ids.
    """
    from huggingface_hub import split_torch_state_dict_into_shards  # here, as it is slow to import

    weights, tokenizer, model = exported.weights, exported.tokenizer, exported.config.model
    kind = None if to_dtype is None else DTYPES[to_dtype.upper()]
    ours = {name: ours for ours, name in names.tensor_names(model, "hf").items()}
    like = {name: weights[ours[name]].to("meta", kind) for name in ours}
    require_space(folder, sum(tensor.nbytes for tensor in like.values()))
    folder.mkdir(parents=True)
    ends = tokenizer.eos_ids if len(tokenizer.eos_ids) > 1 else tokenizer.eos_id
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": ends,
           "pad_token_id": tokenizer.pad_id}
    dtype = str(kind or exported.dtype).removeprefix("torch.")
    # v4 reads torch_dtype, v5 dtype.
    config = to_config(model) | ids | {"torch_dtype": dtype, "dtype": dtype}
    stage_json(folder / "config.json", config)
    write_hf_tokenizer(exported.run.path, tokenizer, folder, model.max_positions)
    if not (folder / GENERATION).exists():  # else that of an imported model, which went along
        stage_json(folder / GENERATION, ids)
    (folder / "README.md").write_text(model_card(exported, card), encoding="utf-8")

    split = split_torch_state_dict_into_shards(like, max_shard_size=SHARD)
    if split.is_sharded:
        content = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        stage_json(folder / "model.safetensors.index.json", content)
    for file, part in split.filename_to_tensors.items():
        with tqdm(part, f"writing {file}", unit="tensor", delay=2) as bar:
            tensors = (names.to_hf(ours[name], weights[ours[name]].to(like[name].dtype),
                                   model.head_dim) for name in bar)
            write_safetensors(folder / file, {name: like[name] for name in part}, tensors)


def model_card(exported: Exported, card: dict[str, str | None]) -> str:
    """README.md: fields for the Hub, with those of `card`, what the model was trained on, for how
    long, and how well it does."""
    run, config, manifest = exported.run, exported.config, exported.run.manifest
    model, data = config.model, config.data
    lines = [
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [llama, gyre]",
        *(f"{name}: {json.dumps(value)}" for name, value in card.items() if value is not None),
        "---",
        f"\n# {run.path.name}\n",
        f"A LLaMA of {exported.parameters:,} parameters: dim {model.dim}, {model.n_layers} layers, "
        f"{model.n_heads} heads over {model.n_kv_heads} of keys and values, "
        f"{model.vocab_size} ids, {model.max_positions} positions.\n",
    ]
    if "imported" in manifest:
        source = Path(manifest["imported"]["from"]).name
        lines.append(f"Imported from {source}, not trained further.")
        return "\n".join(lines) + "\n"
    if config.init_from is not None:
        lines.append(f"Training started from the weights of {Path(config.init_from).name}.\n")
    sources = {"stdlib": "the standard library of Python", "url": data.url, "hub": data.hub}
    source = sources.get(data.source) or ", ".join(Path(file).name for file in data.files or ())
    lines += ["| | |", "|---|---|", f"| data | {source} |"]
    if text := manifest.get("text"):
        lines.append(f"| text | {text['bytes']:,} bytes, sha256 {text['sha256']} |")
    if best := run.best_point():
        lines += [
            f"| trained on | {best['tokens']:,} tokens, in rows of {data.seq_len} |",
            f"| validation loss | {best['val/loss']:.4f} nats per token, "
            f"{best['val/bpb']:.4f} bits per byte |",
        ]
    return "\n".join(lines) + "\n"


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
    """The fields of config.json about positions: v4's rope_theta and rope_scaling, and v5's
    rope_parameters, which say the same.

    With linear and dynamic, max_position_embeddings is the length before scaling: dynamic reads it
    as that, and servers multiply it by the factor. With yarn and llama3 it is the length after; for
    yarn exactly factor times the one before, as transformers 4.53 takes their ratio for the
    factor.
    """
    theta, scaling = names.theta_and_scaling(config)
    parameters: dict[str, Any] = {"rope_type": "default"}
    positions = config.max_positions
    if scaling is not None:
        known = vars(scaling) | {"original_max_position_embeddings": scaling.original_positions}
        fields = {name: known[name] for name in ROPES[scaling.type].__annotations__}
        parameters = {"rope_type": scaling.type}
        parameters |= {name: value for name, value in fields.items() if value is not None}
        if scaling.type in ("linear", "dynamic"):
            positions = scaling.original_positions
        elif scaling.type == "yarn":
            positions = scaling.reach
    return {
        "max_position_embeddings": positions,
        "rope_theta": theta,
        "rope_scaling": None if scaling is None else parameters,
        "rope_parameters": {"rope_theta": theta, **parameters},
    }


# --- in -------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> Imported:
    """The model of a Hugging Face folder.

    Raises UserError that names file and field, or file and tensor, for what we have no counterpart
    for, is damaged, or does not belong together.
    """
    file = folder / "config.json"
    config = read_json(file)
    try:
        model, notes = from_config(config)
        check_position(model)
    except ValueError as error:
        raise UserError(f"{file}: {error}") from None
    found = stored_safetensors(folder)
    check_count(found, model, file)
    # Old folders hold this table too, which follows from the configuration.
    found = {name: t for name, t in found.items() if not name.endswith("rotary_emb.inv_freq")}
    theirs, expected = names.tensor_names(model, "hf"), names.tensor_shapes(model)
    head, embeddings = found.get("lm_head.weight"), found.get("model.embed_tokens.weight")
    if model.tie_embeddings and head and embeddings:
        if not torch.equal(head.read(), embeddings.read()):
            raise UserError(f"{head.file} holds an lm_head.weight of its own, and {file} says "
                            "tie_word_embeddings: one of them is wrong")
        del found["lm_head.weight"]
    check_tensors(found, {name: expected[ours] for ours, name in theirs.items()})
    tensors = {ours: found[name] for ours, name in theirs.items()}
    for name in filter(names.is_rotated, tensors):
        read = tensors[name].read
        tensors[name].read = lambda read=read: names.relayout(read(), model.head_dim, "pairs")
    return Imported(folder, "Hugging Face", model, tensors, notes)


def from_config(config: dict[str, Any]) -> tuple[ModelConfig, list[str]]:
    """The model of a config.json, and what it left to transformers' defaults.

    Llama, and Mistral without its window, are this architecture; fields that neither reads are no
    concern of ours. Raises ValueError that names what we have no counterpart for.
    """
    notes: list[str] = []
    kind = config.get("model_type")
    if kind not in ("llama", "mistral"):
        raise ValueError(f"model_type {kind!r} is neither llama nor mistral")
    if kind == "mistral" and "sliding_window" not in config:
        raise ValueError("mistral without sliding_window has one of 4096, which we have not")
    names.refuse_fields(config, WITHOUT_COUNTERPART)
    check_shape(config, Llama)
    if other := set(config.get("layer_types") or []) - {"full_attention"}:
        raise ValueError(f"layer_types {', '.join(sorted(other))}: we have full_attention")
    defaults = {"hidden_act": "silu", "tie_word_embeddings": False,
                "num_key_value_heads": config.get("num_attention_heads")}
    for name, default in defaults.items():
        if config.get(name) is None:
            config = config | {name: default}
            notes.append(f"{name}: {default}")
    if config["hidden_act"] not in ("silu", "swish"):
        raise ValueError(f"hidden_act {config['hidden_act']!r}: we have silu")
    sizes: dict[str, Any] = {ours: config.get(theirs) for ours, theirs in SIZES.items()}
    theta, scaling, positions = from_rope(config, notes)
    model = ModelConfig(
        **sizes,
        tie_embeddings=config["tie_word_embeddings"],
        norm_eps=float(config["rms_norm_eps"]),
        max_positions=positions,
        theta=theta,
        rope_scaling=scaling,
    )
    return model, notes


def from_rope(config: dict[str, Any], notes: list[str]) -> tuple[float, RopeScaling | None, int]:
    """(theta, scaling, max_positions) from any spelling of config.json, see `to_rope`.

    What is left to a default goes into `notes`. ValueError for what our rotations cannot be.
    """
    tables = {name: config.get(name) or {} for name in ("rope_scaling", "rope_parameters")}
    old, new = tables.values()
    stated = {where: float(table["rope_theta"])
              for where, table in {"config.json": config, **tables}.items()
              if table.get("rope_theta") is not None}
    if stated and old and "config.json" not in stated:
        # transformers 4 reads none in a table, and 5 none in rope_parameters beside rope_scaling.
        stated["config.json, by transformers' default"] = 10000.0
    if len(set(stated.values())) > 1:
        said = " and ".join(f"{theta:g} in {where}" for where, theta in stated.items())
        raise ValueError(f"rope_theta is {said}: versions of transformers take either")
    if not stated:
        notes.append("rope_theta: 10000")
    theta = next(iter(stated.values()), 10000.0)
    read = [_rope_fields(name, table) for name, table in tables.items() if table]
    if read and read[0] != read[-1]:
        raise ValueError(f"rope_scaling {old} and rope_parameters {new} say different things")
    fields = read[0] if read else {"rope_type": "default"}
    kind, positions = fields.pop("rope_type"), config["max_position_embeddings"]
    if kind == "default":
        return theta, None, positions
    name = "original_max_position_embeddings"
    original = fields.pop(name, None)
    if kind in ("yarn", "llama3") and config.get(name) is not None:
        # transformers 5 takes this one. 4 does not know it, takes the other, or for llama3 fails.
        top = config[name]
        other = original or (positions if old and kind == "yarn" else top)
        if top != other:
            raise ValueError(f"{name} is {top}, beside a RoPE of {other}: versions of transformers "
                             "take either")
        original = top
    if original is None:
        original = positions
        if kind in ("yarn", "llama3"):
            notes.append(f"{name}: {positions}")
    scaling = RopeScaling(kind, original_positions=original, **fields)
    return theta, scaling, scaling.reach if kind in ("linear", "dynamic") else positions


def _rope_fields(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """One spelling of RoPE, checked, without theta and with its type called rope_type."""
    names.refuse_fields(table, {"partial_rotary_factor": 1})
    if table.get("truncate", True) is not True:  # null, too: nothing is rounded to whole pairs then
        raise ValueError(f"truncate {table['truncate']!r}: we have true, which is the default")
    fields = {field: value for field, value in table.items() if value is not None
              and field not in ("rope_theta", "partial_rotary_factor", "truncate")}
    old_name = fields.pop("type", "default")
    kind = fields.pop("rope_type", old_name)
    if kind not in ROPES:
        raise ValueError(f"RoPE of type {kind!r}: we have {', '.join(ROPES)}")
    if unknown := fields.keys() - ROPES[kind].__annotations__:
        raise ValueError(f"RoPE of type {kind} with {min(unknown)!r}, which we do not know")
    check_shape(fields, ROPES[kind], name)
    return {"rope_type": kind, **fields}
