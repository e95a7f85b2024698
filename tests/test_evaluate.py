"""The command: which runs it lists, which share a table, and what it prints."""

import json
import re
import shutil
import statistics
from datetime import datetime
from pathlib import Path
from unittest import mock

import pytest
from builders import (
    error_lines,
    exit_code,
    random_text,
    read_metric,
    stop_at,
    target_losses,
    train_tiny,
)
from matplotlib.image import imread

import evaluate
import export
from data.dataset import find_or_prepare
from errors import UserError, find_script
from files import write_json
from gyre import measure
from gyre.rundir import RunDir
from gyre.yaml_files import read_config


def made_up_runs(folder: Path, **changes) -> list[RunDir]:
    """Two runs with manifests only, the second with these fields changed."""
    runs = []
    for name, other in (("one", {}), ("two", changes)):
        manifest = {
            "files": {"train.bin": {"sha256": name}, "tokenizer.model": {"sha256": "a"}},
            "text": {"sha256": "a"}, "settings": {"val_fraction": 0.1},
            "val": {"documents": 3, "bytes": 100, "tokens": 40}}
        write_json(folder / name / "manifest.json", manifest | other)
        runs.append(RunDir(folder / name, {}))
    return runs


@pytest.mark.parametrize("changes, words", [
    ({"text": {"sha256": "b"}}, "one and .*two were trained on different texts"),
    ({"settings": {"val_fraction": 0.2}}, "one and .*two hold out different parts"),
    ({"settings": {"val_fraction": 0.1, "second_val": True}}, "hold out different parts"),
    ({"val": {"documents": 2, "bytes": 90, "tokens": 40}},
     "hold out different parts of the text, by .* or the documents that it is divided into"),
    ({"imported": {}}, "two was imported and has no validation text of its own: give a text")])
def test_runs_with_other_texts_do_not_share_a_table(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        evaluate.check_comparable(made_up_runs(tmp_path, **changes))


def test_runs_with_other_tokenizers_share_a_table(tmp_path):
    files = {"train.bin": {"sha256": "b"}, "tokenizer.model": {"sha256": "b"}}
    evaluate.check_comparable(made_up_runs(tmp_path, files=files, val={
        "documents": 3, "bytes": 100, "tokens": 50}))


@pytest.mark.parametrize("changes, same", [
    ({}, True), ({"text": {"sha256": "b"}}, False), ({"settings": {"val_fraction": 0.2}}, False),
    ({"files": {"train.bin": {"sha256": "b"}, "tokenizer.model": {"sha256": "b"}}}, False)])
def test_runs_have_the_same_data_if_nothing_of_it_differs(tmp_path, changes, same):
    assert evaluate.have_same_data(made_up_runs(tmp_path, **changes)) is same


@pytest.fixture(scope="module")
def runs(workdir):
    """Two encodings of one text, the second with rows of another length, a damaged copy, and
    folders that are no runs."""
    train_tiny(workdir, "rope", "--data.val_fraction", "0.3", "--optim.lr", "2e-3")
    train_tiny(workdir, "learned", "--data.val_fraction", "0.3", "--model.position", "learned",
               "--data.seq_len", "40")
    runs = workdir / "runs"
    shutil.copytree(runs / "learned", runs / "damaged")
    (runs / "damaged" / "metrics.jsonl").write_text("[1]\n", encoding="utf-8")
    for name in ("notes", "wandb", ".hidden"):
        (runs / name).mkdir()
    return runs


@pytest.fixture(scope="module")
def more_pieces(workdir, runs):
    """A run like rope with a larger vocabulary, which is not in the list of runs."""
    train_tiny(workdir, "pieces", "--data.val_fraction", "0.3", "--data.vocab_size", "310",
               "--train.steps=5", f"--log.runs={workdir / 'others'}")
    return workdir / "others" / "pieces"


@pytest.fixture(scope="module")
def another_text(workdir, runs):
    """A run like rope of another text, which is not in the list of runs."""
    (workdir / "another.txt").write_text(random_text(seed=2), encoding="utf-8")
    train_tiny(workdir, "another", "--data.val_fraction", "0.3", "--train.steps=5",
               f"--data.files={workdir / 'another.txt'}", f"--log.runs={workdir / 'others'}")
    return workdir / "others" / "another"


def evaluated(capsys, *argv):
    """The lines that the command prints, as words, and its lines on stderr."""
    capsys.readouterr()
    assert exit_code(evaluate.main, *argv) == 0
    printed, errors = capsys.readouterr()
    return [line.split() for line in printed.splitlines()], errors.splitlines()


def results(capsys, folder: Path, *argv) -> list[dict]:
    """What the command writes with --json."""
    evaluated(capsys, *argv, "--device=cpu", f"--json={folder / 'all.json'}")
    return json.loads((folder / "all.json").read_text(encoding="utf-8"))["runs"]


# --- the list of runs ---


def list_of(*paths: Path) -> str:
    """The list of these runs."""
    return evaluate.list_runs([evaluate.open_run(path) for path in paths])


@pytest.fixture
def listed(runs, capsys, monkeypatch):
    """The lines of the list as words, by the name of the run, and its lines on stderr."""
    monkeypatch.chdir(runs.parent)
    lines, errors = evaluated(capsys)
    return {line[0]: line for line in lines}, errors


def test_without_arguments_the_runs_are_listed_the_oldest_first(listed):
    lines, _ = listed
    assert [*lines] == ["run", "rope", "damaged", "learned"]


def test_a_run_is_listed_with_its_text_steps_and_losses(listed, runs):
    lines, _ = listed
    assert " ".join(lines["run"]) == "run text encoding parameters lr steps bits/byte loss when"
    opened = RunDir.open(runs / "rope")
    best = min(read_metric(runs / "rope", "val/loss").values())
    bits = min(read_metric(runs / "rope", "val/bpb").values())
    created = datetime.fromisoformat(opened.record["created"]).astimezone()
    assert lines["rope"] == [
        "rope", "text", opened.manifest["text"]["sha256"][:6], "rope", "39,120", "0.002", "12",
        "of", "12", f"{bits:.4f}", f"{best:.4f}", f"{created:%Y-%m-%d}", f"{created:%H:%M}"]


def test_a_run_with_damaged_metrics_is_listed_without_them(listed):
    lines, errors = listed
    assert lines["damaged"][6:9] == ["-", "-", "-"]  # steps, bits per byte, loss
    assert "line 1 of runs/damaged/metrics.jsonl" in errors[-1]


def test_a_folder_that_is_no_run_is_not_listed(listed):
    lines, (skipped, *_) = listed
    assert skipped.startswith("skipped: runs/notes is no run")
    assert "notes" not in lines


def test_a_text_in_place_of_a_run_is_said_to_belong_elsewhere(tmp_path, capsys):
    (tmp_path / "poem.txt").touch()
    said = error_lines(capsys, evaluate.main, tmp_path / "poem.txt")
    assert said[0].startswith("skipped: ")
    assert said[0].endswith("; a text to measure comes after --data.files")


def test_a_text_among_the_runs_that_are_listed_is_nobodys_mistake(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (runs / "note.txt").touch()
    _, errors = evaluated(capsys)
    (runs / "note.txt").unlink()
    assert errors[0].startswith("skipped: runs/note.txt is a file")
    assert "--data.files" not in errors[0]


def test_runs_that_this_version_cannot_read_are_not_listed(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    monkeypatch.setattr(evaluate, "read_config", lambda _: RunDir.open("x"))  # refuses every run
    assert f"no run in {Path.cwd()}/runs/ yet" in error_lines(capsys, evaluate.main)[-1]


def test_the_run_of_a_study_is_named_where_there_is_no_other(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("sin-s0-5k", "rope-s0-5k"):
        run = tmp_path / "runs" / "ablation-smoke" / name
        run.mkdir(parents=True)
        (run / "run.json").touch()
    error = error_lines(capsys, evaluate.main)[-1]
    assert "give a run of a study by its path, such as runs/ablation-smoke/rope-s0-5k," in error


def test_the_list_shows_the_lowest_loss_and_not_the_latest(new_run):
    run = new_run("a")
    for step, name, loss in ((1, "best", 0.5), (2, "last", 3.0)):
        run.checkpoints.save(name, lambda folder: None, {"step": step})
        run.log({"step": step, "tokens": step, "val/loss": loss, "val/bpb": loss / 2,
                 "val/eos_share": 0.0})
    assert " 2 of 1000  0.2500  0.5000 " in re.sub("  +", "  ", list_of(run.path))


def test_the_loss_of_the_first_weights_is_not_that_of_a_fine_tuning(new_run):
    run = new_run("a")
    run.log({"step": 0, "tokens": 0, "val/loss": 0.5, "val/bpb": 0.25, "val/eos_share": 0.0})
    run.checkpoints.save("last", lambda folder: None, {"progress": {"step": 34}, "steps": 4000})
    run.log({"step": 34, "tokens": 34})
    assert " 34 of 4000 - - " in re.sub("  +", " ", list_of(run.path))


def test_a_stopped_resume_with_more_steps_is_listed_with_them(workdir, capsys):
    """Its configuration still says 3, and the checkpoint says 300."""
    train_tiny(workdir, "longer", f"--log.runs={workdir / 'others'}", "--train.steps=3")
    path = workdir / "others" / "longer"
    stop_at(5, "--resume", path, "--train.steps", "300")
    assert " 5 of 300 " in list_of(path)


def test_the_last_checkpoint_says_of_how_many_steps_a_run_is(new_run):
    """The one before it is of a command that asked for fewer."""
    run = new_run("a")
    run.checkpoints.save("last", lambda folder: None, {"progress": {"step": 12}, "steps": 12})
    run.checkpoints.save("last", lambda folder: None, {"progress": {"step": 16}, "steps": 300})
    run.log({"step": 16, "tokens": 16})
    assert " 16 of 300 " in list_of(run.path)


def test_steps_past_all_checkpoints_are_of_an_unknown_number(new_run):
    run = new_run("a")  # of 1000 steps
    run.checkpoints.save("last", lambda folder: None, {"progress": {"step": 1000}, "steps": 1000})
    run.log({"step": 1156, "tokens": 1156})  # resumed with more, and killed before it saved
    assert " 1156 of ? " in list_of(run.path)


def test_losses_of_different_tokenizers_are_not_listed(runs, more_pieces, monkeypatch):
    monkeypatch.chdir(runs)
    head, rope, pieces, note = list_of(runs / "rope", more_pieces).splitlines()
    assert "bits/byte" in head and "loss" not in head
    assert f" {min(read_metric(more_pieces, 'val/bpb').values()):.4f} " in pieces
    assert note.startswith("losses in nats per token are left out, because the tokenizers differ")
    assert note.endswith(f": python {find_script('evaluate.py')} RUN prints them")
    assert "loss" in list_of(runs / "rope").splitlines()[0]


def test_a_run_without_a_loss_does_not_take_those_of_others_away(runs, new_run):
    other = new_run("a")  # which has another tokenizer
    head, rope, *_ = list_of(runs / "rope", other.path).splitlines()
    assert " loss " in head
    assert f" {min(read_metric(runs / 'rope', 'val/loss').values()):.4f} " in rope


def test_bits_per_byte_of_an_older_version_are_marked(new_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = new_run("a")
    run.checkpoints.save("best", lambda folder: None, {"step": 1})
    run.log({"step": 1, "tokens": 1, "val/loss": 2.0, "val/bpb": 1.25})
    _, row, note = list_of(run.path).splitlines()
    assert " 1.2500* " in row and note.startswith("*: of an older version, which counted EOS")
    assert note.endswith(f"python {find_script('evaluate.py')} RUN measures it again")


# --- measuring on the runs' own text ---


def test_a_run_is_measured_on_its_validation_text(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (record,) = results(capsys, runs.parent, "rope")
    nats = target_losses(runs / "rope")
    assert record["loss"] == pytest.approx(nats.mean().item(), abs=1e-6)
    assert record["perplexity"] == pytest.approx(nats.mean().exp().item(), rel=1e-5)
    assert record["bpb"] == pytest.approx(min(read_metric(runs / "rope", "val/bpb").values()),
                                          rel=1e-5)
    (head, rope, *_), _ = evaluated(capsys, "rope", "--device=cpu")
    assert head == ["run", "context", "loss", "perplexity", "bits/byte"]
    assert rope == ["rope", "1", "to", "20", f"{record['loss']:.4f}", "±", f"{record['se']:.4f}",
                    f"{record['perplexity']:.2f}", f"{record['bpb']:.4f}", "±",
                    f"{record['bpb_se']:.4f}"]


@pytest.fixture
def compared(runs, capsys, monkeypatch):
    """The table of two runs, as words, and their records."""
    monkeypatch.chdir(runs.parent)
    lines, _ = evaluated(capsys, "rope", "runs/learned", "--device=cpu", "--json=all.json")
    return lines, json.loads(Path("all.json").read_text(encoding="utf-8"))["runs"]


def test_runs_are_compared_on_the_same_targets(compared, runs):
    _, (rope, learned) = compared
    nats = target_losses(runs / "learned") - target_losses(runs / "rope")
    stretches = [part.mean().item() for part in nats.tensor_split(20)]
    error = statistics.stdev(stretches) / 20**0.5
    assert learned["difference"] == pytest.approx(nats.mean().item(), abs=1e-6)
    assert learned["difference_se"] == pytest.approx(error, rel=1e-4)
    assert "difference" not in rope


def test_the_table_has_a_row_for_each_run(compared):
    (_, rope, learned, *_), records = compared
    change = records[1]["difference"]
    error = records[1]["difference_se"]
    assert rope[:4] == ["rope", "1", "to", "20"]
    assert learned[:4] == ["learned", "1", "to", "40"]
    assert learned[-3:] == [f"{change:+.4f}", "±", f"{error:.4f}"]


def test_different_windows_are_said_to_differ(compared):
    lines, _ = compared
    assert ["contexts", "differ."] in [line[:2] for line in lines]


def test_the_last_checkpoint_is_measured_if_asked_for(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (record,) = results(capsys, runs.parent, "rope", "--checkpoint=last")
    assert record["checkpoint"] == "last"


@pytest.mark.parametrize("options, n_notes", [([], 1), (["--checkpoint=last"], 0)])
def test_a_run_without_best_weights_is_measured_with_a_note(
    runs, tmp_path, capsys, monkeypatch, options, n_notes
):
    monkeypatch.chdir(runs.parent)
    shutil.copytree(runs / "rope", tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped" / "best")
    _, errors = evaluated(capsys, "rope", tmp_path / "stopped", "--device=cpu", *options)
    note = f"note: {tmp_path / 'stopped'} has no best weights: its last"
    assert [line.startswith(note) for line in errors].count(True) == n_notes


@pytest.mark.parametrize("checkpoint", ["best", "last"])
def test_a_run_without_weights_is_refused_first(
    runs, tmp_path, capsys, monkeypatch, checkpoint
):
    monkeypatch.chdir(runs.parent)
    monkeypatch.setattr(measure, "measure", pytest.fail)
    shutil.copytree(runs / "rope", tmp_path / "started")
    for name in ("best", "last", "previous"):
        shutil.rmtree(tmp_path / "started" / name)
    words = ("rope", tmp_path / "started", "--device=cpu", f"--checkpoint={checkpoint}")
    (error,) = error_lines(capsys, evaluate.main, *words)
    assert error.startswith(f"error: {tmp_path / 'started'} has no checkpoint '{checkpoint}': ")


def test_a_folder_that_is_no_run_is_skipped(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (_, rope, *_), errors = evaluated(capsys, "rope", "runs/notes", "--device=cpu")
    assert rope[0] == "rope"
    assert errors[0].startswith("skipped: runs/notes is no run")


def test_a_plot_is_a_picture(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    _, errors = evaluated(capsys, "rope", "learned", "--device=cpu", "--plot=loss.png")
    assert errors[-1] == "plot    loss.png"
    assert imread("loss.png").shape[1] > 500


def test_a_plot_is_written_in_the_format_of_its_name(runs, capsys, monkeypatch):
    """That each format is drawn is seen in test_plots.py."""
    monkeypatch.chdir(runs.parent)
    drawn = mock.Mock(return_value=b"\x89PNG")
    monkeypatch.setattr("ablation.plots.draw_losses", drawn)
    evaluated(capsys, "rope", "--device=cpu", "--plot=loss.pdf")
    assert drawn.call_args.kwargs["format"] == "pdf"
    assert Path("loss.pdf").read_bytes() == b"\x89PNG"


def test_models_stand_in_the_order_in_which_they_are_named(runs, capsys, monkeypatch):
    """The first is the one that the others are compared with."""
    monkeypatch.chdir(runs.parent)
    (_, first, second, *_), _ = evaluated(capsys, "learned", "rope", "--device=cpu")
    assert (first[0], second[0]) == ("learned", "rope")


def test_with_equal_windows_nothing_is_said_of_contexts(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    lines, _ = evaluated(capsys, "rope", "learned", "--device=cpu", "--context=12", "--stride=4")
    assert lines[1][1:4] == lines[2][1:4] == ["9", "to", "12"]
    assert ["contexts", "differ."] not in [line[:2] for line in lines]


def test_more_context_is_measured_with_a_stride(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (record,) = results(capsys, runs.parent, "rope", "--stride=5")
    assert (record["window"], record["stride"]) == (20, 5)
    assert (record["least_context"], record["most_context"]) == (16, 20)


def test_a_stride_as_long_as_the_window_is_that_of_none(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (with_stride,) = results(capsys, runs.parent, "rope", "--stride=20")
    (without,) = results(capsys, runs.parent, "rope")
    assert with_stride == without


@pytest.fixture
def compared_tokenizers(runs, more_pieces, capsys, monkeypatch):
    """The table of two runs with different tokenizers, as words, and their records."""
    monkeypatch.chdir(runs.parent)
    lines, _ = evaluated(capsys, "rope", more_pieces, "--device=cpu", "--json=all.json")
    return lines, json.loads(Path("all.json").read_text(encoding="utf-8"))["runs"]


def test_runs_with_other_tokenizers_are_compared_by_bits_per_byte(compared_tokenizers):
    (_, _, line, *_), (rope, pieces) = compared_tokenizers
    change = pieces["bpb"] - rope["bpb"]
    assert "difference" not in pieces
    assert pieces["bpb_difference"] == pytest.approx(change)
    assert line[-3] == f"{change:+.4f}"


def test_a_loss_of_other_tokens_is_marked(compared_tokenizers):
    (_, rope, pieces, *notes), _ = compared_tokenizers
    assert not rope[6].endswith("*")
    assert pieces[6].endswith("*")
    said = [" ".join(line) for line in notes]
    assert "difference: bits/byte minus that of rope on the same text" in said
    assert "*: of other tokens than those of rope: only bits/byte compare" in said


def test_losses_of_other_tokens_are_drawn_in_bits(runs, more_pieces, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    drawn = mock.Mock(return_value=b"\x89PNG")
    monkeypatch.setattr("ablation.plots.draw_losses", drawn)
    evaluated(capsys, "rope", more_pieces, "--device=cpu", "--plot=bits.png")
    assert drawn.call_args.kwargs == {"in_bits": True, "on_own_text": False, "format": "png"}
    assert Path("bits.png").read_bytes() == b"\x89PNG"


@pytest.fixture
def compared_lengths(runs, capsys, monkeypatch):
    """The second table of two runs, as words, and their records."""
    monkeypatch.chdir(runs.parent)
    lines, _ = evaluated(capsys, "rope", "runs/learned", "--lengths", "--device=cpu",
                         "--json=all.json")
    table = lines[lines.index([]) + 1 :]
    return table, json.loads(Path("all.json").read_text(encoding="utf-8"))["runs"]


def test_lengths_are_a_table_of_their_own(compared_lengths):
    (head, rope, *_), (record, _) = compared_lengths
    assert " ".join(head) == ("run encoding parameters tokens T cut T/2 slide T/2 cut T slide T "
                              "cut 2T slide 2T cut 4T slide 4T cut 8T slide 8T shift T")
    losses = [f"{row['loss']:.4f}" for row in record["context"]]
    # 12 steps of 9 rows of 20 tokens.
    assert rope == ["rope", "rope", "39,120", "2,160", "20", *losses, f"{record['shift']:+z.4f}"]


def test_past_a_table_of_positions_there_is_no_loss(compared_lengths):
    """Of 40 positions, the trained length: contexts of T/2 and T."""
    (_, _, learned, *_), _ = compared_lengths
    assert "-" not in learned[5:9]
    assert learned[9:] == ["-"] * 7


def test_runs_of_the_same_name_are_shown_by_their_paths():
    records = [{"run": "a/hf"}, {"run": "b/hf"}, {"run": "runs/x"}]
    assert evaluate.name_models(records) == ["a/hf", "b/hf", "runs/x"]
    assert evaluate.name_models(records[1:]) == ["hf", "x"]


# --- measuring on any text ---


@pytest.fixture
def held_out(runs, tmp_path) -> Path:
    """A file with the validation text of the runs."""
    prepared = find_or_prepare(read_config(runs / "rope" / "config.yaml").data)
    ids = prepared.dataset("val", seq_len=1).read(slice(None))
    file = tmp_path / "held out.txt"
    file.write_text(prepared.tokenizer.decode(ids.tolist()), encoding="utf-8")
    return file


def test_a_file_of_the_validation_text_gives_equal_losses(
        runs, held_out, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (own,) = results(capsys, tmp_path, "rope")
    (same,) = results(capsys, tmp_path, "rope", f"--data.files={held_out}")
    for key in ("loss", "se", "stretches", "bpb", "bpb_se", "eos_share", "ids_sha256", "config"):
        assert same[key] == own[key], key


def test_a_file_that_a_run_was_trained_on_is_noted(
        runs, another_text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (tmp_path / "more.txt").write_text("more", encoding="utf-8")
    _, errors = evaluated(capsys, "rope", another_text, "--data.files=another.txt",
                          f"--data.files={tmp_path / 'more.txt'}")
    (note,) = [line for line in errors if "trained on" in line]
    assert note.startswith(f"note: trained on this text, or on a file of it: {another_text}. Such")


def test_a_copy_of_the_text_of_a_run_is_noted(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (text,) = read_config(runs / "rope" / "config.yaml").data.files
    copy = shutil.copy(text, tmp_path / "copy.txt")
    _, errors = evaluated(capsys, "rope", f"--data.files={copy}")
    assert "note: trained on this text, or on a file of it: runs/rope. " in "\n".join(errors)


def test_a_file_that_a_run_named_from_another_folder_is_noted(tmp_path, monkeypatch, capsys):
    """As one of two, so that the hash of the text is another one."""
    monkeypatch.chdir(tmp_path)
    for name in ("book.txt", "more.txt"):
        Path(name).write_text(random_text(), encoding="utf-8")
    path = train_tiny(tmp_path, "of-book", "--train.steps=1", "--optim.warmup_steps=0",
                      "--data.files=null", "--data.files=book.txt", "--data.files=more.txt")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    _, errors = evaluated(capsys, path, f"--data.files={tmp_path / 'book.txt'}")
    assert f"note: trained on this text, or on a file of it: {path}. " in "\n".join(errors)


def test_a_text_that_a_run_held_out_is_not_noted(runs, held_out, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    _, errors = evaluated(capsys, "rope", f"--data.files={held_out}")
    assert not [line for line in errors if "trained on" in line]


def test_a_run_and_its_export_have_the_same_losses(runs, held_out, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert exit_code(export.main, "runs/rope", "--to=hf", tmp_path / "hf") == 0
    windows = ("--context=20", "--stride=7")
    first, second = results(capsys, tmp_path, "rope", tmp_path / "hf", *windows,
                            f"--data.files={held_out}")
    assert second["loss"] == pytest.approx(first["loss"], abs=1e-6)
    assert second["difference"] == pytest.approx(0, abs=1e-6)  # both have the same ids


def test_several_files_are_one_text(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(f"{name} abc dé\n" * 9, encoding="utf-8")
    listed = f"[{tmp_path / 'b.txt'}, {tmp_path / 'c.txt'}]"
    (record,) = results(capsys, tmp_path, "rope", f"--data.files={tmp_path / 'a.txt'}",
                        f"--data.files={listed}")
    assert record["text_bytes"] == 3 * 9 * 10 and record["eos_share"] > 0


def test_the_text_can_be_a_column(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    rows = [{"story": "abc dé\n" * 9}, {"story": "bad c"}]
    lines = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "rows.jsonl").write_text(lines, encoding="utf-8")
    (record,) = results(capsys, tmp_path, "rope", f"--data.files={tmp_path / 'rows.jsonl'}",
                        "--data.column=story")
    assert record["text_bytes"] == 9 * 8 + 5


def test_a_text_shorter_than_a_row_is_measured(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (tmp_path / "a.txt").write_text("abc", encoding="utf-8")
    (record,) = results(capsys, tmp_path, "rope", f"--data.files={tmp_path / 'a.txt'}")
    assert (record["least_context"], record["most_context"]) == (1, record["text_tokens"] - 1)


def test_a_text_of_one_byte_is_in_the_singular(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    _, errors = evaluated(capsys, "rope", f"--data.files={tmp_path / 'a.txt'}")
    assert "text    1 byte in 1 document" in errors


def test_the_advice_for_runs_of_different_texts_works(
        runs, another_text, held_out, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    plot = ("rope", another_text, "--device=cpu", "--plot=texts.png")
    error = error_lines(capsys, evaluate.main, *plot)[-1]
    assert "evaluate each alone, or give a text for both with --data.files" in error
    evaluated(capsys, *plot, f"--data.files={held_out}")
    assert imread("texts.png").shape[1] > 500


def test_runs_of_different_texts_are_drawn_in_bits_on_their_own(
        runs, another_text, held_out, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    drawn = mock.Mock(return_value=b"\x89PNG")
    monkeypatch.setattr("ablation.plots.draw_losses", drawn)
    evaluated(capsys, "rope", another_text, "--device=cpu", "--plot=a.png",
              f"--data.files={held_out}")
    assert [run.path.name for run in drawn.call_args.args[0]] == ["rope", "another"]
    assert drawn.call_args.kwargs == {"in_bits": True, "on_own_text": True, "format": "png"}


def test_a_model_from_elsewhere_is_left_out_of_a_plot(
        runs, held_out, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    drawn = mock.Mock(return_value=b"\x89PNG")
    monkeypatch.setattr("ablation.plots.draw_losses", drawn)
    assert exit_code(export.main, "runs/rope", "--to=hf", tmp_path / "hf") == 0
    _, errors = evaluated(capsys, "rope", tmp_path / "hf", "--device=cpu", "--plot=a.png",
                          f"--data.files={held_out}")
    assert [run.path.name for run in drawn.call_args.args[0]] == ["rope"]
    assert f"note: not trained here, and left out of a.png: {tmp_path / 'hf'}" in errors


def test_a_plot_of_models_from_elsewhere_alone_is_refused_first(
        runs, held_out, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    monkeypatch.setattr(measure, "measure_text", None)
    assert exit_code(export.main, "runs/rope", "--to=hf", tmp_path / "hf") == 0
    error = error_lines(capsys, evaluate.main, tmp_path / "hf", "--plot=a.png",
                        f"--data.files={held_out}")[-1]
    assert "none of these was trained here: leave it out" in error


def test_nothing_is_said_of_contexts_if_both_windows_hold_the_text(
        runs, tmp_path, capsys, monkeypatch):
    """The windows have 20 and 40 tokens."""
    monkeypatch.chdir(runs.parent)
    (tmp_path / "a.txt").write_text("abc cab", encoding="utf-8")
    lines, _ = evaluated(capsys, "rope", "learned", "--device=cpu",
                         f"--data.files={tmp_path / 'a.txt'}")
    assert lines[1][1:4] == lines[2][1:4] == ["1", "to", "5"]
    assert ["contexts", "differ."] not in [line[:2] for line in lines]


@pytest.mark.parametrize("one, other, differ", [
    ((191, 192), (180, 181), False),  # each window holds the text, which has other tokens
    ((191, 192), (191, 400), False), ((128, 192), (180, 181), True), ((64, 999), (128, 999), True)])
def test_contexts_differ_where_another_window_would_change_them(one, other, differ):
    """Of each model, the most context and the tokens of the text."""
    records = [{"least_context": 1, "most_context": one[0], "text_tokens": one[1]},
               {"least_context": 1, "most_context": other[0], "text_tokens": other[1]}]
    assert evaluate.have_other_contexts(records) is differ


@pytest.mark.parametrize("dtypes, expected", [
    (["float32", "float32"], ""), (["bfloat16", None], ""),
    (["float32", "bfloat16", "float32"], "a float32, b bfloat16, c float32")])
def test_runs_that_were_trained_in_other_dtypes_are_named(dtypes, expected):
    """None stands for an imported model, of whose training nothing is known."""
    results = [{"config": {"train": {"dtype": dtype}} if dtype else {}} for dtype in dtypes]
    assert evaluate.list_dtypes(["a", "b", "c"][:len(dtypes)], results) == expected


def test_a_table_says_that_runs_were_trained_in_other_dtypes(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    lines, _ = evaluated(capsys, "rope", "learned", "--device=cpu")
    assert "dtypes," not in [word for line in lines for word in line]
    monkeypatch.setattr(evaluate, "list_dtypes", lambda names, results: " and ".join(names))
    lines, _ = evaluated(capsys, "rope", "learned", "--device=cpu")
    assert "trained in other dtypes, which moves a loss, too: rope and learned" in [
        " ".join(line) for line in lines]


def test_a_run_without_its_data_is_measured_on_a_text(runs, tmp_path, held_out, capsys):
    shutil.copytree(runs / "rope", tmp_path / "alone")
    config = tmp_path / "alone" / "config.yaml"
    assert str(runs.parent / "prepared") in config.read_text(encoding="utf-8")
    moved = runs.parent / "prepared"
    moved.rename(tmp_path / "elsewhere")
    try:
        (record,) = results(capsys, tmp_path, tmp_path / "alone", f"--data.files={held_out}")
    finally:
        (tmp_path / "elsewhere").rename(moved)
    assert record["loss"] == pytest.approx(target_losses(runs / "rope").mean().item(), abs=1e-6)


# --- what is refused ---


def test_a_file_that_an_unquoted_glob_has_named_is_refused(tmp_path, capsys):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("abc", encoding="utf-8")
    error = error_lines(capsys, evaluate.main, "--data.files", tmp_path / "a.txt",
                        tmp_path / "b.txt")
    assert "b.txt is a file, and no run: give every file with --data.files" in error[-1]


def test_a_device_that_is_not_there_is_refused(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    error = error_lines(capsys, evaluate.main, "rope", "--device", "meta")[-1]
    assert "device must be auto, cpu, cuda, cuda:N or mps, not meta" in error


def test_a_split_too_short_for_lengths_is_refused_first(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    monkeypatch.setattr(measure, "BLOCKS_PER_SPAN", 99)
    monkeypatch.setattr(measure, "measure", None)
    error = error_lines(capsys, evaluate.main, "rope", "--lengths")[-1]
    assert "with a larger data.val_fraction" in error


def test_a_text_too_short_for_lengths_is_refused_first(runs, tmp_path, capsys, monkeypatch):
    """Of two models, the second reads rows of 40 tokens, for which the text is too short."""
    (tmp_path / "a.txt").write_text("abc " * 30, encoding="utf-8")
    monkeypatch.setattr(measure, "BLOCKS_PER_SPAN", 2)
    monkeypatch.setattr(measure, "measure_text", None)
    error = error_lines(capsys, evaluate.main, runs / "rope", runs / "learned", "--lengths",
                        f"--data.files={tmp_path / 'a.txt'}")[-1]
    assert "contexts of 2T with T = 40 (data.seq_len, or --context) need 161" in error


def test_windows_that_leave_tokens_out_are_refused(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    error = error_lines(capsys, evaluate.main, "learned", "rope", "--stride=30")[-1]
    assert "--stride 30 is longer than the windows of 20 tokens in which runs/rope" in error


def test_windows_past_a_table_of_positions_are_refused_first(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    error = error_lines(capsys, evaluate.main, "rope", "learned", "--context=41")[-1]
    assert "--context 41 is longer than the table of positions of runs/learned" in error


def test_a_run_whose_text_has_changed_is_refused_first(runs, workdir, capsys, monkeypatch):
    monkeypatch.chdir(workdir)
    monkeypatch.setattr(measure, "measure", pytest.fail)
    train_tiny(workdir, "changed", "--data.val_fraction", "0.3", "--log.runs=changed",
               "--data.prepared=changed-prepared", "--train.steps=3")
    shutil.rmtree("changed-prepared")
    text = Path("text.txt").read_bytes()
    Path("text.txt").write_text(random_text(seed=1), encoding="utf-8")
    try:
        error = error_lines(capsys, evaluate.main, "rope", "changed/changed")[-1]
    finally:
        Path("text.txt").write_bytes(text)
    assert "not what changed/changed was trained on: restore the text" in error


@pytest.mark.parametrize("words, message", [
    ("", "runs/ yet: make one with `python "), ("x", "no run folder at runs/x"),
    (".", "none of these is a run"), ("--lengths", "name the runs to measure"),
    ("x --data.column=a", "--data.column has no effect without --data.files"),
    ("x --json -", "--json - is not stdout, where nothing of this is written: give the name"),
    ("x --json .", "--json . is a folder: give the name of a file"),
    ("x --plot .", "--plot . is a folder: give the name of a file"),
    ("x --json file/a.json", "--json file/a.json cannot be written, because"),
    ("x --plot file/a.png", "--plot file/a.png cannot be written, because"),
    ("x --json ./a.png --plot a.png", "--json and --plot would both be written to a.png"),
    ("x --stride=0", "stride must be at least 1"), ("x --context=0", "context must be in [1, "),
    ("x --context=2147483648", "context must be in [1, 2147483648), not 2147483648"),
    ("x --data.file=a", "no option --data.file (did you mean --data.files?)")])
def test_what_it_cannot_do_is_said(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert message in error_lines(capsys, evaluate.main, *words.split())[-1]


@pytest.mark.parametrize("option, name", [("--json", "config.yaml"), ("--plot", "text.png")])
def test_a_file_of_something_else_is_not_overwritten(tmp_path, capsys, option, name):
    path = tmp_path / name
    path.write_text("name: x", encoding="utf-8")
    error = error_lines(capsys, evaluate.main, "x", option, path)[-1]
    assert error.startswith(f"error: {option} {path} would replace a file")
    assert path.read_text(encoding="utf-8") == "name: x"


def test_the_measures_of_an_earlier_call_are_replaced(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs.parent)
    for _ in range(2):
        assert exit_code(evaluate.main, "rope", "--json", tmp_path / "all.json") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loss.png", "loss.pdf", "loss.svg"])
def test_the_plot_of_an_earlier_call_is_replaced(runs, tmp_path, monkeypatch, name):
    monkeypatch.chdir(runs.parent)
    for _ in range(2):
        assert exit_code(evaluate.main, "rope", "--plot", tmp_path / name) == 0


def test_a_column_of_plain_text_has_no_effect(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (tmp_path / "a.txt").write_text("abc", encoding="utf-8")
    words = ("rope", f"--data.files={tmp_path / 'a.txt'}", "--data.column=body")
    error = error_lines(capsys, evaluate.main, *words)[-1]
    assert "data.column body has no effect on plain text" in error


def test_two_columns_are_joined_as_in_a_training(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (tmp_path / "a.csv").write_text("text,title\nabc,d\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("d\nabc", encoding="utf-8")
    columns = ["--data.column=title", "--data.column=text"]
    joined = evaluated(capsys, "rope", f"--data.files={tmp_path / 'a.csv'}", *columns)
    assert joined == evaluated(capsys, "rope", f"--data.files={tmp_path / 'b.txt'}")
