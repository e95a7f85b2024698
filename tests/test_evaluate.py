"""The command: which runs share a table, and what it prints."""

import json

import pytest
from conftest import ROOT, output, refusal, trained

import evaluate
from errors import UserError
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
    evaluate.refuse_mixed(runs[:2])
    with pytest.raises(UserError, match=f"one and .*three {words}.*one at a time"):
        evaluate.refuse_mixed(runs)


def test_windows_and_imported_runs_are_refused_in_words(tmp_path, capsys):
    (said,) = refusal(capsys, evaluate.main, "runs/x", "--windows", "0")
    assert "--windows must be at least 1, not 0" in said
    (tmp_path / "manifest.json").write_text('{"imported": {}}', encoding="utf-8")
    with pytest.raises(UserError, match="was imported and has no validation text of its own"):
        evaluate.refuse_mixed([RunDir(tmp_path, {})])


@pytest.mark.slow
def test_the_program_prints_a_table_and_one_line_of_json(world, capsys):
    for position in ("rope", "learned"):
        trained(world, position, "--model.position", position, "--data.val_fraction", "0.3")
    options = ["--checkpoint", "last", "--windows", "8", "--device", "cpu", "--rope-scaling", "all"]
    said = output(ROOT / "evaluate.py", "rope", "learned", *options, cwd=world / "runs")
    *lines, last = said.splitlines()
    results = json.loads(last)["runs"]
    assert [r["config"]["model"]["position"] for r in results] == ["rope", "learned"]
    assert len(results[0]["rope_scaling"]) == 15 and results[1]["rope_scaling"] is None
    head, rope, learned = (line.split() for line in lines[:3])
    assert head[:2] == ["run", "encoding"] and rope[:2] == ["rope", "rope"]
    assert f"{results[0]['loss']:.4f}" in rope and f"{results[0]['bpb']:.4f}" in rope
    assert learned.count("-") == 2 * 3 + 1  # past its table, in both modes; and the shift by T
    (yarn,) = (line.split() for line in lines if "yarn" in line)
    losses = [r["loss"] for r in results[0]["rope_scaling"] if r["scaling"] == "yarn"]
    assert yarn == ["rope", "yarn", *(f"{loss:.4f}" for loss in losses)]

    said = refusal(capsys, evaluate.main, world / "runs" / "learned", *options)
    assert "--rope-scaling has no effect" in said[-1]
