"""Reading the files of a checkpoint."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from errors import UserError
from files import first_line, sha256


def read_weights(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise _damaged(file, error) from error


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    weights_file, file = folder / "model.safetensors", folder / "training.pt"
    weights = read_weights(weights_file)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        training, digest = state["training"], state["weights_sha256"]
    except Exception as error:  # torch.load has no exception of its own for a damaged file
        raise _damaged(file, error) from error
    if sha256(weights_file) != digest:
        raise UserError(f"{weights_file} is damaged or not the file {file} was saved with")
    return weights, training


def _damaged(file: Path, error: Exception) -> UserError:
    state = f"damaged ({first_line(error)})" if file.exists() else "missing"
    return UserError(f"{file} is {state}")
