"""The floors of the study, against counting by hand."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from ablation.ngrams import ngram_losses


def count_by_hand(
    train: list[int], held_out: list[int], vocab_size: int, longest: int
) -> list[float]:
    """The same by dictionaries, one token after the other."""
    counts: list[dict] = [defaultdict(Counter) for _ in range(longest)]
    for n in range(1, longest + 1):
        for end in range(n, len(train) + 1):
            *context, token = train[end - n : end]
            counts[n - 1][tuple(context)][token] += 1
    nats = [0.0] * longest
    for i in range(longest - 1, len(held_out)):
        p = 1 / vocab_size
        for n in range(1, longest + 1):
            context = tuple(held_out[i - n + 1 : i])
            followers = counts[n - 1].get(context, Counter())
            if followers:
                total = followers.total()
                p = (followers[held_out[i]] + len(followers) * p) / (total + len(followers))
            nats[n - 1] -= math.log(p)
    return [total / (len(held_out) - longest + 1) for total in nats]


@pytest.fixture
def ids():
    """Ids for training and held out; the second have a token, 7, that the first have not."""
    rng = np.random.default_rng(0)
    train = rng.geometric(0.3, 400) % 7
    held_out = rng.geometric(0.3, 90) % 7
    held_out[[20, 50]] = 7
    return train, held_out


def test_a_unigram_is_mixed_with_the_uniform_distribution():
    """The text 0 0 1 has 2 different tokens: p(0) = (2 + 2/4) / (3 + 2), p(1) = (1 + 2/4) / 5."""
    (loss,) = ngram_losses(np.array([0, 0, 1]), np.array([0, 1]), vocab_size=4, longest=1)
    assert loss == pytest.approx(-(math.log(0.5) + math.log(0.3)) / 2)


def test_losses_are_those_of_counting_by_hand(ids):
    train, held_out = ids
    losses = count_by_hand(train.tolist(), held_out.tolist(), 9, longest=4)
    assert ngram_losses(train, held_out, 9, longest=4) == pytest.approx(losses)


def test_losses_of_a_large_vocabulary_do_not_overflow(ids):
    """Three of its ids in one number are above 2**32."""
    train, held_out = (part * 9999 for part in ids)
    losses = count_by_hand(train.tolist(), held_out.tolist(), 69994, longest=3)
    assert ngram_losses(train, held_out, 69994) == pytest.approx(losses)
