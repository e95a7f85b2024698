"""From logits to a token.

Shapes: B rows, V vocabulary. A row is one sample of one prompt.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from errors import Range, UserError, check_ranges
from model.transformer import derive_seed

BROKEN = -1
"""What `sample` returns instead of a token for logits that are not finite."""

CANDIDATE_SHARES = (1.0, 0.125)
"""Thresholds for the candidates of `nucleus`, in units of the average mass, 1/V. The first that
suffices is taken."""
ROUNDING = 1e-9
"""Sums of masses in different orders differ by less than this."""


@dataclass(frozen=True)
class Sampling:
    """How to draw a token: `repetition_penalty` applies first, then the others in their order here.

    It is Hugging Face's order.
    """

    temperature: Annotated[float, Range(ge=0)] = 0.8
    """Divide the logits by this; 0 takes the likeliest token."""
    # In other programs, top_k 0 keeps all.
    top_k: Annotated[int | None, Range(ge=1, advice="leave it out to keep all tokens")] = None
    """Keep the k likeliest tokens. Unset: all."""
    top_p: Annotated[float | None, Range(gt=0, le=1)] = None
    """Keep the smallest set of likeliest tokens whose probabilities sum to p. Unset: all."""
    min_p: Annotated[float | None, Range(ge=0, le=1)] = None
    """Keep tokens at least this fraction as likely as the likeliest. Unset: all."""
    repetition_penalty: Annotated[float, Range(ge=0.01, le=100)] = 1.0
    """Above 1, tokens of the prompt and of the text so far become less likely: positive scores are
    divided by it, negative ones multiplied. (CTRL, Keskar et al. 2019, arXiv:1909.05858)"""

    def check(self) -> None:
        """Raise UserError for values that have no meaning or no effect."""
        check_ranges(self)
        if self.temperature > 0:
            return
        for name in ("top_k", "top_p", "min_p"):
            if getattr(self, name) is not None:
                raise UserError(f"{name} has no effect at temperature 0: leave it out")

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the likeliest one, whatever the seed."""
        return self.temperature == 0 or self.top_k == 1


def uniform(seed: int, sample_index: int, token_index: int) -> float:
    """Return the random number in [0, 1) that draws a new token of a sample.

    It is a function of its address and not the next value of a stream. So a row draws the same text
    alone and in any batch, with and without the cache.
    """
    bits = derive_seed(seed, "sample", sample_index, token_index)
    return (bits >> 10) / 2**53  # 63 bits -> a float's 53


def sample(logits: Tensor, sampling: Sampling, uniforms: Tensor, seen: Tensor) -> Tensor:
    """Draw a token for each row of logits (B, V) by its number in [0, 1) -> ids (B,).

    Temperature 0 takes the likeliest token. `uniforms` (B,) are float64; `seen`, bool (B, V), marks
    the tokens that the repetition penalty applies to. The id is BROKEN for a row whose largest
    logit is infinite or NaN. It is no exception, because raising one would wait for the device.

    Tokens stay in the order of their ids: if they were sorted by score, a rounding error could swap
    two close ones and so draw another token. Scores are float64 and the largest is shifted to 0, so
    that no temperature overflows.
    """
    scores = logits
    if sampling.temperature > 0 or sampling.repetition_penalty != 1:
        scores = logits.double()
    if sampling.repetition_penalty != 1:
        penalty = sampling.repetition_penalty
        penalised = torch.where(scores > 0, scores / penalty, scores * penalty)
        scores = torch.where(seen, penalised, scores)
    if sampling.temperature == 0:
        largest, ids = scores.max(-1)
    else:
        largest = scores.amax(-1)
        scores = (scores - largest[:, None]).div_(sampling.temperature)
        ids = draw_by_number(scores, sampling, uniforms)
    # NaN unless the largest is finite. isfinite would be more kernels.
    difference = largest - largest
    return ids.masked_fill_(difference.isnan(), BROKEN)


def draw_by_number(scores: Tensor, sampling: Sampling, uniforms: Tensor) -> Tensor:
    """Draw from scores (B, V), of which 0 is the largest, by numbers (B,) -> ids (B,)."""
    n_tokens = scores.shape[-1]
    top_k = n_tokens if sampling.top_k is None else sampling.top_k
    top_p = 1.0 if sampling.top_p is None else sampling.top_p
    if top_k < n_tokens:
        # Comparing with the k-th score instead would keep all of its ties.
        kept = scores.topk(top_k)
        scores = torch.full_like(scores, -math.inf).scatter(-1, kept.indices, kept.values)
    # Masses need not be divided by their sum, because `target` is multiplied by it. But top_p does
    # need that, and exp would be slow for the scores of -inf that top_k leaves.
    needs_softmax = top_k < n_tokens or top_p < 1
    masses = scores.softmax(-1) if needs_softmax else scores.exp()
    if top_p < 1:
        masses = masses.masked_fill(~nucleus(masses, top_p), 0)
    if sampling.min_p:
        masses = masses.masked_fill(scores < math.log(sampling.min_p), 0)
    cdf = masses.cumsum(-1)
    # The first token whose cdf is above the target. It never has probability 0.
    target = uniforms[:, None] * cdf[:, -1:]
    return torch.searchsorted(cdf, target, right=True).squeeze(-1)


def nucleus(masses: Tensor, p: float) -> Tensor:
    """Mark the smallest set of the largest masses (B, V) whose sum reaches p: bool (B, V).

    Of equal masses the first are taken. Only candidates are sorted: masses above a threshold, which
    sum to more than p, so that the set is among them. Sorting the vocabulary would take longer than
    a small model. (Holtzman et al. 2020, arXiv:1904.09751)
    """
    if masses.is_cuda:  # to read how many candidates there are would wait for the GPU
        return sort_nucleus(masses, p)
    candidates = masses > candidate_threshold(masses, p)
    counts = candidates.sum(-1, keepdim=True)
    columns = torch.arange(int(counts.max()), device=masses.device)
    # The candidates of each row are moved to its left, in the order of their ids; zeros follow.
    filled = columns < counts
    compact = torch.zeros(filled.shape, dtype=torch.float64, device=masses.device)
    compact.masked_scatter_(filled, masses.masked_select(candidates))
    compact_nucleus = sort_nucleus(compact, p)
    # Back to the places that they came from.
    return candidates.masked_scatter(candidates, compact_nucleus.masked_select(filled))


def sort_nucleus(masses: Tensor, p: float) -> Tensor:
    """Return `nucleus` of masses (B, V), float64, by sorting all of them."""
    # Floats that are not negative are in the order of their bits, and integers sort faster.
    bits, order = masses.view(torch.int64).sort(dim=-1, descending=True, stable=True)
    ranked = bits.view(torch.float64)
    before = ranked.cumsum(-1) - ranked  # 0 for the largest, so at least one stays
    kept = (before < p).sum(-1, keepdim=True)
    columns = torch.arange(masses.shape[-1], device=masses.device)
    return torch.empty_like(order, dtype=torch.bool).scatter_(-1, order, columns < kept)


def candidate_threshold(masses: Tensor, p: float) -> float:
    """Return a threshold: in each row (B, V), the masses above it sum to more than p.

    Usually few masses are above it. -1, below all masses, if none of CANDIDATE_SHARES will do.
    """
    for share in CANDIDATE_SHARES:
        threshold = share / masses.shape[-1]
        sums = F.threshold(masses, threshold, 0).sum(-1)
        if (sums > p + ROUNDING).all():
            return threshold
    return -1.0
