"""Folders of other people: a run made of one, or its model used where it lies."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import yaml
from torch import Tensor
from tqdm import tqdm

from data.sources import DataConfig
from data.tokenizer import JSON, open_tokenizer, stated_eos_ids
from errors import UserError, say
from files import read_json, writing
from formats import hf, meta
from formats.names import tensor_names
from formats.tensors import Stored, largest_value
from formats.tokenizers import read_tokenizer
from gyre.checkpoint import WEIGHTS, Checkpoints, write_safetensors
from gyre.compute import check_memory
from gyre.optim import OptimConfig
from gyre.options import Config, TrainConfig
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.config import ModelConfig


def import_folder(folder: Path, target: Path) -> None:
    """Make a new run of a folder. Its tensors pass through memory one at a time.

    Raises UserError for what has no counterpart here, and for files that do not fit.
    """
    RunDir.new_path(target.parent, target.name)  # refuses a name before anything is read
    model, tensors = read_folder(folder)

    def write_weights(folder: Path) -> None:
        with (writing(target, "make room, or choose another place"),
              tqdm(tensors, "importing", unit="tensor", delay=2) as bar):
            weights = (read_finite(name, tensors[name]) for name in bar)
            write_safetensors(folder / WEIGHTS, tensors, weights)

    create_run(target, model, folder,
               lambda run: Checkpoints(run).save("best", write_weights, training=None),
               read_license(folder))
    parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
    say(f"{target}: {parameters:,} parameters from {folder}")


@contextmanager
def open_folder(folder: Path) -> Iterator[tuple[RunDir, Iterator[tuple[str, Tensor]]]]:
    """Yield what `load` takes: a run without weights, in a temporary folder, and the weights, which
    are read one at a time.

    Raises UserError for what an import refuses.
    """
    model, tensors = read_folder(folder)
    with TemporaryDirectory() as spare:
        run = create_run(Path(spare) / "run", model, folder)
        yield run, ((name, read_finite(name, tensor)) for name, tensor in tensors.items())
        run.path = folder


def read_folder(folder: Path) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a folder, and its tensors by our names, in our order and in our layout."""
    for name, read in (("config.json", hf.read_folder), ("params.json", meta.read_folder)):
        file = folder / name
        if file.is_file():
            try:
                model, tensors = read(folder, read_json(file))
                size = 4 * model.max_positions * model.head_dim
                check_memory(torch.device("cpu"), size, f"the table of {model.max_positions} "
                             f"positions in {file}", "write a smaller length into it")
                return model, {ours: tensors[ours] for ours in tensor_names(model, "hf")}
            except (TypeError, ValueError) as error:  # of values that have another type, too
                raise UserError(f"{file}: {error}") from None
    raise UserError(f"{folder} is no folder with config.json (Hugging Face) or params.json (Meta)")


def read_finite(name: str, tensor: Stored) -> Tensor:
    """Read a tensor. Raises UserError for NaN and infinity."""
    weight = tensor.read()
    largest_value(name, weight, tensor.file)
    return weight


def read_license(folder: Path) -> str | None:
    """The license that the README.md of a folder states in its front matter; None without one."""
    from huggingface_hub import metadata_load  # slow to import

    card = folder / "README.md"
    if not card.is_file():
        return None
    try:
        metadata = metadata_load(card)
    except (ValueError, yaml.YAMLError):  # a damaged card is no reason to refuse the weights
        return None
    stated = metadata.get("license") if metadata else None
    return stated if isinstance(stated, str) else None


def create_run(
    target: Path, model: ModelConfig, folder: Path, write: Callable[[Path], None] | None = None,
    license_name: str | None = None,
) -> RunDir:
    """Make a run at `target` of a model from a `folder`, and of the tokenizer there. `write` adds
    the weights; the manifest records `license_name`.

    Prints what may surprise. Raises UserError where the tokenizer does not fit the model.
    """
    scaling = model.rope_scaling
    length = model.max_positions if scaling is None else scaling.original_positions
    origin = {"from": str(folder)}
    if license_name is not None:
        origin["license"] = license_name
    with TemporaryDirectory() as spare:
        tokenizer, files = read_tokenizer(folder, model.vocab_size, Path(spare))
        log = LogConfig(runs=str(target.parent), wandb="disabled")
        data = DataConfig(tokenizer=str(target), vocab_size=tokenizer.vocab_size, seq_len=length)
        config = Config(model=model, data=data, optim=OptimConfig(), train=TrainConfig(), log=log,
                        name=target.name)
        run = RunDir.create(config, tokenizer=files, command=sys.argv, write=write,
                            manifest={"imported": origin})
    print_notes(folder, run)
    return run


def print_notes(folder: Path, run: RunDir) -> None:
    """Print what may surprise about the tokenizer of a run that was made of `folder`."""
    tokenizer = open_tokenizer(run.path)
    file = folder / "config.json"
    for i in dict.fromkeys([*tokenizer.eos_ids, *stated_eos_ids(file)]):
        text = tokenizer.piece(i)
        if text:  # a special token has none
            say(f"note: eos_token_id of {folder} ends texts at id {i}, and the tokenizer there has "
                f"{text.decode(errors='replace')!r} for it: is it that of the model?")
    if not file.is_file():  # Meta's
        return
    bos_id = read_json(file).get("bos_token_id")
    if bos_id is not None and tokenizer.bos_id not in (None, bos_id):
        say(f"note: bos_token_id of {file} is {bos_id}, and the tokenizer there has "
            f"{tokenizer.bos_id}: is it that of the model?")
    if not (run.path / JSON).is_file():
        say(f"note: {folder} has no {JSON}: the ids are sentencepiece's, and transformers gives "
            "others for some texts")
