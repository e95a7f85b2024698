"""Meta's own folders, read: consolidated.*.pth and params.json. (Meta's llama and llama-models)"""

from pathlib import Path
from typing import Any, TypedDict

import torch

from errors import UserError
from files import check_shape, read_json
from formats.names import tensor_shapes
from formats.run import Imported
from formats.tensors import check_count, check_tensors, stored_pickles
from model.config import ModelConfig, RopeScaling
from model.position import check_position
from model.rope import rope_frequencies


class Sizes(TypedDict):
    dim: int
    n_layers: int
    n_heads: int
    norm_eps: float


class Params(Sizes, total=False):
    """What is read of a params.json."""

    n_kv_heads: int | None
    rope_theta: float | None
    use_scaled_rope: bool | None
    rope_scaling_factor: float | None
    rope_high_freq_factor: float | None


# Sizes that the tensors say, and what only running the model asks for.
UNREAD = {"vocab_size", "hidden_dim", "head_dim", "multiple_of", "ffn_dim_multiplier",
          "max_batch_size", "max_seq_len"}


def read_folder(folder: Path) -> Imported:
    """The model of a folder of Meta's, from one file for each process that trained it.

    Raises UserError that names file and field, or file and tensor, for what is not a LLaMA, is
    damaged, or does not belong together.
    """
    file = folder / "params.json"
    params = read_json(file)
    tensors = stored_pickles(folder, params.get("dim"))
    frequencies = tensors.pop("rope.freqs", None)
    for name in ("tok_embeddings.weight", "layers.0.feed_forward.w1.weight"):
        if name not in tensors:
            raise UserError(f"{name} is in no consolidated.*.pth of {folder}: is it no LLaMA?")
    head = tensors.get("output.weight")
    tied = head is not None and torch.equal(head.read(), tensors["tok_embeddings.weight"].read())
    if tied:  # Meta writes the one matrix of a tied model twice
        del tensors["output.weight"]
    try:
        model, notes = from_params(params, {n: tensor.shape for n, tensor in tensors.items()})
        check_position(model)
    except ValueError as error:
        raise UserError(f"{file}: {error}") from None
    if frequencies is not None:
        found, ours = frequencies.read().float(), rope_frequencies(model.head_dim, model.theta)
        if found.shape != ours.shape or not torch.allclose(found, ours.float(), rtol=0.01):
            raise UserError(f"rope.freqs in {frequencies.file} are not those of rope_theta "
                            f"{model.theta:g}: is {file} that of another model?")
    check_count(tensors, model, file)
    check_tensors(tensors, tensor_shapes(model))
    if tied:
        notes.append("tie_embeddings: true, as output.weight is tok_embeddings.weight")
    return Imported(folder, "Meta", model, tensors, notes)


def from_params(
    params: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> tuple[ModelConfig, list[str]]:
    """The model of a params.json, and what is nowhere written. ValueError for what is not ours.

    `shapes` are those of the whole tensors: params.json says the width of SwiGLU in a
    roundabout way, and often not the vocabulary.
    """
    notes: list[str] = []
    for name, value in params.items():
        if name not in UNREAD | Params.__annotations__.keys() and value not in (None, False, -1):
            raise ValueError(f"{name} {value!r}: we have no counterpart for it; take it out if it "
                             "does not change what the model computes")
    check_shape(params, Params)
    theta, scaling = params.get("rope_theta"), None
    if theta is None:
        theta = 10000.0
        notes.append("rope_theta: 10000, as in Llama 1 and 2")
    if params.get("use_scaled_rope"):
        factor, high = params.get("rope_scaling_factor"), params.get("rope_high_freq_factor")
        if factor is None:
            raise ValueError("use_scaled_rope without rope_scaling_factor: it is 8 for Llama 3.1 "
                             "and 3.3, and 32 for the small models of Llama 3.2; write the one "
                             "that holds into the file")
        if high is None:
            high = 4.0
            notes.append("rope_high_freq_factor: 4")
        scaling = RopeScaling("llama3", factor, original_positions=8192, high_freq_factor=high)
    positions = 4096 if theta == 10000 else 8192 if scaling is None else 131072
    notes.append(f"max_positions: {positions}")
    names = ("dim", "n_layers", "n_heads", "n_kv_heads")
    sizes: dict[str, Any] = {name: params.get(name) for name in names}
    model = ModelConfig(
        **sizes,
        hidden_dim=shapes["layers.0.feed_forward.w1.weight"][0],
        vocab_size=shapes["tok_embeddings.weight"][0],
        tie_embeddings="output.weight" not in shapes,
        norm_eps=float(params["norm_eps"]),
        max_positions=positions,
        theta=float(theta),
        rope_scaling=scaling,
    )
    return model, notes
