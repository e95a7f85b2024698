"""Files of tensors, read: safetensors and Meta's .pth.

Names, types and shapes are known before any tensor is read, and tensors are read one at a time.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from errors import UserError
from files import read_json
from gyre.checkpoint import SAFETENSORS_DTYPES
from model.config import ModelConfig

POINTER = b"version https://git-lfs"  # what a git without LFS checks out in place of a large file


@dataclass
class Stored:
    """A tensor that is still on the disk."""

    file: Path
    dtype: Any
    """A torch.dtype, or None for one that we do not read: `check_tensors`."""
    shape: tuple[int, ...]
    read: Callable[[], Tensor]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def largest_value(name: str, weight: Tensor, source: Path) -> float:
    """The largest magnitude in a weight. Raises UserError for NaN and infinity."""
    largest = max(abs(end.item()) for end in weight.aminmax())  # both are NaN if any value is
    if not math.isfinite(largest):
        raise UserError(f"{name} of {source} holds {largest}, which no model can compute with: did "
                        "its training diverge?")
    return largest


def check_size(stored: dict[str, Stored], config: ModelConfig) -> None:
    """Raise ValueError where a model is far larger than the tensors beside its description, before
    anything of that size is built."""
    # One up to twice as large is left to `check_tensors`, which names the tensor that differs.
    if config.matrix_parameters > 2 * sum(math.prod(t.shape) for t in stored.values()):
        raise ValueError("it describes a larger model than the tensors beside it: they belong to "
                         "different models, or a part is missing")


def check_tensors(tensors: dict[str, Stored], shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise UserError, which names file and tensor, unless the tensors are those of `shapes`."""
    for name, tensor in tensors.items():
        if name not in shapes:
            raise UserError(f"{tensor.file} holds {name}, which our LLaMA does not have: it cannot "
                            "be left out")
        if tensor.dtype not in SAFETENSORS_DTYPES.values():
            known = ", ".join(SAFETENSORS_DTYPES)
            raise UserError(f"{name} in {tensor.file} is of none of the types {known}")
        if tensor.shape != shapes[name]:
            raise UserError(f"{name} in {tensor.file} has shape {tensor.shape}, and the "
                            f"configuration asks for {shapes[name]}: they belong to different "
                            "models, or a part is missing")
    missing = [name for name in shapes if name not in tensors]
    if missing:
        files = sorted({str(tensor.file) for tensor in tensors.values()}) or ["the folder"]
        raise UserError(f"{missing[0]} is in none of {', '.join(files)}: a part is missing")


def stored_safetensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of a folder by its name there, from the file that the index names for it.

    Raises UserError for a file that is missing or cut short, and for a tensor that is not in its
    file.
    """
    single = folder / "model.safetensors"
    index = folder / f"{single.name}.index.json"
    sharded = index.is_file() and not single.is_file()  # transformers reads the single file first
    weight_map = read_weight_map(index) if sharded else {}
    files = sorted(set(weight_map.values())) if sharded else [single]
    stored: dict[str, Stored] = {}
    for file in files:
        if not file.is_file():
            raise UserError(_describe_missing(file, index))
        for name, tensor in open_safetensors(file).items():
            chosen = weight_map.get(name, file)  # a tensor that the index does not name is read too
            if chosen != file:
                continue
            if name in stored:  # two files have it, and the index does not choose
                raise UserError(f"{name} is both in {stored[name].file} and in {file}")
            stored[name] = tensor
    for name, file in weight_map.items():
        if name not in stored:
            raise UserError(f"{name} is not in {file}, where {index} says it is: download both "
                            "again, from one place")
    return stored


def read_weight_map(index: Path) -> dict[str, Path]:
    """{name of a tensor: its file} by a model.safetensors.index.json."""
    weight_map = read_json(index).get("weight_map")
    if not weight_map or not isinstance(weight_map, dict):
        raise UserError(f"{index} is damaged: it has no weight_map")
    # Path.name: no file outside of this folder.
    return {name: index.parent / Path(str(file)).name for name, file in weight_map.items()}


def _describe_missing(file: Path, index: Path) -> str:
    """What to do about a file of safetensors that is not there."""
    folder = file.parent
    if index.is_file():
        return f"{file} is missing, and {index.name} names it: download it too"
    shards = sorted(folder.glob("*-of-*.safetensors"))
    if shards:
        return (f"{folder} has shards, such as {shards[0].name}, but no {index.name}, which says "
                "which of them holds what: download it too")
    return (f"{file} is missing; .bin files are not read, since they can run code: let "
            "transformers load and save such a model")


def open_safetensors(file: Path) -> dict[str, Stored]:
    """Every tensor of a file by its name. UserError for a file that is damaged."""
    read_start(file)
    try:
        tensors = safe_open(file, "pt")
    except SafetensorError as error:
        raise UserError(f"{file} is damaged or cut short: {error}") from error
    stored = {}
    for name in tensors.keys():  # noqa: SIM118  # not a dict
        entry = tensors.get_slice(name)
        dtype = SAFETENSORS_DTYPES.get(entry.get_dtype())
        read = partial(tensors.get_tensor, name)
        stored[name] = Stored(file, dtype, tuple(entry.get_shape()), read)
    return stored


def read_start(file: Path) -> bytes:
    """The first bytes of a file. Raises UserError for a pointer of Git LFS."""
    with file.open("rb") as opened:
        start = opened.read(len(POINTER))
    if start == POINTER:
        raise UserError(f"{file} is a pointer of Git LFS and not the file itself: run `git lfs "
                        "pull` in its folder, or download it")
    return start


def stored_pickles(folder: Path, dim: int | None) -> dict[str, Stored]:
    """Every tensor of a folder of Meta's by its name.

    There is one file for each of the processes that trained the model, whose width is `dim`.
    Raises UserError where the files are not parts of one model.
    """
    count = len(list(folder.glob("consolidated.*.pth")))
    files = [folder / f"consolidated.{n:02}.pth" for n in range(max(count, 1))]
    tensors = {file: _load_pickle(file) for file in files}
    for first, second in combinations(files, 2):
        in_one = sorted(tensors[first].keys() ^ tensors[second].keys())
        if in_one:
            raise UserError(f"{second} and {first} do not both hold {in_one[0]}")
        if all(torch.equal(part, tensors[second][name]) for name, part in tensors[first].items()):
            raise UserError(f"{second} and {first} hold the same part: another one is missing")
    stored = {}
    for name in tensors[files[0]]:
        parts = [tensors[file][name] for file in files]
        stored[name] = _join(name, files, parts, dim)
    return stored


def _load_pickle(file: Path) -> dict[str, Tensor]:
    """The tensors of a .pth, mapped and not read. `weights_only` runs nothing that is in it."""
    if not file.is_file():
        raise UserError(f"{file} is missing: download it too")
    start = read_start(file)
    if not is_zipfile(file):
        if start.startswith(b"PK"):
            raise UserError(f"{file} is damaged or cut short: download it again")
        raise UserError(f"{file} is no zip archive, as torch.save writes since PyTorch 1.6, but "
                        f"begins with {start[:8]!r}: download it again, or load and save it with "
                        "torch")
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        with ZipFile(file) as archive:
            saved_as = archive.namelist()[0].partition("/")[0]  # torch.save's name for it
    except Exception as error:  # torch.load has no exception of its own for a damaged file,
        # and its message may advise to execute it.
        raise UserError(f"{file} is damaged, or holds other things than tensors, which could run "
                        f"code ({type(error).__name__})") from error
    if saved_as != file.stem and re.fullmatch(r"consolidated\.\d\d", saved_as):
        raise UserError(f"{file} was saved as {saved_as}.pth: parts were swapped or copied")
    if not _is_table(tensors):
        raise UserError(f"{file} is not a table of vectors and matrices")
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _is_table(content: Any) -> bool:
    """Whether the content of a .pth is a dict of vectors and matrices in memory, by their names."""
    if not isinstance(content, dict):
        return False
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            return False
        if not tensor.is_cpu or tensor.layout != torch.strided or tensor.ndim not in (1, 2):
            return False
    return True


def _join(name: str, files: list[Path], parts: list[Tensor], dim: int | None) -> Stored:
    """A tensor of which each file has a part.

    Rows are cut of what reads the residual stream, columns of what writes into it. Llama 1 and 2
    cut embeddings by columns, Llama 3 by rows; norms are whole everywhere.
    """
    first = parts[0]
    is_vector = first.ndim == 1
    for file, part in zip(files, parts, strict=True):
        is_alike = part.shape == first.shape and part.dtype == first.dtype
        if not is_alike or (is_vector and not torch.equal(part, first)):
            raise UserError(f"{name} in {file} and in {files[0]} are not parts of one model")
    shape = list(first.shape)
    if is_vector:
        return Stored(files[0], first.dtype, tuple(shape), lambda: first)
    writes_stream = name.endswith(("wo.weight", "w2.weight"))
    is_narrow_embedding = name == "tok_embeddings.weight" and shape[1] != dim
    axis = 1 if writes_stream or is_narrow_embedding else 0
    shape[axis] *= len(parts)
    return Stored(files[0], first.dtype, tuple(shape), lambda: torch.cat(parts, dim=axis))
