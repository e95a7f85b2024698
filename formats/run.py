"""A run to be exported."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from data.tokenizer import Tokenizer, open_tokenizer
from errors import UserError
from formats.names import Target, refuse_without_counterpart, tensor_names, tensor_shapes
from formats.tensors import Stored, check_tensors
from gyre.rundir import RunDir
from gyre.yaml_files import read_config
from model.config import ModelConfig


@dataclass
class Exported:
    """A run with its best weights, checked."""

    run: RunDir
    model: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    names: dict[str, str]
    """Our name of every weight, and the other format's."""
    dtype: torch.dtype
    """That of all weights; float32 where they differ, which holds each of them."""
    step: int
    """The step after which they were saved; 0 for a run that was imported."""


def load_for_export(path: Path, layout: Target, to: str) -> Exported:
    """The run at `path` with its best weights. UserError where it has no counterpart in `layout`.

    `to` is what the user asked for, which errors name.
    """
    run = RunDir.open(path)
    path = run.path  # what was given can be a name
    model = read_config(path / "config.yaml").model
    try:
        refuse_without_counterpart(model, layout)
        names = tensor_names(model, layout)
    except ValueError as error:
        raise UserError(f"{path} cannot be exported to {to}: {error}") from None
    run.note_missing_best()
    weights, step, _ = run.checkpoints.load_saved_weights()
    stored = {name: Stored(path, weight.dtype, tuple(weight.shape), weight.clone)
              for name, weight in weights.items()}
    check_tensors(stored, tensor_shapes(model))
    dtypes = {weight.dtype for weight in weights.values()}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    return Exported(run, model, open_tokenizer(path), weights, names, dtype, step)
