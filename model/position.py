"""Position encodings: how a decoder learns the order of its tokens.

Attention by itself does not see order. An encoding is one small class with up to four hooks:

    embed        add something to the embeddings          (absolute: Sinusoidal, Learned)
    freqs_cis    rotate the queries and the keys          (relative: RoPE)
    bias         add something to the attention scores    (relative: ALiBi)
    attach       change any other part of a new model     (model/encodings.py)

The base class uses none of them, which makes it the encoding "none". model/encodings.py names all
encodings and has those for experiments.

Shapes: B batch, T tokens, S keys (cached + new), H query heads, H_kv key/value heads, D head width,
C model width.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from errors import UserError
from model.config import INIT_STD, ModelConfig
from model.rope import precompute_freqs_cis

# The methods that an encoding overrides.
HOOKS = ("embed", "freqs_cis", "bias", "attach")

# bool (T, S), True: visible; or float (1, H, T, S), added to the scores; or None: causal.
Mask = Tensor | None


class PositionEncoding(nn.Module):
    """No positions at all ("none"), and the base of every encoding.

    A subclass overrides the hooks it uses and keeps what it precomputes in `table`. The table is
    not a buffer, for two reasons. It is then in no state dict, so the length can change after
    training. And it stays in float32 under `module.to(torch.bfloat16)`, because `_apply` only moves
    it between devices: in bfloat16, positions 256 and 257 would be equal.

    `Transformer.draw_matrices` initialises the matrices of a subclass. Parameters of fewer than two
    dimensions keep the values that the constructor gave them.
    """

    # The options of encodings in ModelConfig that this one reads, such as theta. Those that the
    # model reads too, such as dim, are not among them.
    options: tuple[str, ...] = ()
    extrapolates = True  # False: positions beyond the training length have no meaning
    cache_limit: float = math.inf  # in a longer text, cached keys are invalid
    embedding_std = INIT_STD  # standard deviation of the token embeddings at the start
    key_width_factor = 1  # width of the queries and keys that attention compares, over head_dim

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Raise UserError for a model that this encoding cannot serve."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.table: Any = None  # a tensor, where the encoding has one

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PositionEncoding":
        super()._apply(fn, recurse)
        if self.table is not None:
            device = fn(torch.empty(0, device=self.table.device)).device
            # No checkpoint holds the table, so moving it to "meta" would lose it.
            if device.type != "meta":
                self.table = self.table.to(device)
        return self

    # --- the hooks ---

    def embed(self, h: Tensor, start: int) -> Tensor:
        """Add positions to h (B, T, C), the embeddings of the tokens at start, start + 1, ..."""
        return h

    def freqs_cis(self, start: int, stop: int) -> Tensor | None:
        """Return the rotations of positions start .. stop-1 in a text of `stop` tokens.

        They are (T, D/2, 2), complex numbers as pairs of real ones, unless `attach` gives attention
        a `rotate` of its own. None means that queries and keys are not rotated.
        """
        return None

    def bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        """Return what is added to the scores q k / sqrt(D), or None for nothing.

        It is (H, T, S), or (1, T, S) where all heads are alike. `check_bias` in model/encodings.py
        refuses other shapes.
        """
        return None

    def attach(self, model: nn.Module) -> None:
        """Change a model that has just been built, for example by registering module hooks."""

    # --- the mask ---

    def mask(self, start: int, stop: int, device: torch.device, first: int = 0) -> Mask:
        """Return the mask for queries at start .. stop-1 and keys at first .. stop-1.

        None if plain causal attention is enough, and for one query without a bias, which sees all
        keys. Otherwise bool (T, S), or float (1, H, T, S) if the encoding has a bias.
        """
        keys = torch.arange(first, stop, device=device)
        queries = keys[start - first :]
        bias = self.bias(queries, keys)
        # Without earlier keys SDPA's own causal mask is right; a single query sees all keys.
        if bias is None and (start == first or stop - start == 1):
            return None
        visible = queries[:, None] >= keys[None, :]
        # [None]: on a CPU, scaled_dot_product_attention is ten times as slow for a bias (H, T, S).
        return visible if bias is None else bias.masked_fill(~visible, -torch.inf)[None]


def table_positions(config: ModelConfig) -> int:
    """Return how many positions the table of a `RoPE` covers."""
    scaling = config.rope_scaling
    if scaling is not None and scaling.type == "dynamic":  # each longer text has its own table
        return min(config.max_positions, scaling.original_positions)
    return config.max_positions


class RoPE(PositionEncoding):
    """Rotary positions: pair j of every query and key turns by position * theta^(-2j/D).

    A rotation changes no norm, and the score of two rotated vectors depends on their distance only.
    (Su et al. 2021, arXiv:2104.09864; the layout is Meta's.)

    With `config.partial` below 1, only that fraction of the pairs turns, the fastest ones.

    With dynamic scaling, frequencies depend on the length of the text once it passes the trained
    length: the table covers the trained length only, and each longer text gets its own. Otherwise
    the table covers `max_positions`.
    """

    options = ("theta", "partial", "rope_scaling")

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        if config.head_dim % 2:
            raise UserError(
                f"rope turns pairs of channels: model.head_dim must be even, not {config.head_dim}"
            )
        scaling = config.rope_scaling
        if config.head_dim < 4 and scaling is not None and scaling.type in ("ntk", "dynamic"):
            raise UserError(
                f"model.head_dim {config.head_dim} is one pair, which ntk and dynamic scaling "
                "never slow. Use at least 4"
            )

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        scaling = config.rope_scaling
        if scaling is not None and scaling.original_positions is None:
            raise UserError("model.rope_scaling.original_positions must be set to build a RoPE")
        if scaling is not None and scaling.type == "dynamic":
            self.cache_limit = scaling.original_positions
        self.config = config
        self.table = self.precompute(table_positions(config))

    def precompute(self, end: int) -> Tensor:
        """Return the rotations of positions 0 .. end-1 in a text of `end` tokens, (end, D/2, 2)."""
        config = self.config
        rotations = precompute_freqs_cis(
            config.head_dim, end, config.theta, config.partial, config.rope_scaling
        )
        return torch.view_as_real(rotations)

    def freqs_cis(self, start: int, stop: int) -> Tensor:
        if stop <= self.cache_limit:
            return self.table[start:stop]
        return self.precompute(stop)[start:stop].to(self.table.device)


def sinusoid(dim: int, end: int, theta: float = 10000.0) -> Tensor:
    """Return Vaswani's table p[m, 2t] = sin(m / theta^(2t/C)), p[m, 2t+1] = cos(the same).

    Float32 of shape (end, C), rounded once from float64, with rms sqrt(1/2).
    (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)
    """
    positions = torch.arange(end, dtype=torch.float64, device="cpu")
    columns = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu")
    angles = torch.outer(positions, theta ** (-columns / dim))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :dim].float()


class Sinusoidal(PositionEncoding):
    """Fixed sinusoids added to the embeddings, once, at the input.

    LLaMA's embeddings E start with a standard deviation of 0.02. A sinusoid p of amplitude 1 has an
    rms of 0.71, which is 35 times larger. The option `sinusoid` says how to add the two:

    matched   E + alpha*p    alpha is learnable and starts where both terms have the same rms
    vaswani   sqrt(C)*E + p  as in the paper; E starts with standard deviation 1/sqrt(C), so the
                             first term has variance 1
    naive     E + p          without any scaling, kept to show what that costs
    """

    options = ("theta", "sinusoid")

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.table = sinusoid(config.dim, config.max_positions, config.theta)
        self.embedding_scale = 1.0
        if config.sinusoid == "vaswani":
            self.embedding_scale = math.sqrt(config.dim)
            self.embedding_std = 1 / self.embedding_scale
        self.alpha: nn.Parameter | float = 1.0
        if config.sinusoid == "matched":
            self.alpha = nn.Parameter(torch.tensor([math.sqrt(2) * INIT_STD]))

    def embed(self, h: Tensor, start: int) -> Tensor:
        rows = self.table[start : start + h.shape[1]]
        return (self.embedding_scale * h.float() + self.alpha * rows).type_as(h)


class Learned(PositionEncoding):
    """One trainable vector per position, added to the embeddings (GPT-2).

    gyre/options.py caps max_positions at data.seq_len: later ones would never be trained.
    """

    extrapolates = False

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(config.max_positions, config.dim))

    def embed(self, h: Tensor, start: int) -> Tensor:
        return h + self.weight[start : start + h.shape[1]].type_as(h)


def alibi_slopes(n_heads: int) -> Tensor:
    """Return 2^(-8(h+1)/H) for each head h, float32 (H,), if H is a power of two.

    For other H, the published interpolation between the nearest powers. (Press et al. 2021,
    arXiv:2108.12409, and its reference code)
    """
    whole = 2 ** math.floor(math.log2(n_heads))
    slopes = [2.0 ** (-8 * (h + 1) / whole) for h in range(whole)]
    between = [2.0 ** (-8 * (h + 1) / (2 * whole)) for h in range(0, 2 * whole, 2)]
    return torch.tensor((slopes + between)[:n_heads], dtype=torch.float32, device="cpu")


class ALiBi(PositionEncoding):
    """Scores fall linearly with distance, each head with its own slope: -slope * (m - n), for the
    query at m and the key at n.

    (Press et al. 2021, arXiv:2108.12409)
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.table = alibi_slopes(config.n_heads)

    def bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        distance = q_positions[:, None] - k_positions[None, :]  # (T, S)
        return -self.table[:, None, None] * distance
