"""The command line of ablate.py: which options win, and which are refused."""

import pytest
import torch
from builders import ROOT, error_lines
from tiny_study import (  # noqa: F401  N_WORDS is for `workdir`
    N_WORDS,
    make_plan,
    study_arguments,
    tiny_tier,
)

import ablate
from ablation import runner
from ablation.options import resolve, to_words
from ablation.plan import Steps, write_plan
from errors import UserError
from gyre.options import make_config
from model.encodings import POSITIONS


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with tiny_tier():
        yield


CHOSEN_BY_THE_STUDY = [
    "train.steps=300", "train.steps=1", "seed=3", "train.keep=[4]", "train.onednn=true",
    "optim.lr=5e-3", "data.second_val=true", "train.minutes=5"]
DEFAULTS_CHOSEN_BY_THE_STUDY = [
    "train.steps=1000", "seed=1", "train.eval_interval=250", "optim.lr=1e-3"]
SHARED_BY_ALL_ARMS = ["data.vocab_size=301", "train.device=cuda", "optim.cooldown=0.5",
                      "train.batch_size=9", "name=x"]


@pytest.mark.parametrize("extra, words", [
    *((["--" + word], f"--{word.split('=')[0]} has no effect") for word in CHOSEN_BY_THE_STUDY),
    *((["--" + word], f"--{word.split('=')[0]} has no effect")
      for word in DEFAULTS_CHOSEN_BY_THE_STUDY),
    (["--arm", "b=seed=1"], "--arm b: seed must be the same in all arms"),
    *((["--arm", "b=" + word], f"--arm b: {word.split('=')[0]} must be the same")
      for word in SHARED_BY_ALL_ARMS),
    (["--train.dtype", "auto"], "train.dtype auto could be another for each run"),
    (["--optim.schedule", "cosine"], "optim.schedule must be wsd, not cosine"),
    (["--arm", "b=modle.theta=5"], "there is no option --modle.theta"),
    (["--arm", "b=optim.warmup_steps=99"], "of cooldown after 99 of warm-up"),
    (["--tokens", "25k", "--optim.warmup_steps", "7"], "a run of 9 steps has 2 of cooldown"),
    (["--optim.optimizer", "muon", "--optim.muon_lr", "1e-2"], "--optim.muon_lr has no effect"),
    (["--log.runs", __file__], f"because {__file__} is no folder: choose another folder with"),
    (["--data.files", "/dev/null"], "data.files /dev/null can be read once, and a study reads"),
    (["--jobs", "0"], "error: jobs must be at least 1"),
    (["--beside", "nowhere"], "nowhere is not a study: it has no plan.json"),
    (["--jobs", "2", "--scheduler", "tcp://far:8786"], "--jobs has no effect with --scheduler"),
    (["--seeds", "0"], "error: seeds must be at least 1"),
    (["--tokens", "1k,8k"], "choose more --tokens"),
    (["--tokens", "1"], "choose more --tokens"),
    (["--tokens", "24k", "--train.batch_size", "76", "--optim.warmup_steps", "1"],
     "rates are tuned on 2,304 tokens, which are less than a step of 2,432"),
    (["--tokens", "8k,4k"], "lengths in ascending order"),
    (["--tokens", "8k,8k"], "lengths in ascending order"),
    (["--tokens", "0,8k"], "lengths in ascending order"),
    (["--tokens", "8k,1m"], "1m is no length: give a whole number, alone or with k or M"),
    (["--tokens", "0.5M"], "0.5M is no length: give a whole number, alone or with k or M"),
    (["--tokens", "8k,"], "nothing is no length: give a whole number"),
    (["--tokens", "9" * 400], "--tokens must be less than 2^63"),
    (["--tokens", "16M,16385k"], "runs of 16,777,216 and of 16,778,240 tokens would both be called "
                                 "16M: choose --tokens that differ more"),
    (["--name", "a/b"], "run name 'a/b' must begin with a letter, a digit or _"),
    (["--name", "."], "run name '.' must begin with a letter, a digit or _"),
    (["--model.position", "alibi"], "--model.position has no effect: each arm sets it. Leave it"),
    (["--config", "tiny.yaml"], "train.steps in tiny.yaml has no effect: the study sets it for "
                                "each run. Take it out of a copy of that file"),
    (["--data.val_fraction", "0.003"], "the text held out for validation has "),
    (["--positions", "rope,sin"], "there is no option --positions (did you mean --arms?)"),
    (["--data.seq_len", "31"], "T = 31 (data.seq_len, or --context) is odd"),
])
def test_bad_input_is_one_line_before_any_work(workdir, capsys, monkeypatch, extra, words):
    monkeypatch.setattr(runner, "open_client", lambda *options: pytest.fail("started workers"))
    argv = study_arguments(workdir, "--name", "bad", *extra)
    *_, error = error_lines(capsys, ablate.main, *argv)
    assert words in error
    assert not (workdir / "runs" / "bad").exists()


def test_what_the_study_sets_is_refused_in_a_file_with_its_default(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("optim: {schedule: wsd, lr: 1e-3}\ntrain: {dtype: float32}\n",
                    encoding="utf-8")
    with pytest.raises(UserError, match=f"^optim.lr in {file} has no effect: the study sets it"):
        resolve(["--config", str(file), "--log.runs", str(tmp_path)])


def test_a_run_needs_one_step_between_warm_up_and_cooldown():
    """Of 9 steps the last 2 are of cooldown."""
    config = make_config({"optim.schedule": "wsd", "optim.warmup_steps": 6})
    runner.check_cooldown(config, Steps(horizons=[9], tuning=0))


@pytest.mark.parametrize("argv, options", [
    (["rope", "alibi"], "--arms rope,alibi"), (["rope,alibi"], "--arms rope,alibi"),
    (["--tier", "smoke", "rope", "alibi"], "--arms rope,alibi"), (["smoke"], "--tier smoke"),
    (["full"], "--tier full"), (["muon"], "--optim.optimizer muon"),
    (["text.csv"], "--data.files text.csv"), (["small.yaml"], "--config small.yaml")])
def test_arms_without_an_option_are_given_one(argv, options):
    with pytest.raises(UserError, match=f"is no option: did you mean {options}\\?"):
        resolve(argv)


def test_an_empty_word_behind_a_value_is_a_mistake_told_in_a_sentence():
    with pytest.raises(UserError, match="^--train.steps takes one value, and "):
        resolve(["--train.steps", "5", ""])


@pytest.mark.parametrize("option, values, joined", [
    ("--arms", ["rope,", "alibi", "nope"], "rope,alibi,nope"), ("--tokens", ["1M", "2M"], "1M,2M")])
def test_values_that_commas_divide_are_joined(option, values, joined):
    words = f"{values[1]} follows it: put commas between them, as in {option} {joined}$"
    with pytest.raises(UserError, match=words):
        resolve([option, *values])


def test_a_device_that_is_not_here_is_refused_before_the_text_is_read(workdir, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match=r"^device cuda \(cuda:0\) was asked for"):
        resolve(study_arguments(workdir, "--train.device", "cuda"))


def test_the_command_line_wins_over_the_tier(workdir):
    command = resolve(study_arguments(workdir, "--model.dim", "64"))
    assert command.config.model.dim == 64
    assert command.config.model.n_heads == 2  # the tier's


def test_an_arm_wins_over_the_command_line(workdir):
    argv = study_arguments(workdir, "--model.dim", "64", "--arm", "big=model.dim=80,optim.lr=5e-3")
    config = resolve(argv).arm_configs["big"]
    assert (config.model.dim, config.model.n_heads, config.optim.lr) == (80, 2, 5e-3)


def test_the_overlay_of_an_arm_has_typed_values(workdir):
    command = resolve(study_arguments(workdir, "--arm", "big=model.n_layers=3,optim.lr=5e-3"))
    assert command.arms["big"] == {"model.n_layers": "3", "optim.lr": "5e-3"}
    assert command.overlays["big"] == {"model.n_layers": 3, "optim.lr": 0.005}


def test_shared_options_are_those_of_the_command_line(workdir):
    shared = resolve(study_arguments(workdir)).shared
    assert shared["data.files"] == [str(workdir / "text.txt")]
    assert (shared["data.vocab_size"], shared["data.seq_len"]) == (300, 32)


def test_shared_options_have_the_numbers_that_texts_would_change(tmp_path):
    """A training fits them to its text unless they are given."""
    file = tmp_path / "own.yaml"
    file.write_text("optim: {schedule: wsd}\ntrain: {dtype: float32}\n", encoding="utf-8")
    shared = resolve(["--config", str(file), "--log.runs", str(tmp_path)]).shared
    assert (shared["data.vocab_size"], shared["data.seq_len"]) == (4096, 256)
    assert shared["optim.warmup_steps"] == 100


def test_a_study_beside_one_whose_encoding_is_gone_says_what_to_put_back(monkeypatch):
    monkeypatch.delitem(POSITIONS, "alibi")
    five = ROOT / "studies" / "five"
    sentence = (f"the arm alibi of {five} was trained with model.position alibi, which POSITIONS "
                "does not have any more")
    with pytest.raises(UserError, match=sentence):
        resolve(["--beside", str(five), "--arm", "b500=model.theta=500"])


def test_a_rate_beside_a_tuned_study_is_said_for_an_arm():
    argv = ["--beside", str(ROOT / "studies" / "five"), "--arms", "pope", "--optim.lr", "3e-3"]
    with pytest.raises(UserError, match="or say it for a new arm, --arm NAME=optim.lr=VALUE$"):
        resolve(argv)


def test_an_arm_is_told_to_leave_out_what_the_study_sets(workdir):
    with pytest.raises(UserError, match="seed must be the same .*: leave it out, the study sets"):
        resolve(study_arguments(workdir, "--arm", "mine=seed=4"))


def test_every_run_has_the_text_of_the_command_line(tmp_path):
    """And not the one that the file names."""
    file = tmp_path / "own.yaml"
    file.write_text("data: {files: [a.txt]}\noptim: {schedule: wsd}\ntrain: {dtype: float32}\n",
                    encoding="utf-8")
    shared = resolve(["--config", str(file), "--data.url", "http://b"]).shared
    assert make_config(shared).data.url == "http://b"


def test_seeds_and_tokens_change_the_tier(workdir):
    tier = resolve(study_arguments(workdir, "--seeds", "3", "--tokens", "5k,1M")).tier
    assert (tier.seeds, tier.horizons, tier.grid) == (3, (5120, 1048576), (0.002,))


def test_without_tuning_all_arms_have_the_rate_of_the_command_line(workdir):
    command = resolve(study_arguments(workdir, "--no-tuning", "--optim.lr", "3e-3"))
    assert (command.tier.grid, command.tier.tuning_tokens) == ((), 0)
    assert [config.optim.lr for config in command.arm_configs.values()] == [3e-3, 3e-3]


def test_options_become_words_of_a_command_line():
    options = {"model": {"dim": 64}, "data.files": ["a b", "é"], "train.minutes": None,
               "train.compile": True, "optim.lr": 2e-3, "name": "x"}
    assert to_words(options) == [
        "--model.dim=64", '--data.files=["a b", "é"]', "--train.minutes=null",
        "--train.compile=true", "--optim.lr=0.002", "--name=x"]


@pytest.mark.parametrize("extra", [
    "data.prepared=x", "train.device=auto", "train.cuda_graphs=false", "name=x", "log.runs=x",
    "log.wandb=auto"])
def test_a_plan_does_not_depend_on_places_and_machines(workdir, extra):
    plain = runner.select_decisive(resolve(study_arguments(workdir)).config)
    assert runner.select_decisive(resolve(study_arguments(workdir, f"--{extra}")).config) == plain


@pytest.mark.parametrize("extra", [
    "data.vocab_size=301", "train.compile=true", "optim.beta2=0.9", "model.dim=24"])
def test_a_plan_depends_on_what_decides_numbers(workdir, extra):
    plain = runner.select_decisive(resolve(study_arguments(workdir)).config)
    assert runner.select_decisive(resolve(study_arguments(workdir, f"--{extra}")).config) != plain


def with_file(tmp_path, text, *argv):
    """The command of a study by a copy of ablation.yaml with these lines under `train`."""
    file = tmp_path / "mine.yaml"
    ours = (ROOT / "configs" / "ablation.yaml").read_text(encoding="utf-8")
    file.write_text(ours + text, encoding="utf-8")
    return resolve(["--config", str(file), *argv])


def test_a_file_wins_over_the_default_of_a_tier(tmp_path):
    assert resolve(["--tier", "quick"]).config.train.compile is True
    command = with_file(tmp_path, "  compile: false\n", "--tier", "quick")
    assert command.config.train.compile is False


def test_a_file_that_switches_off_a_default_of_the_tier_is_noted(tmp_path, capsys):
    with_file(tmp_path, "  compile: false\n", "--tier", "quick")
    (note,) = capsys.readouterr().err.splitlines()
    assert note == (f"note: {tmp_path / 'mine.yaml'} has train.compile False, where --tier quick "
                    "has True: take it out of the file, unless you want it so")
    with_file(tmp_path, "  compile: true\n", "--tier", "quick")
    with_file(tmp_path, "  compile: false\n", "--tier", "quick", "--train.compile", "false")
    assert capsys.readouterr().err == ""


def planned(tmp_path, compiled: bool) -> list[str]:
    """The options that name a study whose plan has this train.compile."""
    config = {arm: {"train": {"compile": compiled}} for arm in ("rope", "sin")}
    (tmp_path / "old").mkdir()
    write_plan(tmp_path / "old", make_plan(config=config))
    return ["--tier", "quick", "--log.runs", str(tmp_path), "--name", "old"]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_study_goes_on_compiled_as_it_began(tmp_path, capsys, compiled):
    """Whatever a file says: a copy of an older ablation.yaml says false."""
    text = f"  compile: {str(not compiled).lower()}\n"
    command = with_file(tmp_path, text, *planned(tmp_path, compiled))
    assert command.config.train.compile is compiled
    assert command.arm_configs["rope"].train.compile is compiled
    assert command.shared["train.compile"] is compiled
    (note,) = capsys.readouterr().err.splitlines()
    assert note == (f"note: {tmp_path / 'old' / 'plan.json'} has train.compile {compiled}, and so "
                    f"has what is trained now, whatever the tier and {tmp_path / 'mine.yaml'} say")


def test_the_command_line_can_ask_for_what_a_plan_does_not_have(tmp_path):
    """It is refused then, as any other plan."""
    command = with_file(tmp_path, "", *planned(tmp_path, True), "--train.compile", "false")
    assert command.config.train.compile is False


def test_what_a_tier_overrides_in_a_file_is_noted(tmp_path, capsys):
    with_file(tmp_path, "  compile: true\n", "--tier", "smoke", "--data.seq_len", "16")
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("note: --tier smoke has model.dim 48, model.n_layers ")
    assert "train.compile False, whatever " in note and "seq_len" not in note


def test_what_a_tier_overrides_in_our_file_is_not_noted(capsys):
    resolve(["--tier", "smoke"])
    assert capsys.readouterr().err == ""
