"""The command: what it refuses, what it leaves behind, and what an imported run is good for."""

import math
import os
import shutil
import signal
from pathlib import Path

import gguf
import pytest
import torch
from builders import error_lines, exit_code, read_metric, train_tiny, training_argv
from disk_faults import file_size_limit
from random_runs import save_weights
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
from small_tokenizers import TEXT
from transformers import AutoModelForCausalLM

import export
import generate as generate_command
import train
from data.dataset import prepare
from data.tokenizer import open_tokenizer, tokenizer_files
from formats import names
from gyre.rundir import RunDir
from gyre.yaml_files import read_config
from model.config import RopeScaling


@pytest.mark.parametrize("to", ["hf", "gguf", "web"])
def test_a_model_that_a_target_cannot_express_is_refused(to, tmp_path, capsys):
    run = make_run(tmp_path, "alibi", position="alibi").path
    words = f"{run} cannot be exported to {to}: model.position alibi"
    assert_refused(capsys, to, run, tmp_path / "out", words)


def test_a_dtype_for_an_import_is_refused(tmp_path, capsys):
    assert_refused(capsys, "run", their_folder(tmp_path), tmp_path / "ours",
                   "--dtype has no effect with --to run", options=["--dtype", "f16"])


def test_q8_0_for_hugging_face_is_refused(tmp_path, capsys):
    assert_refused(capsys, "hf", make_run(tmp_path).path, tmp_path / "out",
                   "--dtype q8_0 is a type of gguf files", options=["--dtype", "q8_0"])


@pytest.mark.parametrize("name, kind", [("ollama", "gguf"), ("vLLM", "hf")])
def test_the_name_of_a_program_leads_to_what_it_reads(tmp_path, capsys, name, kind):
    said = error_lines(capsys, export.main, tmp_path, tmp_path / "out", "--to", name)[-1]
    assert said == f"error: --to: {name} reads {kind}: say --to {kind}"


def test_the_name_of_a_folder_is_refused_for_a_gguf(tmp_path, capsys):
    run = make_run(tmp_path).path
    said = error_lines(capsys, export.main, run, "--to", "gguf", f"{tmp_path}/out/")[-1]
    assert f"{tmp_path}/out/ is the name of a folder, and a GGUF is a file: choose" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", "run.json"])
def test_a_target_that_is_there_is_refused(name, tmp_path, capsys):
    run = make_run(tmp_path).path
    assert_refused(capsys, "gguf", run, run / name, "is there already")


def test_stdout_as_a_target_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, "gguf", make_run(tmp_path).path, Path("-"), "OUT - is not stdout")


def test_a_source_that_is_no_run_is_refused(tmp_path, capsys):
    (tmp_path / "source").mkdir()
    assert_refused(capsys, "hf", tmp_path / "source", tmp_path / "out", "is no run")


def test_a_source_that_is_no_folder_is_refused(tmp_path, capsys):
    assert_refused(capsys, "run", tmp_path / "none", tmp_path / "new", "is no folder")


def test_an_import_of_a_run_says_that_it_is_one(tmp_path, capsys):
    run = make_run(tmp_path).path
    assert_refused(capsys, "run", run, tmp_path / "new",
                   f"{run} is a run already, which --to run cannot import: use --run {run} as it "
                   "is, or export it with --to hf, gguf or web")


def test_an_import_of_the_name_of_a_run_says_where_it_is(tmp_path, capsys, monkeypatch):
    make_run(tmp_path / "runs", "small-rope-s1")
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, "run", "small-rope-s1", tmp_path / "new", "small-rope-s1 is a run "
                   "already", "use --run runs/small-rope-s1 as it is")


def test_a_folder_is_imported_though_a_run_has_its_name(tmp_path, monkeypatch):
    folder = their_folder(tmp_path)
    make_run(tmp_path / "runs", folder.name)
    monkeypatch.chdir(tmp_path)
    assert exit_code(export.main, folder.name, "runs/imported", "--to", "run") == 0


@pytest.mark.parametrize("target, n_notes", [("mine", 1), ("runs/mine", 0), ("./a/mine", 0)])
def test_an_import_by_a_name_alone_is_said_to_be_no_listed_run(
    target, n_notes, tmp_path, capsys, monkeypatch
):
    folder = their_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert exit_code(export.main, folder, target, "--to", "run") == 0
    note = ("note: mine is in this folder, and evaluate.py lists those in runs/: mkdir -p runs && "
            "mv mine runs/ puts it there")
    assert capsys.readouterr().err.count(note) == n_notes


def test_a_refused_import_makes_no_folder_above_its_target(tmp_path, capsys):
    folder = their_folder(tmp_path)
    edit_json(folder / "config.json", mlp_bias=True)
    assert_refused(capsys, "run", folder, tmp_path / "new" / "ours", "mlp_bias")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("sizes, dtype, noted", [
    ({"dim": 32, "hidden_dim": 64}, "q8_0", True), ({"dim": 32, "hidden_dim": 64}, "f16", False),
    ({"dim": 64, "hidden_dim": 32}, "q8_0", True), ({"dim": 64, "hidden_dim": 64}, "q8_0", False)])
def test_short_rows_of_q8_0_are_noted(tmp_path, capsys, sizes, dtype, noted):
    run = make_run(tmp_path, n_heads=2, n_kv_heads=2, **sizes).path
    assert exit_code(export.main, run, "--to", "gguf", tmp_path / "o.gguf", "--dtype", dtype) == 0
    assert ("whose rows have 32 numbers" in capsys.readouterr().err) is noted


def test_a_refused_gguf_makes_no_folder_above_it(tmp_path, capsys):
    run = make_run(tmp_path).path  # 48 wide; q8_0 packs 32
    assert_refused(capsys, "gguf", run, tmp_path / "new" / "out.gguf", "token_embd.weight",
                   "rows of 48", options=["--dtype", "q8_0"])
    assert not (tmp_path / "new").exists()


def run_with(tmp_path, name, value):
    """A run in which one number of a weight is `value`."""
    run = make_run(tmp_path)
    weights = run.checkpoints.load_weights()
    weights[name].view(-1)[3] = value
    save_weights(run, "best", weights)
    return run.path


@pytest.mark.parametrize("to, name, dtype, reach", [
    ("hf", "norm.weight", "f16", "65,504"), ("gguf", "output.weight", "f16", "65,504"),
    ("gguf", "output.weight", "q8_0", "8,319,008")])
def test_a_weight_that_a_type_cannot_hold_is_refused(to, name, dtype, reach, tmp_path, capsys):
    run = run_with(tmp_path, name, -1e7)
    assert_refused(capsys, to, run, tmp_path / "out", name, "holds 1e+07",
                   f", and --dtype {dtype} reaches to {reach}", options=["--dtype", dtype])


def test_a_weight_that_bfloat16_would_make_infinite_is_refused(tmp_path, capsys):
    run = run_with(tmp_path, "norm.weight", 3.4e38)
    assert_refused(capsys, "hf", run, tmp_path / "out", "norm.weight", "holds 3.4e+38, and",
                   "--dtype bf16 reaches to 3.3895e+38: choose f32", options=["--dtype", "bf16"])


def test_a_vector_may_be_large_in_a_gguf(tmp_path):
    """It stays float32 there."""
    run = run_with(tmp_path, "norm.weight", -1e6)
    export_to("gguf", run, tmp_path / "out.gguf", "--dtype", "f16")


@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_bfloat16_holds_large_weights(to, tmp_path):
    run = run_with(tmp_path, "output.weight", -1e7)
    export_to(to, run, tmp_path / "deep" / "out", "--dtype", "bf16")


@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_an_infinite_weight_is_refused(to, tmp_path, capsys):
    run = run_with(tmp_path, "norm.weight", -math.inf)
    assert_refused(capsys, to, run, tmp_path / "out", f"norm.weight of {run} holds inf",
                   options=["--dtype", "bf16"])


@pytest.mark.parametrize("to", ["hf", "gguf", "run"])
def test_a_disk_that_fills_up_keeps_nothing(to, tmp_path, capsys):
    source = their_folder(tmp_path) if to == "run" else make_run(tmp_path).path
    with file_size_limit(200_000):
        assert_refused(capsys, to, source, tmp_path / "out", str(tmp_path / "out"),
                       "File too large")


@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_an_export_asks_for_room_before_it_writes(to, tmp_path, capsys, monkeypatch):
    source = make_run(tmp_path, n_layers=3).path
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert_refused(capsys, to, source, tmp_path / "out", "0.2 MB are needed", "0.1 MB free",
                   "make room", options=["--dtype", "f16"])


def test_a_page_asks_for_room_for_wllama_too(tmp_path, capsys, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=30_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert_refused(capsys, "web", make_run(tmp_path).path, tmp_path / "out",
                   "30.1 MB are needed", "30.0 MB free", options=["--dtype", "f16"])


@pytest.mark.parametrize(("to", "number"), [
    ("hf", signal.SIGINT), ("gguf", signal.SIGTERM), ("run", signal.SIGTERM)])
def test_whoever_stops_it_finds_nothing(to, number, tmp_path, monkeypatch):
    source = their_folder(tmp_path) if to == "run" else make_run(tmp_path).path
    folder = tmp_path / "in"
    folder.mkdir()
    before = sorted(tmp_path.rglob("*"))
    seen = []

    def interrupted(*args):
        seen.append(any(p.suffix == ".tmp" for p in folder.iterdir()))
        os.kill(os.getpid(), number)

    # What all weights pass on their way.
    monkeypatch.setattr(names, "relayout", interrupted)
    monkeypatch.setattr(gguf.quants, "quantize", interrupted)
    assert exit_code(export.main, source, "--to", to, folder / "out") == 128 + number
    assert seen == [True]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_an_export_notes_a_context_past_the_training_rows(to, tmp_path, capsys):
    run = make_run(tmp_path, max_positions=1024)
    assert read_config(run.path / "config.yaml").data.seq_len == 256
    export_to(to, run.path, tmp_path / "out")
    assert ("note: it names a context of 1024 tokens (model.max_positions), and was trained for "
            "256: past that it may get worse, so tell other programs to read 256\n"
            ) in capsys.readouterr().err


@pytest.mark.parametrize(("positions", "scaling"), [
    (256, None), (1024, RopeScaling("yarn", 4.0, 256))])
def test_no_note_on_a_context_that_was_trained_or_scaled_for(positions, scaling, tmp_path, capsys):
    run = make_run(tmp_path, max_positions=positions, rope_scaling=scaling)
    export_to("hf", run.path, tmp_path / "out")
    assert "names a context" not in capsys.readouterr().err


def test_no_note_on_the_context_of_an_import(tmp_path, capsys):
    """As Llama 3.1, which was trained beyond 8 times its original length."""
    folder = their_folder(tmp_path, max_position_embeddings=128, rope_parameters={
        "rope_type": "llama3", "rope_theta": 5e3, "factor": 4.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16})
    export_to("run", folder, tmp_path / "new")
    export_to("hf", tmp_path / "new", tmp_path / "out")
    assert "names a context" not in capsys.readouterr().err


@pytest.mark.parametrize(("to", "scaling", "words"), [
    ("hf", RopeScaling("dynamic", 4.0, 16), "optimum-onnx 0.1.0 computes another model"),
    ("hf", RopeScaling("llama3", 4.0, 16), "ctranslate2 4.8.5 drops rope_scaling.type llama3"),
    ("hf", RopeScaling("yarn", 4.0, 16, attention_factor=1.3),
     "mlx-lm 0.32.2 drops rope_scaling.attention_factor"),
    ("gguf", RopeScaling("linear", 4.0, 16), "transformers 5.24.0 drops the scaling of a GGUF")])
def test_an_export_notes_a_program_that_drops_its_scaling(to, scaling, words, tmp_path, capsys):
    run = make_run(tmp_path, rope_scaling=scaling)
    export_to(to, run.path, tmp_path / "out")
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert words in notes[0]


@pytest.mark.parametrize(("to", "scaling"), [
    ("hf", None), ("hf", RopeScaling("linear", 4.0, 16)), ("hf", RopeScaling("yarn", 4.0, 16)),
    ("gguf", None), ("gguf", RopeScaling("ntk", 4.0, 16))])
def test_no_note_where_no_program_is_known_to_drop_it(to, scaling, tmp_path, capsys):
    run = make_run(tmp_path, rope_scaling=scaling)
    export_to(to, run.path, tmp_path / "out")
    assert "drops" not in capsys.readouterr().err


def test_a_gguf_notes_programs_that_put_a_space_in_front(tmp_path, capsys):
    export_to("gguf", make_run(tmp_path).path, tmp_path / "out")
    assert ("note: transformers 5.24.0 and mistral.rs 0.9.5 put a space in front of texts, though "
            "this GGUF says not to, without a warning: export with --to hf for them\n"
            ) in capsys.readouterr().err


def test_no_note_on_a_gguf_whose_texts_begin_with_a_space(tmp_path, capsys):
    run, _ = imported(tmp_path, "llama2")
    capsys.readouterr()
    export_to("gguf", run.path, tmp_path / "out")
    assert "note: " not in capsys.readouterr().err


# --- imported runs --------------------------------------------------------------------------------


def test_a_run_is_exported_by_its_name(tmp_path, monkeypatch):
    run = make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(run.path.parent)
    assert exit_code(export.main, run.path.name, "--to", "hf", tmp_path / "out") == 0
    assert (tmp_path / "out" / "config.json").is_file()


def test_an_export_of_the_last_weights_says_so(tmp_path, capsys):
    run = make_run(tmp_path)
    (run.path / "best").rename(run.path / "last")
    export_to("hf", run.path, tmp_path / "out")
    assert f"note: {run.path} has no best weights: its last" in capsys.readouterr().err


def test_an_export_of_the_best_weights_needs_no_note(tmp_path, capsys):
    run = make_run(tmp_path)
    export_to("hf", run.path, tmp_path / "out")
    assert "note: " not in capsys.readouterr().err


def test_byte_level_pairs_have_no_place_in_a_gguf(tmp_path, capsys):
    run, _ = imported(tmp_path, "llama3")
    assert_refused(capsys, "gguf", run.path, tmp_path / "out", "tokenizer.json",
                   "convert_hf_to_gguf")


GREEDY = ("--prompt", "def f(x", "--temperature", "0", "--device", "cpu", "--max-new-tokens", "20",
          "--run")


@pytest.mark.parametrize("which", ["the run", "their folder"])
def test_generate_py_prints_what_transformers_generates(which, tmp_path, capsys):
    run, folder = imported(tmp_path, "llama3")
    text = open_tokenizer(folder).decode(greedy(folder))
    path = run.path if which == "the run" else folder
    capsys.readouterr()
    assert exit_code(generate_command.main, *GREEDY, path) == 0
    printed = capsys.readouterr()
    assert printed.out == f"def f(x{text}\n"
    assert f"{path}: imported weights" in printed.err


def test_generating_from_a_folder_writes_nothing(tmp_path):
    folder = their_folder(tmp_path, "llama3")
    before = sorted(tmp_path.rglob("*"))
    assert exit_code(generate_command.main, *GREEDY, folder) == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_said_of_the_training_of_an_imported_model(tmp_path, capsys):
    scaling = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "config.json", rope_parameters=scaling, max_position_embeddings=16)
    assert exit_code(generate_command.main, *GREEDY, folder, "--max-new-tokens", "40") == 0
    assert "was trained on" not in capsys.readouterr().err


def test_a_folder_has_one_checkpoint(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    lines = error_lines(capsys, generate_command.main, *GREEDY, folder, "--checkpoint", "last")
    assert f"--checkpoint has no effect on {folder}" in lines[0]


def test_a_folder_with_nan_generates_nothing(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    norm = {"model.norm.weight": torch.full((48,), math.nan)}
    edit_tensors(folder / "model.safetensors", **norm)
    assert "holds nan" in error_lines(capsys, generate_command.main, *GREEDY, folder)[-1]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """(an imported run, a run that was trained from it for 8 steps)."""
    folder = tmp_path_factory.mktemp("tuned")
    start, _ = imported(folder, "llama3")
    (folder / "text.txt").write_text(TEXT * 60, encoding="utf-8")
    more = ["--init-from", str(start.path), "--data.val_fraction=0.5", "--train.batch_size=6",
            "--train.eval_interval=4", "--optim.warmup_steps=1", "--train.steps=8", "--name=tuned"]
    assert exit_code(train.main, *training_argv(folder, *more)) == 0
    return start, RunDir.open(folder / "runs" / "tuned")


@pytest.mark.slow
def test_fine_tuning_lowers_the_loss(tuned):
    losses = read_metric(tuned[1].path)
    assert len(losses) == 8
    assert losses[8] < losses[1]


@pytest.mark.slow
def test_fine_tuning_keeps_the_tokenizer(tuned):
    start, run = tuned
    for file in tokenizer_files(start.path):
        assert (run.path / file.name).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_fine_tuning_begins_with_the_imported_weights(tuned):
    start, run = tuned
    config = read_config(run.path / "config.yaml")
    data = prepare(config.data).dataset("train", batch_size=6, seed=config.seed, seq_len=20)
    x, y = data.batch(0)
    with torch.no_grad():
        logits = load_model(start)(x)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    assert read_metric(run.path)[1] == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.slow
def test_documents_begin_with_eos_and_the_imported_bos(tuned):
    _, run = tuned
    tokenizer = open_tokenizer(run.path)
    split = prepare(read_config(run.path / "config.yaml").data).dataset("val", seq_len=20)
    ids, _ = next(iter(split.windows(1)))
    assert ids[0, :2].tolist() == [tokenizer.eos_id, tokenizer.bos_id]
    assert tokenizer.decode(ids[0].tolist()).strip() in TEXT * 60


@pytest.mark.slow
def test_a_tuned_model_is_exported(tuned, tmp_path):
    _, run = tuned
    out = export_to("hf", run.path, tmp_path / "out")
    assert_same_logits(AutoModelForCausalLM.from_pretrained(out), load_model(run))


def test_an_export_says_after_which_step_its_weights_were_saved(workdir, tmp_path, capfd):
    path = train_tiny(workdir, "to-export", "--train.steps=3")
    step = RunDir.open(path).checkpoints.saved_step("best")
    capfd.readouterr()
    assert exit_code(export.main, path, tmp_path / "hf", "--to", "hf") == 0
    assert f" parameters from {path}, after step {step}\n" in capfd.readouterr().err
    assert step > 0
