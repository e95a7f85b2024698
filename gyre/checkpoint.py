"""The checkpoints of a run. A crash at any instant, or a full disk, leaves a complete one.

    last/       weights, optimizer states and training.pt: --resume continues from it
    previous/   the save before, used if `last` is damaged
    best/       the weights of the lowest validation loss; training.pt has their step
    kept/N/     `last` after step N, for --branch-from
    .saving/    is being written; nobody reads it
    .removing-*/    are being removed

A checkpoint has one safetensors file of weights and one of optimizer states. Rank 0 writes them,
whole: it gathers the tensors of a sharded model one at a time. So any number of processes can
resume from any checkpoint. manifest.json, written last, has the SHA-256 of every other file. They
are compared before tensors are read (`open`).

How `last` is replaced. Each step is complete before the next one begins:

    step                                    a crash after it leaves
    write all files into .saving            last  previous
    fsync all files and .saving             last  previous
    remove previous                         last
    rename last to previous                       previous
    rename .saving to last                  last  previous
    fsync the folder of the run             last  previous, now also without power

If `last` was damaged and `previous` was loaded, the next save removes `last` and keeps `previous`.
`best` is replaced in the same way: .best stands for `previous`, and is removed at the end. A kept
step is written once: a run that takes the step again has removed it before (`forget_after`).
"""

import json
import math
import os
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from errors import UserError, say
from files import fsync, remove, sha256, writing
from gyre.parallel import ALONE, World, gather_tensor

WEIGHTS = "model.safetensors"
STATES = "optimizer.safetensors"
TRAINING = "training.pt"
MANIFEST = "manifest.json"
# The dtypes of our weights, by the names that safetensors files have for them.
SAFETENSORS_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
SAFETENSORS_NAMES = {dtype: name for name, dtype in SAFETENSORS_DTYPES.items()}
# Where a checkpoint is looked for, in this order. While a checkpoint is saved, or after a save was
# killed, there may be only `previous` or `.best`. If no `best` was ever written, `last` is taken.
# `best` is looked at twice. At the first look, a save may have moved it to `.best`. If the save
# ends now, there is a new `best`, and `.best` is removed before it is looked at.
BEST = ("best", ".best", "best")
PLACES = {"last": ("last", "previous"), "best": (*BEST, "last", "previous")}


def as_it_is(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return the tensor by its name: the conversion that changes nothing."""
    return {name: tensor}


Convert = Callable[[str, Tensor], dict[str, Tensor]]
Shapes = Mapping[str, torch.Size]
"""The shape of each weight of a model, by its name."""


class Replaced(UserError):
    """A checkpoint that a training has replaced while it was read."""


@dataclass
class Checkpoints:
    """The checkpoints in the folder of a run."""

    path: Path
    last_is_good: bool = True
    """False: `last` was found damaged, and `previous` is the only complete one."""

    def save(
        self, name: Literal["last", "best"] | int, write: Callable[[Path], object],
        training: dict[str, Any] | None, world: World = ALONE,
    ) -> None:
        """Write a checkpoint: `last`, `best`, or that of a step to keep. All ranks call it.

        `write(folder)` writes the tensors: rank 0 the files, and other ranks take part in gathering
        them. `training` holds dicts, lists, numbers, text and None, for training.pt. Raises
        UserError where the disk refuses.
        """
        staging = self.path / ".saving"
        with writing(self._place(name), "make room and --resume"):
            if world.is_main:
                remove(staging)  # of a save that was killed
                staging.mkdir()
            write(staging)
            if not world.is_main:
                return
            if training is not None:
                with (staging / TRAINING).open("wb") as stream:
                    torch.save(training, stream)
            hashes = {file.name: sha256(file) for file in sorted(staging.iterdir())}
            (staging / MANIFEST).write_text(json.dumps(hashes, indent=1), encoding="utf-8")
            fsync(*staging.iterdir(), staging)
            self._put_in_place(staging, name)

    def _place(self, name: Literal["last", "best"] | int) -> Path:
        """Return the folder in which a checkpoint is saved."""
        if isinstance(name, int):
            return self.path / "kept" / str(name)
        return self.path / name

    def _put_in_place(self, staging: Path, name: Literal["last", "best"] | int) -> None:
        """Rename `staging` to its final name, as the head of this file says."""
        target = self._place(name)
        # The present checkpoint of this name is renamed to `replaced`. `previous` is then kept; any
        # other is removed at the end.
        replaced = self.path / ("previous" if name == "last" else f".{name}")
        target.parent.mkdir(exist_ok=True)
        if name == "last" and not self.last_is_good:
            self._remove(target)
        elif target.exists():
            self._remove(replaced)
            target.rename(replaced)
        staging.rename(target)
        fsync(target.parent, self.path)
        if name == "last":
            self.last_is_good = True
        else:
            self._remove(replaced)

    def _remove(self, folder: Path) -> None:
        """Remove a checkpoint. It loses its name first, so that no reader takes it for damaged."""
        if folder.exists():
            folder.rename(self.path / f".removing-{folder.stat().st_ino}")
            for left in self.path.glob(".removing*"):  # also by a process that was killed
                # NFS keeps a file that a reader has open, and so its folder: the next save tries
                # again.
                with suppress(OSError):
                    remove(left)

    def saved_step(self, name: Literal["last", "best"]) -> int:
        """Return the step of `last` or `best`; 0 if there is none, or if it was imported.

        If `open` has found `last` damaged, the step is that of `previous`.
        """
        if name == "best" and not self.has_best:
            return 0
        if name == "last" and not self.last_is_good:
            return self._read_step(self.path / "previous")
        try:
            folder = self.find(name)
        except UserError:
            return 0
        return self._read_step(folder)

    def _read_step(self, folder: Path) -> int:
        """Return the step of the checkpoint in a folder; 0 if its training.pt cannot be read."""
        try:
            training = self.load_training(folder)
            # best has the step at the top, last under "progress"
            return int(training.get("progress", training)["step"])
        except (UserError, KeyError):
            return 0

    def forget_after(self, step: int) -> None:
        """Remove `best` and what was kept of later steps: a run that resumes at `step` takes those
        steps again, perhaps with other options."""
        for place in ("best", ".best"):  # a save that was killed may have left .best
            if self._read_step(self.path / place) > step:
                self._remove(self.path / place)
        for later in self.kept_steps():
            if later > step:
                self._remove(self.path / "kept" / str(later))

    @contextmanager
    def open(self, name: Literal["last", "best"] | int, world: World = ALONE) -> Iterator[Path]:
        """Yield the folder of a checkpoint to read from, after checking every file in it.

        Falls back from a `best` that was never written to `last`, and from a damaged `last` to
        `previous`, with a warning; the next save then keeps `previous`. The ranks of a `world` call
        this together, and rank 0 checks for all, so that all read the same folder. Raises UserError
        for missing files, and for a folder that a training replaced meanwhile.
        """
        folder = self.find(name)
        previous = self.path / "previous"
        while True:
            with watching(folder):
                damaged = damaged_files(folder) if world.is_main else []
                damaged = world.all_gather(damaged)[0]  # what rank 0 says
                if not damaged:
                    yield folder
                    return
            if folder.name != "last" or not previous.exists():
                raise UserError(f"{damaged[0]} is missing or not what was saved: restore it, or "
                                "choose another checkpoint or run")
            if world.is_main:
                say(f"warning: {damaged[0]} is missing or not what was saved; taking the "
                    f"checkpoint before it, {previous}")
            self.last_is_good = False
            folder = previous

    def find(self, name: Literal["last", "best"] | int) -> Path:
        """Return the folder where this checkpoint stands. Raises UserError if there is none."""
        for place in PLACES.get(str(name), (f"kept/{name}",)):
            folder = self.path / place
            if folder.exists():
                return folder
        if isinstance(name, int):
            kept = ", ".join(map(str, self.kept_steps())) or "none"
            raise UserError(f"{self.path} kept no checkpoint of step {name}; it has: {kept} "
                            "(--train.keep says which)")
        advice = f"train on with --resume {shlex.quote(str(self.path))}, or choose another run"
        if self.can_resume:  # the name is none of ours
            advice = "choose the checkpoint 'best' or 'last', or another run"
        elif self.has_best:  # an imported run has only that, and cannot be resumed
            advice = "choose the checkpoint 'best', or another run"
        raise UserError(f"{self.path} has no checkpoint {name!r}: {advice}")

    def load_training(self, folder: Path) -> dict[str, Any]:
        """Return what `save` was given as `training`. UserError where there is none."""
        try:
            return dict(torch.load(folder / TRAINING, map_location="cpu", weights_only=True))
        except Exception as error:  # torch.load has no exception of its own for a damaged file,
            # and its message may advise to execute what is in it.
            raise UserError(f"{folder / TRAINING} holds no training state: restore it") from error

    def load_weights(
        self, name: Literal["last", "best"] | int = "best", convert: Convert = as_it_is,
        shapes: Shapes | None = None,
    ) -> dict[str, Tensor]:
        """Return the weights, whole, on the CPU; those of `last` where no `best` was ever written.

        `convert(name, weight)` converts one weight at a time, so that no second copy of all of them
        is in memory. A folder that a training replaces meanwhile is read again. UserError where
        files are missing or damaged, and for weights of other `shapes`, if these are given.
        """
        return self.load_saved_weights(name, convert, shapes).weights

    def load_saved_weights(
        self, name: Literal["last", "best"] | int = "best", convert: Convert = as_it_is,
        shapes: Shapes | None = None,
    ) -> "SavedWeights":
        """Return the weights as `load_weights` does, with what the checkpoint says of them."""
        while True:
            with suppress(Replaced), self.open(name) as folder:
                weights: dict[str, Tensor] = {}
                if shapes is not None:
                    check_shapes(folder, shapes)
                for key, weight in read_safetensors(folder / WEIGHTS):
                    weights |= convert(key, weight)
                hashes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
                return SavedWeights(weights, self._read_step(folder), hashes[WEIGHTS])

    def kept_steps(self) -> list[int]:
        """Return the steps whose checkpoints stand in kept/, in order."""
        kept = (self.path / "kept").glob("[0-9]*")
        return sorted(int(folder.name) for folder in kept if folder.name.isdecimal())

    @property
    def has_best(self) -> bool:
        """Whether there is a `best`, or the `.best` that a killed save has left."""
        return any((self.path / place).exists() for place in BEST)

    @property
    def can_resume(self) -> bool:
        """Whether there is a `last` or a `previous` to go on from."""
        return (self.path / "last").exists() or (self.path / "previous").exists()


class SavedWeights(NamedTuple):
    """Weights that were read from a checkpoint."""

    weights: dict[str, Tensor]
    step: int
    """The step after which they were saved; 0 if they were imported."""
    sha256: str
    """The hash of their file."""


@contextmanager
def watching(folder: Path) -> Iterator[None]:
    """Raise Replaced at the end if another process has replaced `folder` meanwhile.

    Replaced is raised instead of an error of what is read, but not instead of a KeyboardInterrupt.
    """
    inode = read_inode(folder)
    with held_open(folder):
        try:
            yield
        except Exception as error:
            check_inode(folder, inode, error)
            raise
        check_inode(folder, inode)


@contextmanager
def held_open(folder: Path) -> Iterator[None]:
    """Keep a folder open, if it is there, so that no other one gets its inode when it is removed.

    Windows cannot open folders, and does not remove what is read.
    """
    with ExitStack() as closing:
        if os.name != "nt":
            with suppress(OSError):  # it is gone, or cannot be listed
                closing.callback(os.close, os.open(folder, os.O_RDONLY))
        yield


def check_inode(folder: Path, inode: int | None, cause: Exception | None = None) -> None:
    """Raise Replaced if `folder` is not the one that had this inode, or if that is None."""
    if inode is None or read_inode(folder) != inode:
        raise Replaced(f"{folder} was replaced while it was read: start again") from cause


def read_inode(folder: Path) -> int | None:
    """Return what tells a folder from another one of the same name; None if there is none."""
    try:
        return folder.stat().st_ino
    except FileNotFoundError:
        return None


def damaged_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint that are missing or have another hash than in its manifest.

    Weights that the manifest does not name are damaged too. If the manifest cannot be read, only it
    is returned.
    """
    manifest = folder / MANIFEST
    damaged = []
    try:
        hashes = dict(json.loads(manifest.read_text(encoding="utf-8")))
        for name in sorted({WEIGHTS, *hashes}):
            file = folder / name
            if not file.is_file() or sha256(file) != hashes.get(name):
                damaged.append(file)
    except (FileNotFoundError, IsADirectoryError, TypeError, ValueError, RecursionError):
        return [manifest]
    return damaged


def weight_shapes(model: torch.nn.Module) -> Shapes:
    """Return the shapes of the weights of a model, whole if it is sharded."""
    return {name: weight.shape for name, weight in model.state_dict().items()}


def check_shapes(folder: Path, shapes: Shapes) -> None:
    """Raise UserError if a checkpoint has other weights than these, such as another run's."""
    with safe_open(folder / WEIGHTS, "pt", backend="pread") as stored:
        found = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.offset_keys()}
    wanted = {name: tuple(shape) for name, shape in shapes.items()}
    for name in sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            raise UserError(
                f"the weights in {folder} are not those of the model ({name} has the shape "
                f"{found.get(name, 'none')}, and in the model "
                f"{wanted.get(name, 'none')}): restore the folder, or choose another run")


def read_safetensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a safetensors file on the CPU, one at a time, the largest first: then
    most memory is free for what is made of it."""
    # Not mapped, because a map stays in memory until the last tensor is freed.
    with safe_open(file, "pt", backend="pread") as stored:
        sizes = {name: math.prod(stored.get_slice(name).get_shape())
                 for name in stored.offset_keys()}
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            yield name, stored.get_tensor(name)


def write_tensors(folder: Path, files: Mapping[str, Mapping[str, Tensor]], world: World) -> None:
    """Write files, by name, each with its own tensors, on rank 0. All ranks call this, and gather
    sharded tensors one at a time."""
    for file, tensors in files.items():
        whole = (gather_tensor(tensor.detach()).cpu() for tensor in tensors.values())
        if world.is_main:
            write_safetensors(folder / file, tensors, whole)
        else:
            deque(whole, maxlen=0)  # take part in gathering


def write_safetensors(file: Path, like: Mapping[str, Any], tensors: Iterable[Tensor]) -> None:
    """Write a safetensors file from tensors that come one at a time.

    `like` gives their names, in their order, and for each the dtype, shape and nbytes. The
    package's own writer wants all tensors at once. The format: eight bytes for the length of the
    table, the table in JSON, the data without gaps. (safetensors, "Format")
    """
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in like.items():
        start = end
        end += tensor.nbytes
        dtype = SAFETENSORS_NAMES[tensor.dtype]
        table[name] = {"dtype": dtype, "shape": tuple(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)  # the data starts at a multiple of 8
    with file.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        for data in tensors:
            stream.write(data.contiguous().view(-1).view(torch.uint8).numpy().data)
