"""RoPE as functions: the numbers and the formulas of the documents gyre grew from, and scaling."""

from typing import get_args

import pytest
import torch
from builders import ROOT, model_config, randn, spread
from torch import Tensor

from errors import UserError
from files import read_json
from model.config import RopeScaling, ScalingType
from model.position import RoPE
from model.rope import (
    apply_rotary_emb,
    precompute_freqs_cis,
    rope_frequencies,
    scaled_frequencies,
    yarn_ramp,
)
from model.shared_forms import rotate_in_reals

# --- the worked example: 240 numbers, printed with four digits ---

PRINTED = read_json(ROOT / "tests" / "worked_example.json")


def test_the_table_is_that_of_the_worked_example():
    table = torch.view_as_real(precompute_freqs_cis(8, 5))
    printed = torch.tensor(PRINTED["freqs_cis"]).view(5, 4, 2)
    torch.testing.assert_close(table, printed, rtol=0, atol=6e-5)


def test_rotated_queries_and_keys_are_those_of_the_worked_example():
    xq = torch.arange(160.0).view(2, 5, 2, 8)
    xk = torch.arange(80.0).view(2, 5, 1, 8)
    xq_out, xk_out = apply_rotary_emb(xq, xk, precompute_freqs_cis(8, 5))
    printed_q = torch.tensor(PRINTED["xq_out"]).view(2, 5, 2, 8)
    printed_k = torch.tensor(PRINTED["xk_out"]).view(2, 5, 1, 8)
    torch.testing.assert_close(xq_out, printed_q, rtol=0, atol=6e-5)
    torch.testing.assert_close(xk_out, printed_k, rtol=0, atol=6e-5)


# --- precision and shapes ---


@pytest.mark.parametrize("form", [apply_rotary_emb, rotate_in_reals])
def test_a_rotation_runs_in_float32_and_returns_the_callers_dtype(form):
    x = randn(1, 7, 6, 8).bfloat16()
    table = torch.view_as_real(precompute_freqs_cis(8, 7))  # both forms take it
    narrow, _ = form(x, x, table)
    wide, _ = form(x.float(), x.float(), table)
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(narrow, wide.bfloat16())


def test_a_table_of_one_row_is_not_broadcast():
    x = randn(1, 7, 6, 8)
    with pytest.raises(ValueError, match=r"freqs_cis has shape \(1, 4\) instead of \(7, 4\)"):
        apply_rotary_emb(x, x, precompute_freqs_cis(8, 1))


@pytest.mark.parametrize("pair, cosine, sine", [
    (0, -0.6463904698, -0.7630067894), (7, 0.5513303235, -0.8342870456),
    (16, 0.9739866472, 0.2266054082), (31, 0.4604560838, 0.8876824854)])
def test_position_8191_is_exact_to_float32(pair, cosine, sine):
    """Cosine and sine of 8191 * 10000 ** (-2 * pair / 64), by mpmath with 40 digits."""
    row = torch.view_as_real(precompute_freqs_cis(64, 8192)[8191])
    torch.testing.assert_close(row[pair], torch.tensor([cosine, sine]), rtol=2e-7, atol=0)


# --- past the training length ---

VECTORS = read_json(ROOT / "tests" / "rope_scaling.json")


@pytest.mark.parametrize("scaling, key", [
    (RopeScaling("linear", 4, 128), "linear4"), (RopeScaling("ntk", 4, 128), "ntk4"),
    (RopeScaling("dynamic", 1, 128), "dynamic_paper"),
    (RopeScaling("dynamic", 4, 128), "dynamic_hf_factor4"),
    # The same base, by factor * 512 / length - (factor - 1), which is 13 for both.
    (RopeScaling("dynamic", 7.2, 192), "dynamic_hf_factor4"),
    (RopeScaling("dynamic", 4, 1024), "default"),
    (RopeScaling("yarn", 4, 128), "yarn_code"), (RopeScaling("llama3", 4, 128), "llama3_factor4"),
    # The same ramp: twice the length, and twice the turns as its limits.
    (RopeScaling("llama3", 4, 256, low_freq_factor=2.0, high_freq_factor=8.0), "llama3_factor4")])
def test_scaled_frequencies_are_the_published_ones(scaling, key):
    """In a text of 512 tokens."""
    expected = torch.tensor(VECTORS[key], dtype=torch.float64)
    torch.testing.assert_close(scaled_frequencies(scaling, 512, 16), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("partial", [0.75, 0.85])  # 6, and 6.8 rounded down, of 8
def test_partial_turns_the_fastest_pairs_at_unchanged_frequencies(partial):
    assert rope_frequencies(16, partial=partial).tolist() == pytest.approx(VECTORS["p0.75"])


@pytest.mark.parametrize("factor, length, reach", [
    (1.1, 100, 110), (1.101, 100, 111), (4, 32, 128)])
def test_the_reach_of_a_scaling_is_rounded_up(factor, length, reach):
    """It is the factor times the length. In floating point, 1.1 * 100 is a little more than 110,
    which is not rounded up."""
    assert RopeScaling("linear", factor, length).reach == reach


def test_yarns_magnitude_is_the_published_one():
    assert RopeScaling("yarn", 4).magnitude == pytest.approx(VECTORS["mscale4"], rel=1e-12)


def test_frequencies_of_llama_3_1_are_the_published_ones():
    """Of the model of 8B, where pairs of all three kinds occur. Only `dynamic` reads the length."""
    scaled = scaled_frequencies(RopeScaling("llama3", 8, 8192), length=0, head_dim=128, theta=5e5)
    expected = VECTORS["llama3.1_8b"]
    assert scaled[[0, 28, 29, 30, 35, 40, 63]].tolist() == pytest.approx(expected, abs=1e-9)


def test_yarns_ramp_starts_and_ends_at_whole_pairs():
    """Of Llama 2's sizes. It starts at 20.94, rounded down."""
    ramp = yarn_ramp(RopeScaling("yarn", 8, 4096), head_dim=128, theta=10000).tolist()
    assert ramp[:21] == [0] * 21
    assert ramp[20:46] == pytest.approx([pair / 26 for pair in range(26)])
    assert ramp[46:] == [1] * 18


def test_yarns_ramp_may_end_past_the_last_pair():
    """At a base of 100, pair j turns 652 / 100^(j/64) times within the 4096 positions: every pair
    more than once, and pairs 0 to 41 more than 32 times."""
    ramp = yarn_ramp(RopeScaling("yarn", 8, 4096), head_dim=128, theta=100)
    assert (ramp[:42] == 0).all()
    assert (ramp[42:] > 0).all()
    assert (ramp < 1).all()


@pytest.mark.parametrize("kind", get_args(ScalingType))
def test_scaling_keeps_still_what_partial_keeps_still(kind):
    frequencies = scaled_frequencies(RopeScaling(kind, 4, 16), 64, head_dim=16, partial=0.75)
    assert (frequencies[:6] > 0).all()
    assert frequencies[6:].tolist() == [0, 0]


@pytest.mark.parametrize("kind", get_args(ScalingType))
def test_a_scaling_of_factor_1_does_nothing(kind):
    unscaled = precompute_freqs_cis(16, 5, 500.0, 0.75, RopeScaling(kind, 1, 5))
    assert torch.equal(unscaled, precompute_freqs_cis(16, 5, 500.0, 0.75))


# --- what a rotation keeps ---

SCALINGS = {None: None, **{kind: RopeScaling(kind, 4, 15) for kind in get_args(ScalingType)}}


def rotations(scaling: RopeScaling | None) -> Tensor:
    """Of positions 0 .. 59, four times the trained length."""
    encoding = RoPE(model_config(head_dim=16, max_positions=60, rope_scaling=scaling))
    return encoding.freqs_cis(0, 60)


@pytest.mark.parametrize("scaling, factor", [
    (None, 1), (RopeScaling("linear", 4, 15), 1), (RopeScaling("ntk", 4, 15), 1),
    (RopeScaling("dynamic", 4, 15), 1), (RopeScaling("llama3", 4, 15), 1),
    (RopeScaling("yarn", 4, 15), 1.1386294),  # 0.1 ln 4 + 1
    (RopeScaling("yarn", 4, 15, attention_factor=1.5), 1.5)])
def test_a_rotation_keeps_norms_but_for_yarns_factor(scaling, factor):
    x = randn(2, 60, 6, 16)
    turned, _ = apply_rotary_emb(x, x, rotations(scaling))
    torch.testing.assert_close(turned.norm(dim=-1), factor * x.norm(dim=-1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", SCALINGS)
def test_scores_of_rotated_vectors_depend_on_distance_only(kind):
    q = randn(16, seed=1).expand(1, 60, 1, 16)
    k = randn(16, seed=2).expand(1, 60, 1, 16)
    xq, xk = apply_rotary_emb(q, k, rotations(SCALINGS[kind]))
    scores = xq[0, :, 0] @ xk[0, :, 0].T
    assert spread(scores) <= 3e-5
    assert scores.std() > 0.1


@pytest.mark.parametrize("kind", get_args(ScalingType))
def test_every_scaling_changes_the_angles(kind):
    angles = torch.view_as_complex(rotations(SCALINGS[kind])).angle()
    unscaled = torch.view_as_complex(rotations(None)).angle()
    assert (angles - unscaled).abs().max() > 0.1


# --- what is refused ---


@pytest.mark.parametrize("options, words", [
    ({"type": "yam"}, "model.rope_scaling.type must be one of linear, ntk, dynamic, yarn, ll"),
    ({"factor": 0.5}, r"factor must be in \[1, "),
    ({"original_positions": 0}, "original_positions must be"),
    ({"beta_slow": 32.0}, "model.rope_scaling.beta_slow must be in .0, 32.0., not 32.0"),
    ({"type": "llama3", "low_freq_factor": 4.0}, "low_freq_factor must be in .0, 4.0., not 4.0"),
    ({"type": "ntk", "beta_fast": 2.0}, "beta_fast has no effect with type ntk: .* yarn"),
    ({"type": "ntk", "beta_slow": 2.0}, "beta_slow has no effect with type ntk: .* yarn"),
    ({"type": "ntk", "attention_factor": 2.0}, "attention_factor has no effect .* ntk: .* yarn"),
    ({"type": "ntk", "low_freq_factor": 2.0}, "low_freq_factor has no effect .* ntk: .* llama3"),
    ({"type": "yarn", "high_freq_factor": 2.0}, "high_freq_factor has no .* yarn: .* llama3")])
def test_a_scaling_without_a_meaning_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        RopeScaling(**{"type": "yarn", "factor": 4.0, **options})
