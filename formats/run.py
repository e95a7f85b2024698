"""The two ends of every conversion: a run to be exported, and a run made of what was imported."""

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from tqdm import tqdm

from data.dataset import DataConfig
from data.tokenizer import Tokenizer
from errors import UserError
from files import require_space
from formats.names import Target, refuse_without_counterpart, tensor_names, tensor_shapes
from formats.tensors import Stored, check_tensors
from formats.tokenizers import read_tokenizer
from gyre.checkpoint import METADATA, write_safetensors
from gyre.device import check_memory
from gyre.load import read_run
from gyre.optim import OptimConfig
from gyre.options import Config, TrainConfig
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.config import ModelConfig


@dataclass
class Exported:
    """A run with all that an export needs, checked."""

    run: RunDir
    config: Config
    weights: dict[str, Tensor]
    tokenizer: Tokenizer

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        return sum(weight.numel() for weight in self.weights.values())

    @property
    def dtype(self) -> torch.dtype:
        """That of all weights; float32 where they differ, which holds each of them."""
        found = {weight.dtype for weight in self.weights.values()}
        return found.pop() if len(found) == 1 else torch.float32


def open_run(path: Path, to: Target) -> Exported:
    """The run at `path` with its best weights. UserError where it has no counterpart in `to`."""
    run = RunDir.open(path)
    config, tokenizer = read_run(run)
    try:
        refuse_without_counterpart(config.model, to)
    except ValueError as error:
        raise UserError(f"{path} cannot be exported to {to}: {error}") from None
    weights = run.load_weights()
    stored = {name: Stored(path, w.dtype, tuple(w.shape), w.clone) for name, w in weights.items()}
    check_tensors(stored, tensor_shapes(config.model))
    return Exported(run, config, weights, tokenizer)


@dataclass
class Imported:
    """What a folder of somebody else's holds, by our names and in our layout."""

    folder: Path
    kind: str
    """Whose format it is."""
    model: ModelConfig
    tensors: dict[str, Stored]
    notes: list[str]
    """What its configuration left to a default, and the value."""


def create_run(imported: Imported, target: Path) -> int:
    """Make a new run at `target` and return how many numbers its weights are.

    Adds to `imported.notes`. Tensors pass through memory one by one. UserError where the tokenizer
    does not fit the model, or the run cannot be written.
    """
    folder, model = imported.folder, imported.model
    check_memory(torch.device("cpu"), 4 * model.max_positions * model.head_dim,
                   f"a table of rotations for the {model.max_positions} positions of {folder}",
                   "is their number, or the factor of its RoPE, right?")
    scaling = model.rope_scaling
    length = model.max_positions if scaling is None else scaling.original_positions
    tensors = {name: imported.tensors[name] for name in tensor_names(model, "hf")}
    require_space(target, sum(tensor.nbytes for tensor in tensors.values()))

    def write_best(file: Path) -> None:
        with tqdm(tensors.values(), "importing", unit="tensor", delay=2) as bar:
            write_safetensors(file, tensors, (tensor.read() for tensor in bar), METADATA)

    with TemporaryDirectory() as spare:
        tokenizer, files = read_tokenizer(folder, model.vocab_size, Path(spare), imported.notes)
        log = LogConfig(runs=str(target.parent), wandb="disabled")
        data = DataConfig(tokenizer=str(target), vocab_size=tokenizer.vocab_size, seq_len=length)
        config = Config(model=model, data=data, optim=OptimConfig(), train=TrainConfig(), log=log,
                        name=target.name)
        RunDir.create(
            log, target.name, config_yaml=config.to_yaml(), config={},
            manifest={"imported": {"from": str(folder), "format": imported.kind}},
            tokenizer=files, write_best=write_best,
        )
    return sum(math.prod(tensor.shape) for tensor in tensors.values())
