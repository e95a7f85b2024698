"""Files of tensors: safetensors, read and written, and Meta's .pth, read.

Names, types and shapes are known before any tensor is read, and tensors are read one at a time.
"""

import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from errors import UserError
from files import first_line, read_json
from gyre.checkpoint import DTYPE_NAMES
from model.config import ModelConfig

DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass
class Stored:
    """A tensor that is still on the disk."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor]

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


def check_count(found: dict[str, Stored], config: ModelConfig, file: Path) -> None:
    """UserError, before anything is built, where the model that `file` describes has more than
    twice the numbers that were found: sizes that no memory holds may stand there."""
    held = sum(math.prod(tensor.shape) for tensor in found.values())
    if (described := config.matrix_parameters) > 2 * held:
        raise UserError(f"{file} describes a model of {described:.3g} parameters, and beside it "
                        f"are {held:.3g}: they do not belong together, or a part is missing")


def check_tensors(found: dict[str, Stored], expected: dict[str, tuple[int, ...]]) -> None:
    """UserError that names file and tensor, unless there is every tensor, in its shape, and no
    other."""
    for name, tensor in found.items():
        if name not in expected:
            raise UserError(f"{tensor.file} holds {name}, which a LLaMA has not: it cannot be left "
                            "out")
        if tensor.shape != expected[name]:
            raise UserError(f"{name} in {tensor.file} has shape {tensor.shape}, and the "
                            f"configuration asks for {expected[name]}: they do not belong "
                            "together, or a part is missing")
    files = sorted({str(tensor.file) for tensor in found.values()}) or ["the folder"]
    for name in expected:
        if name not in found:
            raise UserError(f"{name} is in none of {', '.join(files)}: a part is missing")


def stored_safetensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of a folder by its name there. UserError on a shard that is missing or cut."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    files = [single]
    if index.is_file():
        files = _shards(index)
        if single.is_file() and single not in files:
            raise UserError(f"{folder} has {index.name} and {single.name}, of which transformers "
                            "reads the second and others the first: remove the one that is not "
                            "the model")
    elif not single.is_file():
        pickles = "; its .bin files can run code when they are read: save it as safetensors"
        has_pickles = any(folder.glob("pytorch_model*.bin"))
        raise UserError(f"{single} is missing{pickles if has_pickles else ''}")
    stored: dict[str, Stored] = {}
    for file in files:
        try:
            tensors = safe_open(file, "pt")
        except SafetensorError as error:
            raise UserError(f"{file} is damaged or cut short: {error}") from error
        for name in tensors.keys():  # noqa: SIM118  # not a dict
            part = tensors.get_slice(name)
            if part.get_dtype() not in DTYPES:
                raise UserError(f"{name} in {file} is of type {part.get_dtype()}: we read "
                                f"{', '.join(DTYPES)}")
            if name in stored:
                raise UserError(f"{name} is both in {stored[name].file} and in {file}")
            dtype, shape = DTYPES[part.get_dtype()], tuple(part.get_shape())
            stored[name] = Stored(file, dtype, shape, lambda t=tensors, n=name: t.get_tensor(n))
    return stored


def _shards(index: Path) -> list[Path]:
    """The files of a folder in shards, all of them there and none of them elsewhere."""
    weight_map, folder = read_json(index).get("weight_map"), index.parent
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{index} is damaged: it has no weight_map")
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise UserError(f"{index} says that {name} is in {file!r}, outside of {folder}")
        if not (folder / file).is_file():
            raise UserError(f"{folder / file} is missing: {index} says it holds {name}")
    return sorted({folder / file for file in weight_map.values()})


def stored_pickles(folder: Path, dim: int | None) -> dict[str, Stored]:
    """Every tensor of a folder of Meta's by its name, over one file for each of the processes that
    trained it. `dim` is the width of the model. UserError where they are not parts of one model."""
    count = len(list(folder.glob("consolidated.*.pth")))
    files = [folder / f"consolidated.{n:02}.pth" for n in range(max(count, 1))]
    for file in files:
        if not file.is_file():
            raise UserError(f"{file} is missing")
    parts = [_load_pickle(file) for file in files]
    for file, part in zip(files, parts, strict=True):
        if other := sorted(part.keys() ^ parts[0].keys()):
            raise UserError(f"{file} and {files[0]} do not both hold {other[0]}")
    return {name: _join(name, files, [part[name] for part in parts], dim) for name in parts[0]}


def _load_pickle(file: Path) -> dict[str, Tensor]:
    """The tensors of a .pth, mapped and not read. `weights_only` runs nothing that is in it."""
    with file.open("rb") as stream:
        if torch.serialization.MAGIC_NUMBER.to_bytes(10, "little") in stream.read(20):
            raise UserError(f"{file} was saved in torch's old format: load it and save it again "
                            "with torch.save")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch.load has no exception of its own for a damaged file
        raise UserError(f"{file} is damaged, or holds other things than tensors, which could run "
                        f"code: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} is not a table of tensors")
    for name, tensor in content.items():
        if not (isinstance(name, str) and isinstance(tensor, Tensor) and tensor.is_cpu
                and tensor.layout == torch.strided and 1 <= tensor.ndim <= 2):
            raise UserError(f"{file} holds {reprlib.repr(name)}, which is no vector and no matrix")
    return {name: tensor.detach() for name, tensor in content.items()}


def _join(name: str, files: list[Path], parts: list[Tensor], dim: int | None) -> Stored:
    """A tensor that model parallelism has cut: rows of what reads the residual stream, columns of
    what writes into it. Llama 1 and 2 cut embeddings by columns, Llama 3 by rows; norms are whole
    everywhere."""
    first = parts[0]
    if first.dtype not in DTYPE_NAMES:
        raise UserError(f"{name} in {files[0]} is of type {first.dtype}, which we do not read")
    shape = list(first.shape)
    for file, part in zip(files, parts, strict=True):
        if part.shape != first.shape or part.dtype != first.dtype:
            raise UserError(f"{name} in {file} is {tuple(part.shape)} {part.dtype}, and in "
                            f"{files[0]} {tuple(shape)} {first.dtype}")
        if first.ndim == 1 and not torch.equal(part, first):
            raise UserError(f"{name} in {file} is not the one in {files[0]}")
    if first.ndim == 1:
        return Stored(files[0], first.dtype, tuple(shape), lambda: first)
    columns = name.endswith(("wo.weight", "w2.weight")) or (
        name == "tok_embeddings.weight" and shape[1] != dim
    )
    shape[columns] *= len(parts)
    return Stored(files[0], first.dtype, tuple(shape), lambda: torch.cat(parts, dim=int(columns)))
