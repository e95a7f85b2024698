"""The command: which runs it lists, which share a table, and what it prints."""

import json
import re
import shutil
import statistics
from datetime import datetime
from pathlib import Path

import pytest
from conftest import points, random_text, refusal, run, target_losses, trained
from matplotlib.image import imread

import evaluate
from files import write_json
from gyre import measure
from gyre.options import make_config
from gyre.rundir import RunDir


@pytest.mark.parametrize("changes, words", [
    ({"text": {"sha256": "b"}}, "one and .*three were trained on different texts"),
    ({"files": {"tokenizer.model": {"sha256": "b"}}}, "one and .*three have different tokenizers"),
    *(({"settings": {"val_fraction": 0.1} | changes}, "one and .*three hold out different parts")
      for changes in ({"val_fraction": 0.2}, {"second_val": True})),
    ({"val": {"bytes": 9}}, "one and .*three hold out different parts"),
    ({"imported": {}}, "three was imported and has no validation text of its own")])
def test_runs_that_do_not_compare_are_refused(tmp_path, monkeypatch, capsys, changes, words):
    runs = []
    for name, other in (("one", {}), ("two", {}), ("three", changes)):
        files = {"train.bin": {"sha256": name}, "tokenizer.model": {"sha256": "a"}}
        manifest = {"files": files, "text": {"sha256": "a"}, "settings": {"val_fraction": 0.1}}
        write_json(tmp_path / name / "manifest.json", manifest | other)
        runs.append(RunDir(tmp_path / name, {}))
    evaluate.check_comparable(runs[:2])
    monkeypatch.setattr(evaluate, "open_runs", lambda _: runs)
    assert re.search(words, refusal(capsys, evaluate.main, "one")[-1])


@pytest.fixture(scope="module")
def runs(world):
    """Two encodings of one text, the second with rows of another length, a damaged copy, and
    folders that are no runs."""
    trained(world, "rope", "--data.val_fraction", "0.3", "--optim.lr", "2e-3")
    trained(world, "learned", "--data.val_fraction", "0.3", "--model.position", "learned",
            "--data.seq_len", "40")
    runs = world / "runs"
    shutil.copytree(runs / "learned", runs / "damaged")
    (runs / "damaged" / "metrics.jsonl").write_text("[1]\n", encoding="utf-8")
    for name in ("notes", "wandb", ".hidden"):
        (runs / name).mkdir()
    return runs


def evaluated(capsys, *argv):
    """The lines that the command prints, as words, and its lines on stderr."""
    capsys.readouterr()
    assert run(evaluate.main, *argv) == 0
    printed, errors = capsys.readouterr()
    return [line.split() for line in printed.splitlines()], errors.splitlines()


def test_without_arguments_the_runs_are_listed_the_oldest_first(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (_, rope, damaged, learned), (skipped, *warnings) = evaluated(capsys)
    created = datetime.fromisoformat(RunDir.open(runs / "rope").record["created"]).astimezone()
    best = min(points(runs / "rope", "val/loss").values())
    assert rope == f"rope rope 0.002 12 of 12 {best:.4f} {created:%Y-%m-%d %H:%M}".split()
    assert [learned[:2], damaged[:4]] == [["learned"] * 2, ["damaged", "learned", "0.001", "-"]]
    assert skipped.startswith("skipped: runs/notes/run.json is missing")
    assert all("line 1 of runs/damaged/metrics.jsonl" in line for line in warnings) and warnings
    monkeypatch.setattr(evaluate, "read_config", lambda _: RunDir.open("x"))  # refuses every run
    assert evaluate.open_runs([]) == []


def test_the_list_shows_the_lowest_loss_and_not_the_latest(new_run):
    run = new_run("a")
    for step, name, loss in ((1, "best", 0.0), (2, "last", 3.0)):
        run.checkpoints.save(name, lambda folder: None, {"step": step})
        run.log({"step": step, "tokens": step, "val/loss": loss})
    run.log({"step": 1001})  # of 1000: it was resumed
    assert " 1001 of 1001 0.0000 " in " ".join(evaluate.list_runs([run]).split())
    config = make_config()
    tokens = config.train.batch_size * config.data.seq_len  # of a step
    assert [measure.trained_tokens(run, name, config) for name in ("best", "last", 7)] == [
        tokens, 2 * tokens, 7 * tokens]


def test_runs_are_compared_and_measured_on_the_same_targets(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    # In this order and not by age: the first is the one to compare with.
    assert [run.path.name for run in evaluate.open_runs(["learned", "rope"])] == ["learned", "rope"]
    options = "--lengths --device cpu --json all.json --plot loss.png --checkpoint last"
    lines, _ = evaluated(capsys, "rope", "runs/learned", "runs/notes", *options.split())
    losses, lengths = lines[:3], lines[lines.index([]) + 1 :]
    assert ["each", "run", "reads", "windows"] in [line[:4] for line in lines]
    first, second = json.loads(Path("all.json").read_text(encoding="utf-8"))["runs"]
    change, error = second["difference"], second["difference_se"]
    assert losses == [["run", "loss", "bits/byte", "difference"],
                      ["rope", f"{first['loss']:.4f}", f"{first['bpb']:.4f}"],
                      ["learned", f"{second['loss']:.4f}", f"{second['bpb']:.4f}",
                       f"{change:+.4f}", "±", f"{error:.4f}"]]
    nats = [target_losses(runs / name) for name in ("rope", "learned")]
    means = [each.mean().item() for each in nats]
    assert [first["loss"], second["loss"]] == pytest.approx(means, abs=1e-6)
    stretches = [part.mean().item() for part in (nats[1] - nats[0]).tensor_split(20)]
    assert change == pytest.approx(means[1] - means[0], abs=1e-6)
    assert error == pytest.approx(statistics.stdev(stretches) / 20**0.5, rel=1e-4)
    alone, alike = (evaluate.tabulate_losses([first] * number) for number in (1, 2))
    assert len(alone.splitlines()) == 2 and "each run reads" not in alike
    assert imread("loss.png").shape[1] > 500 and first["checkpoint"] == "last"

    head, rope, learned = lengths[:3]
    assert " ".join(head).endswith(" slide 4T cut 8T slide 8T shift T")
    assert rope == ["rope", "rope", f"{first['parameters']:,}", f"{first['tokens']:,}", "20",
                    *(f"{row['loss']:.4f}" for row in first["context"]), f"{first['shift']:+.4f}"]
    assert [cell == "-" for cell in learned[5:]] == [False] * 4 + [True] * 7  # past its table
    (_, rope), _ = evaluated(capsys, "rope", "--device", "cpu", "--json", "one.json")
    (one,) = json.loads(Path("one.json").read_text(encoding="utf-8"))["runs"]
    assert rope == ["rope", f"{one['loss']:.4f}", f"{one['bpb']:.4f}"]


def test_what_would_give_wrong_losses_is_refused(runs, capsys, monkeypatch):
    """The test changes the text that the runs were trained on."""
    monkeypatch.chdir(runs.parent)
    assert "device meta was" in refusal(capsys, evaluate.main, "rope", "--device", "meta")[-1]
    shutil.rmtree("prepared")
    Path("text.txt").write_text(random_text(seed=1), encoding="utf-8")
    assert "not what runs/rope was trained on" in refusal(capsys, evaluate.main, "rope")[-1]
    monkeypatch.setattr(measure, "SPAN", 99)  # what is too short is found before that
    assert "raise --data.val_fraction" in refusal(capsys, evaluate.main, "rope", "--lengths")[-1]


@pytest.mark.parametrize("words, message", [
    ("", "runs/ yet: make one with `python train.py"), ("x", "no run folder at runs/x"),
    (".", "none of these is a run"), ("--lengths", "name the runs to measure")])
def test_what_it_cannot_do_is_said(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, evaluate.main, *words.split())[-1]
