"""The two ends of every conversion: a run to be exported, and a run made of an imported model."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from tqdm import tqdm

from data.dataset import DataConfig
from data.tokenizer import Tokenizer, open_tokenizer
from errors import UserError
from files import writing
from formats.names import Target, refuse_without_counterpart, tensor_names, tensor_shapes
from formats.tensors import Stored, check_tensors, largest_value
from formats.tokenizers import read_tokenizer
from gyre.checkpoint import WEIGHTS, Checkpoints, write_safetensors
from gyre.optim import OptimConfig
from gyre.options import Config, TrainConfig, read_config
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.config import ModelConfig


@dataclass
class Exported:
    """A run with its best weights, checked."""

    run: RunDir
    config: Config
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    names: dict[str, str]
    """Our name of every weight, and the other format's."""
    parameters: int
    dtype: torch.dtype
    """That of all weights; float32 where they differ, which holds each of them."""


def open_run(path: Path, to: Target) -> Exported:
    """The run at `path` with its best weights. UserError where it has no counterpart in `to`."""
    run = RunDir.open(path)
    config, tokenizer = read_config(run.path / "config.yaml"), open_tokenizer(path)
    try:
        refuse_without_counterpart(config.model, to)
        names = tensor_names(config.model, to)
    except ValueError as error:
        raise UserError(f"{path} cannot be exported to {to}: {error}") from None
    weights = run.checkpoints.load_weights()
    stored = {name: Stored(path, w.dtype, tuple(w.shape), w.clone) for name, w in weights.items()}
    check_tensors(stored, tensor_shapes(config.model))
    dtypes = {weight.dtype for weight in weights.values()}
    return Exported(run, config, tokenizer, weights, names,
                    parameters=sum(weight.numel() for weight in weights.values()),
                    dtype=dtypes.pop() if len(dtypes) == 1 else torch.float32)


def create_run(
    target: Path, model: ModelConfig, tensors: dict[str, Stored], folder: Path, kind: str
) -> int:
    """Make a new run at `target` of an imported model and return its number of parameters.

    tensors: by our names and in our layout; they pass through memory one at a time.
    folder: where they, the tokenizer and the configuration come from, in the format `kind`.
    Raises UserError where the tokenizer does not fit the model, or a weight is not finite.
    """
    scaling = model.rope_scaling
    length = model.max_positions if scaling is None else scaling.original_positions
    tensors = {name: tensors[name] for name in tensor_names(model, "hf")}

    def write_weights(folder: Path) -> list[Path]:
        def read(name: str) -> Tensor:
            weight = tensors[name].read()
            largest_value(name, weight, tensors[name].file)
            return weight

        with (writing(target, "make room, or choose another place"),
              tqdm(tensors, "importing", unit="tensor", delay=2) as bar):
            write_safetensors(folder / WEIGHTS, tensors, map(read, bar))
        return [folder / WEIGHTS]

    with TemporaryDirectory() as spare:
        tokenizer, files = read_tokenizer(folder, model.vocab_size, Path(spare))
        log = LogConfig(runs=str(target.parent), wandb="disabled")
        data = DataConfig(tokenizer=str(target), vocab_size=tokenizer.vocab_size, seq_len=length)
        config = Config(model=model, data=data, optim=OptimConfig(), train=TrainConfig(), log=log,
                        name=target.name)
        RunDir.create(
            config, tokenizer=files, manifest={"imported": {"from": str(folder), "format": kind}},
            command=sys.argv,
            write=lambda run: Checkpoints(run).save("best", write_weights, training=None),
        )
    return sum(math.prod(tensor.shape) for tensor in tensors.values())
