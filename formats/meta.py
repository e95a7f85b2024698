"""Meta's own folders, read: consolidated.*.pth and params.json.

(Meta's llama and llama-models)
"""

from pathlib import Path
from typing import Any

import msgspec
import torch

from errors import UserError
from files import read_json
from formats.names import tensor_shapes
from formats.tensors import Stored, check_size, check_tensors, stored_pickles
from model.config import ModelConfig, RopeScaling
from model.rope import rope_frequencies


class Params(msgspec.Struct, kw_only=True):
    """The fields of params.json that we read."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int | None = None
    vocab_size: int | None = None
    norm_eps: float
    rope_theta: float | None = None
    use_scaled_rope: bool | None = None
    rope_scaling_factor: float | None = None
    rope_high_freq_factor: float | None = None


# Sizes that the tensors tell, and what only a server needs.
UNREAD = {"hidden_dim", "head_dim", "multiple_of", "ffn_dim_multiplier", "max_batch_size",
          "max_seq_len"}


def read_folder(folder: Path) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a folder of Meta's, with tensors by name.

    Raises UserError, which names file and field or tensor, for other models than LLaMA, for damaged
    files, and for files of different models.
    """
    file = folder / "params.json"
    try:
        params = read_params(read_json(file))
        tensors = stored_pickles(folder, params.dim)
        frequencies = tensors.pop("rope.freqs", None)
        for name in ("tok_embeddings.weight", "layers.0.feed_forward.w1.weight"):
            if name not in tensors:
                raise UserError(f"{name} is in no consolidated.*.pth of {folder}: is it a LLaMA?")
        head, embeddings = tensors.get("output.weight"), tensors["tok_embeddings.weight"]
        if head is not None and torch.equal(head.read(), embeddings.read()):
            del tensors["output.weight"]  # Meta writes the one matrix of a tied model twice
        model = to_model(params, {name: tensor.shape for name, tensor in tensors.items()})
        check_size(tensors, model, file)
        shapes = tensor_shapes(model)
    except ValueError as error:
        raise UserError(f"{file}: {error}") from None
    if frequencies is not None:
        theirs, ours = frequencies.read().float(), rope_frequencies(model.head_dim, model.theta)
        if theirs.shape != ours.shape or not torch.allclose(theirs, ours.float(), rtol=0.01):
            raise UserError(f"rope.freqs in {frequencies.file} are not those of rope_theta "
                            f"{model.theta:g}: is {file} that of another model?")
    check_tensors(tensors, shapes)
    return model, tensors


def read_params(fields: dict[str, Any]) -> Params:
    """The content of a params.json. Raises ValueError for a field that we do not know."""
    for name, value in fields.items():
        if name not in UNREAD.union(Params.__struct_fields__) and value not in (None, False, -1):
            raise ValueError(f"{name} {value!r}: we have no counterpart for it; take it out if it "
                             "does not change what the model computes")
    return msgspec.convert(fields, Params)


def to_model(params: Params, shapes: dict[str, tuple[int, ...]]) -> ModelConfig:
    """The model of a params.json with tensors of these shapes.

    The shapes tell the vocabulary and the width of SwiGLU, which params.json often does not. It
    never says how far positions reach: 4096, 8192 or 131072 is Llama 2's, 3's or 3.1's number.
    """
    theta = 10000.0 if params.rope_theta is None else params.rope_theta  # Llama 1 and 2 say none
    scaling = None
    if params.use_scaled_rope:
        if params.rope_scaling_factor is None:
            raise ValueError("use_scaled_rope without rope_scaling_factor: write it into the file; "
                             "it is 8 for Llama 3.1 and 3.3, and 32 for the small models of 3.2")
        high = 4.0 if params.rope_high_freq_factor is None else params.rope_high_freq_factor
        scaling = RopeScaling("llama3", params.rope_scaling_factor, original_positions=8192,
                              high_freq_factor=high)
    rows = shapes["tok_embeddings.weight"][0]
    if params.vocab_size not in (None, -1, rows):
        raise ValueError(f"vocab_size is {params.vocab_size}, and there are {rows} embeddings: "
                         "they belong to different models, or a part is missing")
    sizes: dict[str, Any] = {name: getattr(params, name)
                             for name in ("dim", "n_layers", "n_heads", "n_kv_heads")}
    return ModelConfig(
        **sizes,
        hidden_dim=shapes["layers.0.feed_forward.w1.weight"][0],
        vocab_size=rows,
        tie_embeddings="output.weight" not in shapes,
        norm_eps=params.norm_eps,
        max_positions=4096 if theta == 10000 else 8192 if scaling is None else 131072,
        theta=theta,
        rope_scaling=scaling,
    )
