"""POSITIONS: the encodings of model/position.py, and others for experiments. Yours goes here.

Most of the others add rows of rms 1 to the normalised stream, whose rms is 1 too, of queries and
keys and of nothing else. (After Shortformer's position-infused attention, Press et al. 2020,
arXiv:2012.15832.) They do it with PyTorch's module hooks, so that the model knows nothing of them.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from errors import UserError
from model.config import INIT_STD, ModelConfig
from model.position import ALiBi, Learned, PositionEncoding, RoPE, Sinusoidal, sinusoid


class AddedRows(PositionEncoding):
    """The base of encodings that add rows in several layers, to what some of their parts read."""

    layers = slice(None)
    """Layers that have them."""
    parts: tuple[str, ...] = ("attention.wq", "attention.wk")
    """Modules of a layer whose input has them; "" is the whole layer."""
    start = 0
    """Position of the first token of this forward pass."""

    def attach(self, model: Any) -> None:
        for layer in model.layers[self.layers]:
            add = partial(self.add, layer.attention.layer)
            for part in self.parts:
                layer.get_submodule(part).register_forward_pre_hook(add)

    def embed(self, h: Tensor, start: int) -> Tensor:
        self.start = start
        return super().embed(h, start)

    def rows(self, layer: int) -> Tensor:
        """Return what is added in a layer, one row of (C,) for each position."""
        raise NotImplementedError

    def add(self, layer: int, part: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Add the rows of this forward pass to x (B, T, C), the first input of a part."""
        x, *others = inputs
        rows = self.rows(layer)[self.start : self.start + x.shape[1]]
        return (x + rows).type_as(x), *others


class SinusoidalQK(AddedRows):
    """Sinusoids added to what queries and keys are made of, in every layer."""

    options = ("theta",)

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.table = math.sqrt(2) * sinusoid(config.dim, config.max_positions, config.theta)

    def rows(self, layer: int) -> Tensor:
        return self.table


class SinusoidalQKFirst(SinusoidalQK):
    """The same, in the first layer only."""

    layers = slice(1)


class SinusoidalQKV(SinusoidalQK):
    """Sinusoids added to what queries, keys and values are made of, in every layer."""

    parts = ("attention",)


class SinusoidalResidual(AddedRows, Sinusoidal):
    """Sinusoids added to the residual stream before every block, and not only to the embeddings."""

    layers = slice(1, None)  # the embeddings have them
    parts = ("",)

    def rows(self, layer: int) -> Tensor:
        return self.alpha * self.table


class LearnedQK(AddedRows):
    """A trainable vector per position and layer, added to what queries and keys are made of.

    They start with rms 1, that of what they are added to, and a step of the optimizer changes them
    as much, relative to that, as it changes learned positions relative to the embeddings.
    """

    extrapolates = False

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(config.n_layers, config.max_positions, config.dim))

    def rows(self, layer: int) -> Tensor:
        return self.weight[layer] / INIT_STD


class RoPEFirst(RoPE):
    """RoPE in the first layer only."""

    options = ("theta",)

    def attach(self, model: Any) -> None:
        for layer in model.layers[1:]:  # without freqs_cis, the second input
            layer.register_forward_pre_hook(lambda _, inputs: (inputs[0], None, *inputs[2:]))


class RoPEScaled(RoPE):
    """RoPE with the embeddings of Vaswani's sinusoids: sqrt(C) E, where E starts with standard
    deviation 1/sqrt(C)."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.embedding_scale = math.sqrt(config.dim)
        self.embedding_std = 1 / self.embedding_scale

    def embed(self, h: Tensor, start: int) -> Tensor:
        return self.embedding_scale * h


class Aligned(PositionEncoding):
    """A model that starts with w_k = w_q, both three times as large as usual.

    The score of two sinusoids then follows their distance at the start. With fewer key heads than
    query heads the two differ in shape, and no more than their scale is set.
    """

    def attach(self, model: Any) -> None:
        super().attach(model)
        for name, _ in model.named_parameters():
            if ".attention.wq." in name or ".attention.wk." in name:
                model.drawn_as[name] = (name.replace(".wk.", ".wq."), 3.0)


class SinusoidalAligned(Aligned, Sinusoidal):
    """Sinusoids added to the embeddings, with aligned queries and keys."""


class SinusoidalQKAligned(Aligned, SinusoidalQK):
    """Sinusoids at queries and keys, which start aligned."""


# A new encoding: a class above, and a line here.
POSITIONS: dict[str, type[PositionEncoding]] = {
    "rope": RoPE,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "alibi": ALiBi,
    "none": PositionEncoding,
    # for experiments
    "sin_qk": SinusoidalQK,
    "sin_qk_first": SinusoidalQKFirst,
    "sin_qkv": SinusoidalQKV,
    "sin_residual": SinusoidalResidual,
    "learned_qk": LearnedQK,
    "rope_first": RoPEFirst,
    "rope_sinscale": RoPEScaled,
    "sin_aligned": SinusoidalAligned,
    "sin_qk_aligned": SinusoidalQKAligned,
}


def check_position(config: ModelConfig) -> None:
    """Raise UserError if the encoding is unknown, cannot serve this model, or ignores an option
    that is set."""
    if config.position not in POSITIONS:
        names = ", ".join(POSITIONS)
        raise UserError(f"model.position must be one of {names}, not {config.position}")
    encoding = POSITIONS[config.position]
    for name, other in POSITIONS.items():
        for option in other.options:
            changed = getattr(config, option) != getattr(ModelConfig, option)
            if changed and option not in encoding.options:
                raise UserError(
                    f"model.{option} has no effect with model.position {config.position}: "
                    f"it belongs to {name}"
                )
    encoding.check(config)
