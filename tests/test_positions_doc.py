"""What docs/positions.md claims beyond test_position.py: the errors of five published articles."""

import math
from functools import partial

import conftest
import pytest
import torch
from conftest import rotate_halves, rotation, spread
from torch import Tensor

from model.position import sinusoid
from model.rope import apply_rotary_emb, precompute_freqs_cis, rope_frequencies

draw = partial(conftest.draw, dtype=torch.float64)


def by_distance(q: Tensor, k: Tensor, end: int) -> Tensor:
    """Scores of queries at positions 0 .. end-1 with their keys at 0: (N, D), (N, D) -> (N, T)."""
    table = precompute_freqs_cis(q.shape[-1], end)
    turned, _ = apply_rotary_emb(*(q[:, None, None].expand(-1, end, 1, -1),) * 2, table)
    return torch.einsum("ntd,nd->nt", turned[:, :, 0], k)


# --- sinusoids ---


def test_the_misprinted_sinusoid_has_rank_two_and_loses_positions():
    """The position in the exponent instead of the column: sin(m / 10000^(2m/d))."""
    m = torch.arange(32, dtype=torch.float64)
    angles = m * 10000 ** (-2 * m / 16)
    misprint = torch.stack((angles.sin(), angles.cos()), dim=-1).repeat(1, 8)
    assert torch.linalg.matrix_rank(misprint) == 2
    assert torch.cdist(misprint[16:], misprint[16:]).max() < 1e-6  # 16 positions, one row
    correct = sinusoid(16, 64).double()
    assert torch.linalg.matrix_rank(correct[:32], rtol=1e-6) >= 10
    distances = torch.cdist(correct, correct) + 1e9 * torch.eye(64)
    assert distances.min().item() == pytest.approx(1.0147, abs=1e-4)


def test_a_shift_turns_the_sinusoid():
    """Row m+k is row m times a matrix of k alone. Sine first, so every pair turns by -k theta."""
    table = sinusoid(16, 64).double()
    for k in (1, 5, 20):
        torch.testing.assert_close(table[:-k] @ rotation(-k, 16).T, table[k:], rtol=0, atol=1e-6)
        assert (table[:-k] @ rotation(k, 16).T - table[k:]).abs().max() > 1


def test_sinusoid_products_are_relative_until_a_matrix_stands_between():
    table = sinusoid(16, 40).double()
    assert spread(table @ table.T) < 1e-5
    assert spread(table @ draw(16, 16) @ table.T) > 1


# --- RoPE ---


def test_there_is_one_frequency_per_pair_in_radians():
    assert rope_frequencies(8).tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001])
    table = precompute_freqs_cis(8, 5)
    assert table.shape == (5, 4) and rotation(1, 8).shape == (8, 8)
    assert table[1, 0].item() == pytest.approx(complex(math.cos(1), math.sin(1)), abs=1e-7)


def test_the_score_needs_the_transpose_and_both_vectors():
    x, wq, wk, m, n = draw(2, 8), draw(8, 8, seed=1), draw(8, 8, seed=2), 5, 2
    score = (rotation(m, 8) @ wq @ x[0]) @ (rotation(n, 8) @ wk @ x[1])
    between = rotation(n - m, 8)
    assert x[0] @ wq.T @ between @ wk @ x[1] == pytest.approx(score.item(), abs=1e-12)
    assert abs(x[0] @ wq @ between @ wk @ x[1] - score) > 0.1  # no transpose
    assert abs(x[0] @ wq.T @ between @ wk @ x[0] - score) > 0.1  # one vector twice


def test_layouts_score_alike_only_with_permuted_rows():
    x, wq, wk = draw(2, 8), draw(8, 8, seed=1), draw(8, 8, seed=2)
    angles = torch.outer(torch.tensor([5.0, 2.0]).double(), rope_frequencies(8)).repeat(1, 2)

    def in_halves(w: Tensor, at: int) -> Tensor:
        return rotate_halves(w @ x[at], angles[at])

    score = (rotation(5, 8) @ wq @ x[0]) @ (rotation(2, 8) @ wk @ x[1])
    rows = [0, 2, 4, 6, 1, 3, 5, 7]
    assert in_halves(wq[rows], 0) @ in_halves(wk[rows], 1) == pytest.approx(score.item(), abs=1e-12)
    assert abs(in_halves(wq, 0) @ in_halves(wk, 1) - score) > 0.1
    assert abs(in_halves(wq[rows], 0) @ in_halves(wk, 1) - score) > 0.1  # one of them is not enough


def test_cos2_plus_sin2_is_one_in_a_broken_rotation_too():
    angles = torch.outer(torch.arange(16) * 0.1, 0.5 ** torch.arange(64.0)).double()
    interleaved = angles.repeat_interleave(2, dim=-1)
    one = interleaved.cos() ** 2 + interleaved.sin() ** 2
    torch.testing.assert_close(one, torch.ones_like(one), rtol=0, atol=1e-12)
    q = draw(16, 128)
    assert (rotate_halves(q, interleaved).norm(dim=-1) - q.norm(dim=-1)).abs().max() > 0.1


def test_the_mean_sine_is_not_a_similarity():
    table = precompute_freqs_cis(128, 9)[[0, 1, 4, 8]].mean(dim=1)
    assert table.imag.tolist() == pytest.approx([0.0, 0.1094, 0.1844, 0.1783], abs=5e-5)
    assert table.real.tolist() == pytest.approx([1.0, 0.9702, 0.7592, 0.7144], abs=5e-5)


def test_products_of_different_random_vectors_show_no_decay():
    """One article prints the second row as evidence of decay; the first has no positions at all."""
    torch.manual_seed(42)
    q = torch.randn(2, 32, 16, 128)[0, 0]
    at = [0, 1, 2, 4, 8]
    unrotated = [118.31, 20.62, -3.83, 7.05, -9.84]
    assert (q[at] @ q[0]).tolist() == pytest.approx(unrotated, abs=6e-3)
    angles = torch.outer(torch.arange(16) * 0.1, 0.5 ** torch.arange(64.0))
    angles = angles.repeat_interleave(2, dim=-1)
    turned = rotate_halves(q, angles)
    printed = [118.31, 20.35, -4.20, 8.44, -8.70]
    assert (turned[at] @ turned[0]).tolist() == pytest.approx(printed, abs=6e-3)


def test_decay_is_not_monotone_and_a_key_can_peak_anywhere():
    mean = precompute_freqs_cis(128, 251).real.mean(dim=1)
    assert mean[12] > mean[11] and mean[4] < mean[1]
    r = torch.arange(50, 251)
    trend = 1 - (r.log() + 0.577) / math.log(10000)
    assert (mean[50:] - trend).mean().abs() < 0.01

    for aim in (0, 1, 17, 60, 127):  # proposition 3.1
        q = draw(1, 32, seed=aim)
        key = q @ rotation(aim, 32).T
        assert by_distance(q, key, 128)[0].argmax() == aim

    q, k = draw(2, 4000, 32, seed=1)  # proposition 3.2: standard error 0.09
    assert by_distance(q, k, 16).mean(dim=0).abs().max() < 0.4
    assert by_distance(q, q, 16).mean(dim=0).min() > 10


def test_roformers_bound_is_weaker_than_cauchy_schwarz():
    """Its section 3.4.3, for equal pairs: |score| / norms <= mean_j |sum_(i<j) e^(i r theta_i)|."""
    turns = precompute_freqs_cis(128, 4097)
    bound = turns.cumsum(dim=1).abs().mean(dim=1)
    assert bound[0].item() == 32.5 and 2.23 < bound.min() < 2.24
    assert turns.real.mean(dim=1).abs().max() <= 1 + 1e-6


def test_slow_pairs_meet_new_angles_past_the_training_length():
    """Relative is not the same as known: most pairs of a small head never complete a turn."""
    trained, frequencies = 128, rope_frequencies(32)
    furthest = (trained - 1) * frequencies
    slow = furthest < 2 * math.pi
    assert slow.sum() == 10  # of 16
    later = torch.outer(torch.arange(trained, 4 * trained), frequencies).remainder(2 * math.pi)
    assert (later.max(dim=0).values > furthest)[slow].all()
