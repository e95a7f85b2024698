"""The cache keeps what it is given, refuses what it cannot hold, and changes no logit."""

import math

import pytest
import torch
from conftest import random_tokens, sharpened

from model.config import RopeScaling
from model.generation import compute_dtype, generate, next_logits
from model.position import POSITIONS
from model.sampling import Sampling
from model.transformer import KVCache

T, H, D = 13, 6, 8


def splits(total):
    """Every split in two, and chunks of 1, 3, 7 and everything."""
    for first in range(1, total):
        yield [first, total - first]
    for size in (1, 3, 7, total):
        yield [min(size, total - start) for start in range(0, total, size)]


def assert_cached_equals_uncached(model, ids):
    whole = model(ids)
    assert (next_logits(model, ids) - whole[:, -1]).abs().max() <= 1e-5
    for chunks in splits(ids.shape[1]):
        cache = KVCache(model.config, len(ids), T)
        parts = [model(part, cache) for part in ids.split(chunks, dim=1)]
        assert (torch.cat(parts, 1) - whole).abs().max() <= 1e-5, chunks
        assert cache.length == ids.shape[1]
        cache = KVCache(model.config, len(ids), T)
        for part in ids.split(chunks, dim=1):  # as in generation
            last = next_logits(model, part, cache)
            assert (last - whole[:, cache.length - 1]).abs().max() <= 1e-5, chunks


@pytest.mark.parametrize(
    ("position", "n_kv_heads", "changes"),
    [pytest.param(position, 2, {}, id=position) for position in POSITIONS]
    + [pytest.param("rope", 2, {"rope_scaling": RopeScaling(type, 4, original_positions=5)},
                    id=f"rope-{type}", marks=pytest.mark.slow)
       for type in ("linear", "ntk", "yarn", "llama3")]
    + [pytest.param(position, heads, {}, id=f"{position}-{heads}", marks=pytest.mark.slow)
       for position in POSITIONS for heads in (1, H)],
)
@torch.inference_mode()
def test_cached_logits_equal_uncached_at_every_split(position, n_kv_heads, changes):
    model = sharpened(position=position, n_kv_heads=n_kv_heads, **changes)
    for batch in (1, 3):
        assert_cached_equals_uncached(model, random_tokens(batch, T))


@torch.inference_mode()
def test_dynamic_scaling_uses_a_cache_as_long_as_it_is_right():
    """Past the trained length the keys in it were rotated by other frequencies."""
    model = sharpened(rope_scaling=RopeScaling("dynamic", 4, original_positions=9))
    ids = random_tokens(3, T)
    assert_cached_equals_uncached(model, ids[:, :9])
    for held, more in ((9, 1), (0, 10), (4, 9)):
        cache = KVCache(model.config, 3, T)
        if held:
            model(ids[:, :held], cache)
        with pytest.raises(ValueError, match="past 9, where .* use no cache"):
            model(ids[:, held : held + more], cache)
        assert cache.length == held
    # What the refusal prevents: with the check off, the logits are others.
    cache = KVCache(model.config, 3, T)
    model(ids[:, :9], cache)
    model.position.table = model.position.freqs_cis(T)
    model.position.cache_limit = math.inf
    assert (model(ids[:, 9:], cache)[:, -1] - model(ids)[:, -1]).abs().max() > 0.01


def test_the_cache_keeps_kv_heads_only_and_returns_what_was_written():
    config = sharpened(n_kv_heads=2).config
    cache = KVCache(config, 3, T)
    assert cache.keys[0].shape == (3, 2, T, D)
    first, second = torch.randn(2, 3, 2, 5, D), torch.randn(2, 3, 2, 4, D)
    cache.update(1, *first)
    cache.length = 5
    keys, values = cache.update(1, *second)
    assert torch.equal(keys, torch.cat((first[0], second[0]), 2))
    assert torch.equal(values, torch.cat((first[1], second[1]), 2))
    assert keys[0, 0].is_contiguous()


def test_a_full_cache_refuses_before_it_writes():
    model = sharpened()
    cache = KVCache(model.config, 2, 9)
    with torch.inference_mode():
        model(random_tokens(2, 7), cache)
        before = [x.clone() for x in (*cache.keys, *cache.values)]
        with pytest.raises(ValueError, match="2 x 10 tokens .* do not fit .* for 2 x 9 "):
            model(random_tokens(2, 3), cache)
    assert cache.length == 7
    for x, y in zip((*cache.keys, *cache.values), before, strict=True):
        assert torch.equal(x[:, :, :7], y[:, :, :7])


def test_the_cache_refuses_another_batch_or_dtype():
    cache = KVCache(sharpened().config, 3, T)
    for wrong in (torch.zeros(1, 2, 4, D), torch.zeros(3, 2, 4, D, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match="do not fit into a cache for 3 x 13 in torch.float32"):
            cache.update(0, wrong, wrong)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("autocast", [False, True])
@torch.inference_mode()
def test_bfloat16_is_cached_as_such(position, autocast):
    """Cached and uncached differ by bfloat16's rounding (8 bits), not by more."""
    model = sharpened(position=position)
    if not autocast:
        model.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ids = random_tokens(3, T)
        whole = model(ids)
        cache = KVCache(model.config, 3, T, dtype=compute_dtype(model))
        parts = [model(part, cache) for part in ids.split(5, dim=1)]
        assert cache.keys[0].dtype == torch.bfloat16
        ids = random_tokens(7).tolist()
        new = generate(model, [ids], Sampling(temperature=0), max_new_tokens=9)
    scale = whole.float().abs().max()
    assert (torch.cat(parts, 1) - whole).float().abs().max() <= 0.03 * scale
    assert len(new[0]) == 9
