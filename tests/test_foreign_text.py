"""Losses of any model on any text, against transformers' own on the same windows."""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import error_lines, exit_code, random_text
from saved_models import export_to, exported, make_run, meta_folder, their_folder
from transformers import AutoTokenizer, LlamaForCausalLM

import evaluate
from files import read_json

CONTEXT, STRIDE = 24, 7


@pytest.fixture
def text(tmp_path) -> Path:
    """A book of some 270 tokens in one document."""
    file = tmp_path / "book.txt"
    file.write_text(random_text(80, seed=5), encoding="utf-8")
    return file


@pytest.fixture
def short_text(tmp_path) -> Path:
    """The same of some 100 tokens, for each of which transformers computes a window."""
    file = tmp_path / "leaflet.txt"
    file.write_text(random_text(32, seed=5), encoding="utf-8")
    return file


def measured(folder: Path, text: Path, *options: str) -> dict:
    """What `python evaluate.py FOLDER --data.files TEXT` writes with --json."""
    out = text.with_name("measured.json")
    assert exit_code(evaluate.main, folder, f"--data.files={text}", "--device=cpu",
                     f"--json={out}", *options) == 0
    (record,) = read_json(out)["runs"]
    return record


def their_losses(folder: Path, text: Path, first_id: int) -> list[float]:
    """The loss of every token of a text, by transformers' loop for strided perplexity.

    Its windows have CONTEXT + 1 ids, because their last one is only a target. The labels of ids
    that were scored before are -100. A second call for each token alone gives its own loss.
    """
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    plain = tokenizer(text.read_text(encoding="utf-8"), add_special_tokens=False)
    ids = torch.tensor([[first_id, *plain["input_ids"]]])
    losses = []
    scored = 1
    for begin in range(0, ids.shape[1], STRIDE):
        end = min(begin + CONTEXT + 1, ids.shape[1])
        window = ids[:, begin:end]
        for target in range(scored, end):
            labels = torch.full_like(window, -100)
            labels[0, target - begin] = ids[0, target]
            with torch.no_grad():
                losses.append(model(input_ids=window, labels=labels).loss.item())
        scored = end
        if end == ids.shape[1]:
            break
    return losses


def assert_equal_losses(record: dict, theirs: list[float], text: Path) -> None:
    """The mean of all tokens, of each of 20 stretches, and the bits per byte."""
    values = torch.tensor(theirs, dtype=torch.float64)
    assert record["text_tokens"] == len(theirs) + 1
    assert record["loss"] == pytest.approx(values.mean().item(), abs=1e-5)
    stretches = [part.mean().item() for part in values.tensor_split(20)]
    assert record["stretches"] == pytest.approx(stretches, abs=1e-5)
    bits = values.sum().item() / torch.tensor(2.0).log().item() / text.stat().st_size
    assert record["bpb"] == pytest.approx(bits, rel=1e-5)


def test_an_export_has_the_losses_of_transformers(tmp_path, short_text):
    _, folder = exported(tmp_path)
    theirs = their_losses(folder, short_text, first_id=2)  # EOS, with which our documents begin
    record = measured(folder, short_text, f"--context={CONTEXT}", f"--stride={STRIDE}")
    assert_equal_losses(record, theirs, short_text)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["llama2-json", "llama3"])
def test_a_model_with_bos_has_the_losses_of_transformers(tmp_path, short_text, tokenizer):
    folder = their_folder(tmp_path, tokenizer)
    tokenizer_of_theirs: Any = AutoTokenizer.from_pretrained(folder)
    first_id = tokenizer_of_theirs("a")["input_ids"][0]  # BOS
    theirs = their_losses(folder, short_text, first_id)
    record = measured(folder, short_text, f"--context={CONTEXT}", f"--stride={STRIDE}")
    assert_equal_losses(record, theirs, short_text)


def test_a_folder_of_meta_is_measured_as_its_import(tmp_path, text):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), parts=2, columns=False)
    imported = export_to("run", folder, tmp_path / "imported")
    windows = (f"--context={CONTEXT}", f"--stride={STRIDE}")
    record = measured(folder, text, *windows)
    again = measured(imported, text, *windows)
    assert record["loss"] == again["loss"] and record["stretches"] == again["stretches"]
    assert record["seq_len"] == again["seq_len"] == CONTEXT  # what stands for a training row


def test_a_folder_is_read_in_windows_of_its_positions(tmp_path, text, capfd):
    record = measured(their_folder(tmp_path), text)
    assert (record["window"], record["least_context"], record["most_context"]) == (64, 1, 64)
    said = capfd.readouterr().err
    assert "theirs-ours is read in windows of 64 tokens, as its configuration says" in said


def test_long_positions_are_read_in_shorter_windows(
        tmp_path, text, capfd, monkeypatch):
    monkeypatch.setattr(evaluate, "MOST_IMPORTED_CONTEXT", 32)
    assert measured(their_folder(tmp_path), text)["window"] == 32
    said = capfd.readouterr().err
    assert "is read in windows of 32 tokens, and its positions reach to 64: --context" in said


def test_a_record_of_a_folder_has_no_training(tmp_path, text):
    record = measured(their_folder(tmp_path), text)
    assert not {"lr", "seed", "tokens", "checkpoint"} & set(record)
    assert record["run"].endswith("theirs-ours") and record["config"]["model"]["dim"] == 48


def test_a_folder_can_be_measured_by_length_of_the_context(tmp_path, text):
    record = measured(their_folder(tmp_path), text, "--lengths", "--context=16")
    assert [row["context"] for row in record["context"]] == [8, 8, 16, 16, 32, 32, 64, 64, 128, 128]


def test_a_folder_without_a_text_is_refused(tmp_path, capsys):
    error = error_lines(capsys, evaluate.main, their_folder(tmp_path))[-1]
    assert "has no validation text of its own: give a text with --data.files" in error


def test_the_last_checkpoint_of_a_folder_is_refused(tmp_path, text, capsys):
    folder = their_folder(tmp_path)
    error = error_lines(capsys, evaluate.main, folder, f"--data.files={text}",
                        "--checkpoint=last")[-1]
    assert "--checkpoint has no effect on folders that are no runs" in error
