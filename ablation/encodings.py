"""Encodings for experiments only: sinusoids that only queries and keys see."""

import math

import torch
from torch import Tensor

from model.config import ModelConfig
from model.position import POSITIONS, PositionEncoding, sinusoid


class SinusoidalQK(PositionEncoding):
    """Sinusoids added to what queries and keys are made of, in every layer, and to nothing else.

    Their rms is 1, that of the normalised stream which they are added to. (After Shortformer's
    position-infused attention, Press et al. 2020, arXiv:2012.15832.)
    """

    options = ("theta",)
    only_first = False
    """Whether they are added in the first layer only."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        rows = math.sqrt(2) * sinusoid(config.dim, config.max_positions, config.theta)
        self.table = torch.zeros(config.n_layers, *rows.shape, device="cpu")
        self.table[: 1 if self.only_first else None] = rows

    def qk_input(self, start: int, stop: int) -> Tensor:
        return self.table[:, start:stop]


class SinusoidalQKFirst(SinusoidalQK):
    """The same, in the first layer only."""

    only_first = True


POSITIONS |= {"sin_qk": SinusoidalQK, "sin_qk_first": SinusoidalQKFirst}
