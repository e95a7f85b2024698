"""The probes: data and floors against their definitions, and training against the records."""

import json
import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from conftest import ROOT

from ablation import probes
from ablation.probes import P1, P2, PROBES, lag_copy, lag_copy_entropy, repeats, run_probe
from files import read_json
from gyre import device
from model import kernels


@pytest.mark.parametrize("sample, probe", [(lag_copy, P1), (repeats, P2)])
def test_data_are_a_function_of_seed_and_step(sample, probe):
    def make(seed, step):
        return sample(probe, seed, step, 5)[0]

    state = torch.get_rng_state()
    assert torch.equal(make(1, 2), make(1, 2))
    assert not torch.equal(make(1, 2), make(1, 3))
    assert not torch.equal(make(1, 2), make(2, 2))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("lag", [1, 7])
def test_noisy_copies_have_the_stated_frequencies(lag):
    tokens, known = lag_copy(replace(P1, lag=lag, seq_len=65, rho=0.3), 0, 0, rows=1000)
    assert known.shape == tokens.shape and known.nonzero()[:, 1].min() == lag
    error = 5 * math.sqrt(0.25 / 1000 / (64 - 2 * lag))
    for other in (lag, 2 * lag, lag + 1, 2 * lag + 1):
        copies = 0 if other % lag else 0.7 ** (other // lag)
        equal = (tokens[:, other:] == tokens[:, :-other]).double().mean().item()
        assert equal == pytest.approx(1 / 16 + 15 / 16 * copies, abs=error)
    counts = tokens.flatten().bincount(minlength=16) / tokens.numel()
    assert counts.tolist() == pytest.approx([1 / 16] * 16, abs=0.01)


@pytest.mark.parametrize("vocab_size, floor", [(16, 1.9606), (4, 1.0735)])
def test_the_floor_is_the_published_one_and_the_best_prediction_reaches_it(vocab_size, floor):
    probe = replace(P1, vocab_size=vocab_size)
    assert lag_copy_entropy(probe) == pytest.approx(floor, abs=5e-5)
    tokens = lag_copy(probe, 0, 0, rows=3, lengths=2)[0]

    def logits(x: torch.Tensor, lag: int) -> torch.Tensor:
        """Of who knows the answer: what stands `lag` before the next token, with its probability.
        Where it is asked about less than the last T tokens, it knows nothing."""
        out = torch.zeros(*x.shape, vocab_size)
        for t in range(P1.seq_len - 1, x.shape[1]):
            out[:, t] = 0.5 / vocab_size
            out[range(3), t, x[:, t + 1 - lag]] += 0.5
        return out.log()

    def excess(model) -> float:
        return probes.lag_copy_score(probe, model, tokens)[0]

    assert excess(lambda x: logits(x, 7)) == pytest.approx(0)
    assert excess(lambda x: logits(x, 6)) > 0.3
    uniform = excess(lambda x: torch.zeros(*x.shape, vocab_size))
    assert uniform == pytest.approx(math.log(vocab_size) - floor, abs=5e-5)


def test_segments_are_repeated_after_one_separator():
    tokens, second = repeats(P2, 0, 0, 300)
    assert tokens.shape == second.shape == (300, P2.seq_len)
    lengths = set()
    for row, mask in zip(tokens.tolist(), second.tolist(), strict=True):
        n = row.index(0)
        lengths.add(n)
        assert row[n + 1 : 2 * n + 1] == row[:n] and len(set(row[:n])) == n
        assert not any(row[2 * n + 1 :])
        assert mask == [n < at <= 2 * n for at in range(P2.seq_len)]
        assert max(row) < P2.vocab_size
    assert lengths == set(range(8, P2.seq_len // 2))


def test_the_score_counts_second_copies_only():
    tokens, second = repeats(P2, 0, 0, 4)

    def oracle(x: torch.Tensor) -> torch.Tensor:
        wrong = (tokens + 1) % P2.vocab_size
        answer = torch.where(second, tokens, wrong)[:, 1:]
        return 50.0 * torch.nn.functional.one_hot(answer, P2.vocab_size)

    nats, right = probes.repeat_score(P2, oracle, tokens, second)
    assert nats == pytest.approx(0, abs=1e-6) and right == 1


@pytest.mark.parametrize("name, arm", [("P1", "rope"), ("P2", "alibi")])
def test_training_begins_as_in_the_committed_records(monkeypatch, name, arm):
    """Data, initial values, rates, clipping and scores, over 25 steps."""
    train = probes.train
    monkeypatch.setattr(probes, "train", lambda *options: islice(train(*options), 2))
    record = read_json(ROOT / "docs" / "results" / "probes" / f"{name}-{arm}-s1.json")
    curve = run_probe(name, arm, 1, None, "cpu", False)["curve"]
    assert np.allclose(curve, record["curve"][:2], rtol=1e-3)


@pytest.mark.parametrize("name", PROBES)
def test_records_are_json_repeat_and_leave_undefined_what_is(name, monkeypatch):
    small = replace(PROBES[name], seq_len=32, batch_size=3, dim=8, eval_interval=2)
    monkeypatch.setitem(PROBES, name, small)
    monkeypatch.setattr(device, "onednn_gain", lambda: 9.0)  # the plan decides, no measurement
    first = run_probe(name, "learned", 4, 3, "cpu", False)
    assert not kernels.onednn_is_faster
    assert first == run_probe(name, "learned", 4, 3, "cpu", False)
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert [step for step, _ in first["curve"]] == [0, 2, 3]
    assert first["excess"]["T"] == first["curve"][-1][1]
    assert first["excess"]["2T"] is first["excess"]["4T"] is first["steps_to_90"] is None


def test_steps_to_90_is_the_first_evaluation_that_has_them(monkeypatch):
    scores = iter([(4.0, 0.1), (1.0, 0.89), (0.5, 0.91), (0.6, 0.85)])
    monkeypatch.setattr(probes, "repeat_score", lambda *args: next(scores))
    small = replace(P2, seq_len=32, batch_size=2, dim=8, eval_interval=1)
    monkeypatch.setitem(PROBES, "P2", small)
    assert run_probe("P2", "rope", 0, 3, "cpu", False)["steps_to_90"] == 2
