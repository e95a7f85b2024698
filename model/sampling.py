"""From logits to a token.

Shapes: B rows, V vocabulary. A row is one sample of one prompt.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import derive_seed


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: the penalty first, then the others in this order (Hugging Face's).

    `generate` raises ValueError for values without a meaning, or without an effect.
    """

    temperature: float = 0.8
    """Logits are divided by it; 0 takes the likeliest token."""
    top_k: int | None = None
    """Keep the k likeliest tokens. Unset: all."""
    top_p: float | None = None
    """Keep the smallest set of likeliest tokens whose mass reaches p. Unset: all."""
    min_p: float | None = None
    """Keep tokens at least this fraction as likely as the likeliest. Unset: all."""
    repetition_penalty: float = 1.0
    """Above 1, tokens that the row holds, prompt included, become less likely: a positive score is
    divided by it, a negative one multiplied. (CTRL, Keskar et al. 2019, arXiv:1909.05858)"""


def uniform(seed: int, sample: int, number: int) -> float:
    """The random number in [0, 1) that draws new token `number` of sample `sample`.

    A function of its address, not the next value of a stream: a row draws the same text alone and
    in any batch, with and without the cache, however many rows or tokens are asked for.
    """
    return (derive_seed(seed, "sample", sample, number) >> 10) / 2**53  # 63 bits -> a float's 53


def sample(
    logits: Tensor, sampling: Sampling, addresses: list[tuple[int, int, int]], seen: Tensor
) -> Tensor:
    """Draw a token for each row of logits (B, V) -> ids (B,), by the random number at the row's
    address (seed, sample, number). See `uniform` and `draw`."""
    numbers = [uniform(*address) for address in addresses]
    return draw(logits, sampling, torch.tensor(numbers, dtype=torch.float64), seen)


def draw(logits: Tensor, sampling: Sampling, uniforms: Tensor, seen: Tensor) -> Tensor:
    """Draw a token for each row of logits (B, V) by a uniform number, float64 (B,) -> ids (B,).

    Temperature 0 takes the likeliest token, whatever the number. `seen`, bool (B, V), marks the
    tokens that the repetition penalty applies to. The candidates stay in the order of their ids:
    sorted by score, two close ones would swap places, and with them the token drawn, over an error
    in the last digit. Computed in float64, with the largest score at 0 so that no temperature
    overflows. Raises ValueError for logits that are not finite.
    """
    scores = logits.double()
    if sampling.repetition_penalty != 1:
        penalty = sampling.repetition_penalty
        penalised = torch.where(scores > 0, scores / penalty, scores * penalty)
        scores = torch.where(seen, penalised, scores)
    largest = scores.amax(-1, keepdim=True)
    if not largest.isfinite().all():
        raise ValueError("the logits are not finite numbers: the model's weights are broken")
    if sampling.temperature == 0:
        return scores.argmax(-1)
    scores = (scores - largest) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        # Not "everything above the k-th score", which would keep its ties.
        kept = scores.topk(sampling.top_k)
        scores = torch.full_like(scores, -math.inf).scatter(-1, kept.indices, kept.values)
    if sampling.top_p is not None and sampling.top_p < 1:
        scores = scores.masked_fill(~nucleus(scores.softmax(-1), sampling.top_p), -math.inf)
    if sampling.min_p:
        scores = scores.masked_fill(scores < math.log(sampling.min_p), -math.inf)
    cdf = scores.softmax(-1).cumsum(-1)
    # The first token whose cdf is above the target; a token without mass never is the first.
    target = uniforms[:, None] * cdf[:, -1:]
    return torch.searchsorted(cdf, target, right=True).squeeze(-1)


FIRST_CANDIDATES = 512


def nucleus(masses: Tensor, p: float) -> Tensor:
    """The smallest set of the largest masses (B, V) that reaches p, of equal ones the first: bool
    (B, V). (Holtzman et al. 2020, arXiv:1904.09751)

    512 are sorted, and more only where they do not reach p: all of a vocabulary would take longer
    than a small model.
    """
    vocabulary = masses.shape[-1]
    candidates = min(FIRST_CANDIDATES, vocabulary)
    while True:
        largest = masses.topk(candidates).values
        before = largest.cumsum(-1) - largest  # 0 for the largest, which therefore always stays
        kept = (before < p).sum(-1, keepdim=True)
        if candidates == vocabulary or (kept < candidates).all():
            break
        candidates = min(8 * candidates, vocabulary)
    least = largest.gather(-1, kept - 1)
    above, ties = masses > least, masses == least
    return above | (ties & (ties.cumsum(-1) <= kept - above.sum(-1, keepdim=True)))
