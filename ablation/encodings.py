"""Encodings for experiments only: where position enters, and how a model starts.

Most of them add rows of rms 1 to the normalised stream, whose rms is 1 too, of queries and keys and
of nothing else. (After Shortformer's position-infused attention, Press et al. 2020,
arXiv:2012.15832.)
"""

import math

import torch
from torch import Tensor, nn

from model.config import INIT_STD, ModelConfig
from model.position import POSITIONS, Added, PositionEncoding, RoPE, Sinusoidal, sinusoid


class SinusoidalQK(PositionEncoding):
    """Sinusoids added to what queries and keys are made of, in every layer."""

    options = ("theta",)
    only_first = False
    """Whether they are added in the first layer only."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        rows = math.sqrt(2) * sinusoid(config.dim, config.max_positions, config.theta)
        self.table = torch.zeros(config.n_layers, *rows.shape, device="cpu")
        self.table[: 1 if self.only_first else None] = rows

    def added(self, start: int, stop: int) -> Added:
        return Added(qk=self.table[:, start:stop])


class SinusoidalQKFirst(SinusoidalQK):
    """The same, in the first layer only."""

    only_first = True


class SinusoidalQKV(SinusoidalQK):
    """Sinusoids added to what queries, keys and values are made of, in every layer."""

    def added(self, start: int, stop: int) -> Added:
        return Added(qk=self.table[:, start:stop], v=self.table[:, start:stop])


class SinusoidalResidual(Sinusoidal):
    """Sinusoids added to the residual stream before every block, and not only to the embeddings."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.later = torch.ones(config.n_layers, 1, 1, device="cpu")
        self.later[0] = 0  # the embeddings have them

    def added(self, start: int, stop: int) -> Added:
        rows = self.alpha * self.table[start:stop]
        return Added(stream=rows * self.later.to(rows.device))


class LearnedQK(PositionEncoding):
    """A trainable vector per position and layer, added to what queries and keys are made of.

    They start with rms 1, that of what they are added to, and a step of the optimizer changes them
    as much, relative to that, as it changes learned positions relative to the embeddings.
    """

    extrapolates = False

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(config.n_layers, config.max_positions, config.dim))

    def added(self, start: int, stop: int) -> Added:
        return Added(qk=self.weight[:, start:stop] / INIT_STD)


class RoPEFirst(RoPE):
    """RoPE in the first layer only."""

    options = ("theta",)

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        still = torch.tensor([1.0, 0.0], device="cpu").expand_as(self.table)
        self.table = torch.stack([self.table, *[still] * (config.n_layers - 1)])

    def freqs_cis(self, length: int) -> Tensor:
        return self.table


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

    def initial(self, name: str, std: float) -> tuple[str, float]:
        if ".attention.wq." in name or ".attention.wk." in name:
            return name.replace(".wk.", ".wq."), 3 * std
        return super().initial(name, std)


class SinusoidalAligned(Aligned, Sinusoidal):
    """Sinusoids added to the embeddings, with aligned queries and keys."""


class SinusoidalQKAligned(Aligned, SinusoidalQK):
    """Sinusoids at queries and keys, which start aligned."""


POSITIONS |= {
    "sin_qk": SinusoidalQK, "sin_qk_first": SinusoidalQKFirst, "sin_qkv": SinusoidalQKV,
    "sin_residual": SinusoidalResidual, "learned_qk": LearnedQK, "rope_first": RoPEFirst,
    "rope_sinscale": RoPEScaled, "sin_aligned": SinusoidalAligned,
    "sin_qk_aligned": SinusoidalQKAligned,
}
