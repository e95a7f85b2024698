"""What a model is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from model.rope import RopeScaling

# The standard deviation of every embedding at the start. It stands here because the sinusoid has to
# be scaled to it.
INIT_STD = 0.02


@dataclass
class ModelConfig:
    dim: int = 256
    """Width C of the residual stream."""
    n_layers: int = 4
    """Number of blocks."""
    n_heads: int = 4
    """Number of query heads H."""
    n_kv_heads: int | None = None
    """Number of key/value heads; must divide n_heads. Unset: n_heads (no grouping)."""
    head_dim: int | None = None
    """Width D of a head. Unset: dim / n_heads."""
    hidden_dim: int | None = None
    """Width of the SwiGLU layer. Unset: 8/3 dim, rounded up to a multiple of 32."""
    vocab_size: int | None = None
    """Vocabulary V. Unset: the tokenizer's."""
    tie_embeddings: bool = True
    """Use the embedding matrix as the output matrix too."""
    norm_eps: float = 1e-5
    """Epsilon of RMSNorm."""
    dropout: float = 0.0
    """Probability of dropping a channel of the embeddings and of what each half block adds."""
    max_positions: int | None = None
    """How far positions reach (prompt + new tokens). Unset: 4 data.seq_len or what rope_scaling is
    meant for, whichever is more; data.seq_len for an encoding that ends where training rows do."""
    position: str = "rope"
    """Position encoding."""
    theta: float = 10000.0
    """Base of the wavelengths (rope, sinusoidal)."""
    partial: float = 1.0
    """Fraction of the channel pairs that turn, the fastest first (rope): p-RoPE."""
    rope_scaling: RopeScaling | None = None
    """Slower rotations for texts longer than the training rows (rope): type and factor, at least.
    Unset: none."""
    sinusoid: Literal["matched", "vaswani", "naive"] = "matched"
    """How sinusoids meet the embeddings (sinusoidal): E + alpha p, sqrt(C) E + p, or E + p."""

    def __post_init__(self):
        """Fill what is unset and raise ValueError for what cannot be built."""
        for name in ("dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden_dim",
                     "vocab_size", "max_positions"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"model.{name} must be at least 1, not {value}")
        if self.head_dim is None:
            if self.dim % self.n_heads:
                raise ValueError(
                    f"model.dim {self.dim} is not divisible by model.n_heads {self.n_heads}: "
                    "change one of them or set model.head_dim"
                )
            self.head_dim = self.dim // self.n_heads
        if self.n_kv_heads is None:
            self.n_kv_heads = self.n_heads
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"model.n_heads {self.n_heads} is not divisible by model.n_kv_heads "
                f"{self.n_kv_heads}: every key/value head serves the same number of query heads"
            )
        if self.hidden_dim is None:
            self.hidden_dim = 32 * math.ceil(8 * self.dim / 3 / 32)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout must be in [0, 1), not {self.dropout}")
        if not 0 <= self.partial <= 1:
            raise ValueError(f"model.partial must be in [0, 1], not {self.partial}")
        if self.theta <= 1:
            raise ValueError(f"model.theta must be above 1, not {self.theta}")
        if not self.norm_eps > 0:
            raise ValueError(f"model.norm_eps must be above 0, not {self.norm_eps}")
