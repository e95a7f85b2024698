"""What is measured of attention: against known patterns and explicit loops."""

import itertools
import statistics

import pytest
import torch
from builders import randn, random_model
from small_scorers import T, scorer

from ablation import attention
from gyre import measure
from model.encodings import POSITIONS


def test_attention_to_the_previous_token_is_that_of_known_patterns(monkeypatch):
    """With wq = 0 a query at m spreads its attention over m + 1 tokens."""
    s = scorer("none")
    # Two windows at a time, and the last alone.
    monkeypatch.setattr(measure, "TOKENS_PER_PASS", 2 * T)
    for layer in s.model.layers:
        torch.nn.init.zeros_(layer.attention.wq.weight)
    even = sum(1 / (m + 1) for m in range(1, T)) / (T - 1)
    for layer in attention.measure_attention(s, s.spans(3))["previous"]:
        assert layer == pytest.approx([even] * 6, abs=1e-5)


def test_each_window_weighs_the_same_in_unequal_passes(monkeypatch):
    """Two windows at a time, and the last alone, against all three at once."""
    s = scorer()
    whole = attention.measure_attention(s, s.spans(3))["previous"]
    monkeypatch.setattr(measure, "TOKENS_PER_PASS", 2 * T)
    cut = attention.measure_attention(s, s.spans(3))["previous"]
    for layer, expected in zip(cut, whole, strict=True):
        assert layer == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("position", POSITIONS)
def test_attention_weights_are_what_attention_weighs_values_by(position):
    """Nothing is seen ahead, and weighted values are the output of `attend`."""
    model = random_model(position=position)
    attended: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    for layer in model.layers:
        layer.attention.wo.register_forward_pre_hook(lambda _, inputs: attended.append(inputs[0]))
        layer.attention.wv.register_forward_hook(lambda _, inputs, out: values.append(out))
    scores = attention.attention_scores(model, torch.arange(14).view(2, 7))
    for layer in range(3):
        weights = scores[layer].softmax(-1)  # (B, H, T, S)
        assert (weights.triu(1) == 0).all()
        v = values[layer].view(2, 7, 2, 8).repeat_interleave(3, dim=2)  # (B, S, H, D)
        expected = torch.einsum("bhts,bshd->bthd", weights, v).flatten(-2)
        torch.testing.assert_close(expected, attended[layer], rtol=1e-4, atol=1e-6)


def test_keys_that_a_mask_hides_get_no_attention(monkeypatch):
    """With wq = 0 a query that sees itself and the token before attends to each by half."""
    s = scorer("none")

    def mask(start, stop, device, first=0):
        visible = torch.ones(stop - first, stop - first, dtype=torch.bool).tril().triu(-1)
        return visible[start - first :]

    monkeypatch.setattr(s.model.position, "mask", mask)
    for layer in s.model.layers:
        torch.nn.init.zeros_(layer.attention.wq.weight)
    for layer in attention.measure_attention(s, s.spans(3))["previous"]:
        assert layer == pytest.approx([0.5] * 6, abs=1e-5)


def test_the_variance_by_distance_is_that_of_explicit_groups():
    scores = randn(1, 5, 1, T, T).double()
    by_distance: list[list[float]] = [[] for _ in range(T)]
    for row, m in itertools.product(range(5), range(T)):
        for n in range(m + 1):
            by_distance[m - n].append(scores[0, row, 0, m, n].item())
    means = []
    for group in by_distance:
        means += [statistics.fmean(group)] * len(group)
    every = list(itertools.chain(*by_distance))
    share = statistics.pvariance(means) / statistics.pvariance(every)
    assert attention.explained_by_distance(scores).item() == pytest.approx(share, rel=1e-9)


def test_each_layer_and_head_has_a_variance_of_its_own():
    scores = randn(2, 5, 3, T, T).double()
    shares = attention.explained_by_distance(scores)
    for layer, head in itertools.product(range(2), range(3)):
        alone = attention.explained_by_distance(scores[layer : layer + 1, :, head : head + 1])
        assert shares[layer, head].item() == pytest.approx(alone.item(), rel=1e-9)


def test_distance_explains_all_where_scores_are_a_bias_by_it():
    s = scorer("alibi")
    for layer in s.model.layers:
        torch.nn.init.zeros_(layer.attention.wq.weight)
    for layer in attention.measure_attention(s, s.spans(20))["by_distance"]:
        assert layer == pytest.approx([1.0] * 6)


def test_keys_that_a_bias_hides_have_no_variance():
    """Of keys at a distance of 0, 1 and 2, the score is minus the distance."""
    distance = torch.arange(T)[:, None] - torch.arange(T)
    scores = -distance.double().masked_fill(distance > 2, torch.inf)
    assert attention.explained_by_distance(scores[None, None, None]).item() == 1.0


def test_distance_explains_all_where_a_bias_hides_earlier_blocks():
    """A query sees keys of its own block of three. Their score is minus the distance."""
    m = torch.arange(T)
    is_hidden = m[:, None] // 3 != m // 3
    scores = -(m[:, None] - m).double().masked_fill(is_hidden, torch.inf)
    assert attention.explained_by_distance(scores[None, None, None]).item() == pytest.approx(1.0)


def test_scores_that_attend_alike_can_have_other_shares():
    """-(m - n) and n differ by m, which is the same for all keys of a query."""
    m = torch.arange(T).double()
    hidden = torch.full((T, T), -torch.inf).triu(1)
    relative = hidden - (m[:, None] - m)
    absolute = hidden + m
    assert torch.equal(relative.softmax(-1), absolute.softmax(-1))
    shares = attention.explained_by_distance(torch.stack((relative, absolute))[None, None])
    # At distance d the mean of n is (T - 1 - d) / 2, and n is distributed as d is: (1/2)^2.
    assert shares[0].tolist() == pytest.approx([1.0, 0.25])


def test_distance_explains_nothing_where_all_scores_are_equal():
    assert attention.explained_by_distance(torch.ones(1, 2, 1, T, T).double()).item() == 0.0
