"""Models of other people, folders and GGUF: a run made of one, or its model used where it lies."""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from torch import Tensor
from tqdm import tqdm

from data.sources import DataConfig
from data.tokenizer import JSON_FILE, open_tokenizer, stated_eos_ids
from errors import UserError, say
from files import read_json, writing
from formats import gguf_in, gguf_tokenizers, hf, meta
from formats.tensors import Stored, largest_value
from formats.tokenizers import read_tokenizer
from gyre.checkpoint import WEIGHTS, Checkpoints, write_safetensors
from gyre.memory import check_table
from gyre.optim import OptimConfig
from gyre.options import Config, TrainConfig
from gyre.rundir import RunDir, is_gguf
from gyre.wandb_log import LogConfig
from model.config import ModelConfig


def import_model(source: Path, target: Path) -> None:
    """Make a new run of a folder or GGUF. Its tensors pass through memory one at a time.

    Raises UserError for what has no counterpart here, and for files that do not fit.
    """
    RunDir.new_path(target.parent, target.name)  # refuses a name before anything is read
    with read_source(source) as foreign:

        def write_weights(folder: Path) -> None:
            with (writing(target, "make room, or choose another place"),
                  tqdm(foreign.tensors, "importing", unit="tensor", delay=2) as bar):
                weights = (read_finite(name, foreign.tensors[name]) for name in bar)
                write_safetensors(folder / WEIGHTS, foreign.tensors, weights)

        create_imported_run(target, foreign, "make room, or choose another place",
                            lambda run: Checkpoints(run).save("best", write_weights, training=None),
                            read_license(source))
    parameters = sum(math.prod(tensor.shape) for tensor in foreign.tensors.values())
    say(f"{target}: {parameters:,} parameters from {source}")


@contextmanager
def open_model(source: Path) -> Iterator[tuple[RunDir, Iterator[tuple[str, Tensor]]]]:
    """Yield what `load` takes: a run without weights, in a temporary folder, and the weights, which
    are read one at a time.

    Raises UserError for what an import refuses.
    """
    with read_source(source) as foreign, spare_folder(source) as spare:
        run = create_imported_run(spare, foreign, "make room in the folder of temporary files, or "
                                  "name another one by the variable TMPDIR")
        yield run, ((name, read_finite(name, tensor)) for name, tensor in foreign.tensors.items())


@dataclass(frozen=True)
class Foreign:
    """A model of other people."""

    source: Path
    """Its folder or its GGUF."""
    model: ModelConfig
    tensors: dict[str, Stored]
    """By our names, in our order and in our layout."""
    tokenizer: Path
    """A folder with the files of its tokenizer."""


@contextmanager
def read_source(source: Path) -> Iterator[Foreign]:
    """Yield the model of a folder or GGUF. The tokenizer of a GGUF is in a temporary folder.

    Raises UserError for what has no counterpart here, and for files that do not fit.
    """
    if not is_gguf(source):
        model, tensors = read_folder(source)
        yield Foreign(source, model, tensors, tokenizer=source)
        return
    with spare_folder(source) as spare:
        model, tensors = read_gguf(source, spare)
        yield Foreign(source, model, tensors, tokenizer=spare)


@contextmanager
def spare_folder(source: Path) -> Iterator[Path]:
    """Yield the path of a temporary folder, which is not there yet, for what is made of `source`.

    A UserError about something in it names the source instead.
    """
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        try:
            yield folder
        except UserError as error:
            message = str(error).replace(f"{folder}{os.sep}", f"{source}: ")
            raise UserError(message.replace(str(folder), str(source))) from error


def read_gguf(file: Path, folder: Path) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a GGUF, and its tensors by our names. Writes its tokenizer into `folder`."""
    folder.mkdir()
    fields, stored = gguf_in.open_gguf(file)
    try:
        model, tensors = gguf_in.read_model(fields, stored)
        check_table(model, f"in {file}", "write a smaller length into it")
        gguf_tokenizers.write_tokenizer(fields, folder)
    except (TypeError, ValueError) as error:  # of fields that have another type, too
        raise UserError(f"{file}: {error}") from None
    return model, tensors


def read_folder(folder: Path) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a folder, and its tensors by our names, in our order and in our layout."""
    for name, read in (("config.json", hf.read_folder), ("params.json", meta.read_folder)):
        file = folder / name
        if file.is_file():
            try:
                model, tensors = read(folder, read_json(file))
                check_table(model, f"in {file}", "write a smaller length into it")
                return model, tensors
            except (TypeError, ValueError) as error:  # of values that have another type, too
                raise UserError(f"{file}: {error}") from None
    raise UserError(f"{folder} is no folder with config.json (Hugging Face) or params.json (Meta), "
                    "and no GGUF file")


def read_finite(name: str, tensor: Stored) -> Tensor:
    """Read a tensor. Raises UserError for NaN and infinity."""
    weight = tensor.read()
    largest_value(name, weight, tensor.file)
    return weight


def read_license(source: Path) -> str | None:
    """The license that the README.md of a folder states in its front matter; None without one, and
    for a GGUF."""
    if is_gguf(source):
        return None
    card = source / "README.md"
    if not card.is_file():
        return None
    from huggingface_hub import metadata_load  # slow to import, and seldom needed

    try:
        metadata = metadata_load(card)
    except (ValueError, RecursionError, yaml.YAMLError):
        return None  # a damaged card is no reason to refuse the weights
    stated = metadata.get("license") if metadata else None
    return stated if isinstance(stated, str) else None


def create_imported_run(
    target: Path, foreign: Foreign, advice: str, write: Callable[[Path], None] | None = None,
    license_name: str | None = None,
) -> RunDir:
    """Make a run at `target` of a model and its tokenizer. `write` adds the weights; the manifest
    records `license_name`. `advice` says what to do if the disk refuses to write.

    Prints what may surprise. Raises UserError where the tokenizer does not fit the model.
    """
    model = foreign.model
    scaling = model.rope_scaling
    # No file says how long the rows of the training were, and data.seq_len has to be a number: the
    # length before scaling stands in, as far as the model goes.
    original_length = model.max_positions
    if scaling is not None:
        original_length = min(original_length, scaling.original_positions)
    origin = {"from": str(foreign.source)}
    if license_name is not None:
        origin["license"] = license_name
    with TemporaryDirectory() as spare:
        n_ids, files = read_tokenizer(foreign.tokenizer, model.vocab_size, Path(spare))
        log = LogConfig(runs=str(target.parent), wandb="disabled")
        data = DataConfig(tokenizer=str(target), vocab_size=n_ids, seq_len=original_length)
        config = Config(model=model, data=data, optim=OptimConfig(), train=TrainConfig(), log=log,
                        name=target.name)
        run = RunDir.create(config, tokenizer=files, command=sys.argv, write=write,
                            manifest={"imported": origin}, advice=advice)
    print_import_notes(foreign.source, run)
    return run


def print_import_notes(source: Path, run: RunDir) -> None:
    """Print what may surprise about the tokenizer of a run that was made of `source`."""
    tokenizer = open_tokenizer(run.path)
    file = source / "config.json"
    for i in dict.fromkeys([*tokenizer.eos_ids, *stated_eos_ids(file)]):
        text = tokenizer.piece(i)
        if text:  # a special token has none
            say(f"note: eos_token_id of {source} ends texts at id {i}, and the tokenizer there has "
                f"{text.decode(errors='replace')!r} for it: is it that of the model?")
    if not file.is_file():  # Meta's, or a GGUF
        return
    bos_id = read_json(file).get("bos_token_id")
    if bos_id is not None and tokenizer.bos_id not in (None, bos_id):
        say(f"note: bos_token_id of {file} is {bos_id}, and the tokenizer there has "
            f"{tokenizer.bos_id}: is it that of the model?")
    if not (run.path / JSON_FILE).is_file():
        say(f"note: {source} has no {JSON_FILE}: the ids are sentencepiece's, and transformers "
            "gives others for some texts")
