"""RoPE as functions: the numbers and the formulas of the documents gyre grew from, and scaling."""

import cmath
import math
from typing import get_args

import pytest
import torch
from conftest import ROOT, draw, model_config, spread

from errors import UserError
from files import read_json
from model import rope
from model.config import RopeScaling, ScalingType
from model.kernels import rotate_in_reals
from model.position import RoPE
from model.rope import apply_rotary_emb, precompute_freqs_cis, rope_frequencies, scaled_frequencies


def test_worked_example_to_the_last_of_its_240_numbers():
    printed = read_json(ROOT / "tests" / "worked_example.json")
    xq, xk = torch.arange(160.0).view(2, 5, 2, 8), torch.arange(80.0).view(2, 5, 1, 8)
    table = precompute_freqs_cis(8, 5)
    by_hand = torch.tensor(printed["freqs_cis"]).view(5, 4, 2)
    torch.testing.assert_close(torch.view_as_real(table), by_hand, rtol=0, atol=6e-5)
    for rotated, name in zip(apply_rotary_emb(xq, xk, table), ("xq_out", "xk_out"), strict=True):
        expected = torch.tensor(printed[name]).view_as(rotated)
        torch.testing.assert_close(rotated, expected, rtol=0, atol=6e-5)


def test_rotation_runs_in_float32_returns_the_callers_dtype_and_broadcasts_no_table():
    x, table = draw(1, 7, 6, 8).bfloat16(), precompute_freqs_cis(8, 7)
    for form, rows in ((apply_rotary_emb, table), (rotate_in_reals, torch.view_as_real(table))):
        turned, wide = (form(y, y, rows)[0] for y in (x, x.float()))
        assert turned.dtype == torch.bfloat16 and torch.equal(turned, wide.bfloat16())
    with pytest.raises(ValueError, match=r"\(1, 4\).*\(7, 4\)"):
        apply_rotary_emb(x, x, table[:1])


def test_position_8191_is_exact_to_float32():
    row = torch.view_as_real(precompute_freqs_cis(64, 8192)[8191])
    exact = torch.tensor([cmath.rect(1, 8191 * 10000 ** (-2 * i / 64)) for i in range(32)])
    torch.testing.assert_close(row, torch.view_as_real(exact), rtol=2e-7, atol=1e-12)


# --- past the training length ---

VECTORS = read_json(ROOT / "tests" / "rope_scaling.json")


@pytest.mark.parametrize("scaling, key", [
    (RopeScaling("linear", 4, 128), "linear4"), (RopeScaling("ntk", 4, 128), "ntk4"),
    (RopeScaling("dynamic", 1, 128), "dyn_ntk_l=512(paper s=4)"),
    (RopeScaling("dynamic", 4, 128), "dyn_ntk_hf factor=4 l=512"),
    # The same base: 7.2 * 512 / 192 - 6.2 = 4 * 512 / 128 - 3.
    (RopeScaling("dynamic", 7.2, 192), "dyn_ntk_hf factor=4 l=512"),
    (RopeScaling("dynamic", 4, 1024), "default"),
    (RopeScaling("yarn", 4, 128), "yarn_code"), (RopeScaling("llama3", 4, 128), "llama3 f4"),
    (RopeScaling("llama3", 4, 256, low_freq_factor=2.0, high_freq_factor=8.0), "llama3 f4")])
def test_scaled_frequencies_are_the_published_ones(scaling, key):
    """In a text of 512 tokens."""
    expected = torch.tensor(VECTORS[key], dtype=torch.float64)
    torch.testing.assert_close(scaled_frequencies(scaling, 512, 16), expected, rtol=0, atol=1e-9)


def test_partial_turns_the_fastest_pairs_at_unchanged_frequencies():
    for partial in (0.75, 0.85):  # 6 and 6.8 of 8 pairs
        assert rope_frequencies(16, partial=partial).tolist() == pytest.approx(VECTORS["p0.75"])


def test_the_other_published_numbers():
    """YaRN's magnitude, and Llama 3.1 8B, where pairs of all three kinds occur."""
    assert RopeScaling("yarn", 4).magnitude == pytest.approx(VECTORS["mscale4"], rel=1e-12)
    scaled = scaled_frequencies(RopeScaling("llama3", 8, 8192), 0, head_dim=128, theta=5e5)
    expected = VECTORS["llama3.1_8b d=128 base=5e5 L=8192 f=8: idx0,28,29,30,35,40,63"]
    assert scaled[[0, 28, 29, 30, 35, 40, 63]].tolist() == pytest.approx(expected, abs=1e-9)


def test_yarns_ramp_starts_and_ends_at_whole_pairs():
    """d = 16 and L = 128 above begin at the clamp; Llama 2's sizes begin inside, at 20.94 -> 20."""
    ramp = rope.yarn_ramp(RopeScaling("yarn", 8, 4096), head_dim=128, theta=10000)
    for pair, share in enumerate(ramp.tolist()):
        assert share == pytest.approx(min(max((pair - 20) / (46 - 20), 0), 1)), pair
    # At a base of 100 every pair turns more than once, and so the ramp ends past the last.
    ramp = rope.yarn_ramp(RopeScaling("yarn", 8, 4096), head_dim=128, theta=100)
    turns = 4096 * rope_frequencies(128, 100) / (2 * math.pi)
    assert torch.equal(ramp == 0, turns >= 32) and torch.equal(ramp == 1, turns <= 1)


@pytest.mark.parametrize("type", get_args(ScalingType))
def test_a_scaling_of_factor_1_does_nothing_and_keeps_what_stands_still(type):
    frequencies = scaled_frequencies(RopeScaling(type, 4, 16), 64, head_dim=16, partial=0.75)
    assert (frequencies[:6] > 0).all() and (frequencies[6:] == 0).all()
    unscaled = precompute_freqs_cis(16, 5, 500.0, 0.75, RopeScaling(type, 1, 5))
    assert torch.equal(unscaled, precompute_freqs_cis(16, 5, 500.0, 0.75))


@pytest.mark.parametrize("type, factor", [
    *((type, None) for type in (None, *get_args(ScalingType))), ("yarn", 1.5)])
def test_rotation_keeps_norms_but_for_yarns_factor_and_sees_only_distance(type, factor):
    scaling = type and RopeScaling(type, 4, 15, attention_factor=factor)
    encoding = RoPE(model_config(head_dim=16, max_positions=60, rope_scaling=scaling))
    rows, factor = encoding.freqs_cis(0, 60), factor or (0.1 * math.log(4) + 1) ** (type == "yarn")
    x = draw(2, 60, 6, 16)
    turned, _ = apply_rotary_emb(x, x, rows)
    torch.testing.assert_close(turned.norm(dim=-1), factor * x.norm(dim=-1), rtol=1e-6, atol=0)
    q, k = (draw(16, seed=s).expand(1, 60, 1, 16) for s in (1, 2))
    xq, xk = apply_rotary_emb(q, k, rows)
    scores = xq[0, :, 0] @ xk[0, :, 0].T
    assert spread(scores) <= 2e-5 * factor**2 and scores.std() > 0.1
    other, _ = apply_rotary_emb(x, x, precompute_freqs_cis(16, 60))
    assert (turned / factor - other).abs().max() > 0.1 or type is None


@pytest.mark.parametrize("options, words", [
    ({"type": "yam"}, "model.rope_scaling.type must be one of linear, ntk, dynamic, yarn, ll"),
    ({"factor": 0.5}, r"factor must be in \[1, "), ({"original_positions": 0}, "positions must be"),
    ({"beta_slow": 32.0}, "model.rope_scaling.beta_slow must be in .0, 32.0., not 32.0"),
    ({"type": "llama3", "low_freq_factor": 4.0}, "low_freq_factor must be in .0, 4.0., not 4.0"),
    *(({"type": "ntk", option: 2.0}, f"{option} has no effect with type ntk: .* (yarn|ll)")
      for option in [*vars(RopeScaling("yarn", 4))][3:])])
def test_a_scaling_without_a_meaning_is_refused_in_words(options, words):
    with pytest.raises(UserError, match=words):
        RopeScaling(**{"type": "yarn", "factor": 4.0, **options})
