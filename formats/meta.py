"""Meta's own folders, read: consolidated.*.pth and params.json.

(Meta's llama and llama-models)
"""

from pathlib import Path
from typing import Any

import torch

from errors import UserError
from formats import names
from formats.tensors import Stored, check_size, check_tensors, stored_pickles
from model.config import ModelConfig
from model.rope import rope_frequencies

# Fields of params.json: those that we read, sizes that follow from tensors or other fields, and
# what only a server needs.
FIELDS = {"dim", "n_layers", "n_heads", "n_kv_heads", "norm_eps", "vocab_size", "rope_theta",
          "use_scaled_rope", "rope_scaling_factor", "rope_high_freq_factor", "hidden_dim",
          "head_dim", "multiple_of", "ffn_dim_multiplier", "max_batch_size", "max_seq_len"}


def read_folder(folder: Path, params: dict[str, Any]) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a folder of Meta's with this params.json, and its tensors by name, in our order.

    Raises ValueError and UserError, which name field, file or tensor, for other models than LLaMA,
    for damaged files, and for files of different models.
    """
    tensors = stored_pickles(folder, params.get("dim"))
    frequencies = tensors.pop("rope.freqs", None)
    for name in ("tok_embeddings.weight", "layers.0.feed_forward.w1.weight"):
        if name not in tensors:
            raise UserError(f"{name} is in no consolidated.*.pth of {folder}: is it a LLaMA?")
    head = tensors.get("output.weight")
    embeddings = tensors["tok_embeddings.weight"]
    if head is not None and torch.equal(head.read(), embeddings.read()):
        del tensors["output.weight"]  # Meta writes the one matrix of a tied model twice
    model = to_model(params, {name: tensor.shape for name, tensor in tensors.items()})
    check_size(tensors, model)
    if frequencies is not None:
        check_frequencies(frequencies, model)
    check_tensors(tensors, names.tensor_shapes(model))
    # Names of either format are in our order.
    return model, {ours: tensors[ours] for ours in names.tensor_names(model, "hf")}


def check_frequencies(frequencies: Stored, model: ModelConfig) -> None:
    """Raise ValueError unless these rope.freqs (D/2,) are those of the model."""
    theirs = frequencies.read().float()  # often bfloat16
    ours = rope_frequencies(model.head_dim, model.theta).float()
    if theirs.shape != ours.shape or not torch.allclose(theirs, ours, rtol=0.01):
        raise ValueError(f"rope.freqs in {frequencies.file} are not those of rope_theta "
                         f"{model.theta:g}: are the two of different models?")


def to_model(params: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> ModelConfig:
    """The model of a params.json with tensors of these shapes.

    The shapes tell the vocabulary and the width of SwiGLU, which params.json often does not. It
    never says how far positions reach: 4096, 8192 or 131072 is Llama 2's, 3's or 3.1's number.
    Raises ValueError for a field that we do not know.
    """
    for name, value in params.items():
        if name not in FIELDS and value not in (None, False, -1):
            raise ValueError(f"{name} {value!r}: we have no counterpart for it; take it out if it "
                             "does not change what the model computes")
    theta = params.get("rope_theta") or 10000.0  # Llama 1 and 2 say none
    scaling = None
    if params.get("use_scaled_rope"):
        if params.get("rope_scaling_factor") is None:
            raise ValueError("use_scaled_rope without rope_scaling_factor: write it into the file; "
                             "it is 8 for Llama 3.1 and 3.3, and 32 for the small models of 3.2")
        scaling = {"type": "llama3", "factor": params["rope_scaling_factor"],
                   "original_positions": 8192,
                   "high_freq_factor": params.get("rope_high_freq_factor") or 4.0}
    if theta == 10000:
        max_positions = 4096
    elif scaling is None:
        max_positions = 8192
    else:
        max_positions = 131072
    rows = shapes["tok_embeddings.weight"][0]
    if params.get("vocab_size") not in (None, -1, rows):
        raise ValueError(f"vocab_size is {params['vocab_size']}, and there are {rows} embeddings: "
                         "they belong to different models, or a part is missing")
    return names.to_model({
        **{name: params.get(name) for name in ("dim", "n_layers", "n_heads", "n_kv_heads")},
        "hidden_dim": shapes["layers.0.feed_forward.w1.weight"][0],
        "vocab_size": rows,
        "tie_embeddings": "output.weight" not in shapes,
        "norm_eps": params.get("norm_eps"),
        "max_positions": max_positions,
        "theta": theta,
        "rope_scaling": scaling,
    })
