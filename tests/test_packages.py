"""Which packages a command needs, and what it says of one that is missing."""

import os
import shlex
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from builders import ROOT, error_lines, tiny_argv
from other_packages import NEEDED, link_packages, with_requirements
from random_runs import random_run
from saved_models import export_to, make_run, meta_folder, their_folder

import ablate
import evaluate
import export
import train
from data.tokenizer import open_tokenizer
from errors import UserError, find_script, report_errors
from gyre.wandb_log import LogConfig, log_report

ADVICE = f"run pip install -r {find_script('requirements.txt')}"
FULL_ADVICE = f"run pip install -r {shlex.quote(str(ROOT / 'requirements.txt'))}"


def run_with(packages: Path, command: str, *argv: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command with the packages in this folder."""
    environment = os.environ | {"PYTHONPATH": str(packages)}
    process = Popen([sys.executable, "-S", str(ROOT / command), *argv], cwd=packages.parent,
                    env=environment, text=True, stdout=PIPE, stderr=PIPE, encoding="utf-8")
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


# --- packages that every command needs ------------------------------------------------------------


# The quick tier tries one of which the module has another name, and one that the text to train on
# needs. That all are looked for is seen in the next test.
OTHERS = [pytest.param(package, marks=pytest.mark.slow) for package in NEEDED[1:]]


@pytest.mark.parametrize("package", [NEEDED[0], "filelock", *OTHERS])
def test_a_package_missing_at_the_start_is_one_sentence(package, tmp_path):
    link_packages(tmp_path / "packages", with_requirements(NEEDED) - {package})
    answer = run_with(tmp_path / "packages", "train.py")
    assert answer == (2, "", f"error: the package {package} is missing: {FULL_ADVICE}\n")


@pytest.mark.parametrize("command", ["ablate.py", "bench.py", "evaluate.py", "export.py",
                                     "generate.py", "train.py"])
def test_every_command_names_all_packages_that_are_missing(command, tmp_path):
    (tmp_path / "none").mkdir()
    code, out, err = run_with(tmp_path / "none", command, "--help")
    assert (code, out) == (2, "")
    assert err == (
        "error: the packages docstring-parser, filelock, msgspec, numpy, pyyaml, safetensors, "
        f"sentencepiece, torch and tqdm are missing: {FULL_ADVICE}\n")


@pytest.mark.slow
def test_what_another_package_needs_is_named(tmp_path):
    packages = with_requirements(NEEDED) - {"typing-extensions"}
    link_packages(tmp_path / "packages", packages)
    answer = run_with(tmp_path / "packages", "generate.py", "--prompt", "a")
    assert answer == (2, "", f"error: the package typing_extensions is missing: {FULL_ADVICE}\n")


def test_a_missing_module_of_ours_keeps_its_traceback():
    with pytest.raises(ModuleNotFoundError), report_errors():
        import gyre.nothing  # noqa: F401  # pyrefly: ignore


# --- packages that some commands need -------------------------------------------------------------


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Path:
    """A folder with the packages of NEEDED and what they require."""
    folder = tmp_path_factory.mktemp("few") / "packages"
    link_packages(folder, with_requirements(NEEDED))
    return folder


@pytest.fixture(scope="module")
def run(few, workdir) -> tuple[int, str, str]:
    """The answer of a training with them, of the run "few"."""
    return run_with(few, "train.py", *tiny_argv(workdir, "--log.wandb=auto", "--name=few"))


@pytest.mark.slow
def test_training_needs_few_packages(run):
    code, _, err = run
    assert code == 0, err
    assert (f"warning: going on without wandb, the files have everything: the package wandb is "
            f"missing: {FULL_ADVICE}, or say --log.wandb disabled") in err
    assert err.count("missing") == 1


@pytest.mark.slow
def test_generating_needs_few_packages(few, run, workdir):
    code, out, err = run_with(few, "generate.py", "--run", str(workdir / "runs" / "few"),
                              "--prompt", "ab", "--max-new-tokens", "9", "--temperature", "0")
    assert code == 0, err
    assert out.startswith("ab")


@pytest.mark.slow
def test_evaluating_needs_few_packages(few, run, workdir):
    folder = str(workdir / "runs" / "few")
    code, out, err = run_with(few, "evaluate.py", folder, "--data.files",
                              str(workdir / "text.txt"))
    assert code == 0, err
    assert "bits/byte" in out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["bench.py", "export.py"])
def test_its_help_needs_few_packages(command, few):
    code, _, err = run_with(few, command, "--help")
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_an_export_without_protobuf_names_it(run, workdir, tmp_path):
    link_packages(tmp_path / "packages", with_requirements((*NEEDED, "tokenizers")))
    answer = run_with(tmp_path / "packages", "export.py", str(workdir / "runs" / "few"), "out",
                      "--to=hf")
    assert answer == (2, "", f"error: the package protobuf is missing: {FULL_ADVICE}\n")
    assert not (tmp_path / "out").exists()


def hide(monkeypatch, *modules: str) -> None:
    """Let Python not find these modules any more."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_a_study_without_wandb_is_finished_all_the_same(monkeypatch, capsys):
    hide(monkeypatch, "wandb")
    log_report(LogConfig(), "study", {}, [], [], [])
    assert capsys.readouterr().err == (
        f"warning: the study is not in wandb: the package wandb is missing: {ADVICE}\n")


@pytest.mark.parametrize("name, content, module, advice", [
    ("a.parquet", b"PAR1", "pyarrow", "write its texts to a .jsonl file"),
    ("a.txt.zst", b"\x28\xb5\x2f\xfd", "pyarrow", "unpack it with unzstd FILE")])
def test_a_file_that_needs_a_missing_package_is_refused(
    name, content, module, advice, tmp_path, monkeypatch, capsys
):
    hide(monkeypatch, module)
    (tmp_path / name).write_bytes(content)
    file = tmp_path / name
    words = [f"--log.runs={tmp_path}", f"--data.prepared={tmp_path}", "--train.device=cpu"]
    lines = error_lines(capsys, train.main, *words, f"--data.files={file}")
    assert lines[-1] == (f"error: {file} cannot be read: the package {module} is missing: "
                         f"{ADVICE}, or {advice}")


@pytest.mark.parametrize("option", [
    "--data.source=hub --data.hub=a/b", "--data.source=url --data.url=http://localhost:1/a.txt"])
def test_a_download_without_datasets_names_data_files(option, tmp_path, monkeypatch, capsys):
    hide(monkeypatch, "datasets")
    words = [f"--log.runs={tmp_path}", f"--data.prepared={tmp_path}", "--train.device=cpu"]
    lines = error_lines(capsys, train.main, *words, *option.split())
    assert lines[-1] == (f"error: the package datasets is missing: {ADVICE}, or name a file of "
                         "text on this machine with --data.files")


def test_a_study_names_its_missing_packages_before_it_begins(tmp_path, monkeypatch, capsys):
    hide(monkeypatch, "distributed", "scipy")
    lines = error_lines(capsys, ablate.main, f"--log.runs={tmp_path}")
    assert lines == [f"error: the packages dask[distributed] and scipy are missing: {ADVICE}"]
    assert not any(tmp_path.iterdir())


def test_a_plot_without_matplotlib_is_refused_before_measuring(monkeypatch, capsys):
    hide(monkeypatch, "matplotlib")
    lines = error_lines(capsys, evaluate.main, "no-run", "--plot=a.png")
    assert lines == [f"error: the package matplotlib is missing: {ADVICE}, or leave --plot out"]


def test_a_tokenizer_whose_package_is_missing_is_not_called_damaged(tmp_path, monkeypatch):
    hide(monkeypatch, "tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        open_tokenizer(tmp_path)
    assert str(caught.value) == f"the package tokenizers is missing: {ADVICE}"


@pytest.mark.parametrize("target, module, package", [
    ("hf", "tokenizers", "tokenizers"), ("hf", "huggingface_hub", "huggingface-hub"),
    ("gguf", "gguf", "gguf")])
def test_an_export_names_its_missing_package(
    target, module, package, tmp_path, monkeypatch, capsys
):
    run = random_run(tmp_path, "run").path
    hide(monkeypatch, module)
    out = tmp_path / "out"
    lines = error_lines(capsys, export.main, run, out, "--to", target)
    assert lines[-1] == f"error: the package {package} is missing: {ADVICE}"
    assert not out.exists()


PROTOBUF = "sentencepiece.sentencepiece_model_pb2"


@pytest.mark.parametrize("kind", ["hf", "meta"])
def test_an_import_of_sentencepiece_needs_no_other_package(kind, tmp_path, monkeypatch):
    if kind == "hf":
        folder = their_folder(tmp_path, "llama2")
    else:
        folder = meta_folder(tmp_path / "meta", make_run(tmp_path), 1, False)
    hide(monkeypatch, PROTOBUF, "gguf", "huggingface_hub", "tokenizers")
    assert (export_to("run", folder, tmp_path / "run") / "best").is_dir()


def test_an_import_of_a_tokenizer_json_needs_tokenizers_only(tmp_path, monkeypatch):
    folder = their_folder(tmp_path, "llama3")
    hide(monkeypatch, PROTOBUF, "gguf", "huggingface_hub")
    assert (export_to("run", folder, tmp_path / "run") / "best").is_dir()


def test_an_import_of_a_gguf_needs_no_tokenizers(tmp_path, monkeypatch):
    file = export_to("gguf", make_run(tmp_path).path, tmp_path / "a.gguf")
    hide(monkeypatch, "huggingface_hub", "tokenizers")
    assert (export_to("run", file, tmp_path / "run") / "best").is_dir()


@pytest.mark.parametrize("target", ["gguf", "web"])
def test_an_export_to_gguf_needs_no_huggingface_hub(target, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no npm
    run = make_run(tmp_path).path
    hide(monkeypatch, "huggingface_hub")
    assert export_to(target, run, tmp_path / "out").exists()
