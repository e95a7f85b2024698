"""The command: what it refuses, what it leaves behind, and what an imported run is good for."""

import math
import os
import shutil
import signal

import gguf
import pytest
import torch
from conftest import points, refusal, training
from conftest import run as exit_code
from disk_faults import file_size_limit
from noise import TEXT, save_weights
from saved_models import (
    assert_refused,
    assert_same_logits,
    edit_json,
    edit_tensors,
    export_to,
    greedy,
    imported,
    load_model,
    make_run,
    their_folder,
)
from transformers import AutoModelForCausalLM

import export
import generate as generate_command
import train
from data.prepare import prepare
from data.tokenizer import open_tokenizer, tokenizer_files
from formats import names
from gyre.options import read_config
from gyre.rundir import RunDir


def test_what_cannot_be_done_is_refused_and_makes_no_folder(tmp_path, capsys):
    run, out = make_run(tmp_path, "alibi", position="alibi").path, tmp_path / "out.gguf"
    assert_refused(capsys, "gguf", run, out, str(run), "model.position alibi")
    assert_refused(capsys, "run", run, out, "--dtype has no effect", options=["--dtype", "f16"])
    for there in (run, run / "run.json"):
        assert_refused(capsys, "gguf", run, there, "is there already")
    assert_refused(capsys, "hf", tmp_path, out, "is no run")
    assert_refused(capsys, "run", tmp_path / "none", tmp_path / "new", "is no folder")

    run, folder = make_run(tmp_path).path, their_folder(tmp_path)
    edit_json(folder / "config.json", mlp_bias=True)
    new = tmp_path / "new"
    assert_refused(capsys, "run", folder, new / "ours", "mlp_bias")
    words = "--dtype q8_0", "token_embd.weight", "rows of 48"
    assert_refused(capsys, "gguf", run, new / "out.gguf", *words, options=["--dtype", "q8_0"])
    assert_refused(
        capsys, "hf", run, new / "out", "q8_0 is a type of gguf", options=words[0].split())
    assert not new.exists()


@pytest.mark.parametrize(("to", "name", "dtype", "reach"), [
    ("hf", "norm.weight", "f16", "65,504"), ("gguf", "output.weight", "f16", "65,504"),
    ("gguf", "output.weight", "q8_0", "8,319,008")])
def test_a_weight_that_a_type_cannot_hold_is_refused(to, name, dtype, reach, tmp_path, capsys):
    """Vectors stay float32 in a GGUF."""
    run = make_run(tmp_path)
    weights = run.checkpoints.load_weights()
    weights["norm.weight"][3] = -1e6
    if to == "gguf":
        save_weights(run, "best", weights)
        export_to(to, run.path, tmp_path / "b", "--dtype", "f16")
        weights["output.weight"][3, 5] = -1e7
    save_weights(run, "best", weights)
    words = name, "holds 1e+0", f", and --dtype {dtype} reaches to {reach}"
    assert_refused(capsys, to, run.path, tmp_path / "out", *words, options=["--dtype", dtype])
    export_to(to, run.path, tmp_path / "deep" / "a", "--dtype", "bf16")
    weights["norm.weight"][3] = -math.inf
    save_weights(run, "best", weights)
    assert_refused(capsys, to, run.path, tmp_path / "out", f"norm.weight of {run.path} holds inf")


@pytest.mark.parametrize("to", ["hf", "gguf", "run"])
def test_a_disk_that_is_full_or_fills_up_keeps_nothing(to, tmp_path, capsys, monkeypatch):
    """And is reported."""
    source = their_folder(tmp_path) if to == "run" else make_run(tmp_path).path
    out = tmp_path / "out"
    with file_size_limit(200_000):
        assert_refused(capsys, to, source, out, str(out), "File too large")
    if to != "run":  # an export says so before it writes
        usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        words = "0.2 MB are needed", "0.1 MB free", "make room"
        assert_refused(capsys, to, source, out, *words, options=["--dtype", "f16"])


@pytest.mark.parametrize(("to", "number"), [
    ("hf", signal.SIGINT), ("gguf", signal.SIGTERM), ("run", signal.SIGTERM)])
def test_whoever_stops_it_finds_nothing(to, number, tmp_path, monkeypatch):
    source = their_folder(tmp_path) if to == "run" else make_run(tmp_path).path
    (folder := tmp_path / "in").mkdir()
    before, seen = sorted(tmp_path.rglob("*")), []

    def interrupted(*args):
        seen.append(any(p.suffix == ".tmp" for p in folder.iterdir()))
        os.kill(os.getpid(), number)

    # What all weights pass on their way.
    monkeypatch.setattr(names, "relayout", interrupted)
    monkeypatch.setattr(gguf.quants, "quantize", interrupted)
    assert exit_code(export.main, source, "--to", to, folder / "out") == 128 + number
    assert seen == [True]
    assert sorted(tmp_path.rglob("*")) == before


# --- imported runs --------------------------------------------------------------------------------


def test_generation_is_theirs(tmp_path, capsys, monkeypatch):
    run, folder = imported(tmp_path, "llama3")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(run.path.parent)
    assert exit_code(export.main, run.path.name, "--to", "hf", tmp_path / "by its name") == 0
    # Byte-level pairs have no place in a GGUF.
    assert_refused(capsys, "gguf", run.path, tmp_path / "o", "tokenizer.json", "convert_hf_to_gguf")
    text = open_tokenizer(run.path).decode(greedy(folder))
    argv = ["--prompt", "def f(x", "--temperature", "0", "--device", "cpu", "--max-new-tokens",
            "20", "--run"]
    before = sorted(tmp_path.rglob("*"))
    for path in (run.path, folder):
        capsys.readouterr()
        assert exit_code(generate_command.main, *argv, path) == 0
        said = capsys.readouterr()
        assert said.out == f"def f(x{text}\n" and f"{path}: best weights" in said.err
    words = f"--checkpoint has no effect on {folder}"
    assert words in refusal(capsys, generate_command.main, *argv, folder, "--checkpoint", "last")[0]
    norm = {"model.norm.weight": torch.full((48,), math.nan)}
    edit_tensors(folder / "model.safetensors", **norm)
    assert "holds nan" in refusal(capsys, generate_command.main, *argv, folder)[-1]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_fine_tuning_from_an_imported_model(tmp_path):
    start, _ = imported(tmp_path, "llama3")
    (tmp_path / "text.txt").write_text(TEXT * 60, encoding="utf-8")
    more = ["--init-from", str(start.path), "--data.val_fraction=0.5", "--train.batch_size=6",
            "--train.eval_interval=4", "--optim.warmup_steps=1", "--train.steps=8", "--name=tuned"]
    assert exit_code(train.main, *training(tmp_path, *more)) == 0
    tuned = RunDir.open(tmp_path / "runs" / "tuned")
    losses = points(tuned.path)
    assert len(losses) == 8 and losses[8] < losses[1]
    for file in tokenizer_files(start.path):
        assert (tuned.path / file.name).read_bytes() == file.read_bytes()
    # The first loss is that of the imported weights, on what the imported tokenizer makes.
    config, tokenizer = read_config(tuned.path / "config.yaml"), open_tokenizer(tuned.path)
    data = prepare(config.data)
    x, y = data.dataset("train", batch_size=6, seed=config.seed, seq_len=20).batch(0)
    with torch.no_grad():
        logits = load_model(start)(x)
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    assert losses[1] == pytest.approx(expected.item(), abs=1e-4)
    ids, _ = next(iter(data.dataset("val", seq_len=20).windows(1)))
    assert ids[0, 0] == tokenizer.eos_id and ids[0, 1] == tokenizer.bos_id
    assert tokenizer.decode(ids[0].tolist()).strip() in TEXT * 60
    out = export_to("hf", tuned.path, tmp_path / "out")
    assert_same_logits(AutoModelForCausalLM.from_pretrained(out), load_model(tuned))
