"""What attention does, which SDPA itself does not return: the scores of keys and their weights."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gyre.measure import Scorer
from model.transformer import Transformer


@torch.inference_mode()
def measure_attention(scorer: Scorer, spans: Tensor) -> dict[str, list[list[float]]]:
    """Return two measures of each head of each layer, over the queries of windows of T tokens.

    `previous` is the share of attention on the token before, and `by_distance` the share of the
    scores' variance that their distance explains.
    """
    config = scorer.model.config
    found = torch.zeros(2, config.n_layers, config.n_heads, dtype=torch.float64)
    for rows in scorer.rows(spans, scorer.seq_len):
        scores = torch.stack(attention_scores(scorer.model, rows[:, :-1])).cpu().double()
        previous = scores.softmax(-1).diagonal(-1, dim1=-2, dim2=-1)  # (L, B, H, T - 1)
        measured = torch.stack((previous.mean((1, -1)), explained_by_distance(scores)))
        found += len(rows) / len(spans) * measured
    return dict(zip(("previous", "by_distance"), found.tolist(), strict=True))


def explained_by_distance(scores: Tensor) -> Tensor:
    """Return the share of the variance of scores that is a function of the distance m - n, (L, H).

    `scores` (L, B, H, T, T) are those of queries at m and keys at n <= m. Keys that a bias hides,
    by -inf, do not count. The share is 0 where all scores are equal. Where distance explains
    nothing, it is a little above 0, and the more so the fewer scores there are.

    It is a share of scores, and not of attention: a number that is added to all scores of a query
    changes the share, but no weight. Scores of n and of n - m, for example, give the same weights,
    and distance explains a quarter of the first and all of the second.
    """
    m, n = torch.tril_indices(*scores.shape[-2:])
    pairs = scores[..., m, n]
    visible = pairs.isfinite()
    pairs = pairs.where(visible, 0.0)
    mean = pairs.sum((1, 3), keepdim=True) / visible.sum((1, 3), keepdim=True)
    pairs = (pairs - mean).where(visible, 0.0)
    sums = scores.new_zeros(scores.shape[::2])  # (L, H, T)
    counts = torch.zeros_like(sums)
    sums.index_add_(-1, m - n, pairs.sum(1))
    counts.index_add_(-1, m - n, visible.sum(1).to(counts.dtype))
    explained = (sums.square() / counts.clamp(min=1)).sum(-1)
    total = pairs.square().sum((1, 3))
    return explained / total.where(total > 0, 1.0)


class AttentionScores(TorchFunctionMode):
    """Within `with`, record the scores of every attention: (B, H, T, T), -inf where a key is
    hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            # `attend` of model/transformer.py passes these four by position.
            xq, xk, _, mask = args  # (B, H, T, D), (B, H_kv, T, D)
            xk = xk.repeat_interleave(xq.shape[1] // xk.shape[1], dim=1)
            scores = torch.einsum("bhtd,bhsd->bhts", xq, xk) * xq.shape[-1] ** -0.5
            if mask is None:  # causal
                mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=xq.device).tril()
            if mask.dtype == torch.bool:  # which keys are visible
                scores = scores.masked_fill(~mask, -torch.inf)
            else:  # a bias
                scores = scores + mask
            self.layers.append(scores)
        return func(*args, **(kwargs or {}))


def attention_scores(model: Transformer, tokens: Tensor) -> list[Tensor]:
    """Tokens (B, T) -> the scores of each layer, (B, H, T, T), whose softmax are the weights."""
    with AttentionScores() as scores:
        model.hidden_states(tokens)
    return scores.layers
