"""The copy probe measures copying alone: its windows are random tokens, of which the last n repeat
the n before."""

import json
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from builders import ROOT, train_tiny

from tools import copy_probe
from tools.copy_probe import main, make_windows, probe

COPYING = ROOT / "studies" / "copying"
STREAM = torch.arange(1000, 2000)  # every token once
VOCABULARY = 2000


def test_the_end_of_a_window_is_a_copy():
    windows = make_windows(STREAM, 16, 4)
    assert torch.equal(windows[:, 12:], windows[:, 8:12])
    assert not torch.equal(windows[:, 8:12], windows[:, 4:8])


def test_windows_are_the_same_for_every_run():
    assert torch.equal(make_windows(STREAM, 16, 4), make_windows(STREAM, 16, 4))


def test_tokens_of_a_window_are_those_of_the_text_in_random_order():
    windows = make_windows(STREAM, 16, 4)
    assert windows.min() >= 1000
    assert len(windows[:, 0].unique()) > 200  # of 256 windows
    assert not (windows[:, 1:8] - windows[:, :7] == 1).all(-1).any()


class Scorer(SimpleNamespace):
    """Its model predicts what `predict` returns for a window: the next tokens, -1 for none."""

    stream = STREAM
    compute = SimpleNamespace(device="cpu", active=nullcontext)

    def model(self, windows):
        logits = torch.zeros(*windows.shape, VOCABULARY)
        for row, window in enumerate(windows.tolist()):
            for place, token in enumerate(self.predict(window)):
                if token >= 0:
                    logits[row, place, token] = 100.0
        return logits


@pytest.fixture
def probed(monkeypatch):
    """What the probe says of a model with T = 16, by n."""
    monkeypatch.setattr(copy_probe, "N_WINDOWS", 8)

    def call(predict):
        config = SimpleNamespace(data=SimpleNamespace(seq_len=16))
        trained = SimpleNamespace(config=config)
        scorer = Scorer(predict=predict)
        monkeypatch.setattr(copy_probe.measure, "open_scorer", lambda *_: (trained, None, scorer))
        return probe(None)

    return call


def copy(window):
    """What followed the last earlier occurrence of each token."""
    followers = {}
    predicted = []
    for place, token in enumerate(window):
        predicted.append(followers.get(token, -1))
        if place + 1 < len(window):
            followers[token] = window[place + 1]
    return predicted


def test_a_model_that_copies_pays_for_the_first_tokens_only(probed):
    results = probed(copy)
    assert list(results) == ["2", "4", "8"]
    for losses in results.values():
        assert losses["second"] == pytest.approx(0, abs=1e-6)
        assert losses["first"] == pytest.approx(math.log(VOCABULARY), rel=1e-5)
        assert losses["gain"] == losses["first"] - losses["second"]


def test_a_model_that_never_copies_gains_nothing(probed):
    for losses in probed(lambda window: [-1] * len(window)).values():
        assert losses["gain"] == 0


def test_a_model_that_knows_the_first_tokens_only_gains_less_than_nothing(probed):
    """Of 16 tokens, 8 to 11 are the first n = 4, and 12 to 15 their copy. The probe does not count
    the first token of either."""
    def predict(window):
        predicted = [-1] * 16
        predicted[8:11] = window[9:12]
        return predicted

    losses = probed(predict)["4"]
    assert losses["first"] == pytest.approx(0, abs=1e-6)
    assert losses["second"] == pytest.approx(math.log(VOCABULARY), rel=1e-5)


def test_it_prints_the_losses_of_a_run(workdir, capsys):
    main([str(train_tiny(workdir, "probed", "--train.steps=3"))])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(line) == ["run", "2", "5", "10"]  # of T = 20
    assert line["5"]["first"] > 0


@pytest.fixture(scope="module")
def page():
    """studies/copying/RESULTS.md, with plain minus signs."""
    return (COPYING / "RESULTS.md").read_text(encoding="utf-8").replace("\u2212", "-")


def probed_runs(name, length):
    """(arm, seed, losses by n) of the runs of a committed file that had this many tokens."""
    for line in (COPYING / name).read_text(encoding="utf-8").splitlines():
        losses = json.loads(line)
        arm, seed, size = losses.pop("run").rsplit("-", 2)
        if size == length:
            yield arm, seed.removeprefix("s"), losses


@pytest.mark.parametrize("name", ["python.jsonl", "english.jsonl"])
def test_the_committed_page_has_the_gains_of_its_runs(page, name):
    runs = [*probed_runs(name, "8M")]
    assert len(runs) > 6
    for arm, seed, losses in runs:
        gains = [f"{losses[n]['gain']:+.2f}" for n in ("8", "16", "32", "64")]
        row = [f"`{arm}`, {seed}", f"{losses['32']['first']:.2f}", *gains]
        assert f"| {' | '.join(row)} |" in page


def test_results_md_has_the_gains_of_each_arm():
    gains: dict[str, list[float]] = {}
    for arm, _, losses in probed_runs("python.jsonl", "8M"):
        gains.setdefault(arm, []).append(losses["32"]["gain"])
    leading = [gains[arm] for arm in ("sin_qk", "rope_sin_qk", "rope_nope")]
    assert [len(seeds) for seeds in leading] == [2, 3, 6]
    low, high = min(map(min, leading)), max(map(max, leading))
    pope = gains["pope_4e3"]
    assert len(pope) == 4
    rope = gains["rope"]
    assert len(rope) == 3
    said = (f"lower by {low:.1f} to {high:.1f} nats",
            f"by {min(pope):.1f} to {max(pope):.1f} in PoPE (four)",
            f"by {min(rope):.1f} to {max(rope):.1f} in RoPE (three)")
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert all(words in page for words in said)
    assert all(losses["32"]["gain"] < 0.1 for _, _, losses in probed_runs("english.jsonl", "8M"))


@pytest.mark.parametrize("arm, length, words", [
    ("rope", "4M", "`rope` {}"), ("rope_nope", "2M", "`rope_nope` {}"),
    ("rope_nope", "4M", "`rope_nope` {}"), ("rope_sin_qk", "4M", "`rope_sin_qk` {}")])
def test_the_committed_page_has_the_gains_of_shorter_runs(page, arm, length, words):
    runs = probed_runs("python.jsonl", length)
    gains = [f"{losses['32']['gain']:+.2f}" for name, _, losses in runs if name == arm]
    listed = gains[0] if len(gains) == 1 else f"{', '.join(gains[:-1])} and {gains[-1]}"
    assert words.format(listed) in " ".join(page.split())
