"""How others name and lay out what a `Transformer` holds: Hugging Face, Meta and GGUF, both ways.

Everything here is names, shapes and numbers; files are the business of `export.py`. Sources:
transformers' `modeling_llama.py` and `modeling_rope_utils.py`, Meta's `llama` and `llama-models`,
and llama.cpp's `llama` architecture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from model.config import ModelConfig
from model.rope import RopeScaling, ntk_theta, rope_frequencies, scaled_frequencies
from model.transformer import Transformer

# --- tensors ---

# Ours (and Meta's), Hugging Face's, GGUF's. Those of a layer stand behind `layers.N.`,
# `model.layers.N.` and `blk.N.`, and all of them end in `.weight`.
TOP = (
    ("tok_embeddings", "model.embed_tokens", "token_embd"),
    ("norm", "model.norm", "output_norm"),
    ("output", "lm_head", "output"),
)
LAYER = (
    ("attention_norm", "input_layernorm", "attn_norm"),
    ("attention.wq", "self_attn.q_proj", "attn_q"),
    ("attention.wk", "self_attn.k_proj", "attn_k"),
    ("attention.wv", "self_attn.v_proj", "attn_v"),
    ("attention.wo", "self_attn.o_proj", "attn_output"),
    ("ffn_norm", "post_attention_layernorm", "ffn_norm"),
    ("feed_forward.w1", "mlp.gate_proj", "ffn_gate"),
    ("feed_forward.w2", "mlp.down_proj", "ffn_down"),
    ("feed_forward.w3", "mlp.up_proj", "ffn_up"),
)


def names(config: ModelConfig, to: Literal["hf", "gguf"]) -> dict[str, str]:
    """{our name: theirs} of every tensor of this model, in the order in which they are written."""
    column, layers = {"hf": (1, "model.layers"), "gguf": (2, "blk")}[to]
    top = TOP[:-1] if config.tie_embeddings else TOP
    pairs = [(row[0], row[column]) for row in top]
    for n in range(config.n_layers):
        pairs += [(f"layers.{n}.{row[0]}", f"{layers}.{n}.{row[column]}") for row in LAYER]
    return {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in pairs}


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """{our name: shape} of every tensor of this model, without building it."""
    with torch.device("meta"):
        skeleton = Transformer(replace(config, max_positions=1))  # no table as long as the context
    return {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}


def is_rotated(name: str) -> bool:
    """Whether the rows of our tensor `name` are turned by RoPE, and so have a layout."""
    return name.endswith(("attention.wq.weight", "attention.wk.weight"))


def relayout(weight: Tensor, head_dim: int, to: Literal["halves", "pairs"]) -> Tensor:
    """The rows of wq or wk (heads * D, C), with the two channels of a rotation moved.

    "pairs" is ours, Meta's and GGUF's: channels 2i and 2i+1 of a head turn together. "halves" is
    Hugging Face's: channels i and i + D/2 do. Read as a grid, one is the transpose of the other.
    The number of heads does not enter, so grouped keys are no special case.
    """
    grid = (head_dim // 2, 2) if to == "halves" else (2, head_dim // 2)
    return weight.unflatten(0, (-1, *grid)).transpose(1, 2).reshape(weight.shape)


def to_hf(weights: dict[str, Tensor], config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a model under Hugging Face's names and in its layout, one at a time."""
    for ours, theirs in names(config, "hf").items():
        weight = weights[ours]
        yield theirs, relayout(weight, config.head_dim, "halves") if is_rotated(ours) else weight


# --- what cannot be expressed ---


def refuse_without_counterpart(config: ModelConfig, to: Literal["hf", "gguf"]) -> None:
    """ValueError for a model that no LLaMA runtime could run, or not one of this kind."""
    target = {"hf": "Hugging Face's LlamaForCausalLM", "gguf": "llama.cpp"}[to]
    if config.position != "rope":
        raise ValueError(
            f"model.position {config.position}: {target} knows only rope, and would turn queries "
            "and keys that were trained without rotations"
        )
    if config.partial != 1:
        raise ValueError(
            f"model.partial {config.partial}: {target} turns every pair of channels, and has no "
            "field that lets the slow ones stand still"
        )
    scaling = config.rope_scaling
    if to == "hf" and config.dim % config.n_heads:
        raise ValueError(
            f"model.dim {config.dim} is not divisible by model.n_heads {config.n_heads}: {target} "
            "refuses that, whatever head_dim says"
        )
    if to == "gguf" and scaling is not None:
        if scaling.type == "dynamic":
            raise ValueError(
                f"model.rope_scaling.type dynamic: {target} has no rotations that depend on the "
                "length; linear, ntk, yarn and llama3 can be written"
            )
        if scaling.attention_factor is not None:
            raise ValueError(
                f"model.rope_scaling.attention_factor {scaling.attention_factor}: {target} takes "
                "0.1 ln(factor) + 1, whatever the file says"
            )


# --- RoPE, in the words of Hugging Face ---

# The fields of each type beside its name. Any other is refused: it would change the rotations.
ROPE_FIELDS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow",
             "attention_factor", "mscale", "mscale_all_dim", "truncate"),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor",
               "high_freq_factor"),
}  # fmt: skip


def theta_and_scaling(config: ModelConfig) -> tuple[float, RopeScaling | None]:
    """The base and the scaling without ntk, which is nothing but another base."""
    scaling = config.rope_scaling
    if scaling is not None and scaling.type == "ntk":
        return ntk_theta(config.theta, scaling.factor, config.head_dim), None
    return config.theta, scaling


def to_hf_rope(config: ModelConfig) -> dict[str, Any]:
    """The fields of config.json about positions: v4's rope_theta and rope_scaling, and v5's
    rope_parameters, which say the same.

    With linear and dynamic, max_position_embeddings is the length before scaling: dynamic reads it
    as that, and servers multiply it by the factor. With yarn and llama3 it is the length after; for
    yarn exactly factor times the one before, as transformers 4.53 takes their ratio for the
    factor.
    """
    theta, scaling = theta_and_scaling(config)
    parameters: dict[str, Any] = {"rope_type": "default"}
    positions = config.max_positions
    if scaling is not None:
        parameters = {"rope_type": scaling.type, "factor": scaling.factor}
        if scaling.type in ("linear", "dynamic"):
            positions = scaling.original_positions
        else:
            positions = scaling.reach if scaling.type == "yarn" else positions
            parameters["original_max_position_embeddings"] = scaling.original_positions
            own = {
                "yarn": ("beta_fast", "beta_slow", "attention_factor"),
                "llama3": ("low_freq_factor", "high_freq_factor"),
            }[scaling.type]
            parameters |= {k: getattr(scaling, k) for k in own if getattr(scaling, k) is not None}
    return {
        "max_position_embeddings": positions,
        "rope_theta": theta,
        "rope_scaling": None if scaling is None else dict(parameters),
        "rope_parameters": {"rope_theta": theta, **parameters},
    }


def from_hf_rope(config: dict[str, Any], notes: list[str]) -> tuple[float, RopeScaling | None, int]:
    """(theta, scaling, max_positions) from any spelling of config.json. See `to_hf_rope`."""
    old, new = config.get("rope_scaling"), config.get("rope_parameters")
    for name, found in (("rope_scaling", old), ("rope_parameters", new)):
        if found is not None and not isinstance(found, dict):
            raise ValueError(f"{name} is {found!r}, not a table of fields")
    spelt = [table for table in (config, new or {}) if table.get("rope_theta") is not None]
    thetas = [_number(table, "rope_theta") for table in spelt]
    if not thetas:
        notes.append("rope_theta: 10000")
        thetas = [10000.0]
    if len(set(thetas)) > 1:
        raise ValueError(f"rope_theta is {thetas[0]}, and {thetas[1]} in rope_parameters")
    read = [_rope_fields(found) for found in (old, new) if found]
    if len(read) == 2 and read[0] != read[1]:
        raise ValueError(f"rope_scaling {old} and rope_parameters {new} say different things")
    fields = dict(read[0]) if read else {"rope_type": "default"}
    kind, positions = fields.pop("rope_type"), _whole(config, "max_position_embeddings")
    if kind == "default":
        return thetas[0], None, positions
    original = fields.pop("original_max_position_embeddings", None)
    if original is None:
        original = positions
        if kind in ("yarn", "llama3"):
            notes.append(f"original_max_position_embeddings: {positions}")
    needed = {"llama3": ("factor", "low_freq_factor", "high_freq_factor")}.get(kind, ("factor",))
    for name in needed:
        if name not in fields:
            raise ValueError(f"RoPE of type {kind} has no {name}")
    if not fields.pop("truncate", True):
        raise ValueError("truncate false: we round YaRN's bounds to whole pairs")
    mscale, all_dim = fields.pop("mscale", None), fields.pop("mscale_all_dim", None)
    if mscale and all_dim and "attention_factor" not in fields:
        grows = 0.1 * math.log(fields["factor"])
        fields["attention_factor"] = (mscale * grows + 1) / (all_dim * grows + 1)
    scaling = RopeScaling(kind, original_positions=original, **fields)
    return thetas[0], scaling, scaling.reach if kind in ("linear", "dynamic") else positions


def _rope_fields(found: dict[str, Any]) -> dict[str, Any]:
    """One spelling, without theta and with its type checked and called rope_type."""
    fields = {k: v for k, v in found.items() if v is not None and k != "rope_theta"}
    old_name = fields.pop("type", "default")
    kind = fields.pop("rope_type", old_name)
    if kind not in ROPE_FIELDS:
        raise ValueError(f"RoPE of type {kind!r}: we have {', '.join(ROPE_FIELDS)}")
    if fields.pop("partial_rotary_factor", 1) != 1:
        raise ValueError(f"partial_rotary_factor {found['partial_rotary_factor']}: we turn all")
    for name in fields:
        if name not in ROPE_FIELDS[kind]:
            raise ValueError(f"RoPE of type {kind} with {name!r}, which we do not know")
        if name != "truncate":
            _number(fields, name)
    return {"rope_type": kind, **fields}


# --- config.json and params.json ---

# What we have no counterpart for, with the value that it has where it is not there at all.
WITHOUT = {
    "attention_bias": False, "mlp_bias": False,
    "sliding_window": None, "no_rope_layers": None, "num_local_experts": None,
    "partial_rotary_factor": 1, "rope_interleaved": False,
    "qk_norm": False, "use_qk_norm": False,
    "attn_logit_softcapping": None, "final_logit_softcapping": None,
    "embedding_multiplier": 1, "residual_multiplier": 1, "logits_scaling": 1,
    "attention_multiplier": None, "query_pre_attn_scalar": None,
    "quantization_config": None, "auto_map": None,
}  # fmt: skip


def to_hf_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of config.json about the model, for LlamaForCausalLM."""
    refuse_without_counterpart(config, "hf")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden_dim,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "tie_word_embeddings": config.tie_embeddings,
        **to_hf_rope(config),
    }


def from_hf_config(config: dict[str, Any]) -> tuple[ModelConfig, list[str]]:
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
    for name, without in WITHOUT.items():
        value = config.get(name)
        if value is not None and value != without:
            raise ValueError(f"{name} {value!r}: we have no counterpart for it")
    layers = config.get("layer_types") or []
    if other := set(layers) - {"full_attention"}:
        raise ValueError(f"layer_types {', '.join(sorted(other))}: we have full_attention")
    defaults = {"hidden_act": "silu", "tie_word_embeddings": False,
                "num_key_value_heads": config.get("num_attention_heads")}  # fmt: skip
    found = {}
    for name, default in defaults.items():
        found[name] = config.get(name)
        if found[name] is None:
            found[name] = default
            notes.append(f"{name}: {default}")
    if found["hidden_act"] not in ("silu", "swish"):
        raise ValueError(f"hidden_act {found['hidden_act']!r}: we have silu")
    if not isinstance(found["tie_word_embeddings"], bool):
        raise ValueError(f"tie_word_embeddings is {found['tie_word_embeddings']!r}")
    theta, scaling, positions = from_hf_rope(config, notes)
    model = ModelConfig(
        dim=_whole(config, "hidden_size"),
        n_layers=_whole(config, "num_hidden_layers"),
        n_heads=_whole(config, "num_attention_heads"),
        n_kv_heads=_whole(found, "num_key_value_heads"),
        head_dim=config.get("head_dim") and _whole(config, "head_dim"),
        hidden_dim=_whole(config, "intermediate_size"),
        vocab_size=_whole(config, "vocab_size"),
        tie_embeddings=found["tie_word_embeddings"],
        norm_eps=_number(config, "rms_norm_eps"),
        max_positions=positions,
        theta=theta,
        rope_scaling=scaling,
    )
    return model, notes


def from_meta_params(
    params: dict[str, Any], sizes: dict[str, tuple[int, ...]]
) -> tuple[ModelConfig, list[str]]:
    """The model of a params.json, and what is nowhere written.

    `sizes` are the shapes of the whole tensors: params.json says the width of SwiGLU in a
    roundabout way, and often not the vocabulary.
    """
    notes: list[str] = []
    for name in ("moe_args", "quantization_args", "lora_args", "vision_chunk_size"):
        if params.get(name) not in (None, -1):
            raise ValueError(f"{name} {params[name]!r}: we have no counterpart for it")
    if params.get("rope_theta") is None:
        params = params | {"rope_theta": 10000.0}
        notes.append("rope_theta: 10000, as in Llama 1 and 2")
    theta = _number(params, "rope_theta")
    scaling = None
    if params.get("use_scaled_rope"):
        if params.get("rope_scaling_factor") is None:
            raise ValueError(
                "use_scaled_rope without rope_scaling_factor: it is 8 for Llama 3.1 and 3.3, and "
                "32 for the small models of Llama 3.2; write the one that holds into the file"
            )
        if params.get("rope_high_freq_factor") is None:
            params = params | {"rope_high_freq_factor": 4.0}
            notes.append("rope_high_freq_factor: 4")
        scaling = RopeScaling(
            "llama3", _number(params, "rope_scaling_factor"), original_positions=8192,
            high_freq_factor=_number(params, "rope_high_freq_factor"),
        )  # fmt: skip
    positions = 4096 if theta == 10000 else 8192 if scaling is None else 131072
    notes.append(f"max_positions: {positions}")
    n_heads = _whole(params, "n_heads")
    model = ModelConfig(
        dim=_whole(params, "dim"),
        n_layers=_whole(params, "n_layers"),
        n_heads=n_heads,
        n_kv_heads=params.get("n_kv_heads") and _whole(params, "n_kv_heads"),
        hidden_dim=sizes["layers.0.feed_forward.w1.weight"][0],
        vocab_size=sizes["tok_embeddings.weight"][0],
        tie_embeddings="output.weight" not in sizes,
        norm_eps=_number(params, "norm_eps"),
        max_positions=positions,
        theta=theta,
        rope_scaling=scaling,
    )
    return model, notes


def _whole(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value


def _number(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not a number")
    return float(value)


# --- GGUF ---


def to_gguf_fields(config: ModelConfig) -> dict[str, Any]:
    """The fields of a GGUF file about the model, for llama.cpp's `llama` architecture. (ggml,
    docs/gguf.md)"""
    theta, scaling = theta_and_scaling(config)
    fields = {
        "llama.vocab_size": config.vocab_size,
        "llama.context_length": config.max_positions,
        "llama.embedding_length": config.dim,
        "llama.block_count": config.n_layers,
        "llama.feed_forward_length": config.hidden_dim,
        "llama.attention.head_count": config.n_heads,
        "llama.attention.head_count_kv": config.n_kv_heads,
        "llama.attention.key_length": config.head_dim,
        "llama.attention.value_length": config.head_dim,
        "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
        "llama.rope.dimension_count": config.head_dim,
        "llama.rope.freq_base": float(theta),
    }
    if scaling is not None and scaling.type in ("linear", "yarn"):
        fields |= {
            "llama.rope.scaling.type": scaling.type,
            "llama.rope.scaling.factor": float(scaling.factor),
            "llama.rope.scaling.original_context_length": scaling.original_positions,
        }
    if scaling is not None and scaling.type == "yarn":
        fields |= {
            "llama.rope.scaling.yarn_beta_fast": float(scaling.beta_fast),
            "llama.rope.scaling.yarn_beta_slow": float(scaling.beta_slow),
        }
    return fields


def gguf_rope_factors(config: ModelConfig) -> Tensor | None:
    """What llama.cpp divides each frequency by (`rope_freqs.weight`), (D/2,); None where nothing.

    It has llama3's scaling in this form alone.
    """
    scaling = config.rope_scaling
    if scaling is None or scaling.type != "llama3":
        return None
    plain = rope_frequencies(config.head_dim, config.theta)
    return (plain / scaled_frequencies(scaling, 0, config.head_dim, config.theta)).float()
