"""RoPE as functions: the table of rotations, how it is applied, and its scaling to longer texts.

Shapes: T tokens, H query heads, H_kv key/value heads, D head width, D/2 pairs of channels. L is the
length that a model was trained on, `RopeScaling.original_positions`.
"""

import math

import torch
from torch import Tensor

from model.config import RopeScaling
from model.kernels import or_faster


def rope_frequencies(head_dim: int, theta: float = 10000.0, partial: float = 1.0) -> Tensor:
    """Radians that pair j turns from one position to the next: theta^(-2j/D).

    Returns float64 of shape (D/2,), from the fastest pair to the slowest. With `partial` < 1, only
    the first int(partial * D // 2) pairs turn, rounded as in transformers, and the slower ones
    stand still. This is p-RoPE (Barbero et al. 2024, arXiv:2410.06205). "Partial rotary" is another
    thing: it rotates the first channels only, with frequencies for that width.
    """
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float64, device="cpu")
    frequencies = theta ** (-pairs / head_dim)
    frequencies[int(partial * head_dim // 2) :] = 0.0
    return frequencies


def precompute_freqs_cis(
    head_dim: int,
    end: int,
    theta: float = 10000.0,
    partial: float = 1.0,
    scaling: RopeScaling | None = None,
) -> Tensor:
    """Return the rotations e^(i * position * frequency) of positions 0 .. end-1.

    Returns complex64 of shape (end, D/2), on the CPU. Every entry has magnitude 1,
    or `scaling.magnitude` with YaRN. Angles are computed in float64 and rounded once, because in
    float32 the angle of position 8191 is off by 2e-4. (Su et al. 2021, arXiv:2104.09864)
    """
    if scaling is None:
        frequencies = rope_frequencies(head_dim, theta, partial)
        magnitude = 1.0
    else:
        frequencies = scaled_frequencies(scaling, end, head_dim, theta, partial)
        magnitude = scaling.magnitude
    positions = torch.arange(end, dtype=torch.float64, device="cpu")
    angles = torch.outer(positions, frequencies)
    return torch.polar(torch.full_like(angles, magnitude), angles).to(torch.complex64)


@or_faster
def apply_rotary_emb(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries (B, T, H, D) and keys (B, T, H_kv, D) by freqs_cis (T, D/2), complex.

    Channels 2j and 2j+1 are one complex number (Meta's layout). It is multiplied by e^(i*angle) in
    float32, and the result has the dtype of the input. Afterwards the score of a query at position
    m and a key at position n depends on n - m alone: q^T R(n-m) k.

    freqs_cis may also be real, (T, D/2, 2). Models hold it so because the compiler generates no
    code for complex numbers. Raises ValueError unless it has T rows of D/2 pairs.
    """
    if not freqs_cis.is_complex():
        freqs_cis = torch.view_as_complex(freqs_cis)
    shape = (xq.shape[1], xq.shape[-1] // 2)
    if freqs_cis.shape != shape:  # one row would broadcast
        raise ValueError(f"freqs_cis has shape {tuple(freqs_cis.shape)} instead of {shape}")
    freqs_cis = freqs_cis[:, None]  # (T, 1, D/2): every head turns alike
    xq_pairs = torch.view_as_complex(xq.float().unflatten(-1, (-1, 2)))  # (B, T, H, D/2)
    xk_pairs = torch.view_as_complex(xk.float().unflatten(-1, (-1, 2)))  # (B, T, H_kv, D/2)
    xq_out = torch.view_as_real(xq_pairs * freqs_cis).flatten(-2)  # (B, T, H, D)
    xk_out = torch.view_as_real(xk_pairs * freqs_cis).flatten(-2)  # (B, T, H_kv, D)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def scaled_frequencies(
    scaling: RopeScaling, length: int, head_dim: int, theta: float = 10000.0, partial: float = 1.0
) -> Tensor:
    """Return `rope_frequencies` as `scaling` slows them, float64 (D/2,).

    `length` is how long the text is now; only `dynamic` reads it. `linear` is position
    interpolation (Chen et al. 2023, arXiv:2306.15595).
    """
    frequencies = rope_frequencies(head_dim, theta, partial)
    slowed = frequencies / scaling.factor
    if scaling.type == "linear":
        return slowed
    # The two ramps are opposite: yarn's is 1 for pairs that are slowed, llama3's for those that are
    # kept.
    if scaling.type == "yarn":
        return torch.lerp(frequencies, slowed, yarn_ramp(scaling, head_dim, theta))
    if scaling.type == "llama3":
        return torch.lerp(slowed, frequencies, llama3_ramp(scaling, frequencies))
    # What is left is ntk, and dynamic, which is ntk with another factor.
    factor = dynamic_factor(scaling, length) if scaling.type == "dynamic" else scaling.factor
    return rope_frequencies(head_dim, ntk_theta(theta, factor, head_dim), partial)


def ntk_theta(theta: float, factor: float, head_dim: int) -> float:
    """Return the base that keeps the fastest pair and slows the slowest exactly `factor` times.

    (bloc97 2023, "NTK-aware scaled RoPE"; arXiv:2309.00071, section 3.1)
    """
    return theta * factor ** (head_dim / (head_dim - 2))


def dynamic_factor(scaling: RopeScaling, length: int) -> float:
    """Return the factor of a text of l tokens: f*l/L - (f-1), and at least 1.

    f is `scaling.factor`. This is Hugging Face's dynamic NTK. With f = 1 it is the paper's l/L.
    (emozilla 2023; arXiv:2309.00071, section 3.3)
    """
    f = scaling.factor
    stretch = length / scaling.original_positions
    return max(1.0, f * stretch - (f - 1))


def yarn_ramp(scaling: RopeScaling, head_dim: int, theta: float) -> Tensor:
    """Return a weight for each pair, (D/2,): 0 keeps its frequency, 1 slows it by the whole factor.

    It is linear in the index of the pair, as in the reference code; in the paper it is linear in
    the turns within L. (Peng et al. 2023, arXiv:2309.00071)
    """

    def pair_that_turns(times: float) -> float:
        """Return the index, not rounded, of the pair that turns so many times within L."""
        radians = 2 * math.pi * times / scaling.original_positions
        return -head_dim * math.log(radians) / (2 * math.log(theta))

    low = max(math.floor(pair_that_turns(scaling.beta_fast)), 0)
    # D - 1, not D/2 - 1: as in the reference code
    high = min(math.ceil(pair_that_turns(scaling.beta_slow)), head_dim - 1)
    pairs = torch.arange(head_dim // 2, dtype=torch.float64, device="cpu")
    width = high - low  # negative if L is a few tokens, as in the reference code
    if width == 0:
        width = 0.001
    return ((pairs - low) / width).clamp(0, 1)


def llama3_ramp(scaling: RopeScaling, frequencies: Tensor) -> Tensor:
    """Return a weight for each pair, (D/2,): 1 keeps its frequency, 0 slows it by the whole factor.

    It rises linearly with the turns that the pair makes within L. (Llama Team 2024,
    arXiv:2407.21783; apply_scaling in meta-llama/llama-models)
    """
    turns = scaling.original_positions * frequencies / (2 * math.pi)
    low = scaling.low_freq_factor
    high = scaling.high_freq_factor
    return ((turns - low) / (high - low)).clamp(0, 1)
