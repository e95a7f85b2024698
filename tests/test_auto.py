"""What `auto` and minutes become in a training: chosen once, by all processes alike, and kept."""

import itertools
import json
import os
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from builders import as_resolved, build_setup, exit_code, read_metric, tiny_argv, train_tiny
from resumption import EXACT, assert_equal_runs, resume_refusal

import gyre.announce
import gyre.auto
import gyre.memory
import gyre.step
import train
from errors import UserError
from gyre.compute import resolve_device
from gyre.estimate import training_flops
from gyre.fit import Draft
from gyre.parallel import ALONE, World
from gyre.start import resolve
from gyre.yaml_files import read_config
from model import kernels


def test_for_a_text_too_small_for_its_vocabulary_train_offers_to_choose(tmp_path):
    """ablate.py, which does not choose, does not offer it."""
    (tmp_path / "text.txt").write_text("x" * 500, encoding="utf-8")
    start = resolve(tiny_argv(tmp_path, "--data.vocab_size", "5000"), "")
    offer = "or let train.py choose them: --data.vocab_size auto --data.seq_len auto$"
    with pytest.raises(UserError, match=offer):
        gyre.auto.prepare_data(start, ALONE)


# --- device, dtype and compilation ----------------------------------------------------------------


class Second(World):
    """The second of two processes."""

    first: list[bool] = []
    """What the first process still tells: whether oneDNN is faster, and whether it compiles."""

    def all_gather(self, value):
        return [self.first.pop(0), value]

    def sum(self, *rates: float) -> list[float]:
        return [1.0, 9.0]  # of float32 and bfloat16

    def connect(self):
        pass  # there is no first process


@pytest.fixture
def decided(workdir, monkeypatch):
    """Calls `resolve_auto` as the second process, which measured the contrary of the first for
    oneDNN and the dtype.

    Also gives the configuration that is written, and the FLOPs by which it was decided what to
    compile.
    """
    def decide(first_uses_onednn=True, second_compiles=True, first_compiles=True):
        flops = []

        def resolve_compile(choice, device, dtype, training_flops):
            flops.append(training_flops)
            return second_compiles, ""

        monkeypatch.setattr(Second, "first", [first_uses_onednn, first_compiles])
        gain = 0.0 if first_uses_onednn else 9.0
        monkeypatch.setattr(kernels, "onednn_gain", lambda: gain)
        monkeypatch.setattr(gyre.auto, "matmul_rates", lambda *_, **__: [9.0, 1.0])
        monkeypatch.setattr(gyre.auto, "resolve_compile", resolve_compile)
        start = resolve(tiny_argv(workdir, "--train.dtype", "auto"), "")
        second = Second(1, 2, ALONE.device, is_main=False)
        resolved = gyre.auto.resolve_auto(start, second)
        return resolved.compute, resolved.config, flops

    return decide


@pytest.mark.parametrize("choice", [True, False])
def test_all_processes_multiply_as_the_first_one_does(decided, choice):
    compute, config, _ = decided(first_uses_onednn=choice)
    assert compute.onednn is choice
    assert config.train.onednn is choice


def test_all_processes_choose_the_dtype_by_the_rates_of_all(decided):
    compute, config, _ = decided()
    assert config.train.dtype == "bfloat16"
    assert compute.dtype == torch.bfloat16


@pytest.mark.parametrize("choice", [True, False])
def test_what_is_compiled_is_written_into_the_configuration(decided, choice):
    compute, config, _ = decided(second_compiles=choice)
    assert config.train.compile is choice
    assert compute.compiled is choice


def test_a_compilation_that_was_asked_for_stays_asked_for(workdir, monkeypatch):
    """Here it is impossible, and where the run goes on it may be possible."""
    monkeypatch.setattr(gyre.auto, "resolve_compile", lambda *_: (False, ""))
    start = resolve(tiny_argv(workdir, "--train.compile=true"), "")
    resolved = gyre.auto.resolve_auto(start, ALONE)
    assert resolved.compute.compiled is False
    assert resolved.config.train.compile is True


def test_nothing_is_compiled_if_another_process_cannot(decided):
    compute, config, _ = decided(second_compiles=True, first_compiles=False)
    assert compute.compiled is False
    assert config.train.compile is False
    assert compute.compile_reason == "not compiled: another process cannot compile"


def test_a_process_that_cannot_compile_still_tells_the_others(decided):
    """Else they would wait for it, and take its next word for this one."""
    compute, _, _ = decided(second_compiles=False, first_compiles=True)
    assert compute.compiled is False
    assert Second.first == []


def test_compilation_is_decided_by_the_work_of_the_whole_training(decided):
    """6 FLOPs for each weight and token: 12 steps of 9 rows of 20 tokens."""
    _, _, flops = decided()
    attention = 2 * 48 * 48 + 2 * 48 * 16
    feed_forward = 3 * 48 * 128
    output = 300 * 48
    assert flops == [6 * (attention + feed_forward + output) * 12 * 9 * 20]


@pytest.fixture
def auto_run(workdir, monkeypatch, run_name):
    """A run of 3 steps on a machine with fast bfloat16; afterwards the machine has a slow one."""
    monkeypatch.setattr(gyre.auto, "matmul_rates", lambda *_, **__: [1e9, 9e9])
    path = train_tiny(workdir, run_name, "--train.device=auto", "--train.dtype=auto",
                      "--train.steps=3")
    monkeypatch.setattr(gyre.auto, "matmul_rates", lambda *_, **__: [9e9, 1e9])
    return path


def test_what_auto_chose_is_written_into_the_run(auto_run):
    chosen = read_config(auto_run / "config.yaml").train
    assert chosen.device == resolve_device("auto").type
    assert chosen.dtype == "bfloat16"
    assert chosen.compile is False
    assert chosen.onednn is kernels.prefers_onednn(torch.device("cpu"))


def test_a_resumed_run_keeps_the_dtype_that_auto_chose(auto_run, capfd):
    assert exit_code(train.main, "--resume", auto_run, "--train.steps=4") == 0
    assert "; bfloat16" in capfd.readouterr().err


def test_a_resumed_run_asked_for_auto_chooses_again(auto_run, capfd):
    assert exit_code(train.main, "--resume", auto_run, "--train.steps=4", "--train.dtype=auto") == 0
    assert "; float32" in capfd.readouterr().err


def test_a_resumed_run_keeps_the_form_of_its_products(auto_run, monkeypatch):
    """Where another one would be faster now: the two round differently."""
    before = kernels.prefers_onednn(torch.device("cpu"))
    monkeypatch.setattr(kernels, "onednn_gain", lambda: 0.0 if before else 9.0)
    entered = []

    def products_by_onednn(used):
        entered.append(used)
        return nullcontext()

    monkeypatch.setattr(kernels, "products_by_onednn", products_by_onednn)
    assert exit_code(train.main, "--resume", auto_run, "--train.steps=4") == 0
    assert entered == [before]


# --- minutes --------------------------------------------------------------------------------------


def test_minutes_become_steps_of_which_the_run_is_an_exact_one(workdir):
    """The steps that were timed have left no trace."""
    path = train_tiny(workdir, "minutes", *EXACT, "--train.steps=auto", "--optim.warmup_steps=auto",
                      "--train.eval_interval=auto", "--train.minutes=0.0005")
    config = read_config(path / "config.yaml")
    assert config.train.minutes is None
    assert config.train.steps == max(read_metric(path))
    again = train_tiny(workdir, "as-many-steps", *EXACT, f"--train.steps={config.train.steps}",
                       f"--optim.warmup_steps={config.optim.warmup_steps}",
                       f"--train.eval_interval={config.train.eval_interval}")
    assert_equal_runs(path, again)


@pytest.fixture
def quarters(monkeypatch):
    """A clock that ticks a quarter of a second at every reading: at the start, and after a step."""
    clock = itertools.count(0, 0.25)
    monkeypatch.setattr(gyre.step.time, "perf_counter", lambda: next(clock))


def test_the_steps_fill_the_minutes_at_the_rate_measured(workdir, quarters, capfd):
    config = build_setup(workdir, "--train.steps=auto", "--optim.warmup_steps=auto",
                         "--train.minutes=0.5").config
    assert config.train.steps == 120
    assert config.optim.warmup_steps == 12
    assert "auto    train.steps 120, optim.warmup_steps 12" in capfd.readouterr().err


@pytest.mark.parametrize("seq_len, reason", [
    ("20", "chosen for this time"), ("auto", "chosen for this text and time")])
def test_what_the_text_has_not_decided_is_not_said_of_it(workdir, quarters, capfd, seq_len, reason):
    build_setup(workdir, "--train.steps=auto", "--optim.warmup_steps=auto", "--train.minutes=0.5",
                f"--data.seq_len={seq_len}", "--train.sample_tokens=0")
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("auto ")]
    assert line.endswith(f": {reason}")


@pytest.fixture
def fill_half_a_minute(workdir, monkeypatch):
    """Calls `resolve_auto`. A step takes 0.5 seconds, and 0.25 if it is compiled, which pays from
    `paying_steps` steps on.

    Gives the configuration, and for each timing whether it was compiled.
    """
    def complete(paying_steps):
        argv = tiny_argv(workdir, "--train.steps=auto", "--optim.warmup_steps=auto",
                         "--train.minutes=0.5", "--train.compile=auto")
        asked = resolve(argv, "")
        step_tokens = asked.config.train.batch_size * asked.config.data.seq_len
        least = training_flops(asked.config.model, paying_steps * step_tokens)
        timings = []

        def time_first_steps(resolved, world):
            timings.append(resolved.compute.compiled)
            return 0.25 if resolved.compute.compiled else 0.5

        monkeypatch.setattr(gyre.auto, "time_first_steps", time_first_steps)
        monkeypatch.setattr(gyre.auto, "matmul_rates", lambda *_, **__: [1.0])  # hardly any FLOP/s
        monkeypatch.setattr(gyre.auto, "resolve_compile",
                            lambda choice, device, dtype, flops: (flops >= least, ""))
        resolved = gyre.auto.resolve_auto(asked, ALONE)
        assert resolved.compute.compiled is resolved.config.train.compile
        return resolved.config, timings

    return complete


def test_steps_that_repay_it_are_timed_again_compiled(fill_half_a_minute):
    config, timings = fill_half_a_minute(paying_steps=60)
    assert timings == [False, True]
    assert config.train.compile is True
    assert config.train.steps == 120


def test_steps_that_are_compiled_at_once_are_timed_once(fill_half_a_minute):
    config, timings = fill_half_a_minute(paying_steps=0)
    assert timings == [True]
    assert config.train.compile is True
    assert config.train.steps == 120


def test_steps_that_do_not_repay_compiling_are_timed_once(fill_half_a_minute):
    config, timings = fill_half_a_minute(paying_steps=61)
    assert timings == [False]
    assert config.train.compile is False
    assert config.train.steps == 60


def test_all_processes_go_by_the_seconds_of_the_first(workdir, quarters, monkeypatch):
    """A step takes a quarter of a second here, and half a second there."""
    setup = build_setup(workdir)
    monkeypatch.setattr(World, "all_gather", lambda self, value: [0.5, value])
    assert gyre.auto.time_steps(setup, enough=1.0) == 0.5


@pytest.mark.parametrize("minutes, noted", [("0.16", True), ("0.17", False)])
def test_minutes_for_fewer_than_40_steps_are_noted(workdir, quarters, capfd, minutes, noted):
    """A step takes a quarter of a second."""
    build_setup(workdir, "--train.steps=auto", "--optim.warmup_steps=auto",
                f"--train.minutes={minutes}")
    note = "note: a model learns next to nothing in 38 steps: give more train.minutes\n"
    assert (note in capfd.readouterr().err) == noted


@pytest.mark.parametrize("threads, load, variable, noted", [
    (2, 8.0, None, True), (1, 8.0, None, False), (2, 2.0, None, False),
    (2, 8.0, "GOMP_SPINCOUNT", False), (2, 8.0, "OMP_WAIT_POLICY", False)])
def test_threads_that_spin_on_busy_cores_are_noted(
    monkeypatch, capsys, threads, load, variable, noted
):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if variable:
        monkeypatch.setenv(variable, "1000")
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    gyre.announce.note_busy_cores()
    assert ("with OMP_NUM_THREADS=1 before the command" in capsys.readouterr().err) == noted


@pytest.mark.parametrize("beside, words", [
    ("--optim.warmup_steps=121", r"optim.warmup_steps must be in \[0, 120\], not 121"),
    ("--train.keep=[121]", r"train.keep \[121\] names steps that train.steps 120 does not have")])
def test_numbers_that_need_more_steps_than_the_minutes_have_are_refused(
    workdir, quarters, beside, words
):
    start = "train.minutes 0.5 makes train.steps 120 here, and"
    with pytest.raises(UserError, match=f"^{start} {words}"):
        build_setup(workdir, "--train.steps=auto", "--train.minutes=0.5", beside)


@pytest.fixture
def timed(monkeypatch):
    """The numbers of the steps that are taken to time them. The first one is not timed."""
    numbers = []
    start_step = gyre.step.start_step

    def note(setup, step):
        numbers.append(step)
        return start_step(setup, step)

    monkeypatch.setattr(gyre.step, "start_step", note)
    return numbers


def test_steps_that_are_timed_stay_within_the_schedule(workdir, tmp_path, quarters, timed):
    """For half a minute, steps of 0.25 s are timed for 0.6 s. The schedule ends after two."""
    two_steps = tmp_path / "two.yaml"
    two_steps.write_text("train: {steps: 2}", encoding="utf-8")
    build_setup(workdir, f"--config={two_steps}", "--optim.warmup_steps=auto", "--train.steps=auto",
                "--train.minutes=0.5")
    assert timed == [0, 0, 1, 0]


def test_a_fiftieth_of_the_minutes_is_timed(workdir, quarters, timed):
    """Of two minutes 2.4 s, in which ten steps of 0.25 s end or begin."""
    build_setup(workdir, "--optim.warmup_steps=auto", "--train.steps=auto", "--train.minutes=2",
                "--train.batch_size=3")
    assert len(timed) == 1 + 10


def test_only_a_new_run_chooses_its_steps_by_minutes(workdir, capfd):
    path = train_tiny(workdir, "one-step", "--train.steps=1", "--optim.warmup_steps=0")
    said = resume_refusal(capfd, path, "--train.minutes", "1")
    assert "train.minutes is for a new run: with --resume give --train.steps" in said


# --- the estimate ---------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch):
    """The dtypes whose rates were measured, all of 1 GFLOP/s."""
    dtypes_so_far = []

    def matmul_rates(*_, training, dtypes):
        dtypes_so_far.extend(dtypes)
        return [1e9 for _ in dtypes]

    monkeypatch.setattr(gyre.auto, "matmul_rates", matmul_rates)
    return dtypes_so_far


def test_the_vocabulary_of_a_text_is_that_of_its_tokenizer(workdir):
    """A model may have more embeddings."""
    setup = build_setup(workdir, "--model.vocab_size=320")
    assert " for validation, vocabulary 300" in gyre.announce.describe_data(setup)


@pytest.mark.parametrize("seconds, words", [
    (7200.0, "epochs, going on after step 9, about 30 minutes from here"),
    (None, "epochs, going on after step 9)")])
def test_a_run_that_goes_on_says_after_which_step_and_how_long(workdir, capfd, seconds, words):
    setup = build_setup(workdir, "--train.steps=12", "--train.compile=false")
    setup.progress.step = 9
    start = resolve(tiny_argv(workdir, "--train.steps=12"), "")
    gyre.announce.print_setup(as_resolved(start, setup, expected_seconds=seconds), setup)
    assert words in capfd.readouterr().err


@pytest.mark.parametrize("eval_interval, words", [
    (1, "about 30 minutes from here, and about 70 minutes for validation"),
    (4, "about 30 minutes from here, and about 23 minutes for validation"),
    (100, "about 30 minutes from here, and about 23 minutes for validation"),
])
def test_long_validations_are_part_of_the_estimate(workdir, capfd, eval_interval, words):
    """Three of 12 steps of 40 tokens are left, and 3, 1 and 1 validations of 281 tokens, each of
    which takes a third as long: 7200 s * 281 / 480 for three of them."""
    options = ["--train.steps=12", "--train.batch_size=2", f"--train.eval_interval={eval_interval}",
               "--train.compile=false"]
    setup = build_setup(workdir, *options)
    setup.progress.step = 9
    start = resolve(tiny_argv(workdir, *options), "")
    gyre.announce.print_setup(as_resolved(start, setup, expected_seconds=7200.0), setup)
    assert words in capfd.readouterr().err


def test_the_estimate_counts_the_validation_before_a_fine_tuning(workdir):
    """Two validations of 281 tokens, and 12 steps of 40 tokens: 7200 s * 2 * 281 / 3 / 480."""
    options = ["--train.steps=12", "--train.batch_size=2", "--train.eval_interval=12",
               "--train.compile=false"]
    setup = build_setup(workdir, *options)
    start = resolve(tiny_argv(workdir, *options), "")
    tuned = Draft.of_final(replace(start.config, init_from="runs/base"))
    resolved = as_resolved(start, setup, expected_seconds=7200.0)
    fine_tuning = as_resolved(replace(start, draft=tuned), setup, expected_seconds=7200.0)
    without = gyre.announce.describe_duration(resolved, setup, validates_checkpoint=False)
    assert "for validation" not in without
    words = "about 2 hours, and about 47 minutes for validation"
    assert words in gyre.announce.describe_duration(fine_tuning, setup, validates_checkpoint=False)


def test_notes_on_a_prepared_text_are_said_in_each_training(workdir, tmp_path, capfd):
    """Once in each: by whoever prepares it, or before the first step."""
    text = (workdir / "text.txt").read_text(encoding="utf-8")
    rows = [json.dumps({"text": line}) for line in (text[:3000], text[3000:6000], "")]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    for _ in range(2):
        build_setup(workdir, f"--data.files={tmp_path}/a.jsonl", "--train.compile=false")
        printed = capfd.readouterr().err
        assert printed.count("note: 1 of 3 rows have no text in column text") == 1


@pytest.mark.parametrize("share, warns", [("0.1", True), ("0.3", False)])
def test_few_validation_tokens_are_said_to_choose_by_chance(workdir, capfd, share, warns):
    build_setup(workdir, f"--data.val_fraction={share}", "--train.compile=false")
    assert ("choose the best weights almost by chance" in capfd.readouterr().err) is warns


@pytest.mark.parametrize("dtype, dtypes", [
    ("auto", [torch.float32, torch.bfloat16]), ("float32", [torch.float32])])
def test_a_long_training_says_first_about_how_long(workdir, capfd, measured, dtype, dtypes):
    build_setup(workdir, f"--train.dtype={dtype}", "--train.steps=9000", "--train.compile=false")
    assert "epochs, about 2.3 hours" in capfd.readouterr().err
    assert measured == dtypes


def test_minutes_on_a_gpu_decide_whether_it_pays_to_compile(workdir, monkeypatch, measured):
    """However many steps the configuration has. No rate is measured."""
    flops = []

    def resolve_compile(choice, device, dtype, training_flops):
        flops.append(training_flops)
        return False, ""

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(gyre.auto, "resolve_compile", resolve_compile)
    card = World(0, 1, torch.device("cuda", 0))
    for steps in ("10", "20"):
        argv = tiny_argv(workdir, "--train.dtype=auto", "--train.steps", steps)
        config = resolve(argv, "").config
        config = replace(config, train=replace(config.train, minutes=600.0))
        gyre.auto.choose_compute(config, card)
    first, second = flops
    assert first == second
    assert first > 1e15
    assert measured == []


class SecondCard(World):
    """The second of two processes, whose card is newer than that of the first."""

    def all_gather(self, value):
        if isinstance(value, tuple):
            return [(torch.float16, "float16: an old card"), value]
        return [value, value]

    def connect(self):
        pass  # there is no first process


def test_all_cards_compute_in_the_dtype_of_the_first(workdir, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(gyre.memory, "check_memory", lambda *_: None)
    start = resolve(tiny_argv(workdir, "--train.dtype=auto", "--train.compile=false"), "")
    second = SecondCard(1, 2, torch.device("cuda", 1), is_main=False)
    resolved = gyre.auto.resolve_auto(start, second)
    assert resolved.compute.dtype == torch.float16
    assert resolved.config.train.dtype == "float16"


def test_a_short_training_measures_no_rate_and_says_no_time(workdir, capfd, measured):
    build_setup(workdir, "--train.steps=9", "--train.compile=false")
    assert "epochs)" in capfd.readouterr().err
    assert measured == []


@pytest.mark.parametrize("epochs, words", [
    (12.34, "12.3 epochs"), (1.0, "1.0 epochs"), (0.996, "1.0 epochs"), (0.994, "0.99 epochs"),
    (0.0123, "0.012 epochs"), (0.001, "0.001 epochs"), (1e-5, "less than 0.001 epochs")])
def test_epochs_are_said_without_exponents(epochs, words):
    assert gyre.announce.format_epochs(epochs) == words


# --- the learning rate ----------------------------------------------------------------------------


@pytest.mark.parametrize("options, count", [
    (["--optim.warmup_steps=12"], 1), (["--optim.warmup_steps=11"], 0),
    (["--optim.schedule=wsd", "--train.steps=2", "--optim.warmup_steps=0"], 1),
    (["--optim.schedule=wsd", "--train.steps=3", "--optim.warmup_steps=0"], 0)], ids=str)
def test_a_rate_that_never_falls_is_said(workdir, capfd, options, count):
    build_setup(workdir, *options)
    words = "no step is left in which the learning rate falls to optim.final_lr 0.1"
    assert capfd.readouterr().err.count(words) == count


def test_with_wsd_a_longer_cooldown_lets_the_rate_fall(workdir, capfd):
    build_setup(workdir, "--optim.schedule=wsd", "--train.steps=2", "--optim.warmup_steps=0")
    assert "give more train.steps, or a larger optim.cooldown" in capfd.readouterr().err


def test_with_wsd_no_cooldown_helps_where_all_steps_warm_up(workdir, capfd):
    build_setup(workdir, "--optim.schedule=wsd", "--train.steps=2", "--optim.warmup_steps=2",
                "--optim.cooldown=1")
    assert "give more train.steps, or fewer optim.warmup_steps" in capfd.readouterr().err


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seq_len, checked", [("auto", 0), ("64", 2)])
def test_memory_is_checked_once_all_sizes_are_known(workdir, monkeypatch, seq_len, checked):
    """For a batch, and for the model. Before the text is read, numbers chosen for it are at their
    largest."""
    calls = []
    monkeypatch.setattr(gyre.memory, "check_memory", lambda *asked: calls.append(asked))
    argv = tiny_argv(workdir, f"--data.seq_len={seq_len}", "--train.sample_tokens=0")
    gyre.auto.check_start(resolve(argv, ""), ALONE)
    assert len(calls) == checked


def test_compiled_steps_that_do_not_fit_stay_eager(fill_half_a_minute, monkeypatch):
    def count_least_bytes(config, world, dtype, compiled):
        return 1_000 if compiled else 500

    monkeypatch.setattr(gyre.auto, "count_least_bytes", count_least_bytes)
    monkeypatch.setattr(gyre.auto, "memory_of", lambda _: 999.0)
    config, timings = fill_half_a_minute(paying_steps=60)
    assert config.train.compile is False
    assert timings == [False]


def test_compiling_that_was_asked_for_is_refused_if_it_does_not_fit(workdir, monkeypatch):
    def count_least_bytes(config, world, dtype, compiled):
        return 2**62 if compiled else 500

    monkeypatch.setattr(gyre.memory, "count_least_bytes", count_least_bytes)
    monkeypatch.setattr(gyre.auto, "resolve_compile", lambda *_: (True, ""))
    with pytest.raises(UserError, match="choose a smaller model"):
        build_setup(workdir, "--train.compile=true")


@pytest.mark.parametrize("paying_steps, checked", [
    (0, [False, True]), (60, [False, False]), (61, [False, False])])
def test_memory_is_checked_for_steps_as_they_are_computed(
    fill_half_a_minute, monkeypatch, paying_steps, checked
):
    """First before the text is prepared, as if nothing was compiled."""
    calls = []
    monkeypatch.setattr(gyre.auto, "check_fits",
                        lambda config, world, dtype, compiled: calls.append(compiled))
    fill_half_a_minute(paying_steps)
    assert calls == checked


@pytest.mark.parametrize("options", [
    ["--optim.lr=0"], ["--optim.optimizer=muon", "--optim.lr=0"],
    ["--optim.optimizer=muon", "--optim.lr=0", "--optim.muon_lr=0"]])
def test_rates_that_change_no_weight_are_refused(workdir, capfd, options):
    assert exit_code(train.main, *tiny_argv(workdir, *options)) == 2
    assert "optim.lr 0 would change no weight" in capfd.readouterr().err


# --- TF32 -----------------------------------------------------------------------------------------


def test_tf32_is_refused_where_it_has_no_effect(workdir, capfd):
    assert exit_code(train.main, *tiny_argv(workdir, "--train.tf32=true")) == 2
    assert "train.tf32 has no effect on cpu: it is for CUDA" in capfd.readouterr().err


def test_a_run_of_tf32_goes_on_without_it_on_a_cpu(workdir):
    path = train_tiny(workdir, "tf32", "--train.steps=1", "--optim.warmup_steps=0")
    start = resolve(["--resume", str(path), "--train.steps=2"], "")
    on_cuda = replace(start.config.train, tf32=True)
    config = replace(start.config, train=on_cuda)
    gyre.auto.check_start(replace(start, draft=Draft.of_final(config)), ALONE)
    compute, _ = gyre.auto.choose_compute(config, ALONE)
    assert compute.tf32 is False


def test_tf32_is_part_of_how_a_training_computes(workdir, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    argv = tiny_argv(workdir, "--train.tf32=true", "--train.compile=false")
    card = World(0, 1, torch.device("cuda", 0))
    compute, _ = gyre.auto.choose_compute(resolve(argv, "").config, card)
    assert compute.tf32 is True
