"""The losses of n-gram models: what counting alone predicts, as reference lines for loss curves.

The unigram's loss needs no context, the bigram's only the last token. A loss below the bigram's
shows that a model uses the order of earlier tokens.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def ngram_losses(train: Ids, held_out: Ids, vocab_size: int, longest: int = 3) -> list[float]:
    """Mean nats per token of `held_out` under the n-gram models of `train`, n = 1 .. `longest`.

    `train` (M,) and `held_out` (N,) are token ids. All n are measured on the same targets: from the
    `longest`-th token on, so that each target has a whole context.

    Counts are interpolated with the (n-1)-gram model, whose weight is the number of different
    tokens seen after the context (Witten and Bell 1991); the unigram with the uniform distribution.
    No parameter is fitted.
    """
    probability = np.full(len(held_out) - longest + 1, 1 / vocab_size)
    losses = []
    for n in range(1, longest + 1):
        seen, counts = np.unique(_codes(train, n, vocab_size), return_counts=True)
        contexts, first = np.unique(seen // vocab_size, return_index=True)
        followers = np.diff(np.append(first, len(seen)))  # different ones, of each context
        totals = np.add.reduceat(counts, first)
        asked = _codes(held_out, n, vocab_size)[longest - n :]
        asked_contexts = asked // vocab_size
        count = _look_up(seen, counts, asked)
        n_total = _look_up(contexts, totals, asked_contexts)
        n_followers = _look_up(contexts, followers, asked_contexts)
        # A context that was never seen leaves the shorter one's probability as it is.
        weight = np.where(n_total > 0, n_followers, 1)
        probability = (count + weight * probability) / (n_total + weight)
        losses.append(float(-np.log(probability).mean()))
    return losses


def _codes(ids: Ids, n: int, vocab_size: int) -> Ids:
    """One number for each run of n tokens. Three fit into 64 bits up to a vocabulary of 2 million.
    """
    return sliding_window_view(ids, n) @ vocab_size ** np.arange(n)[::-1]


def _look_up(keys: Ids, values: NDArray, asked: Ids) -> NDArray:
    """The value of each key that is asked for, 0 where there is none. `keys` are sorted."""
    at = np.searchsorted(keys, asked).clip(max=len(keys) - 1)
    return np.where(keys[at] == asked, values[at], 0)
