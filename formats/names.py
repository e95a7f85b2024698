"""Names and layouts of tensors at Hugging Face and in GGUF, and which models they cannot hold.

Meta's names and layout are ours.

Sources: transformers' `modeling_llama.py`, Meta's `llama`, and llama.cpp's `llama` architecture.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from errors import UserError
from model.config import ModelConfig, RopeScaling
from model.rope import ntk_theta
from model.transformer import Transformer

Target = Literal["hf", "gguf"]
TARGETS = {"hf": "Hugging Face's LlamaForCausalLM", "gguf": "llama.cpp"}

# Ours (and Meta's), Hugging Face's, GGUF's. The prefix of a layer is `layers.N.`, `model.layers.N.`
# and `blk.N.`, and all names end in `.weight`.
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


def to_model(fields: dict[str, Any]) -> ModelConfig:
    """The ModelConfig with these fields, read from a file; None stands for the default.

    Raises ValueError for a missing field without a default, and for wrong types and values.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    for name in ("dim", "n_layers", "n_heads", "vocab_size", "max_positions", "norm_eps"):
        if name not in given:
            raise ValueError(f"it does not say what {name} is")
    try:
        return msgspec.convert(given, ModelConfig)
    except UserError as error:
        raise ValueError(str(error)) from None


@contextmanager
def respelling(spellings: dict[str, str]) -> Iterator[None]:
    """Turn errors of ModelConfig and RopeScaling into a ValueError with another format's names."""
    try:
        yield
    except (UserError, ValueError) as error:
        raise ValueError(respell(str(error), spellings)) from None


def respell(message: str, spellings: dict[str, str]) -> str:
    """A message about fields of ModelConfig and RopeScaling, with the names of another format.

    What stands behind a dot, as in rope.scaling.factor, is a name of that format already.
    """
    return re.sub(r"(?<!\w\.)\b(model\.)?(rope_scaling\.)?(\w+)",
                  lambda field: spellings.get(field[3], field[0]), message)


def tensor_names(config: ModelConfig, layout: Target) -> dict[str, str]:
    """{our name: theirs} of every tensor of this model, in the order in which they are written.

    Raises ValueError for a model with a weight that has no name there: without it, the other model
    would be a different one.
    """
    column, layers = {"hf": (1, "model.layers"), "gguf": (2, "blk")}[layout]
    pairs = [(row[0], row[column]) for row in TOP
             if row[0] != "output" or not config.tie_embeddings]
    for n in range(config.n_layers):
        pairs += [(f"layers.{n}.{row[0]}", f"{layers}.{n}.{row[column]}") for row in LAYER]
    names = {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in pairs}
    nameless = [name for name in tensor_shapes(config) if name not in names]
    if nameless:
        raise ValueError(f"{TARGETS[layout]} has no name for the weight {nameless[0]}")
    return names


@lru_cache(maxsize=1)  # who asks for the names of a model asks for its shapes too
def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """{our name: shape} of every tensor of this model, without building it. Not to be changed."""
    with torch.device("meta"):
        skeleton = Transformer(replace(config, max_positions=1))  # no table as long as the context
    return {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}


def relayout(name: str, weight: Tensor, head_dim: int, to: Literal["halves", "pairs"]) -> Tensor:
    """Our tensor `name` with the two channels of a rotation moved: the rows of wq or wk
    (heads * D, C). Other tensors have no layout and stay as they are.

    "pairs" is ours, Meta's and GGUF's: channels 2i and 2i+1 of a head turn together. "halves" is
    Hugging Face's: channels i and i + D/2 do. Read as a grid, one is the transpose of the other.
    The number of heads does not enter, so grouped keys are no special case.
    """
    if not name.endswith(("attention.wq.weight", "attention.wk.weight")):
        return weight
    grid = (head_dim // 2, 2) if to == "halves" else (2, head_dim // 2)
    return weight.unflatten(0, (-1, *grid)).transpose(1, 2).reshape(weight.shape)


def theta_and_scaling(config: ModelConfig) -> tuple[float, RopeScaling | None]:
    """The base and the scaling, without ntk, which only changes the base."""
    scaling = config.rope_scaling
    if scaling is not None and scaling.type == "ntk":
        return ntk_theta(config.theta, scaling.factor, config.head_dim), None
    return config.theta, scaling


def refuse_without_counterpart(config: ModelConfig, layout: Target) -> None:
    """Raise ValueError for a model that the runtimes of this format cannot compute."""
    _, scaling = theta_and_scaling(config)
    target = TARGETS[layout]
    if config.position != "rope":
        raise ValueError(f"model.position {config.position}: {target} knows only rope, and would "
                         "use it instead")
    if config.partial != 1 and layout == "gguf":
        raise ValueError(f"model.partial {config.partial}: {target} rotates every pair of channels")
    if config.partial != 1 and scaling is not None:
        raise ValueError(f"model.partial {config.partial}: {target} cannot scale rotations of "
                         "which some stand still")
    if layout == "hf" and config.dim % config.n_heads != 0:
        raise ValueError(f"model.dim {config.dim} is not divisible by model.n_heads "
                         f"{config.n_heads}: {target} refuses that, whatever head_dim is")
    if layout == "gguf" and scaling is not None and scaling.type == "dynamic":
        raise ValueError(f"model.rope_scaling.type dynamic: {target} has no rotations that depend "
                         "on the length; linear, ntk, yarn and llama3 can be written")


def misreading(config: ModelConfig, layout: Target, adds_space: bool) -> str | None:
    """A sentence about programs that read this format and compute another model, or read other ids,
    without an error; None if none is known. docs/interop.md has the table.

    adds_space: whether the tokenizer puts a space in front of texts.
    """
    _, scaling = theta_and_scaling(config)
    if layout == "gguf":
        faults = []
        if scaling is not None:
            faults.append("transformers 5.24.0 drops the scaling of a GGUF")
        if not adds_space:
            faults.append("transformers 5.24.0 and mistral.rs 0.9.5 put a space in front of texts, "
                          "though this GGUF says not to")
        if not faults:
            return None
        return f"{', and '.join(faults)}, without a warning: export with --to hf for them"
    if scaling is None:
        return None
    if scaling.type == "dynamic":
        return ("past the original length of rope_scaling.type dynamic, optimum-onnx 0.1.0 "
                "computes another model without a warning, and vLLM 0.32.0 computes NaN")
    if scaling.type == "llama3":
        return ("ctranslate2 4.8.5 drops rope_scaling.type llama3 without a warning, and computes "
                "another model")
    if scaling.type == "yarn" and scaling.attention_factor is not None:
        return ("mlx-lm 0.32.2 drops rope_scaling.attention_factor without a warning, and computes "
                "another model")
    return None
