"""Decoding with a cache, compared with the model's logits of the whole row."""

import torch
from torch import Tensor

from model.generation import next_logits
from model.transformer import KVCache, Transformer

CAPACITY = 9  # tokens that the caches hold
TOLERANCE = 1e-5


def assert_cached_equals_uncached(model: Transformer, ids: Tensor) -> None:
    """Decode `ids` (B, T) in chunks of 1 and 3 and, for every split, in two: all logits and those
    of the last token are the model's own."""
    length = ids.shape[1]
    splits = [[first, length - first] for first in range(1, length)]
    whole = model(ids)
    assert_close(next_logits(model, ids), whole[:, -1])
    for chunks in (1, 3, *splits):
        assert_all_logits(model, ids, chunks, whole)
        assert_next_logits(model, ids, chunks, whole)


def assert_all_logits(model: Transformer, ids: Tensor, chunks: int | list[int], whole: Tensor):
    cache = KVCache(model.config, len(ids), CAPACITY)
    parts = [model(part, cache) for part in ids.split(chunks, dim=1)]
    assert_close(torch.cat(parts, dim=1), whole)
    assert cache.length == ids.shape[1]


def assert_next_logits(model: Transformer, ids: Tensor, chunks: int | list[int], whole: Tensor):
    cache = KVCache(model.config, len(ids), CAPACITY)
    for part in ids.split(chunks, dim=1):
        logits = next_logits(model, part, cache)
        assert_close(logits, whole[:, cache.length - 1])
    assert cache.length == ids.shape[1]


def assert_close(logits: Tensor, expected: Tensor) -> None:
    assert logits.shape == expected.shape
    assert (logits - expected).abs().max() <= TOLERANCE
