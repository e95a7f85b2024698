"""The checkpoints of a run. A crash at any instant, or a full disk, leaves a whole one.

    last/       model.safetensors and training.pt: what --resume continues from
    previous/   the same of the save before: taken where `last` turns out to be damaged
    best/       model.safetensors
    kept/N/     what `last` was after step N, for --branch-from
    .saving/    what is being written; nobody reads it

Of a model of which every process has a part, `last` and kept/N hold training.pt, a file of each
process and parts.json with the hashes of all of them; any number of processes can go on from it.

How `last` is replaced: each step is complete before the next one begins.

    step                                    stands after a crash that follows it
    write all files into .saving            last  previous
    fsync all files and .saving             last  previous
    remove previous                         last
    rename last to previous                       previous
    rename .saving to last                  last  previous
    fsync the folder of the run             last  previous, now also without power

So `last` or `previous` is whole at every instant, and neither ever names a file that is not on the
disk. Where `last` was found damaged and `previous` loaded in its place, the next save removes
`last` and keeps `previous`. `best` and `kept/N` are written and fsynced in .saving as well, and
then put in place by one rename.

The metadata of model.safetensors hold two hashes, which are checked whenever it is read: that of
the file itself ("sha256", see `seal`), and that of the training.pt beside it ("training.pt"), so
that two files of different saves are not taken for a checkpoint. In one file with the weights they
cannot be of another save. Runs from before there were any have the hash of the weights in
training.pt.
"""

import hashlib
import json
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from errors import UserError, say
from files import first_line, fsync, json_sha256, read_json, remove, sha256, stage_json, writing
from gyre.parallel import World, is_divided, whole

WEIGHTS, TRAINING, PARTS = "model.safetensors", "training.pt", "parts.json"
HINT = "the checkpoint before it is kept; make room and --resume"
ALONE = World(0, 1, torch.device("cpu"))
METADATA = {"format": "pt", "sha256": "0" * 64}  # of a model.safetensors that is to be sealed
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

        `weights` are those of the bare module; of a divided one, the other processes must call
        `whole` on the same weights in the same order. `training` holds dicts, lists, numbers, text
        and tensors: what `torch.load(weights_only=True)` accepts. UserError where the disk refuses.
        """
        assert (training is None) == (name == "best"), "all but `best` have a training state"
        for key in weights:
            assert not key.startswith(("_orig_mod.", "module.")), f"{key}: save the bare module"
        with writing(self.path / str(name), HINT):
            self._write(weights, training)
            self._put_in_place(name)

    def _put_in_place(self, name: Literal["last", "best"] | int) -> None:
        """Let what is in .saving become a checkpoint."""
        if name == "last":
            self._replace_last()
        elif name == "best":
            self._replace_best()
        else:
            self._replace(self.kept / str(name))
        fsync(self.path)

    def begin_parts(self, world: World) -> Path:
        """The empty folder into which every process then writes its part. All of them call it."""
        if world.is_main:
            with writing(self.staging, HINT):
                remove(self.staging)
                self.staging.mkdir()
        world.sum(0.0)  # nobody writes before
        return self.staging

    def finish_parts(
        self, name: Literal["last"] | int, training: dict[str, Any], world: World
    ) -> None:
        """Let the parts become a checkpoint, when every process has written its own. All of them
        call it; the training state is that of the first."""
        with writing(self.staging, HINT):
            mine = {file.name: sha256(file)
                    for file in self.staging.glob(f"shard-{world.rank + 1:05d}-*")}
            files = world.collect(mine)
            missing = world.is_main and [name for name in files
                                         if not (self.staging / name).is_file()]
            if world.sum(bool(missing))[0]:
                raise UserError(f"{self.staging} has not the parts of all processes: log.runs must "
                                "be on a filesystem that all machines see")
            if not world.is_main:
                return
            with (self.staging / TRAINING).open("wb") as stream:
                torch.save({"training": training}, stream)
            files[TRAINING] = sha256(self.staging / TRAINING)
            stage_json(self.staging / PARTS, {"files": files, "sha256": json_sha256(files)})
            fsync(*self.staging.iterdir(), self.staging)
            self._put_in_place(name)

    def _write(self, weights: dict[str, Tensor], training: dict[str, Any] | None) -> None:
        remove(self.staging)  # of a save that was killed
        self.staging.mkdir()
        file, metadata = self.staging / WEIGHTS, dict(METADATA)
        if training is not None:
            with (self.staging / TRAINING).open("wb") as stream:
                torch.save({"training": training}, stream)
            metadata[TRAINING] = sha256(self.staging / TRAINING)
        if any(is_divided(weight) for weight in weights.values()):
            one_by_one = (whole(weight.detach()).cpu() for weight in weights.values())
            write_safetensors(file, weights, one_by_one, metadata)
        else:
            save_file({name: w.detach().contiguous() for name, w in weights.items()}, file,
                      metadata)
        file.chmod(self.staging.stat().st_mode & 0o666)  # as any other file: safetensors has 0600
        seal(file)
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
                return _read_weights(file)[0]
            except UserError as error:
                raise UserError(f"{error}: restore it, or choose --checkpoint last") from error
        return self._newest(_read_weights_of)

    def load_training(
        self, step: int | None = None, world: World = ALONE
    ) -> tuple[dict[str, Tensor] | Path, dict[str, Any]]:
        """The weights on the CPU, or the folder that has them in parts, and the training state, of
        `last` or of `previous`, or of a step that was kept. The processes of `world` call it
        together. UserError where something is missing or damaged."""
        def _read_both(folder: Path) -> tuple[dict[str, Tensor] | Path, dict[str, Any]]:
            return _read_all(folder) if _is_whole(folder) else _check_parts(folder, world)

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

    @property
    def has_training(self) -> bool:
        """Whether there is a `last` or a `previous` to go on from."""
        return self.last.exists() or self.previous.exists()

    @property
    def has_weights(self) -> bool:
        """Whether there is anything that `load_weights` could read."""
        return self.has_training or (self.best / WEIGHTS).exists()

    def _newest(self, read: Callable[[Path], T]) -> T:
        """What is read from `last`, or with a warning from `previous` where `last` is damaged."""
        if not self.has_training:
            raise UserError(f"{self.path} has no checkpoint yet: train on with --resume "
                            f"{self.path}, or choose another run")
        try:
            return self._read_last(read)
        except UserError as error:
            if not self.previous.exists():
                raise UserError(f"{error}: restore it, or choose another run") from error
            self._last_is_good = False
            say(f"warning: {error}; taking the checkpoint before it, {self.previous}")
            return read(self.previous)

    def _read_last(self, read: Callable[[Path], T]) -> T:
        """What is read from `last`; once more where a training beside us has just replaced it."""
        for _ in range(5):
            before = _identity(self.last)
            try:
                return read(self.last)
            except UserError:
                if before is not None and before == _identity(self.last):
                    raise
            time.sleep(0.01)  # from one rename of a save to the next
        return read(self.last)


def _identity(folder: Path) -> tuple[int, int] | None:
    """What tells a folder from another one that gets its name; None while nothing has it."""
    try:
        stat = folder.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def seal(file: Path) -> None:
    """Write the hash of a safetensors file into its metadata, in the place that METADATA has for
    it. It is the SHA-256 of the file with 64 zeros in that place.

    Raises SafetensorError for a file that is cut short.
    """
    with safe_open(file, "pt"):  # compares the size with the header
        pass
    digest, start = _digest(file, METADATA["sha256"])
    assert start > 8, "written with METADATA"
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(digest.encode())


def _digest(file: Path, seal: str) -> tuple[str, int]:
    """The SHA-256 of a safetensors file with zeros for this seal, and where in the file that is."""
    with file.open("rb") as stream:
        length = stream.read(8)
        header = stream.read(int.from_bytes(length, "little"))
        zeros = METADATA["sha256"].encode()
        hashed = hashlib.sha256(length + header.replace(seal.encode(), zeros, 1))
        while data := stream.read(1 << 20):
            hashed.update(data)
    return hashed.hexdigest(), 8 + header.find(seal.encode())


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn what stands in the way of reading a file into a UserError."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{file} is missing") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror or first_line(error)})") from error
    except SafetensorError as error:
        raise UserError(f"{file} is damaged ({first_line(error)})") from error


def _read_weights(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that is what was saved."""
    with _reading(file):
        with safe_open(file, "pt") as tensors:
            metadata = tensors.metadata() or {}
            weights = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        seal = metadata.get("sha256")
        if seal is not None and _digest(file, seal)[0] != seal:
            raise SafetensorError("its content is not what was saved")
    return weights, metadata


def _is_whole(folder: Path) -> bool:
    """Whether a checkpoint is one of a process that had all of the model."""
    return (folder / WEIGHTS).exists() or not (folder / PARTS).exists()


def _read_weights_of(folder: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, on the CPU."""
    if _is_whole(folder):
        return _read_weights(folder / WEIGHTS)[0]
    before = _identity(folder)
    weights = as_whole(_check_parts(folder, ALONE)[0])
    if _identity(folder) != before:
        raise UserError(f"{folder} was replaced while it was read")
    return weights


def as_whole(weights: dict[str, Tensor] | Path) -> dict[str, Tensor]:
    """The weights that `load_training` returns, whole, on the CPU."""
    if isinstance(weights, dict):
        return weights
    from gyre.sharding import read_weights  # slow to import

    return read_weights(weights)


def _check_parts(folder: Path, world: World) -> tuple[Path, dict[str, Any]]:
    """The folder and its training state, where all its files are what was saved. Each process reads
    some of them, and all raise the same error."""
    listed = read_json(folder / PARTS, "restore it")
    files = listed.get("files")
    if not isinstance(files, dict) or listed.get("sha256") != json_sha256(files):
        raise UserError(f"{folder / PARTS} is damaged")
    if foreign := {file.name for file in folder.glob("*.safetensors")} - files.keys():
        raise UserError(f"{folder / min(foreign)} is no part of this checkpoint: remove it")
    mine = sorted(files)[world.rank :: world.size]
    good = (folder / name for name in mine)
    bad = [file for file in good if not file.is_file() or sha256(file) != files[file.name]]
    if world.sum(len(bad))[0]:
        where = bad[0] if bad else f"a file in {folder}"
        raise UserError(f"{where} is missing or not what was saved")
    with _reading(folder / TRAINING):
        return folder, _training(folder / TRAINING)["training"]


def _read_all(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    file = folder / TRAINING
    weights, metadata = _read_weights(folder / WEIGHTS)
    with _reading(file):
        digest = sha256(file)
    if metadata.get(TRAINING, digest) != digest:
        raise UserError(f"{file} is damaged or not the file {folder / WEIGHTS} was saved with")
    state = _training(file)
    if TRAINING not in metadata and sha256(folder / WEIGHTS) != state.get("weights_sha256"):
        raise UserError(f"{folder / WEIGHTS} is damaged or not the file {file} was saved with")
    return weights, state["training"]


def _training(file: Path) -> dict[str, Any]:
    """What training.pt holds: `training`, and in old runs the hash of the weights."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        return {**state, "training": dict(state["training"])}
    except Exception as error:  # torch.load has no exception of its own for a damaged file, and
        # its message may advise to execute it.
        raise UserError(f"{file} is damaged (it holds no training state)") from error


class Described(Protocol):
    """A tensor, or what is known of one that is still on the disk."""

    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...


DTYPE_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_safetensors(
    file: Path, like: Mapping[str, Described], tensors: Iterable[Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """A safetensors file from tensors that come one at a time, in the order of `like`, which gives
    their names, types and shapes.

    The package's own writer wants all of them at once, and copies them. Eight bytes that say how
    long the table is, the table in JSON, the data without gaps. (safetensors, "Format")
    """
    table: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    end = 0
    for name, tensor in like.items():
        start, end = end, end + tensor.nbytes
        dtype, shape = DTYPE_NAMES[tensor.dtype], tuple(tensor.shape)
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)  # the data starts at a multiple of 8
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        for data in tensors:
            stream.write(data.contiguous().view(torch.uint8).numpy().data)
