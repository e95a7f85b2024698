"""What a command line asks for: what it takes from a run, and what it refuses."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders import exit_code, random_text, tiny_argv, train_tiny, training_argv

import train
from data.dataset import find_or_prepare
from data.sources import SOURCES, Source
from data.tokenizer import open_tokenizer
from errors import UserError
from gyre.rundir import RunDir
from gyre.start import Start, has_copy, may_be_same_run, resolve, shares_text
from gyre.yaml_files import read_config

SCALING = ["--model.rope_scaling.type", "yarn", "--model.rope_scaling.factor", "2.5"]


def start(*argv: object) -> Start:
    return resolve([*map(str, argv)], "")


@pytest.fixture(scope="module")
def finished(workdir):
    """A run of 3 steps whose model has a scaling."""
    return train_tiny(workdir, "finished", "--train.steps", "3", *SCALING)


@pytest.fixture(scope="module")
def base(workdir):
    """A run of 3 steps that holds out a fifth of its text, in rows of 20."""
    return train_tiny(workdir, "base", "--train.steps", "3", "--data.val_fraction", "0.2")


@pytest.fixture(scope="module")
def learned(workdir):
    """A run of 3 steps with learned positions, in rows of 60."""
    return train_tiny(workdir, "learned", "--train.steps", "3", "--model.position", "learned",
                      "--data.seq_len", "60")


@pytest.fixture(scope="module")
def trunk(workdir):
    """A run of 4 steps that keeps two, with a cooldown."""
    return train_tiny(workdir, "trunk", "--train.steps", "4", "--train.keep", "[2, 3]",
                      "--optim.schedule", "wsd", "--optim.cooldown", "0.5")


FIXED = " of .* cannot change on --resume"


@pytest.mark.parametrize("change, words", [
    ("--seed=2", "^seed" + FIXED), ("--model.dim=96", "^model.dim" + FIXED),
    ("--optim.lr=1", "^optim.lr" + FIXED + ": say --branch-from .* instead"),
    ("--data.seq_len=21", "^data.seq_len" + FIXED + ": leave it out, or start"),
    ("--data.files=a.txt", "data.files" + FIXED),
    ("--train.batch_size=3", "train.batch_size" + FIXED),
    ("--branch-from=x", "leave one of them out"), ("--name=x", "name" + FIXED),
    ("--log.runs=x", "log.runs" + FIXED),
    ("--config=small", "leave out --init-from and --config"),
    ("--at=3", "--at 3 has no effect without --branch-from")])
def test_resuming_keeps_what_decides_the_numbers(finished, change, words):
    with pytest.raises(UserError, match=words):
        start("--resume", finished, change)


def test_a_resumed_run_has_the_configuration_it_was_started_with(finished):
    asked = start("--resume", finished)
    assert asked.resumed.path == asked.source.path == finished
    assert asked.config == read_config(finished / "config.yaml")


@pytest.mark.parametrize("command", [
    ["--resume"], ["--train.steps=9", "--branch-from"]])
def test_prepared_data_may_have_moved(finished, command):
    asked = start("--data.prepared", "moved", *command, finished)
    assert asked.config.data.prepared == "moved"


def test_a_resumed_run_may_have_more_steps(finished):
    assert start("--train.steps", "4", "--resume", finished).config.train.steps == 4
    assert read_config(finished / "config.yaml").train.steps == 3


@pytest.mark.parametrize("option", ["--init-from", "--config"])
def test_a_command_that_torchrun_restarts_needs_resume_auto(finished, monkeypatch, option):
    """Else each restart would be another run."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(UserError, match="say --resume auto"):
        start(option, finished)


def test_a_branch_that_torchrun_restarts_is_to_be_resumed_by_its_name(finished, monkeypatch):
    """--resume auto cannot be given with --branch-from."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(UserError, match="say --resume auto --name and its name, without "):
        start("--branch-from", finished)
    assert start("--resume", finished).resumed.path == finished


# --- a run from the weights of another ------------------------------------------------------------


def test_a_run_from_another_has_its_model(workdir, finished):
    config = start("--config", "small.yaml", *training_argv(workdir), "--init-from",
                   finished).config
    assert config.model == read_config(finished / "config.yaml").model
    assert config.init_from == str(finished)


def test_a_run_from_another_has_its_tokenizer(workdir, finished):
    data = start(*training_argv(workdir), "--init-from", finished).config.data
    assert data.tokenizer == str(finished)
    assert data.vocab_size == open_tokenizer(finished).vocab_size == 300


def test_a_fine_tuning_may_have_another_dropout(workdir, finished):
    argv = [*training_argv(workdir), "--init-from", finished, "--model.dropout", "0.25"]
    saved = read_config(finished / "config.yaml").model
    assert start(*argv).config.model == replace(saved, dropout=0.25)


def test_a_scaling_is_changed_field_by_field(workdir, finished):
    argv = [*training_argv(workdir), "--init-from", finished, "--model.rope_scaling.type", "linear"]
    saved = read_config(finished / "config.yaml").model
    assert start(*argv).config.model.rope_scaling == replace(saved.rope_scaling, type="linear")


@pytest.mark.parametrize("option", ["--model.dim", "--data.vocab_size", "--data.tokenizer"])
def test_what_the_weights_pin_down_cannot_be_given(finished, option):
    with pytest.raises(UserError, match=f"^{option} cannot be given with --init-from"):
        start("--init-from", finished, option, "24")


def test_how_sinusoids_are_added_cannot_be_given(finished):
    """Only `matched` has a weight for it."""
    with pytest.raises(UserError, match=r"^--model\.sinusoid cannot be given with --init-from"):
        start("--init-from", finished, "--model.sinusoid", "naive")


def test_a_table_of_positions_pins_the_context_down(learned):
    with pytest.raises(UserError, match=r"^--model\.max_positions cannot be given with --init"):
        start("--init-from", learned, "--model.max_positions", "10")


def test_learned_positions_fix_the_row_length_of_another_text(workdir, learned, tmp_path):
    """With other encodings, a text this short would get rows of 30 tokens."""
    (tmp_path / "short.txt").write_text("abc de " * 60)
    argv = training_argv(workdir, "--init-from", learned, "--data.files", tmp_path / "short.txt",
                         "--data.seq_len", "auto", "--train.steps", "4", "--name", "from-learned")
    assert exit_code(train.main, *argv) == 0
    assert read_config(workdir / "runs/from-learned/config.yaml").data.seq_len == 60


def test_samples_of_a_fine_tuning_fit_into_a_short_context(learned):
    assert start("--init-from", learned).config.train.sample_tokens == 30


def test_a_new_scaling_takes_the_row_length_of_the_weights(workdir, base):
    argv = [*training_argv(workdir), "--init-from", base, "--data.seq_len", "40", *SCALING]
    scaling = start(*argv).config.model.rope_scaling
    assert (scaling.type, scaling.factor, scaling.original_positions) == ("yarn", 2.5, 20)


@pytest.mark.parametrize("factor, context", [("2.5", 80), ("6", 120), ("6.03", 121)])
def test_a_new_scaling_makes_the_context_as_long_as_it_reaches(workdir, base, factor, context):
    """Rows of 20 have a context of 80."""
    argv = [*training_argv(workdir), "--init-from", base, *SCALING[:-1], factor]
    assert start(*argv).config.model.max_positions == context


def test_a_context_that_a_scaling_reaches_exactly_is_not_rounded_up(workdir, base):
    """In floating point, 4.4 * 25 is a little more than 110."""
    argv = [*training_argv(workdir), "--init-from", base, *SCALING[:-1], "4.4",
            "--model.rope_scaling.original_positions", "25"]
    assert start(*argv).config.model.max_positions == 110


@pytest.mark.parametrize("factor", ["inf", "nan", "1e+308"])
def test_a_factor_that_is_too_large_or_no_number_is_refused(workdir, base, factor):
    argv = [*training_argv(workdir), "--init-from", base, *SCALING[:-1], factor]
    message = rf"^model\.rope_scaling\.factor must be in \[1, 1e6\], not {re.escape(factor)}$"
    with pytest.raises(UserError, match=message):
        start(*argv)


def test_another_factor_makes_the_context_longer(workdir, finished):
    argv = [*training_argv(workdir), "--init-from", finished, "--model.rope_scaling.factor", "6"]
    assert start(*argv).config.model.max_positions == 120


def test_a_context_that_is_given_to_a_scaling_is_kept(workdir, base):
    argv = [*training_argv(workdir), "--init-from", base, *SCALING[:-1], "6",
            "--model.max_positions", "90"]
    assert start(*argv).config.model.max_positions == 90


def test_a_row_length_that_is_given_to_a_scaling_is_kept(workdir, base):
    argv = [*training_argv(workdir), "--init-from", base, "--data.seq_len", "40", *SCALING,
            "--model.rope_scaling.original_positions", "7"]
    assert start(*argv).config.model.rope_scaling.original_positions == 7


def test_longer_rows_alone_scale_nothing(workdir, base):
    argv = [*training_argv(workdir), "--init-from", base, "--data.seq_len", "40"]
    assert start(*argv).config.model.rope_scaling is None


def test_a_fine_tuning_holds_out_what_its_base_held_out(base):
    saved = read_config(base / "config.yaml").data
    data = start("--init-from", base).config.data
    assert (data.source, data.files) == ("files", saved.files)
    assert (data.val_fraction, data.seq_len) == (0.2, 20)


def test_another_text_keeps_the_other_data_settings(base):
    asked = start("--init-from", base, "--data.files", "book.txt")
    assert (asked.config.data.files, asked.config.data.val_fraction) == (["book.txt"], 0.2)


def test_another_text_gets_rows_of_at_most_the_base_s_length(base):
    draft = start("--init-from", base, "--data.files", "book.txt").draft
    assert draft.fitted == {"data.seq_len", "data.val_fraction", "train.steps",
                            "optim.warmup_steps", "train.eval_interval"}
    assert draft.config.data.seq_len == 20


def test_another_source_takes_the_place_of_the_files(base):
    data = start("--init-from", base, "--data.source", "stdlib").config.data
    assert (data.source, data.files) == ("stdlib", None)


def test_a_fine_tuning_on_a_text_that_is_gone_names_its_run(workdir, tmp_path):
    text = shutil.copy(workdir / "text.txt", tmp_path)
    of_text = train_tiny(workdir, "of-text", "--train.steps", "1", "--optim.warmup_steps", "0",
                         "--data.files=null", f"--data.files={text}")
    Path(text).unlink()
    with pytest.raises(UserError) as caught:
        start("--init-from", of_text)
    assert str(caught.value) == (
        f"--init-from takes the text of {of_text} too, and --data.files {text} matches no file: "
        "name another one with --data.files")


@pytest.fixture(scope="module")
def by_name(workdir):
    """A run of 1 step that was made in workdir, of the file near.txt there."""
    shutil.copy(workdir / "text.txt", workdir / "near.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workdir)
        return train_tiny(workdir, "by-name-1", "--train.steps", "1", "--optim.warmup_steps", "0",
                          "--data.files=null", "--data.files=near.txt")


@pytest.mark.parametrize("option", ["--init-from", "--branch-from"])
def test_another_run_reads_the_files_of_its_base_anywhere(
    by_name, workdir, monkeypatch, tmp_path, option
):
    monkeypatch.chdir(tmp_path)
    asked = start(option, by_name, "--train.steps", "2")
    assert asked.config.data.files == [str(workdir / "near.txt")]


def test_a_fine_tuning_knows_the_base_s_text_anywhere(by_name, workdir, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = start("--init-from", by_name, f"--data.files={workdir / 'near.txt'}")
    assert "data.seq_len" not in asked.draft.fitted


@pytest.fixture(scope="module")
def of_rows(workdir):
    """A run of 1 step of a text and a table, whose column is "story"."""
    rows = workdir / "rows.jsonl"
    text = (workdir / "text.txt").read_text(encoding="utf-8")
    rows.write_text(json.dumps({"story": text}), encoding="utf-8")
    return train_tiny(workdir, "of-rows", "--train.steps", "1", "--optim.warmup_steps", "0",
                      f"--data.files={rows}", "--data.column", "story")


@pytest.mark.parametrize("text", [["--data.source", "stdlib"], ["--data.files", "book.txt"]])
def test_another_text_is_not_read_as_the_base_was(of_rows, text):
    assert start("--init-from", of_rows, *text).config.data.column == "text"


def test_the_same_text_is_read_as_the_base_was(of_rows, workdir):
    files = [f"--data.files={workdir / name}" for name in ("text.txt", "rows.jsonl")]
    asked = start("--init-from", of_rows, *files)
    assert asked.config.data.column == "story"


@pytest.fixture(scope="module")
def of_lines(workdir):
    """A run of 1 step of text.txt that holds out a twentieth of its lines, the documents."""
    return train_tiny(workdir, "of-lines", "--train.steps", "1", "--optim.warmup_steps", "0",
                      "--data.separator=\n", "--data.val_fraction", "0.05")


@pytest.mark.parametrize("files", [
    ["text.txt"], ["./text.txt"], ["te*.txt"], ["linked.txt"], ["text.txt", "more.txt"],
    ["more.txt", "text.txt"], ["copy.txt"], ["more.txt", "copy.txt"]])
def test_a_text_that_shares_a_file_with_its_base_is_divided_alike(
    of_lines, workdir, monkeypatch, files
):
    monkeypatch.chdir(workdir)
    Path("more.txt").write_text("more", encoding="utf-8")
    Path("linked.txt").unlink(missing_ok=True)
    Path("linked.txt").symlink_to("text.txt")
    shutil.copy("text.txt", "copy.txt")
    data = start("--init-from", of_lines, *(f"--data.files={name}" for name in files)).config.data
    assert data.files == files
    assert data.separator == "\n"


def test_another_text_is_not_divided_as_the_base_was(of_lines):
    assert start("--init-from", of_lines, "--data.files", "book.txt").config.data.separator is None


def test_the_same_text_by_another_name_keeps_its_rows(of_lines, workdir, monkeypatch):
    monkeypatch.chdir(workdir)
    draft = start("--init-from", of_lines, "--data.files=./text.txt").draft
    assert draft.fitted == {"train.steps", "optim.warmup_steps", "train.eval_interval"}


def test_the_same_text_by_a_link_keeps_its_rows(of_lines, workdir, tmp_path):
    link = tmp_path / "link.txt"
    link.symlink_to(workdir / "text.txt")
    draft = start("--init-from", of_lines, "--data.files", link).draft
    assert draft.fitted == {"train.steps", "optim.warmup_steps", "train.eval_interval"}


@pytest.mark.parametrize("files", [["./text.txt"], ["text.txt", "more.txt"], ["copy.txt"]])
def test_a_fine_tuning_holds_out_the_share_of_its_base(of_lines, workdir, monkeypatch, files):
    """A larger share would be of what the base was trained on, also in a copy of its text."""
    monkeypatch.chdir(workdir)
    Path("more.txt").write_text("more", encoding="utf-8")
    shutil.copy("text.txt", "copy.txt")
    draft = start("--init-from", of_lines, *(f"--data.files={name}" for name in files)).draft
    assert draft.config.data.val_fraction == 0.05
    assert "data.val_fraction" not in draft.fitted


def test_a_file_with_a_text_of_its_own_changes_no_division(of_lines, workdir):
    """Its share, and that it has no separator, are for its own text."""
    file = f"--data.files={workdir / 'text.txt'}"
    draft = start("--init-from", of_lines, file, "--config", "tiny.yaml").draft
    assert draft.config.data.separator == "\n"
    assert draft.config.data.val_fraction == 0.05
    assert {"data.seq_len", "train.steps"} <= draft.fitted
    assert "data.val_fraction" not in draft.fitted


def test_a_share_and_separator_of_a_file_for_this_text_count(of_lines, workdir, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(f"data: {{files: [{workdir / 'text.txt'}], val_fraction: 0.2, separator: '%'}}",
                    encoding="utf-8")
    data = start("--init-from", of_lines, "--config", file).config.data
    assert (data.separator, data.val_fraction) == ("%", 0.2)


def test_a_separator_of_a_file_for_another_text_does_not_count(of_lines, workdir, tmp_path):
    file = tmp_path / "other.yaml"
    file.write_text("data: {files: [corpus.txt], val_fraction: 0.2, separator: '%'}",
                    encoding="utf-8")
    data = start("--init-from", of_lines, "--config", file,
                 f"--data.files={workdir / 'text.txt'}").config.data
    assert (data.separator, data.val_fraction) == ("\n", 0.05)


def test_a_text_that_a_later_file_replaces_is_not_shared(of_lines, workdir, tmp_path):
    file = tmp_path / "first.yaml"
    file.write_text(f"data: {{files: [{workdir / 'text.txt'}]}}", encoding="utf-8")
    later = tmp_path / "later.yaml"
    later.write_text("data: {source: stdlib}", encoding="utf-8")
    data = start("--init-from", of_lines, "--config", file, "--config", later).config.data
    assert (data.source, data.files, data.separator) == ("stdlib", None, None)


def test_a_separator_of_a_file_without_a_text_counts(of_lines, tmp_path):
    file = tmp_path / "other.yaml"
    file.write_text("{data: {separator: '%', val_fraction: 0.2}}", encoding="utf-8")
    data = start("--init-from", of_lines, "--config", file).config.data
    assert (data.separator, data.val_fraction) == ("%", 0.2)


def test_a_scaling_of_a_file_is_ignored_as_its_model_is(base, tmp_path):
    file = tmp_path / "scaled.yaml"
    file.write_text("model: {rope_scaling: {type: linear, factor: 8}}", encoding="utf-8")
    assert start("--init-from", base, "--config", file).config.model.rope_scaling is None
    with pytest.raises(UserError, match="factor"):
        start("--init-from", base, "--config", file, "--model.rope_scaling.type", "yarn")


def test_only_other_model_options_of_a_file_are_named_as_ignored(base, tmp_path):
    model = read_config(base / "config.yaml").model
    file = tmp_path / "other.yaml"
    file.write_text(f"{{model: {{dim: {model.dim + 32}, n_heads: {model.n_heads}, dropout: 0.5}}, "
                    "optim: {lr: 0.5}}", encoding="utf-8")
    assert [*start("--init-from", base, "--config", file).ignored] == ["model.dim"]


def test_an_option_of_the_command_line_is_not_named_as_ignored(base, tmp_path):
    file = tmp_path / "longer.yaml"
    file.write_text("model: {max_positions: 4096}", encoding="utf-8")
    argv = ["--init-from", base, "--config", file]
    assert [*start(*argv).ignored] == ["model.max_positions"]
    assert [*start(*argv, "--model.max_positions", 2048).ignored] == []


def test_a_copy_of_a_text_that_is_gone_is_known(base, workdir, tmp_path):
    """The base has one file, whose hash is that of its text."""
    saved = replace(read_config(base / "config.yaml").data, files=["gone.txt"])
    copy = shutil.copy(workdir / "text.txt", tmp_path)
    assert shares_text(RunDir.open(base), saved, {"data.files": [copy]})


def test_an_empty_file_is_no_copy_of_another(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    assert not has_copy({f"{tmp_path}/a.txt"}, [f"{tmp_path}/b.txt"], {})


def test_a_short_text_holds_out_more_than_a_tiny_share_of_its_base(of_lines, tmp_path):
    poem = tmp_path / "poem.txt"
    poem.write_text("roses are red\n" * 12, encoding="utf-8")
    asked = start("--init-from", of_lines, "--data.files", poem)
    assert "data.val_fraction" in asked.draft.fitted
    data = find_or_prepare(replace(asked.config.data, prepared=str(tmp_path)),
                           fit_val_fraction=True)
    assert data.manifest["val_fraction"] == 0.1


def test_a_share_that_is_given_to_a_fine_tuning_is_kept(of_lines):
    asked = start("--init-from", of_lines, "--data.files", "book.txt", "--data.val_fraction=0.02")
    assert asked.draft.config.data.val_fraction == 0.02
    assert "data.val_fraction" not in asked.draft.fitted


@pytest.mark.parametrize("option", ["--data.hub_split", "--data.hub_revision"])
def test_another_part_of_the_same_data_set_keeps_its_column(base, monkeypatch, option):
    saved = read_config(base / "config.yaml")
    hub = replace(saved.data, source="hub", files=None, hub="some/stories", column="story")
    monkeypatch.setattr("gyre.start.read_config", lambda _: replace(saved, data=hub))
    data = start("--init-from", base, option, "test").config.data
    assert (data.source, data.hub, data.column) == ("hub", "some/stories", "story")


@pytest.mark.parametrize("text", ["--data.files=poem.txt", "--data.url=http://a/b.txt?x=1.csv"])
def test_a_column_of_plain_text_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("poem.txt").write_text("a poem", encoding="utf-8")
    with pytest.raises(UserError, match="^data.column Message has no effect on plain text, only"):
        start(text, "--data.column=Message")


def test_a_separator_of_tables_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("poem.jsonl").write_text('{"text": "a poem"}\n', encoding="utf-8")
    with pytest.raises(UserError, match="^data.separator '---' has no effect on tables"):
        start("--data.files=poem.jsonl", "--data.separator=---")


def test_a_separator_needs_one_plain_text_among_the_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("poem.jsonl").write_text('{"text": "a poem"}\n', encoding="utf-8")
    Path("poem.txt").write_text("a poem", encoding="utf-8")
    files = ["--data.files=poem.jsonl", "--data.files=poem.txt"]
    assert start(*files, "--data.separator=---").config.data.separator == "---"


def test_an_address_that_is_malformed_is_refused():
    with pytest.raises(UserError, match=r"^data.url http://\[bad is no address: Invalid IPv6 URL"):
        start("--data.url=http://[bad", "--data.column=a")


def test_a_column_needs_one_table_among_the_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("poem.txt").write_text("a poem", encoding="utf-8")
    Path("chats.csv.gz").write_bytes(b"")
    asked = start("--data.files=poem.txt", "--data.files=chats.csv.gz", "--data.column=Message")
    assert asked.config.data.column == "Message"


def test_a_source_of_a_users_own_may_have_columns(monkeypatch):
    class Letters(Source):
        options = ("column",)

    monkeypatch.setitem(SOURCES, "letters", Letters)
    assert start("--data.source=letters", "--data.column=body").config.data.column == "body"


def test_a_column_in_a_file_is_no_error_if_the_text_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("poem.txt").write_text("a poem", encoding="utf-8")
    Path("chats.yaml").write_text("{data: {hub: a/b, column: Message}}", encoding="utf-8")
    assert start("--config=chats.yaml", "--data.files=poem.txt").config.data.files == ["poem.txt"]


def test_the_dropout_of_a_file_is_used(workdir, base, tmp_path):
    file = tmp_path / "tune.yaml"
    file.write_text("model: {dropout: 0.25, dim: 999}", encoding="utf-8")
    saved = read_config(base / "config.yaml").model
    asked = start("--config", file, *training_argv(workdir), "--init-from", base)
    assert asked.config.model == replace(saved, dropout=0.25)
    asked = start("--config", file, "--init-from", base, "--model.dropout", "0.5")
    assert asked.config.model.dropout == 0.5


def test_a_file_of_options_goes_over_the_base(base, tmp_path):
    file = tmp_path / "tune.yaml"
    file.write_text("{data: {val_fraction: 0.3}, train: {steps: 7}}", encoding="utf-8")
    config = start("--config", file, "--init-from", base).config
    assert (config.data.val_fraction, config.train.steps, config.data.seq_len) == (0.3, 7, 20)


# --- a branch of another run ----------------------------------------------------------------------


def test_a_branch_of_a_folder_that_is_no_name_has_one(trunk, tmp_path):
    spaced = shutil.copytree(trunk, tmp_path / "my trunk")
    assert start("--branch-from", spaced).default_name == "my-trunk-branch"


def test_a_branch_starts_at_a_kept_step_as_a_new_run(trunk):
    asked = start("--branch-from", trunk, "--at", "2", "--train.steps", "3")
    assert (asked.step, asked.source.path, asked.resumed) == (2, trunk, None)
    assert (asked.config.name, asked.default_name) == (None, "trunk-branch")
    assert not asked.resumes_auto


def test_a_branch_keeps_no_steps_of_its_trunk(trunk):
    assert start("--branch-from", trunk, "--at", "2", "--train.steps", "3").config.train.keep == []


def test_a_branch_cannot_change_the_optimizer(trunk):
    with pytest.raises(UserError, match="optim.optimizer of .* cannot change on --branch-from"):
        start("--branch-from", trunk, "--at", "2", "--train.steps", "3", "--optim.optimizer",
              "muon")


def test_a_branch_may_change_all_of_optim_but_the_optimizer(trunk):
    argv = ["--branch-from", str(trunk), "--optim.weight_decay=0.7", "--optim.beta1=0.5"]
    optim = resolve(argv, "").config.optim
    assert (optim.weight_decay, optim.beta1) == (0.7, 0.5)


def test_a_branch_that_would_change_no_weight_is_refused(trunk):
    with pytest.raises(UserError, match="optim.lr 0 would change no weight"):
        start("--branch-from", trunk, "--at", "2", "--train.steps", "3", "--optim.lr", "0")


def test_the_advice_to_branch_has_the_whole_path(trunk):
    with pytest.raises(UserError, match=f"say --branch-from {re.escape(str(trunk))} instead"):
        start("--resume", trunk, "--optim.lr", "0.5")


@pytest.mark.parametrize("argv, cooldown", [
    ([], 0.5), (["--optim.schedule", "wsd"], 0.5), (["--optim.schedule", "linear"], None)])
def test_a_branch_has_the_cooldown_only_with_its_schedule(trunk, argv, cooldown):
    asked = start("--branch-from", trunk, "--at", "2", "--train.steps", "3", *argv)
    assert asked.config.optim.cooldown == cooldown


# --- a command that starts a run and resumes it ---------------------------------------------------


@pytest.fixture(scope="module")
def again(workdir, finished):
    """The words of a command with --resume auto that has been run once."""
    argv = [*tiny_argv(workdir, "--name", "again", "--train.steps", "3"), "--resume", "auto",
            "--data.tokenizer", str(finished)]
    assert exit_code(train.main, *argv) == 0
    return argv


def test_resume_auto_starts_a_run_that_is_not_there(workdir):
    asked = start(*tiny_argv(workdir, "--name", "not-there"), "--resume", "auto")
    assert asked.resumed is None and asked.resumes_auto


def test_resume_auto_takes_the_run_of_its_name(workdir, again):
    asked = start("--config", "small.yaml", *again)
    assert asked.resumed.path == workdir / "runs" / "again" and asked.resumes_auto
    assert asked.ignores_file


def test_resume_auto_finds_a_run_in_the_home_folder(workdir, again, monkeypatch):
    monkeypatch.setenv("HOME", str(workdir))
    asked = start("--config", "small.yaml", *again, "--log.runs=~/runs")
    assert asked.resumed.path == workdir / "runs" / "again"


def test_resume_auto_takes_what_auto_stood_for(again):
    assert start(*again, "--train.dtype", "auto").config.train.dtype == "float32"


def test_resume_auto_ignores_minutes_and_keeps_their_steps(again):
    assert start(*again, "--train.minutes", "5").config.train.steps == 3


def test_resume_auto_refuses_another_configuration(again):
    with pytest.raises(UserError, match="seed of .* cannot change"):
        start(*again, "--seed", "2")


@pytest.fixture(scope="module")
def tuned(workdir, finished):
    """The words of a command with --resume auto and --init-from that has been run once."""
    argv = [*training_argv(workdir, "--name", "tuned", "--train.steps", "3"), "--resume", "auto"]
    assert exit_code(train.main, *argv, "--init-from", finished) == 0
    return argv


@pytest.mark.parametrize("name", ["finished", "runs/finished", "runs/finished/"])
def test_resume_auto_takes_any_name_of_the_first_weights(tuned, workdir, monkeypatch, name):
    monkeypatch.chdir(workdir)
    assert start(*tuned, "--init-from", name).resumed.path.name == "tuned"


def test_resume_auto_refuses_other_first_weights(tuned, again, finished):
    words = f"tuned was started from {finished}, and not from elsewhere: choose another --name"
    with pytest.raises(UserError, match=words):
        start(*tuned, "--init-from", "elsewhere")
    with pytest.raises(UserError, match="again was started from a new model, and not from"):
        start(*again, "--init-from", finished)


@pytest.fixture(scope="module")
def tuned_from_name(workdir, finished):
    """The same, where --init-from is the name of a run in the working directory."""
    argv = [*training_argv(workdir, "--name", "by-name", "--train.steps", "3"), "--resume", "auto"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workdir)
        assert exit_code(train.main, *argv, "--init-from", finished.name) == 0
    return argv


def test_resume_auto_takes_the_first_weights_from_another_directory(
    tuned_from_name, finished, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    asked = start(*tuned_from_name, "--init-from", finished)
    assert asked.config.init_from == "runs/finished"
    assert asked.resumed.path.name == "by-name"


@pytest.mark.parametrize("other", ["runs/base", "else/finished"])
def test_resume_auto_refuses_other_weights_from_another_directory(
    tuned_from_name, monkeypatch, tmp_path, other
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="by-name was started from runs/finished, and not from"):
        start(*tuned_from_name, "--init-from", tmp_path / other)


def test_first_weights_may_be_named_from_one_folder_up(tmp_path):
    assert may_be_same_run("../runs/finished", f"{tmp_path}/runs/finished")


def test_resume_auto_needs_a_name(workdir):
    with pytest.raises(UserError, match="needs a --name"):
        start(*training_argv(workdir), "--resume", "auto")


def test_resume_auto_takes_the_name_of_a_file(finished, tmp_path):
    file = tmp_path / "named.yaml"
    file.write_text(f"{{name: finished, log: {{runs: '{finished.parent}'}}}}", encoding="utf-8")
    assert start("--config", file, "--resume", "auto").resumed.path == finished


# --- names ----------------------------------------------------------------------------------------


def test_an_unset_name_says_what_the_run_is(workdir):
    argv = [*tiny_argv(workdir), "--model.position", "alibi"]
    asked = start("--config", "small.yaml", *argv)
    assert (asked.config.name, asked.default_name) == (None, "small-text-alibi-s1")
    assert not asked.resumes_auto


def test_the_text_of_a_configuration_is_no_part_of_a_name():
    assert start("--config", "small.yaml").default_name == "small-rope-s1"


def test_a_long_name_of_a_text_is_cut():
    argv = ["--config", "tiny.yaml", "--data.files", "a_tale_of_two_cities_by_dickens.txt"]
    assert start(*argv).default_name == "tiny-a-tale-of-two-cities-by-rope-s1"


def test_without_a_file_an_unset_name_begins_with_gyre(workdir):
    assert start(*tiny_argv(workdir)).default_name == "gyre-text-rope-s1"


def test_an_unset_name_of_a_fine_tuning_says_what_it_comes_from(workdir, finished):
    argv = [*training_argv(workdir), "--init-from", finished]
    assert start(*argv).default_name == f"{finished.name}-text-tuned-s1"
    assert start("--config", "small.yaml", *argv).default_name == "small-text-tuned-rope-s1"


def test_a_file_name_without_letters_leaves_the_encoding(workdir, tmp_path):
    file = tmp_path / "+.yaml"
    file.write_text("{seed: 3, name: null}", encoding="utf-8")
    assert start("--config", file, *tiny_argv(workdir)).default_name == "text-rope-s3"


def test_a_file_may_be_named_as_a_fine_tuning_is(workdir, tmp_path):
    file = tmp_path / "x-tuned.yaml"
    file.write_text("{seed: 3, name: null}", encoding="utf-8")
    assert start("--config", file, *tiny_argv(workdir)).default_name == "x-tuned-text-rope-s3"


@pytest.mark.parametrize("name", ["-my config.yaml", ".my config.yaml"])
def test_a_file_name_becomes_a_good_run_name(workdir, tmp_path, name):
    file = tmp_path / name
    file.write_text("{seed: 3, name: null}", encoding="utf-8")
    argv = [*tiny_argv(workdir), "--model.position", "alibi"]
    assert start("--config", file, *argv).default_name == "my-config-text-alibi-s3"


def test_a_second_file_goes_over_the_first(tmp_path):
    first = tmp_path / "first.yaml"
    second = tmp_path / "second.yaml"
    first.write_text("{seed: 3, name: null}", encoding="utf-8")
    second.write_text("{seed: 4, name: mine}", encoding="utf-8")
    config = start("--config", first, "--config", second).config
    assert (config.seed, config.name) == (4, "mine")


def test_a_command_without_any_option_is_told_one():
    with pytest.raises(UserError, match="--config small.yaml"):
        start()


@pytest.mark.parametrize("option", ["--resume", "--branch-from"])
def test_an_imported_run_is_not_continued(finished, monkeypatch, option):
    monkeypatch.setattr(RunDir, "manifest", {"imported": {}})
    with pytest.raises(UserError, match="was imported.* start from it with --init-from"):
        start(option, finished)


def test_a_fine_tuning_of_a_short_imported_model_has_rows_of_its_context(finished, monkeypatch):
    monkeypatch.setattr(RunDir, "manifest", {"imported": {}})
    config = start("--init-from", finished).config
    assert (config.data.seq_len, config.model.max_positions) == (80, 80)


@pytest.mark.parametrize("context, seq_len", [(70, 70), (200, 200), (300, 256)])
def test_imported_models_train_in_rows_that_fit_the_given_context(
    finished, monkeypatch, context, seq_len
):
    monkeypatch.setattr(RunDir, "manifest", {"imported": {}})
    asked = start("--init-from", finished, "--model.max_positions", context)
    assert asked.config.data.seq_len == seq_len


def test_resume_auto_does_not_continue_an_imported_run(workdir, finished, monkeypatch):
    monkeypatch.setattr(RunDir, "manifest", {"imported": {}})
    with pytest.raises(UserError, match="was imported.* start from it with --init-from"):
        start(*training_argv(workdir, "--resume", "auto", "--name", "finished"))


@pytest.mark.parametrize("options, noted", [
    ([], True), (["--model.position=none"], True), (["--config=tiny.yaml"], False),
    (["--model.dim=64"], False), (["--model.n_layers=2"], False)])
def test_a_command_that_leaves_the_sizes_out_has_default_sizes(tmp_path, options, noted):
    (tmp_path / "a.txt").write_text(random_text(), encoding="utf-8")
    argv = [*options, f"--data.files={tmp_path / 'a.txt'}"]
    assert resolve(argv, "").has_default_sizes is noted


def test_default_sizes_are_noted_once(workdir, capfd):
    argv = ["--name=default-sizes", "--data.vocab_size=300", "--train.steps=1",
            "--optim.warmup_steps=0", "--train.sample_tokens=0"]
    assert exit_code(train.main, *training_argv(workdir, *argv)) == 0
    assert capfd.readouterr().err.count("without --config, a model has the default sizes") == 1
