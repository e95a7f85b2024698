"""Sampling draws from the distribution that its options describe, at every extreme."""

import itertools
import math

import pytest
import torch
from builders import randn

from errors import UserError
from model.sampling import BROKEN, Sampling, nucleus, sample, uniform


def same_number(u, rows):
    """The number u for each row."""
    return torch.full((rows,), u, dtype=torch.float64)


def mass(logits, sampling, seen=()):
    """The distribution that `sample` should draw from, one row, written out in plain Python.

    It has a branch for each field of Sampling: to be read beside `sample`, in one piece.
    """
    scores = [float(x) for x in logits]
    for i in seen:
        penalty = sampling.repetition_penalty
        scores[i] = scores[i] / penalty if scores[i] > 0 else scores[i] * penalty
    weights = [math.exp((x - max(scores)) / sampling.temperature) for x in scores]
    ranked = sorted(range(len(scores)), key=lambda i: -weights[i])
    if sampling.top_k is not None:
        ranked = ranked[: sampling.top_k]
    if sampling.top_p is not None:
        enough = sampling.top_p * sum(weights[i] for i in ranked)
        sums = itertools.accumulate((weights[i] for i in ranked), initial=0.0)
        ranked = [i for i, before in zip(ranked, sums, strict=False) if before < enough]
    if sampling.min_p is not None:
        ranked = [i for i in ranked if weights[i] >= sampling.min_p * max(weights)]
    total = sum(weights[i] for i in ranked)
    return [weights[i] / total if i in ranked else 0.0 for i in range(len(scores))]


def drawn_mass(logits, sampling, seen, draws=4000):
    """The distribution that `sample` does draw from: one row per point of a grid over [0, 1)."""
    grid = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    ids = sample(logits.expand(draws, -1), sampling, grid, seen.expand(draws, -1))
    return torch.bincount(ids, minlength=len(logits)) / draws


@pytest.mark.parametrize("sampling", [
    Sampling(7.0), Sampling(1.0, top_k=1), Sampling(1.0, top_k=1000), Sampling(2.0, top_p=0.93),
    Sampling(1.0, top_p=1.0), Sampling(1.0, min_p=0.0), Sampling(1.0, repetition_penalty=0.6),
    Sampling(2.0, top_k=9, top_p=0.8), Sampling(2.0, top_p=0.8, min_p=0.3, repetition_penalty=0.3),
    Sampling(temperature=0.9, top_k=9, top_p=0.8, min_p=0.1, repetition_penalty=1.2)], ids=str)
def test_sample_draws_from_the_brute_force_distribution(sampling):
    for seed in range(3):
        logits, seen = 2 * randn(23, seed=seed), randn(23, seed=9) > 1
        drawn = drawn_mass(logits, sampling, seen)
        expected = torch.tensor(mass(logits, sampling, seen.nonzero().flatten().tolist()))
        # A grid of n points misses each of the two borders of a token by at most 1/n.
        assert (drawn - expected).abs().max() <= 2 / 4000 + 1e-6
        assert not drawn[expected == 0].any()


def test_ties_do_not_add_to_the_k_likeliest():
    logits = torch.tensor([1.0, 3.0, 3.0, 3.0, 3.0, 0.0])
    unseen = torch.zeros(6, dtype=torch.bool)
    assert (drawn_mass(logits, Sampling(1.0, top_k=2), unseen) > 0).sum() == 2


@pytest.mark.parametrize("p", [1e-300, 0.5, 0.9, 0.999, 1 - 1e-9])
def test_nucleus_is_the_head_of_a_stable_sort(p):
    """A sharp row, a flat one, two with ties, and four equal masses, of which two reach 0.5
    exactly."""
    size = 4608
    logits = randn(size, dtype=torch.float64)
    few = torch.full((size,), -math.inf).index_fill(0, torch.tensor([3, 4, 700, 2000]), 0)
    masses = torch.stack([9 * logits, logits, logits.round(), torch.zeros(size), few]).softmax(-1)
    # `nucleus` chooses one threshold for all rows of a call. So it is called with all five rows,
    # with a sharp row alone, and with the four equal masses alone.
    for rows in (masses, masses[:1], masses[-1:]):
        ranked, order = rows.sort(descending=True, stable=True)
        head = ranked.cumsum(-1) - ranked < p
        assert torch.equal(nucleus(rows, p), torch.empty_like(head).scatter(-1, order, head))


@pytest.mark.parametrize("sampling", [
    Sampling(5e-324), Sampling(1e300, top_p=1e-300, min_p=1.0), Sampling(1e-9, top_p=1e-300),
    Sampling(1.0, repetition_penalty=100), Sampling(0, repetition_penalty=0.01)], ids=str)
@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
def test_extreme_values_draw_a_token(sampling, u):
    rows = torch.tensor([
        [3e38, -3e38, 0.0, 1e-45], [-3e38] * 4, [0.0] + [-math.inf] * 3, [0.0] * 4])
    seen = torch.tensor([True, False, True, True]).expand(4, -1)
    ids = sample(rows, sampling, same_number(u, 4), seen)
    assert ((ids >= 0) & (ids < 4)).all() and ids[2] == 0  # never a token without mass


def test_a_token_without_mass_is_not_drawn_at_the_borders():
    logits = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf, 0.0, -math.inf])
    uniforms = torch.tensor([0.0, 0.5 - 2**-53, 0.5, 1 - 2**-53], dtype=torch.float64)
    none = torch.zeros(4, 6, dtype=torch.bool)
    assert sample(logits.expand(4, -1), Sampling(1.0), uniforms, none).tolist() == [1, 1, 4, 4]


def test_no_token_past_the_last_is_drawn():
    """Rounding makes some of these masses sum to less than 1."""
    none = torch.zeros(200, 97, dtype=torch.bool)
    ids = sample(randn(200, 97), Sampling(1.0), same_number(1 - 2**-53, 200), none)
    assert (ids < 97).all()


def test_temperature_0_takes_the_likeliest_token():
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 3.0, 2.0]])
    ids = sample(logits, Sampling(temperature=0), same_number(0.7, 2), torch.zeros(2, 3).bool())
    assert ids.tolist() == [1, 0]


def test_temperature_0_takes_the_likeliest_after_the_penalty():
    """5 / 3 is less than 2."""
    logits = torch.tensor([[5.0, 1.0, 2.0]])
    sampling = Sampling(temperature=0, repetition_penalty=3.0)
    seen = torch.tensor([[True, False, False]])
    assert sample(logits, sampling, same_number(0.7, 1), seen).tolist() == [2]


def test_temperature_0_is_the_limit_of_small_temperatures():
    logits = randn(5, 97, seed=1)
    none = torch.zeros(5, 97, dtype=torch.bool)
    numbers = same_number(0.7, 5)
    least = sample(logits, Sampling(1e-9), numbers, none)
    assert torch.equal(sample(logits, Sampling(temperature=0), numbers, none), least)


@pytest.mark.parametrize("changes, message", [
    ({"temperature": -1.0}, "temperature must be at least 0, not -1.0"),
    ({"top_k": 0}, "top_k must be at least 1, not 0: leave it out to keep all tokens"),
    ({"top_p": 0.0}, r"top_p must be in \(0, 1\], not 0.0"),
    ({"min_p": 1.5}, r"min_p must be in \[0, 1\], not 1.5"),
    ({"repetition_penalty": 0.0}, r"repetition_penalty must be in \[0.01, 100\], not 0.0"),
    ({"temperature": 0, "top_k": 1}, "top_k has no effect at temperature 0"),
    ({"temperature": 0, "top_p": 1}, "top_p has no effect at temperature 0"),
    ({"temperature": 0, "min_p": 1}, "min_p has no effect at temperature 0")], ids=str)
def test_options_without_meaning_or_effect_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        Sampling(**changes).check()


@pytest.mark.parametrize("sampling", [
    Sampling(temperature=0), Sampling(1.0), Sampling(1.0, top_k=2, top_p=0.5, min_p=0.1)], ids=str)
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_broken_logits_draw_no_token(broken, sampling):
    logits = torch.tensor([[9.0, 0.0, 0.0, 0.0, 0.0], [broken] * 5])
    none = torch.zeros(2, 5, dtype=torch.bool)
    assert sample(logits, sampling, same_number(0.5, 2), none).tolist() == [0, BROKEN]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_one_broken_logit_draws_no_token(broken):
    logits = torch.tensor([[0.0, 0.0, broken, 0.0]])
    none = torch.zeros(1, 4, dtype=torch.bool)
    ids = sample(logits, Sampling(1.0, top_p=0.5), same_number(0.5, 1), none)
    assert ids.tolist() == [BROKEN]


@pytest.mark.cuda
@pytest.mark.parametrize("sampling", [
    Sampling(temperature=0), Sampling(0.8), Sampling(0.8, top_k=50), Sampling(0.8, top_p=0.95),
    Sampling(2.0, top_p=0.95), Sampling(0.8, min_p=0.1, repetition_penalty=1.3)], ids=str)
def test_a_gpu_draws_the_tokens_of_the_cpu(sampling):
    logits = 3 * randn(32, 50_304)
    seen = randn(32, 50_304, seed=1) > 1
    numbers = torch.rand(32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    on_cpu = sample(logits, sampling, numbers, seen)
    on_gpu = sample(logits.cuda(), sampling, numbers.cuda(), seen.cuda())
    assert torch.equal(on_gpu.cpu(), on_cpu)


@pytest.mark.cuda
def test_a_gpu_marks_the_nucleus_of_the_cpu():
    logits = randn(4, 4608, dtype=torch.float64)
    masses = (logits * torch.tensor([[9.0], [1.0], [0.0], [3.0]])).softmax(-1)
    assert torch.equal(nucleus(masses.cuda(), 0.9).cpu(), nucleus(masses, 0.9))


@pytest.fixture(scope="module")
def numbers():
    """The random numbers of 9 rows of 300 tokens."""
    drawn = []
    for seed, row in itertools.product(range(3), range(3)):
        drawn += [uniform(seed, row, number) for number in range(300)]
    return torch.tensor(drawn, dtype=torch.float64)


def test_each_seed_row_and_token_has_a_number_of_its_own(numbers):
    assert len(set(numbers.tolist())) == 2700


def test_numbers_are_uniform(numbers):
    assert ((numbers >= 0) & (numbers < 1)).all()
    shares = numbers.histc(9, 0, 1) / 2700
    assert (shares - 1 / 9).abs().max() < 0.03


def test_a_seed_draws_the_same_text_in_every_later_version():
    assert uniform(1, 2, 3) == 0.40279172247187955
