"""The checkpoints of a run. A crash at any instant, or a full disk, leaves a whole one.

    last/       model.safetensors and training.pt: what --resume continues from
    previous/   the same of the save before: taken where `last` turns out to be damaged
    best/       model.safetensors
    kept/N/     what `last` was after step N, for --branch-from
    .saving/    what is being written; nobody reads it

How `last` is replaced: each step is complete before the next one begins.

    step                                    stands after a crash that follows it
    write both files into .saving           last  previous
    fsync both files and .saving            last  previous
    remove previous                         last
    rename last to previous                       previous
    rename .saving to last                  last  previous
    fsync the folder of the run             last  previous, now also without power

So `last` or `previous` is whole at every instant, and neither ever names a file that is not on the
disk. Where `last` was found damaged and `previous` loaded in its place, the next save removes
`last` and keeps `previous`. `best` and `kept/N` are written and fsynced in .saving as well, and
then put in place by one rename. training.pt holds the hash of the weights beside it, so that two
files of different saves are not taken for a checkpoint.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from errors import UserError, say
from files import first_line, fsync, remove, sha256, writing

WEIGHTS, TRAINING = "model.safetensors", "training.pt"
T = TypeVar("T")


class Checkpoints:
    """What stands in `last`, `previous` and `best` of the run at `path`."""

    def __init__(self, path: Path):
        self.path = path
        self.last, self.previous, self.best = path / "last", path / "previous", path / "best"
        self.kept = path / "kept"
        self.staging = path / ".saving"
        self._last_is_good = True  # else `previous` is the only whole one

    def save(
        self, name: Literal["last", "best"] | int, weights: dict[str, Tensor],
        training: dict[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint: `last`, or that of a step to keep, with the training state, `best`
        without.

        `weights` are those of the bare module. `training` holds dicts, lists, numbers, text and
        tensors: what `torch.load(weights_only=True)` accepts. UserError where the disk refuses.
        """
        assert (training is None) == (name == "best"), "all but `best` have a training state"
        for key in weights:
            assert not key.startswith(("_orig_mod.", "module.")), f"{key}: save the bare module"
        hint = "the checkpoint before it is kept; make room and --resume"
        with writing(self.path / str(name), hint):
            self._write(weights, training)
            if name == "last":
                self._replace_last()
            elif name == "best":
                self._replace_best()
            else:
                self._replace(self.kept / str(name))
            fsync(self.path)

    def _write(self, weights: dict[str, Tensor], training: dict[str, Any] | None) -> None:
        remove(self.staging)  # of a save that was killed
        self.staging.mkdir()
        file = self.staging / WEIGHTS
        save_file({name: w.detach().contiguous() for name, w in weights.items()}, file)
        if training is not None:
            state = {"training": training, "weights_sha256": sha256(file)}
            with (self.staging / TRAINING).open("wb") as stream:
                torch.save(state, stream)
        fsync(*self.staging.iterdir(), self.staging)

    def _replace_last(self) -> None:
        if self._last_is_good and self.last.exists():
            remove(self.previous)
            os.rename(self.last, self.previous)
        else:
            remove(self.last)
        os.rename(self.staging, self.last)
        self._last_is_good = True

    def _replace_best(self) -> None:
        self.best.mkdir(exist_ok=True)
        os.replace(self.staging / WEIGHTS, self.best / WEIGHTS)
        fsync(self.best)
        self.staging.rmdir()

    def _replace(self, folder: Path) -> None:
        folder.parent.mkdir(exist_ok=True)
        remove(folder)  # of a run that is resumed from before this step
        os.rename(self.staging, folder)
        fsync(folder.parent)

    def load_weights(self, name: Literal["last", "best"] = "best") -> dict[str, Tensor]:
        """The weights on the CPU; those of `last` where no `best` was ever written.

        Raises UserError where they are missing or damaged.
        """
        file = self.best / WEIGHTS
        if name == "best" and file.exists():
            try:
                return _read_weights(file)
            except UserError as error:
                raise UserError(f"{error}: restore it, or remove it to use `last`") from error
        return self._newest(lambda folder: _read_weights(folder / WEIGHTS))

    def load_training(self, step: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights on the CPU and the training state, both of `last` or both of `previous`, or
        of a step that was kept. UserError where they are missing or damaged."""
        if step is None:
            return self._newest(_read_both)
        if step not in self.kept_steps():
            kept = ", ".join(map(str, self.kept_steps())) or "none"
            raise UserError(f"{self.path} kept no checkpoint of step {step}; it has: {kept} "
                            "(--train.keep says which)")
        return _read_both(self.kept / str(step))

    def kept_steps(self) -> list[int]:
        """The steps whose checkpoints stand in kept/, in order."""
        return sorted(int(f.name) for f in self.kept.glob("[0-9]*") if f.name.isdecimal())

    def _newest(self, read: Callable[[Path], T]) -> T:
        """What is read from `last`, or with a warning from `previous` where `last` is damaged."""
        if not self.last.exists() and not self.previous.exists():
            raise UserError(f"{self.path} has no checkpoint yet; choose another run or train again")
        try:
            return read(self.last)
        except UserError as error:
            if not self.previous.exists():
                raise UserError(f"{error}: restore it, or choose another run") from error
            self._last_is_good = False
            say(f"warning: {error}; taking the checkpoint before it, {self.previous}")
            return read(self.previous)


def _read_weights(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise _damaged(file, error) from error


def _read_both(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    file = folder / TRAINING
    weights = _read_weights(folder / WEIGHTS)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        training, digest = state["training"], state["weights_sha256"]
    except Exception as error:  # torch.load has no exception of its own for a damaged file
        raise _damaged(file, error) from error
    if sha256(folder / WEIGHTS) != digest:
        raise UserError(f"{folder / WEIGHTS} is damaged or not the file {file} was saved with")
    return weights, training


def _damaged(file: Path, error: Exception) -> UserError:
    state = f"damaged ({first_line(error)})" if file.exists() else "missing"
    return UserError(f"{file} is {state}")
