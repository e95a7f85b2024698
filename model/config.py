"""The configuration of a model: the shape of its layers and its position encoding."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from errors import Range, UserError, check_range, check_ranges

# The standard deviation of the first weights; sinusoids are scaled to it.
INIT_STD = 0.02

# The default of a field that is filled in later from other fields, of whatever type.
UNSET: Any = None

SIZE = Range(ge=1, lt=2**31)
POSITIVE = Range(gt=0)

# Fields that may change when training starts from the weights of another run, because the names and
# shapes of weights do not depend on them. For learned positions max_positions may not change, see
# gyre/start.py.
CHANGEABLE = "norm_eps", "dropout", "max_positions", "theta", "partial", "rope_scaling"


ScalingType = Literal["linear", "ntk", "dynamic", "yarn", "llama3"]


@dataclass(frozen=True)
class RopeScaling:
    """Slower rotations, with which a model that was trained on L positions reads s*L of them.

    Past L, the slow pairs reach angles that training never had. Each type slows them down in its
    own way. All work without further training, and better with some. Raises UserError for values
    that have no meaning, and for options of another type.
    """

    type: ScalingType
    """linear slows all pairs equally; ntk slows the slow ones more; dynamic is ntk for the current
    length; yarn and llama3 keep the fast pairs and slow the slow ones."""
    factor: Annotated[float, Range(ge=1, le=1e6)]
    """How many times longer the context becomes, s. dynamic stretches more and more as a text
    grows: with 1 as in its paper, and with other values as in Hugging Face's code."""
    original_positions: Annotated[int, Range(gt=0, lt=2**31)] = UNSET
    """The length L that the model was trained on. Unset: data.seq_len."""
    beta_fast: Annotated[float, POSITIVE] = 32.0
    """Pairs that turn at least this often within L keep their frequency (yarn), and so does the
    fastest pair in any case. If L is 128, even that one turns only 20 times. A lower value keeps
    more pairs."""
    beta_slow: float = 1.0
    """Pairs that turn at most this often within L are slowed by the whole factor (yarn). If that is
    every pair, none is slowed, as in the reference code."""
    attention_factor: Annotated[float | None, Range(gt=0, lt=2**31)] = None
    """Factor on queries and on keys (yarn). Unset: 0.1 ln s + 1."""
    low_freq_factor: float = 1.0
    """Pairs that turn at most this often within L are slowed by the whole factor (llama3)."""
    high_freq_factor: Annotated[float, POSITIVE] = 4.0
    """Pairs that turn at least this often within L keep their frequency (llama3)."""

    def __post_init__(self) -> None:
        types = get_args(ScalingType)
        if self.type not in types:
            raise UserError(f"model.rope_scaling.type must be one of {', '.join(types)}")
        check_ranges(self, "model.rope_scaling.")
        check_range("model.rope_scaling.beta_slow", self.beta_slow, Range(gt=0, lt=self.beta_fast))
        check_range("model.rope_scaling.low_freq_factor", self.low_freq_factor,
                    Range(gt=0, lt=self.high_freq_factor))
        for option, reader in {
            "beta_fast": "yarn", "beta_slow": "yarn", "attention_factor": "yarn",
            "low_freq_factor": "llama3", "high_freq_factor": "llama3",
        }.items():
            if self.type != reader and getattr(self, option) != getattr(RopeScaling, option):
                raise UserError(
                    f"model.rope_scaling.{option} has no effect with type {self.type}: "
                    f"it belongs to {reader}"
                )

    @property
    def reach(self) -> int:
        """The number of positions that the scaling is meant for: s*L."""
        return scale_length(self.factor, self.original_positions)

    @property
    def magnitude(self) -> float:
        """The factor on queries and on keys: YaRN's, which sharpens attention; 1 for others."""
        if self.type != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1


def scale_length(factor: float, length: int) -> int:
    """Return a factor times a length, rounded up: 110 for 1.1 * 100, which is 110.00000000000001,
    and not 111."""
    return math.ceil(round(factor * length, 6))


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the model and its position encoding.

    The constructor fills in unset fields, except `vocab_size` and `max_positions`, which depend on
    the data. It raises UserError for values that cannot be built. `check_position` in
    model/encodings.py checks the encoding.
    """

    dim: Annotated[int, SIZE] = 256
    """Width C of the residual stream."""
    n_layers: Annotated[int, SIZE] = 4
    """Number of blocks."""
    n_heads: Annotated[int, SIZE] = 4
    """Number of query heads H."""
    n_kv_heads: Annotated[int, SIZE] = UNSET
    """Number of key/value heads; must divide n_heads. Unset: n_heads (no grouping)."""
    head_dim: Annotated[int, SIZE] = UNSET
    """Width D of a head. Unset: dim / n_heads."""
    hidden_dim: Annotated[int, SIZE] = UNSET
    """Width of the SwiGLU layer. Unset: 8/3 dim, rounded up to a multiple of 32."""
    vocab_size: Annotated[int, SIZE] = UNSET
    """Vocabulary V. Unset: the tokenizer's."""
    tie_embeddings: bool = True
    """Use the embedding matrix as the output matrix too."""
    norm_eps: Annotated[float, POSITIVE] = 1e-5
    """Epsilon of RMSNorm."""
    dropout: Annotated[float, Range(ge=0, lt=1)] = 0.0
    """Probability with which each element of the embeddings, and of each half block's output, is
    dropped."""
    max_positions: Annotated[int, SIZE] = UNSET
    """Longest text (prompt + new tokens). Unset: the larger of 4 data.seq_len and the length that
    rope_scaling is meant for; data.seq_len for learned positions."""
    position: str = "rope"
    """Position encoding: rope, sinusoidal, learned, alibi or none; for experiments sin_qk,
    sin_qk_first, sin_qkv, sin_residual, learned_qk, rope_first, rope_nope, rope_sinscale,
    sin_aligned, sin_qk_aligned, pope, pope_nophase, partial_25, partial_10, rope_sin_qk or
    sin_qk_rope_last; or one of your own."""
    theta: Annotated[float, Range(gt=1)] = 10000.0
    """Base of the wavelengths (all that rotate, and sinusoids)."""
    partial: Annotated[float, Range(ge=0, le=1)] = 1.0
    """Fraction of the channel pairs that turn, the fastest ones (rope, rope_sinscale): p-RoPE."""
    rope_scaling: RopeScaling | None = None
    """Slower rotations for texts longer than the training rows (rope, rope_sinscale); needs type
    and factor. Unset: none."""
    sinusoid: Literal["matched", "vaswani", "naive"] = "matched"
    """How sinusoids are added (sinusoidal): E + alpha p, sqrt(C) E + p, or E + p."""

    def __post_init__(self) -> None:
        check_ranges(self, "model.")
        if self.n_kv_heads is None:
            object.__setattr__(self, "n_kv_heads", self.n_heads)  # it is frozen from now on
        if self.head_dim is None:
            if self.dim % self.n_heads:
                raise UserError(
                    f"model.dim {self.dim} is not divisible by model.n_heads {self.n_heads}: "
                    "change one of them or set model.head_dim"
                )
            object.__setattr__(self, "head_dim", self.dim // self.n_heads)
        if self.hidden_dim is None:
            object.__setattr__(self, "hidden_dim", 32 * math.ceil(8 * self.dim / 3 / 32))
        if self.n_heads % self.n_kv_heads:
            raise UserError(
                f"model.n_heads {self.n_heads} is not divisible by model.n_kv_heads "
                f"{self.n_kv_heads}: every key/value head serves the same number of query heads"
            )

    @property
    def matrix_parameters(self) -> int:
        """The number of weights in the matrix products of each token: blocks and output matrix.

        Looking up an embedding is no product, so tying makes no difference.
        """
        attention = 2 * (self.n_heads + self.n_kv_heads) * self.head_dim  # wq, wo; wk, wv
        rows = self.n_layers * (attention + 3 * self.hidden_dim) + self.vocab_size
        return rows * self.dim

    def flops_per_token(self, seq_len: int, key_dim: int | None = None) -> int:
        """FLOPs of a training step, forward and backward, per token of a row of T = seq_len.

        6 for every weight in a matrix product, and 6 T n_layers n_heads head_dim each for scores
        and values. The causal mask does not halve these. (Chowdhery et al. 2022, arXiv:2204.02311,
        appendix B) Keys may have another width than values, `key_dim` of model/encodings.py.
        """
        if key_dim is None:
            key_dim = self.head_dim
        attention = 6 * seq_len * self.n_layers * self.n_heads * (key_dim + self.head_dim)
        return 6 * self.matrix_parameters + attention
