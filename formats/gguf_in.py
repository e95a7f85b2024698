"""GGUF files of llama.cpp's `llama` architecture, read: the model and its tensors.

Channels that turn together are neighbours there as they are here, so all tensors stay as they are.
(ggml, docs/gguf.md; llama.cpp, src/llama-model.cpp and src/models/llama.cpp)
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from errors import UserError
from formats import names
from formats.gguf import ROPE_FACTORS, SIZES, rope_factors
from formats.tensors import Stored, check_size, check_tensors, read_start
from model.config import ModelConfig, RopeScaling
from model.rope import rope_frequencies

# Messages have the names of GGUF for our other fields too.
SPELLINGS = SIZES | {"theta": "rope.freq_base", "factor": "rope.scaling.factor",
                     "original_positions": "rope.scaling.original_context_length",
                     "attention_factor": "rope.scaling.attn_factor"}

# Fields that we read beside SIZES, and descriptions.
READ = {"attention.value_length", "rope.dimension_count", "rope.freq_base", "rope.scale_linear",
        "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
        "rope.scaling.attn_factor", "rope.scaling.finetuned", "tensor_data_layout"}

# Fields that we have no counterpart for, with the values that change nothing. A field that is in no
# list here changes nothing if it is 0, false or empty. llama.cpp reads no yarn_* for this
# architecture, and takes a scale of 0 for none.
NEUTRAL = {"rope.scaling.yarn_ext_factor": (0, 1), "rope.scaling.yarn_attn_factor": (0, 1),
           "rope.scaling.yarn_beta_fast": (0, 32), "rope.scaling.yarn_beta_slow": (0, 1),
           "attention.causal": (True,), "logit_scale": (0, 1), "residual_scale": (0, 1),
           "embedding_scale": (0, 1)}

# Quantised tensors become float32, which holds each value that they stand for.
DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16}


def open_reader(file: Path) -> Any:
    """gguf's GGUFReader of a file, which reads it as a plain array.

    GGUFReader takes several slices for each token of the vocabulary, and those of a np.memmap take
    three times as long.
    """
    import gguf  # slow to import, and not needed for folders

    class Reader(gguf.GGUFReader):
        # GGUFReader sets `data` to a np.memmap.
        @property
        def data(self) -> np.ndarray:  # pyrefly: ignore[bad-override-mutable-attribute]
            return self.array

        @data.setter
        def data(self, mapped: np.memmap) -> None:
            self.array = np.asarray(mapped)

    return Reader(file)


def open_gguf(file: Path) -> tuple[dict[str, Any], dict[str, Stored]]:
    """The fields of a GGUF, and its tensors by their names there.

    Raises UserError for a file that is damaged, is a part of a model or has tensors of a type that
    the gguf package does not dequantise.
    """
    read_start(file)
    try:
        reader = open_reader(file)
        fields = {name: read_field(field) for name, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise UserError(f"{file} is no GGUF, or is damaged or cut short: {error}") from error
    if reader.byte_order == "S":
        raise UserError(f"{file} has the byte order of other machines: convert it with "
                        "gguf-convert-endian of the gguf package")
    if fields.get("split.count", 1) not in (0, 1):
        raise UserError(f"{file} is one of {fields['split.count']} parts of a model: join them "
                        "with `llama-gguf-split --merge` of llama.cpp")
    tensors = {}
    for tensor in reader.tensors:
        kind = tensor.tensor_type
        if not can_dequantise(kind):
            raise UserError(f"{tensor.name} in {file} is of type {kind.name}, which the gguf "
                            "package does not dequantise: get a file of another type")
        shape = tuple(reversed(tensor.shape.tolist()))  # the fastest dimension is first there
        dtype = DTYPES.get(kind.name, torch.float32)
        tensors[tensor.name] = Stored(file, dtype, shape, partial(read_tensor, tensor, dtype))
    return fields, tensors


def read_field(field: Any) -> Any:
    """The value of a field. A float32 is the shortest number that rounds to it: 1e-05."""
    value = field.contents()
    return float(str(np.float32(value))) if isinstance(value, float) else value


def can_dequantise(kind: Any) -> bool:
    """Whether the gguf package dequantises tensors of this type."""
    import gguf

    block = np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    try:
        gguf.quants.dequantize(block, kind)
    except NotImplementedError:
        return False
    return True


def read_tensor(tensor: Any, dtype: torch.dtype) -> Tensor:
    """The values of a tensor of a GGUF."""
    import gguf

    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return torch.from_numpy(np.array(values)).to(dtype)  # a copy: the file can be read only


def read_model(
    fields: dict[str, Any], stored: dict[str, Stored]
) -> tuple[ModelConfig, dict[str, Stored]]:
    """The model of a GGUF with these fields and tensors, and its tensors by our names.

    Raises ValueError and UserError, which name field or tensor, for other models than LLaMA, and
    for fields and tensors of different models.
    """
    shapes = {name: tensor.shape for name, tensor in stored.items()}
    factors = stored.pop(ROPE_FACTORS, None)
    model = to_model(fields, shapes, None if factors is None else factors.read())
    check_size(stored, model)
    theirs = names.tensor_names(model, "gguf")
    our_shapes = names.tensor_shapes(model)
    check_tensors(stored, {theirs[name]: shape for name, shape in our_shapes.items()})
    return model, {ours: stored[name] for ours, name in theirs.items()}


def to_model(
    fields: dict[str, Any], shapes: dict[str, tuple[int, ...]], factors: Tensor | None = None
) -> ModelConfig:
    """The model of a GGUF with these fields, tensors of these shapes and `rope_freqs.weight`.

    Raises ValueError for what we have no counterpart for.
    """
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"general.architecture is {architecture!r}: we have llama")
    theirs = {name.removeprefix("llama."): value for name, value in fields.items()
              if name.startswith("llama.")}
    refuse_unknown(theirs)
    sizes = {ours: theirs.get(name) for ours, name in SIZES.items()}
    if sizes["vocab_size"] is None and "token_embd.weight" in shapes:
        sizes["vocab_size"] = shapes["token_embd.weight"][0]
    with names.respelling(SPELLINGS):
        plain = names.to_model({**sizes, "theta": theirs.get("rope.freq_base", 10000.0),
                                "tie_embeddings": "output.weight" not in shapes})
        scaling = read_scaling(theirs, plain, factors)
    for name in ("attention.value_length", "rope.dimension_count"):
        if theirs.get(name, plain.head_dim) != plain.head_dim:
            raise ValueError(f"{name} {theirs[name]} is not the width of a head, {plain.head_dim}: "
                             "we have no counterpart for it")
    if scaling is None:
        return plain
    positions = plain.max_positions
    if "rope.scaling.original_context_length" not in theirs and factors is None:
        positions = scaling.reach  # the length is that before scaling, as in config.json
    return replace(plain, max_positions=positions, rope_scaling=scaling)


def refuse_unknown(theirs: dict[str, Any]) -> None:
    """Raise ValueError for a field that may change the model, and that we do not read."""
    for name, value in theirs.items():
        is_known = name in READ or name in SIZES.values()
        changes_nothing = value in NEUTRAL[name] if name in NEUTRAL else not value
        if not is_known and not changes_nothing:
            raise ValueError(f"llama.{name} {value!r}: we have no counterpart for it")


# --- positions ------------------------------------------------------------------------------------


def read_scaling(
    theirs: dict[str, Any], model: ModelConfig, factors: Tensor | None
) -> RopeScaling | None:
    """The scaling of RoPE in a GGUF with these fields and this `rope_freqs.weight`, for a model
    that has none yet.

    Raises ValueError for one that we have no counterpart for.
    """
    # As llama.cpp reads them: linear is its default, and scale_linear an older name.
    kind = theirs.get("rope.scaling.type", "linear")
    factor = theirs.get("rope.scaling.factor", theirs.get("rope.scale_linear", 0.0))
    magnitude = theirs.get("rope.scaling.attn_factor", 1.0)
    if kind not in ("none", "linear", "yarn"):
        raise ValueError(f"rope.scaling.type {kind!r}: we have none, linear and yarn")
    is_scaled = kind != "none" and factor not in (0, 1)
    if factors is not None and is_scaled:
        raise ValueError(f"{ROPE_FACTORS} beside a rope.scaling.factor of {factor:g}: we have "
                         "no counterpart for both in one model")
    if factors is not None:
        stated = theirs.get("rope.scaling.original_context_length")
        return recognise_factors(factors, model, magnitude, stated)
    is_yarn = is_scaled and kind == "yarn"
    if magnitude != 1 and not is_yarn:
        raise ValueError(f"rope.scaling.attn_factor {magnitude:g} without YaRN: we have no "
                         "counterpart for it")
    if not is_scaled:
        return None
    original = theirs.get("rope.scaling.original_context_length", model.max_positions)
    scaling = RopeScaling(kind, factor, original)
    if magnitude != 1:
        # llama.cpp multiplies it to what YaRN has by default.
        return RopeScaling(kind, factor, original, attention_factor=scaling.magnitude * magnitude)
    return scaling


def recognise_factors(
    factors: Tensor, model: ModelConfig, magnitude: float, original: int | None = None
) -> RopeScaling | None:
    """The scaling that divides the frequencies of a model by `factors` (D/2,), and multiplies
    queries and keys by `magnitude`. `original` is the length before scaling, if it is known.

    Recognised are llama3's and YaRN's with the usual bounds. llama3's with other bounds is
    recognised if two pairs are between them, or if one is, the lower bound is 1, and `original` is
    known. Raises ValueError for anything else.
    """
    pairs = model.head_dim // 2
    if factors.shape != (pairs,):
        raise ValueError(f"{ROPE_FACTORS} has shape {tuple(factors.shape)}, and a head has {pairs} "
                         "pairs of channels")
    if magnitude == 1 and torch.equal(factors, torch.ones(pairs)):
        return None
    for scaling in propose_scalings(factors, model, magnitude, original):
        expected = rope_factors(replace(model, rope_scaling=scaling))
        assert expected is not None
        if torch.allclose(factors, expected, rtol=1e-5, atol=0):
            return scaling
    raise ValueError(f"{ROPE_FACTORS} is neither llama3's nor YaRN's with the usual bounds for "
                     f"{model.max_positions} positions: import the folder that the file was made "
                     "from")


def propose_scalings(
    factors: Tensor, model: ModelConfig, magnitude: float, original: int | None
) -> Iterator[RopeScaling]:
    """Yield the scalings that may have these `factors` (D/2,), of the `original` length first, if
    the file states it, as ours do.

    The largest of `factors` is the factor of the scaling. With llama3, a pair between the two
    bounds keeps a share of its frequency. The share tells how often the pair turns within the
    original length, and so what this length is if the bounds are 1 and 4. Two such pairs tell the
    bounds too. If no pair is between the bounds, Llama 3's own length is tried, and the one that
    follows from the length after scaling. With YaRN, an original length that is not stated follows
    from the length after scaling.
    """
    factor = float(str(np.float32(factors.max().item())))
    if not math.isfinite(factor) or factor <= 1:
        return
    lengths = [8192, round(model.max_positions / factor)]
    is_between = (factors > 1.001) & (factors < 0.999 * factor)
    shares = ((1 / factors.double() - 1 / factor) / (1 - 1 / factor))[is_between]
    frequencies = rope_frequencies(model.head_dim, model.theta)[is_between]
    if is_between.any():
        low, high = 1, 4
        turns = low + (high - low) * shares
        estimates = 2 * math.pi * turns / frequencies
        lengths = [round(estimates.median().item())]
    if original is not None:
        lengths.insert(0, original)
    if magnitude == 1:
        for length in lengths:
            if length > 0:
                yield RopeScaling("llama3", factor, length)
    before = round(model.max_positions / factor) if original is None else original
    if before > 0:
        usual = RopeScaling("yarn", factor, before)
        is_usual = math.isclose(usual.magnitude, magnitude, rel_tol=1e-6)
        stated = None if is_usual else magnitude
        yield RopeScaling("yarn", factor, before, attention_factor=stated)
    if magnitude == 1:
        yield from propose_bounds(shares, frequencies, factor, original)


def propose_bounds(
    shares: Tensor, frequencies: Tensor, factor: float, original: int | None
) -> Iterator[RopeScaling]:
    """Yield the llama3 scaling, if there is one, whose pairs between the bounds have these
    `frequencies` (P,), and keep these `shares` (P,) of them.

    A share is (L f / 2 pi - low) / (high - low), a line in the frequency f, where L is the original
    length. Several pairs tell the slope and the start of the line, which with L tell both bounds.
    Without L only ratios of the three matter, and with one pair there is no line: then low is taken
    to be 1.
    """
    if len(shares) > 1:
        slope, start = fit_line(frequencies, shares)
        if slope <= 0 or start >= 0:
            return
        if original is not None:
            length = original
            width = length / (2 * math.pi * slope)
            low = -start * width
        else:
            low = 1.0
            width = -low / start
            length = round(2 * math.pi * slope * width)
    elif len(shares) == 1 and original is not None:
        length = original
        turns = length * frequencies.item() / (2 * math.pi)
        low = 1.0
        width = (turns - low) / shares.item()
    else:
        return
    # The factors are float32, whose rounding shows from the seventh digit on.
    low_bound = float(f"{low:.4g}")
    high_bound = float(f"{low + width:.4g}")
    if length > 0 and low_bound < high_bound:
        yield RopeScaling("llama3", factor, length, low_freq_factor=low_bound,
                          high_freq_factor=high_bound)


def fit_line(x: Tensor, y: Tensor) -> tuple[float, float]:
    """The slope of the line that fits the points (x, y) best, each (P,), and its value at 0."""
    mean = x.mean()
    slope = ((x - mean) * y).sum() / (x - mean).square().sum()
    start = y.mean() - slope * mean
    return slope.item(), start.item()
