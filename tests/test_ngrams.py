"""The floors of the study, against counting by hand."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from ablation.ngrams import ngram_losses


def by_hand(train, held_out, size, longest):
    """The same by dictionaries, one token after the other."""
    counts = [defaultdict(Counter) for _ in range(longest)]
    for n in range(1, longest + 1):
        for i in range(len(train) - n + 1):
            counts[n - 1][tuple(train[i : i + n - 1])][train[i + n - 1]] += 1
    nats = [0.0] * longest
    for i in range(longest - 1, len(held_out)):
        p = 1 / size
        for n in range(1, longest + 1):
            after = counts[n - 1].get(tuple(held_out[i - n + 1 : i]), Counter())
            if after:
                p = (after[held_out[i]] + len(after) * p) / (after.total() + len(after))
            nats[n - 1] -= math.log(p)
    return [total / (len(held_out) - longest + 1) for total in nats]


def test_losses_are_those_of_counting_by_hand():
    """With a token that only the held-out text has, and one that neither has."""
    rng = np.random.default_rng(0)
    train, held_out = (rng.geometric(0.3, n) % 7 for n in (400, 90))
    held_out[[20, 50]] = 7
    for times, size, longest in ((1, 9, 4), (9999, 69994, 3)):  # of these, codes above 2**32
        ids = train * times, held_out * times
        losses = by_hand(*(part.tolist() for part in ids), size, longest)
        assert ngram_losses(*ids, size, longest) == pytest.approx(losses) and losses[1] > 1
