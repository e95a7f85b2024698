"""The command: which runs it lists, which share a table, and what it prints."""

import json
import math
import shutil
import statistics
from datetime import datetime

import numpy as np
import pytest
import torch
from conftest import ROOT, points, refusal, start, trained
from matplotlib.image import imread

import evaluate
from errors import UserError
from gyre.load import load as load_run
from gyre.rundir import RunDir


@pytest.mark.parametrize("part, words", [
    ("text", "were trained on different texts"), ("tokenizer", "have different tokenizers"),
    ("split", r"hold out different parts of the text \(data.val_fraction\)"),
])
def test_runs_that_do_not_compare_are_refused(tmp_path, part, words):
    runs = []
    for name in ("one", "two", "three"):
        other = "b" if name == "three" else "a"
        has = {"text": "a", "tokenizer": "a", "split": "a"} | {part: other}
        files = {"train.bin": {"sha256": name}, "tokenizer.model": {"sha256": has["tokenizer"]}}
        manifest = {"files": files, "text": {"sha256": has["text"]},
                    "settings": {"val_fraction": has["split"]}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        runs.append(RunDir(tmp_path / name, {}))
    evaluate.check_comparable(runs[:2])
    with pytest.raises(UserError, match=f"one and .*three {words}.*one at a time"):
        evaluate.check_comparable(runs)


def test_an_imported_run_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text('{"imported": {}}', encoding="utf-8")
    with pytest.raises(UserError, match="was imported and has no validation text of its own"):
        evaluate.check_comparable([RunDir(tmp_path, {})])


@pytest.fixture(scope="module")
def three(world):
    """Two encodings of one text, the second with rows of another length, and a folder that is no
    run."""
    trained(world, "rope", "--data.val_fraction", "0.3", "--optim.lr", "2e-3")
    trained(world, "learned", "--data.val_fraction", "0.3", "--model.position", "learned",
            "--data.seq_len", "40")
    damaged = shutil.copytree(world / "runs" / "learned", world / "runs" / "damaged")
    (damaged / "metrics.jsonl").write_text("[1]\n", encoding="utf-8")
    (world / "runs" / "notes").mkdir()
    return world


def evaluated(*argv, cwd):
    """What the command says on stdout, by lines and words, and on stderr."""
    process = start(ROOT / "evaluate.py", *argv, cwd=cwd)
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "Traceback" not in errors, errors
    return [line.split() for line in said.splitlines()], errors


@pytest.mark.slow
def test_without_arguments_the_runs_are_listed_the_oldest_first(three):
    (head, rope, damaged, learned), errors = evaluated(cwd=three)
    assert head == ["run", "encoding", "learning", "rate", "steps", "loss", "when"]
    assert rope[:6] == ["rope", "rope", "0.002", "12", "of", "12"]
    assert learned[:2] == ["learned", "learned"]
    assert rope[6] == f"{min(points(three / 'runs' / 'rope', 'val/loss').values()):.4f}"
    created = datetime.fromisoformat(RunDir.open(three / "runs" / "rope").record["created"])
    assert " ".join(rope[7:]) == f"{created.astimezone():%Y-%m-%d %H:%M}"
    assert damaged[:4] == ["damaged", "learned", "0.001", "-"]
    skipped, *warnings = errors.splitlines()
    assert skipped == "skipped: runs/notes/run.json is missing: runs/notes is no run"
    assert all("line 1 of runs/damaged/metrics.jsonl" in line for line in warnings) and warnings


@pytest.mark.slow
def test_several_runs_have_their_difference_and_its_error_on_the_same_targets(three):
    words = ["rope", "runs/learned", "notes", "--json", "all.json", "--plot", "loss.png"]
    (head, rope, learned, *_, note), errors = evaluated(*words, cwd=three)
    assert note[:7] == ["each", "run", "reads", "windows", "of", "its", "own"]
    assert head == ["run", "loss", "bits/byte", "difference"] and "skipped: runs/notes" in errors
    first, second = json.loads((three / "all.json").read_text(encoding="utf-8"))["runs"]
    assert rope == ["rope", f"{first['loss']:.4f}", f"{first['bpb']:.4f}"]
    assert learned[3:] == [f"{second['difference']:+.4f}", "±", f"{second['difference_se']:.4f}"]
    assert second["difference"] == pytest.approx(second["loss"] - first["loss"], abs=1e-9)

    nats = []  # of every target, by a loop
    for name in ("rope", "learned"):
        model = load_run(three / "runs" / name)
        data = np.fromfile(next((three / "prepared").glob("*/val.bin")), dtype="uint16")
        ids, length = torch.from_numpy(data.astype(np.int64)), model.config.data.seq_len
        for at in range(0, len(ids) - 1, length):
            row = ids[at : at + length + 1]
            logits = model.model(row[None, :-1]).detach()[0].double()
            nats.append(torch.nn.functional.cross_entropy(logits, row[1:], reduction="none"))
    nats = torch.cat(nats).view(2, -1)
    stretches = [part.mean().item() for part in (nats[1] - nats[0]).tensor_split(20)]
    assert second["difference"] == pytest.approx((nats[1] - nats[0]).mean().item(), abs=1e-6)
    expected = statistics.stdev(stretches) / 20**0.5
    assert second["difference_se"] == pytest.approx(expected, rel=1e-4)
    assert imread(three / "loss.png").shape[1] > 500


@pytest.mark.slow
def test_lengths_are_measured_on_request(three):
    options = ["--lengths", "--checkpoint", "last", "--windows", "4", "--device", "cpu",
               "--rope-scaling", "all"]
    lines, _ = evaluated("rope", "learned", *options, "--json", "lengths.json", cwd=three)
    results = json.loads((three / "lengths.json").read_text(encoding="utf-8"))["runs"]
    assert [r["config"]["model"]["position"] for r in results] == ["rope", "learned"]
    assert len(results[0]["rope_scaling"]) == 15 and results[1]["rope_scaling"] is None
    shown = [f"{row['loss']:.4f}" for row in results[0]["context"]]
    head, rope, learned = lines[7:10]
    assert head[:2] == ["run", "encoding"] and rope[:2] == ["rope", "rope"]
    assert rope[5:15] == shown and head[-2:] == ["shift", "T"]
    assert learned.count("-") == 2 * 3 + 1  # past its table, in both modes; and the shift by T
    (yarn,) = (line for line in lines if "yarn" in line)
    losses = [r["loss"] for r in results[0]["rope_scaling"] if r["scaling"] == "yarn"]
    assert yarn == ["rope", "yarn", *(f"{loss:.4f}" for loss in losses)]


@pytest.mark.slow
def test_weights_without_a_loss_are_refused_and_a_terminal_without_a_sign_is_not(
    three, capsys, monkeypatch
):
    process = start(ROOT / "evaluate.py", "rope", "learned", cwd=three, PYTHONIOENCODING="ascii")
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and " ? " in said and "Traceback" not in errors
    monkeypatch.chdir(three)
    monkeypatch.setattr(evaluate.measure, "target_losses", lambda scorer: torch.tensor([math.nan]))
    said = refusal(capsys, evaluate.main, "rope", "--json", "nan.json")
    assert "the best weights of runs/rope have no loss" in said[-1]


def test_a_trained_scaling_is_not_taken_away(world, capsys, monkeypatch):
    monkeypatch.setattr(evaluate.measure, "compare", lambda *a: pytest.fail("measured first"))
    scaling = {"type": "yarn", "factor": "2", "original_positions": "12"}
    stretched = trained(world, "stretched", "--data.val_fraction", "0.3",
                        *(f"--model.rope_scaling.{key}={value}" for key, value in scaling.items()))
    said = refusal(capsys, evaluate.main, str(stretched), "--lengths", "--rope-scaling", "all")
    assert "was trained with model.rope_scaling yarn: --rope-scaling would take it away" in said[-1]


@pytest.mark.parametrize("words, message", [
    ("", "no run in runs/ yet: make one with `python train.py"),
    ("nothing runs/x", "none of these is a run"),
    ("--lengths", "name the runs to measure"),
    ("x --plot a.jpg", "--plot a.jpg must end in .png"),
    ("x --windows 0", "--windows must be at least 1, not 0"),
    ("x --lenghts", r"no option --lenghts (did you mean --lengths?)"),
])
def test_what_it_cannot_do_is_said(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, evaluate.main, *words.split())[-1]
