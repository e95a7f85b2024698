"""docs/positions.md prints the code as it is and its numbers as they are, and docs/sources.md is
right about the programs and the errors of five published articles."""

import doctest
import inspect
import math
import re

import pytest
import torch
from builders import ROOT, randn, rotation, spread
from torch import Tensor

from model.position import sinusoid
from model.rope import apply_rotary_emb, precompute_freqs_cis, rope_frequencies

TEXT = (ROOT / "docs" / "positions.md").read_text(encoding="utf-8")


def by_distance(q: Tensor, k: Tensor, end: int) -> Tensor:
    """Scores of queries at positions 0 .. end-1 with their keys at 0: (N, D), (N, D) -> (N, T)."""
    table = precompute_freqs_cis(q.shape[-1], end)
    everywhere = q[:, None, None].expand(-1, end, 1, -1)
    turned, _ = apply_rotary_emb(everywhere, everywhere, table)
    return torch.einsum("ntd,nd->nt", turned[:, :, 0], k)


def test_the_document_prints_the_functions_as_they_are():
    blocks = re.findall("```python\n(.*?)```", TEXT, re.DOTALL)
    for function, block in zip((precompute_freqs_cis, apply_rotary_emb), blocks, strict=True):
        source = inspect.getsource(inspect.unwrap(function))
        assert block == re.sub(r'    """.*?"""\n', "", source, flags=re.DOTALL)


def test_the_document_prints_a_pair_at_three_positions():
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.6, -0.8]])  # the query, the key and another key
    vectors = x.expand(1, 3, 3, 2)  # each at positions 0, 1 and 2
    turned, _ = apply_rotary_emb(vectors, vectors, precompute_freqs_cis(2, 3))
    q, k, other = turned[0].unbind(dim=1)
    assert "| 0 | (1, 0) | (0.6, 0.8) |" in TEXT
    for position in (1, 2):
        printed = [f"({x:.4f}, {y:.4f})" for x, y in (q[position].tolist(), k[position].tolist())]
        assert f"| {position} | {printed[0]} | {printed[1]} |" in TEXT
    assert (q[1] @ k[0]).item() == pytest.approx(0.9974, abs=5e-5)
    assert (q[2] @ k[1]).item() == pytest.approx(0.9974, abs=5e-5)
    assert (q[1] @ other[0]).item() == pytest.approx(-0.3490, abs=5e-5)


def test_the_examples_of_article_c_print_what_sources_says():
    failed, tried = doctest.testfile(str(ROOT / "docs" / "sources.md"), module_relative=False,
                                     globs={"torch": torch}, encoding="utf-8")
    assert tried == 10 and not failed


def test_article_bs_angles_err_at_position_8191():
    theirs = torch.outer(torch.arange(8192), 1 / 10000 ** (torch.arange(0, 64, 2).float() / 64))
    error = theirs[8191] - 8191 * rope_frequencies(64)
    assert error.abs().max().item() == pytest.approx(2e-4, rel=0.3)


def test_the_misprinted_sinusoid_loses_positions_and_ours_none():
    """The position in the exponent instead of the column: sin(m / 10000^(2m/d))."""
    m = torch.arange(16, 32, dtype=torch.float64)
    misprint = (m * 10000 ** (-2 * m / 16)).sin()  # the same in every column
    assert misprint.max() - misprint.min() < 1e-6
    ours = sinusoid(16, 64).double()
    distances = torch.cdist(ours, ours) + 1e9 * torch.eye(64)
    assert distances.min().item() == pytest.approx(1.0147, abs=1e-4)


def test_a_shift_turns_the_sinusoid():
    """Row m+k is row m times a matrix of k alone. Sine first, so every pair turns by -k theta."""
    table = sinusoid(16, 64).double()
    torch.testing.assert_close(table[:-5] @ rotation(-5, 16).T, table[5:], rtol=0, atol=1e-6)


def test_products_of_sinusoids_are_relative_until_a_matrix_stands_between():
    table = sinusoid(16, 64).double()
    assert spread(table @ table.T) < 1e-5
    assert spread(table @ randn(16, 16).double() @ table.T) > 1


def test_turning_a_key_lessens_the_angle_to_the_query():
    """Angles from the first axis: (arg q + alpha) - (arg k + beta) = theta + alpha - beta."""
    q = torch.tensor([0.6, 0.8])
    k = torch.tensor([0.8, -0.6])
    row = precompute_freqs_cis(2, 2)[1:]  # beta: 1 radian
    _, turned = apply_rotary_emb(q.view(1, 1, 1, 2), k.view(1, 1, 1, 2), row)
    theta = math.atan2(0.8, 0.6) - math.atan2(-0.6, 0.8)
    assert (q @ turned.flatten()).item() == pytest.approx(math.cos(theta - 1), abs=1e-6)
    assert math.cos(theta - 1) - math.cos(theta + 1) > 1


def test_decay_is_not_monotone():
    mean = precompute_freqs_cis(128, 251).real.mean(dim=1)
    assert mean[12] > mean[11]
    assert mean[4] < mean[1]


def test_decay_is_logarithmic_in_the_mean():
    mean = precompute_freqs_cis(128, 251).real.mean(dim=1)
    trend = 1 - (torch.arange(50, 251).log() + 0.577) / math.log(10000)
    assert (mean[50:] - trend).mean().abs() < 0.01


@pytest.mark.parametrize("distance", [0, 1, 17, 60, 127])
def test_a_key_can_peak_anywhere(distance):
    """Proposition 3.1."""
    q = randn(1, 32, seed=distance).double()
    k = q @ rotation(distance, 32).T
    assert by_distance(q, k, 128)[0].argmax() == distance


def test_scores_of_independent_vectors_do_not_decay():
    """Proposition 3.2: they are 0 in the mean at every distance, with a standard error of 0.09."""
    q, k = randn(2, 4000, 32, seed=1).double()
    assert by_distance(q, k, 16).mean(dim=0).abs().max() < 0.4
    assert by_distance(q, q, 16).mean(dim=0).min() > 10


def test_roformers_bound_is_weaker_than_cauchy_schwarz():
    """Its section 3.4.3, for equal pairs: |score| / norms <= mean_j |sum_(i<j) e^(i r theta_i)|."""
    bound = precompute_freqs_cis(128, 4097).cumsum(dim=1).abs().mean(dim=1)
    assert bound[0].item() == 32.5
    assert 2.23 < bound.min() < 2.24


def test_slow_pairs_meet_new_angles_past_the_training_length():
    """Relative is not the same as known: most pairs of a small head never complete a turn."""
    frequencies = rope_frequencies(32)
    furthest = 127 * frequencies  # in rows of 128
    slow = furthest < 2 * math.pi
    assert slow.sum() == 10  # of 16
    later = torch.outer(torch.arange(128, 512), frequencies).remainder(2 * math.pi)
    assert (later.max(dim=0).values > furthest)[slow].all()
