"""RoPE as functions: the table of rotations, its application, and its scaling to longer texts.

Shapes: T tokens, H query heads, H_kv key/value heads, D head width, D/2 pairs of channels.
"""

import math

import torch
from torch import Tensor

from model.config import RopeScaling
from model.kernels import or_faster


def rope_frequencies(head_dim: int, theta: float = 10000.0, partial: float = 1.0) -> Tensor:
    """How far pair i of a head turns from one position to the next, in radians: theta^(-2i/D).

    Returns float64 of shape (D/2,), from the fastest pair to the slowest. With `partial` < 1 only
    the first int(partial * D // 2) pairs turn, at unchanged frequencies, and the slow rest stands
    still: p-RoPE (Barbero et al. 2024, arXiv:2410.06205), which is not "partial rotary".
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
    """The table of rotations e^(i * position * frequency) for positions 0 .. end-1.

    Returns complex64 of shape (end, D/2), on the CPU. Angles are computed in float64 and rounded
    once: in float32 the angle of position 8191 is already off by 2e-4. Every entry has magnitude 1,
    or what YaRN multiplies queries and keys by. (Su et al. 2021, arXiv:2104.09864)
    """
    if scaling is None:
        frequencies, magnitude = rope_frequencies(head_dim, theta, partial), 1.0
    else:
        frequencies = scaled_frequencies(scaling, end, head_dim, theta, partial)
        magnitude = scaling.magnitude
    positions = torch.arange(end, dtype=torch.float64, device="cpu")
    angles = torch.outer(positions, frequencies)
    return torch.polar(torch.full_like(angles, magnitude), angles).to(torch.complex64)


def reshape_for_broadcast(freqs_cis: Tensor, x: Tensor) -> Tensor:
    """A table (T, D/2) -> (1, T, 1, D/2), to multiply x of shape (B, T, H, D/2).

    Raises ValueError if the two disagree: a table of one row would broadcast in silence.
    """
    if freqs_cis.shape != (x.shape[1], x.shape[-1]):
        raise ValueError(
            f"freqs_cis has shape {tuple(freqs_cis.shape)}, but the tokens and pairs to rotate are "
            f"{(x.shape[1], x.shape[-1])}"
        )
    return freqs_cis[None, :, None, :]


@or_faster
def apply_rotary_emb(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries (B, T, H, D) and keys (B, T, H_kv, D) by freqs_cis (T, D/2), complex.

    Channels 2i and 2i+1 are read as one complex number (Meta's layout) and multiplied by
    e^(i*angle), in float32; the result has the caller's dtype. Afterwards the score of a query at
    position m and a key at n depends on n - m alone: q^T R(n-m) k.

    freqs_cis may also be (T, D/2, 2), the complex numbers as pairs of real ones. Models hold it so,
    because the compiler has no complex numbers.
    """
    if not freqs_cis.is_complex():
        freqs_cis = torch.view_as_complex(freqs_cis)

    def rotate(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))  # (B, T, H, D/2)
        turned = pairs * reshape_for_broadcast(freqs_cis, pairs)
        return torch.view_as_real(turned).flatten(-2).type_as(x)

    return rotate(xq), rotate(xk)


def scaled_frequencies(
    scaling: RopeScaling, length: int, head_dim: int, theta: float = 10000.0, partial: float = 1.0
) -> Tensor:
    """`rope_frequencies`, scaled. `length` is how long the text is now, which dynamic reads.

    linear is position interpolation (Chen et al. 2023, arXiv:2306.15595).
    """
    frequencies = rope_frequencies(head_dim, theta, partial)
    slowed = frequencies / scaling.factor
    if scaling.type == "linear":
        return slowed
    if scaling.type == "yarn":
        return torch.lerp(frequencies, slowed, yarn_ramp(scaling, head_dim, theta))
    if scaling.type == "llama3":
        return torch.lerp(slowed, frequencies, llama3_ramp(scaling, frequencies))
    factor = scaling.factor if scaling.type == "ntk" else dynamic_factor(scaling, length)
    return rope_frequencies(head_dim, ntk_theta(theta, factor, head_dim), partial)


def ntk_theta(theta: float, factor: float, head_dim: int) -> float:
    """The base with which the fastest pair turns as before and the slowest exactly s times slower.

    b' = b * s^(D/(D-2)). (bloc97 2023, "NTK-aware scaled RoPE"; arXiv:2309.00071, section 3.1)
    """
    if head_dim < 4:
        raise ValueError(
            f"model.head_dim {head_dim} is one pair, which ntk and dynamic scaling never slow: "
            "it must be at least 4"
        )
    return theta * factor ** (head_dim / (head_dim - 2))


def dynamic_factor(scaling: RopeScaling, length: int) -> float:
    """f*l/L - (f-1), and 1 up to length L: dynamic NTK as Hugging Face has it.

    The paper's l/L is f = 1. (emozilla 2023; arXiv:2309.00071, section 3.3)
    """
    f, stretch = scaling.factor, length / scaling.original_positions
    return max(1.0, f * stretch - (f - 1))


def yarn_ramp(scaling: RopeScaling, head_dim: int, theta: float) -> Tensor:
    """How much of the slowing each pair gets: 0 for the fast pairs, 1 for the slow, a line between.

    The line is drawn over the number of the pair, as in the reference code; the paper draws it over
    the pair's turns within L. Returns (D/2,). (Peng et al. 2023, arXiv:2309.00071)
    """

    def pair_that_turns(times: float) -> float:
        radians = 2 * math.pi * times / scaling.original_positions
        return -head_dim * math.log(radians) / (2 * math.log(theta))

    low = max(math.floor(pair_that_turns(scaling.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(scaling.beta_slow)), head_dim - 1)
    pairs = torch.arange(head_dim // 2, dtype=torch.float64, device="cpu")
    width = (high - low) or 0.001  # below 0 for L under a few tokens, as in the reference code
    return ((pairs - low) / width).clamp(0, 1)


def llama3_ramp(scaling: RopeScaling, frequencies: Tensor) -> Tensor:
    """How much of its frequency each pair keeps, by its turns within L: 1 for the fast ones.

    Returns (D/2,). (Llama Team 2024, arXiv:2407.21783; apply_scaling in meta-llama/llama-models)
    """
    turns = scaling.original_positions * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    return ((turns - low) / (high - low)).clamp(0, 1)
