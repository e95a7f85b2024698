"""The cache keeps what it is given, refuses what does not fit, and changes no logit."""

import pytest
import torch
from builders import KINDS, quick_for, random_tokens, sharp_model
from cached_decoding import assert_cached_equals_uncached

from model.config import RopeScaling
from model.encodings import POSITIONS
from model.transformer import KVCache

T = 9


@pytest.mark.parametrize("position, scaling", [
    # An aligned model differs in how it starts only.
    *((position, None) for position in POSITIONS if "aligned" not in position),
    ("rope", RopeScaling("yarn", 4, 5)),
    *(pytest.param("rope", RopeScaling(type, 4, 5), marks=pytest.mark.slow)
      for type in ("linear", "ntk", "llama3"))])  # tables of other numbers
@torch.inference_mode()
def test_cached_logits_equal_uncached_at_every_split(position, scaling):
    model = sharp_model(n_layers=2, position=position, rope_scaling=scaling)
    assert_cached_equals_uncached(model, random_tokens(3, 5))


@torch.inference_mode()
def test_dynamic_scaling_is_cached_up_to_the_trained_length():
    model = sharp_model(rope_scaling=RopeScaling("dynamic", 4, 6))
    assert_cached_equals_uncached(model, random_tokens(3, 6))


@torch.inference_mode()
def test_dynamic_scaling_refuses_a_cache_past_the_trained_length():
    """The frequencies that rotated the cached keys are wrong then. That `generate` uses no cache is
    seen in test_generation.py."""
    model = sharp_model(rope_scaling=RopeScaling("dynamic", 4, 6))
    ids = random_tokens(3, T)
    cache = KVCache(model.config, 3, T)
    with pytest.raises(ValueError, match="past 6 tokens .* use no cache"):
        model(ids[:, :7], cache)


@pytest.mark.parametrize("rows, tokens, dtype", [
    (3, 3, torch.float32), (1, 1, torch.float32), (3, 1, torch.bfloat16)])
def test_a_cache_refuses_what_does_not_fit_before_it_writes(rows, tokens, dtype):
    """Another batch would broadcast; another dtype would be converted at every step."""
    cache = KVCache(sharp_model().config, 3, 9)
    ones = torch.ones(3, 2, 9, 8)
    wrong = torch.zeros(rows, 2, tokens, 8, dtype=dtype)
    cache.update(0, ones, ones)
    cache.length = 7
    with pytest.raises(ValueError, match="do not fit into a cache for 3 x 9 in torch.float32"):
        cache.update(0, wrong, wrong)
    assert torch.equal(cache.keys[0], ones)
    assert torch.equal(cache.values[0], ones)


def test_the_keys_of_a_head_are_contiguous():
    """As attention reads them."""
    cache = KVCache(sharp_model().config, 3, 9)
    ones = torch.ones(3, 2, 9, 8)
    keys, _ = cache.update(0, ones, ones)
    assert keys[0, 0].is_contiguous()


@pytest.mark.parametrize("position", quick_for(KINDS, POSITIONS))
@pytest.mark.parametrize("autocast", [False, True])
@torch.inference_mode()
def test_bfloat16_is_cached_as_such(position, autocast):
    """Cached and uncached differ by bfloat16's rounding (8 bits), not by more."""
    model = sharp_model(n_layers=2, position=position)
    ids = random_tokens(3, T)
    if not autocast:
        model.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        whole = model(ids).float()
        cache = KVCache(model.config, 3, T, dtype=torch.bfloat16)
        parts = torch.cat([model(part, cache) for part in ids.split(5, dim=1)], 1)
    assert (parts - whole).abs().max() <= 0.03 * whole.abs().max()
