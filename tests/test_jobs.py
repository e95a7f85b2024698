"""What a worker does: a training begins, goes on or is left as it is, and its result is read."""

import gc
import math
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import MagicMock, Mock

import msgspec
import pytest

import train
from ablation import jobs, record
from ablation.jobs import (
    Job,
    RecordJob,
    Training,
    TuningJob,
    do_job,
    finish_training,
    has_diverged,
    to_argv,
)
from ablation.record import End, measure_runs
from data.dataset import locate
from data.sources import DataConfig
from errors import UserError
from files import Busy, locked
from gyre import rundir
from gyre.checkpoint import WEIGHTS
from gyre.code import KIND
from gyre.rundir import RunDir
from gyre.signals import StopSignal
from train import Outcome

LIVE = {"name": "live", "train.steps": 3}


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """`finish_training` collects garbage, and would walk over all that other tests have made."""
    gc.freeze()


def test_a_training_becomes_a_command_line():
    training = Training(folder="runs/a", options={"name": "a", "train.keep": [1, 2]})
    assert to_argv(training) == ["--name=a", "--train.keep=[1, 2]"]


def test_a_branch_becomes_a_command_line():
    training = Training(folder="runs/b", options={"name": "b"}, trunk="runs/a", at=2)
    assert to_argv(training) == ["--branch-from", "runs/a", "--at", "2", "--name=b"]


class Called(list):
    """Stands in for `train.run_training`: a list of the command lines that it was called with."""

    def __call__(self, start, stop):
        self.append(start.argv)
        return Outcome(Path(start.default_name))


@pytest.fixture
def called():
    return Called()


@pytest.fixture
def with_text(workdir):
    """LIVE with a small text, which is prepared where a training begins."""
    return LIVE | {"data.vocab_size": 300, "data.files": [str(workdir / "text.txt")],
                   "data.prepared": str(workdir / "prepared")}


def save_step(run: RunDir, step: int) -> None:
    """Give a run a checkpoint whose file of weights is empty."""
    run.checkpoints.save("last", lambda folder: (folder / WEIGHTS).touch(),
                         {"progress": {"step": step}})


def test_a_training_without_a_checkpoint_begins_anew(new_run, called, with_text):
    run = new_run("live")
    training = Training(folder=str(run.path), options=with_text)
    assert finish_training(called, training, StopSignal()) == "finished"
    assert not run.path.exists()  # it was removed; `called` makes no new one
    assert called == [to_argv(training)]
    assert called[0][:2] == ["--name=live", "--train.steps=3"]


def test_a_training_goes_on_from_its_last_checkpoint(new_run, called):
    run = new_run("live")
    save_step(run, 2)
    training = Training(folder=str(run.path), options=LIVE)
    assert finish_training(called, training, StopSignal()) == "finished"
    assert called == [["--resume", str(run.path)]]


def test_a_training_does_not_go_on_with_an_edited_encoding(new_run, called, monkeypatch):
    run = new_run("live")
    save_step(run, 2)
    monkeypatch.setattr(rundir, "hash_encoding", lambda position: f"{KIND}:other")
    with pytest.raises(UserError, match=f"position rope has changed since {run.path} was made: un"):
        finish_training(called, Training(folder=str(run.path), options=LIVE), StopSignal())
    assert called == []


def test_a_branch_does_not_leave_a_trunk_of_an_edited_encoding(new_run, called, monkeypatch):
    trunk = new_run("live")
    monkeypatch.setattr(rundir, "hash_encoding", lambda position: f"{KIND}:other")
    branch = Training(folder="runs/b", options=LIVE, trunk=str(trunk.path), at=2)
    with pytest.raises(UserError, match="position rope has changed"):
        finish_training(called, branch, StopSignal())


def test_a_training_that_is_finished_is_left_as_it_is(new_run, called):
    run = new_run("live")
    save_step(run, 3)
    training = Training(folder=str(run.path), options=LIVE)
    assert finish_training(called, training, StopSignal()) == "finished"
    assert called == []


def test_a_finished_training_whose_last_checkpoint_is_damaged_goes_on(new_run, called):
    run = new_run("live")
    save_step(run, 2)
    save_step(run, 3)
    (run.path / "last" / WEIGHTS).write_bytes(b"damaged")
    training = Training(folder=str(run.path), options=LIVE)
    assert finish_training(called, training, StopSignal()) == "finished"
    assert called == [["--resume", str(run.path)]]


def test_a_run_that_was_trained_further_by_hand_is_refused(new_run, called):
    run = new_run("live")
    save_step(run, 4)
    with pytest.raises(UserError, match="live has taken 4 steps, and the study wants 3: remove it"):
        finish_training(called, Training(folder=str(run.path), options=LIVE), StopSignal())
    assert called == []


def test_a_training_that_diverged_is_not_begun_again(new_run, called):
    run = new_run("live")
    save_step(run, 2)
    run.log({"step": 2, "diverged": 1})
    training = Training(folder=str(run.path), options=LIVE)
    assert finish_training(called, training, StopSignal()) == "diverged"
    assert called == []


def test_a_removal_that_was_interrupted_is_done_again(new_run, called, with_text, monkeypatch):
    """A run without a checkpoint is renamed, removed, and trained anew.

    If the removal ends after the renaming, the training begins anew all the same, and the next
    removal of a run of this name also removes what was left.
    """
    live = new_run("live").path
    training = Training(folder=str(live), options=with_text)

    def remove_a_part(path):
        if path.exists():  # not at the first call, which removes what an earlier removal has left
            (path / "run.json").unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "remove", remove_a_part)
        with pytest.raises(KeyboardInterrupt):
            finish_training(called, training, StopSignal())
    assert finish_training(called, training, StopSignal()) == "finished"
    assert len(called) == 1
    new_run("live")
    assert finish_training(called, training, StopSignal()) == "finished"
    assert [*live.parent.iterdir()] == []


@pytest.mark.slow
def test_a_run_that_another_process_trains_is_not_removed(new_run, called, with_text):
    """It has no checkpoint yet, and the scheduler has lost its worker."""
    live = new_run("live").path
    training = Training(folder=str(live), options=with_text)
    waiting = threading.Thread(target=finish_training, args=[called, training, StopSignal()])
    with locked(live, "busy", wait=False):
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        assert live.exists()
    waiting.join()
    assert not live.exists()  # nobody trains it now, and it starts anew


@pytest.fixture
def asked_to_stop():
    """What stops a training, as it is when somebody has asked for it."""
    stop = StopSignal()
    stop.number = signal.SIGTERM
    return stop


def test_a_stopped_job_does_not_wait_for_a_run(new_run, called, asked_to_stop):
    live = new_run("live").path
    training = Training(folder=str(live), options=LIVE)
    with (ThreadPoolExecutor(1) as other, locked(live, "busy"),
          pytest.raises(Busy, match="waiting for it, until it was stopped")):
        other.submit(finish_training, called, training, asked_to_stop).result(timeout=5)
    assert called == []


def test_a_stopped_job_does_not_wait_for_its_text(workdir, tmp_path, called, asked_to_stop):
    text = DataConfig(source="files", files=[str(workdir / "text.txt")], prepared=str(tmp_path))
    folder, _ = locate(text)
    training = Training(folder=str(tmp_path / "live"), options=LIVE | {
        "data.source": text.source, "data.files": text.files, "data.prepared": text.prepared})
    with (ThreadPoolExecutor(1) as other, locked(folder, "busy"),
          pytest.raises(UserError, match="waiting for another process: .*, until it was stopped")):
        other.submit(finish_training, called, training, asked_to_stop).result(timeout=5)
    assert called == []


def test_a_stopped_job_does_not_wait_for_another_worker(tmp_path, asked_to_stop):
    job = Job(name="a", trainings=[])
    with (ThreadPoolExecutor(1) as other, locked((tmp_path / "logs" / "a").resolve(), "busy"),
          pytest.raises(Busy)):
        other.submit(do_job, None, str(tmp_path), job, asked_to_stop).result(timeout=5)


def test_a_rate_is_judged_by_the_loss_at_the_end(new_run, monkeypatch, tmp_path):
    run = new_run("tuned")
    for step, loss in enumerate((4.0, 2.0, 3.0), 1):
        run.log({"step": step, "val/loss": loss})
    run.log({"step": 4, "train/loss": 1.0})
    monkeypatch.setattr(jobs, "finish_training", lambda run_training, training, stop: "finished")
    training = Training(folder=str(run.path), options={})
    job = TuningJob(name="tune", trainings=[training], arm="rope")
    assert do_job(train.run_training, str(tmp_path), job, StopSignal()) == 3.0


def tiny_training(workdir: Path, name: str, **options: object) -> Training:
    """A training of 10 steps."""
    shared = {"data.files": [str(workdir / "text.txt")],
              "data.prepared": str(workdir / "prepared"),
              "data.vocab_size": 300, "data.seq_len": 20, "model.dim": 32, "model.n_layers": 2,
              "model.n_heads": 2, "optim.warmup_steps": 1, "train.batch_size": 9,
              "train.eval_interval": 5, "train.sample_tokens": 0, "train.dtype": "float32",
              "train.device": "cpu", "log.wandb": "disabled", "log.runs": str(workdir / "runs")}
    return Training(folder=str(workdir / "runs" / name),
                    options={**shared, "name": name, "train.steps": 10, **options})


@pytest.mark.slow
def test_a_run_that_diverged_has_no_record(workdir, tmp_path):
    rates = {"optim.lr": 1e6, "optim.weight_decay": 1e6}
    training = tiny_training(workdir, "lost", **rates)
    job = RecordJob(name="lost-s0", trainings=[training], arm="lost", max_spans=4, device="cpu")
    assert do_job(train.run_training, str(tmp_path), job, StopSignal()) is None
    assert has_diverged(Path(training.folder))


def test_a_run_is_trained_to_its_last_step(workdir):
    training = tiny_training(workdir, "fine")
    assert finish_training(train.run_training, training, StopSignal()) == "finished"
    assert jobs.resumable_step(Path(training.folder)) == 10


def test_a_training_of_another_text_than_the_study_began_with_is_refused(workdir):
    training = msgspec.structs.replace(tiny_training(workdir, "other-text"), text_sha256="another")
    with pytest.raises(UserError, match="the text of other-text is not that with which the study"):
        finish_training(train.run_training, training, StopSignal())
    assert not Path(training.folder).exists()


def test_a_run_of_another_text_than_the_study_began_with_does_not_go_on(workdir):
    training = tiny_training(workdir, "earlier-text")
    finish_training(train.run_training, training, StopSignal())
    longer = msgspec.structs.replace(training, text_sha256="another",
                                     options=training.options | {"train.steps": 12})
    with pytest.raises(UserError, match="the text of earlier-text is not that with which the stud"):
        finish_training(train.run_training, longer, StopSignal())


def test_a_finished_run_of_another_text_is_not_measured(workdir, tmp_path):
    training = tiny_training(workdir, "measured-text")
    finish_training(train.run_training, training, StopSignal())
    other = msgspec.structs.replace(training, text_sha256="another")
    job = TuningJob(name="tune", trainings=[other], arm="rope")
    with pytest.raises(UserError, match="the text of measured-text is not that with which the stu"):
        do_job(train.run_training, str(tmp_path), job, StopSignal())


def test_a_finished_run_of_an_edited_encoding_is_not_measured(workdir, tmp_path, monkeypatch):
    training = tiny_training(workdir, "edited-later")
    finish_training(train.run_training, training, StopSignal())
    monkeypatch.setattr(rundir, "hash_encoding", lambda position: f"{KIND}:other")
    job = TuningJob(name="tune", trainings=[training], arm="rope")
    with pytest.raises(UserError, match="position rope has changed since .*edited-later was made"):
        do_job(train.run_training, str(tmp_path), job, StopSignal())


def test_a_run_without_its_validation_losses_is_to_be_removed(workdir):
    training = tiny_training(workdir, "lossless")
    finish_training(train.run_training, training, StopSignal())
    (Path(training.folder) / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="lossless has lost the losses of its validations: remove"):
        jobs.last_validation(RunDir.open(training.folder))


@pytest.mark.slow
def test_a_job_that_another_worker_does_is_waited_for(tmp_path, monkeypatch):
    """The scheduler has lost that worker, which still trains."""
    done = []
    monkeypatch.setattr(jobs, "train_and_measure",
                        lambda run_training, job, stop: done.append(job.name))
    job = Job(name="a", trainings=[])
    waiting = threading.Thread(target=do_job, args=[None, str(tmp_path), job, StopSignal()])
    with locked((tmp_path / "logs" / "a").resolve(), "busy", wait=False):
        waiting.start()
        waiting.join(0.3)
        assert done == []
    waiting.join()
    assert done == ["a"]


def test_the_log_of_a_job_has_the_traceback_of_an_error(tmp_path, monkeypatch):
    def fail(run_training, job, stop):
        raise RuntimeError("broken")

    monkeypatch.setattr(jobs, "train_and_measure", fail)
    with pytest.raises(RuntimeError):
        do_job(None, str(tmp_path), Job(name="a", trainings=[]), StopSignal())
    log = (tmp_path / "logs" / "a.log").read_text(encoding="utf-8")
    assert "Traceback" in log
    assert log.endswith("RuntimeError: broken\n")


def test_a_job_that_is_done_again_keeps_its_log(tmp_path, monkeypatch):
    printed = iter(["first", "second"])
    monkeypatch.setattr(jobs, "train_and_measure",
                        lambda run_training, job, stop: print(next(printed)))
    for _ in range(2):
        do_job(None, str(tmp_path), Job(name="a", trainings=[]), StopSignal())
    assert (tmp_path / "logs" / "a.log").read_text(encoding="utf-8") == "first\nsecond\n"


def test_a_training_that_was_stopped_is_reported_as_such(new_run, with_text):
    run = new_run("live")
    training = Training(folder=str(run.path), options=with_text)

    def stopped(start, stop):
        return Outcome(run.path, signal=15)

    with pytest.raises(UserError, match="^live was stopped, and has saved$"):
        finish_training(stopped, training, StopSignal())


def test_steps_that_were_skipped_are_no_divergence(new_run):
    run = new_run("skipped")
    run.log({"step": 31, "train/grad_norm": math.nan})
    run.log({"step": 32, "train/grad_norm": math.nan})
    assert not has_diverged(run.path)


def test_a_run_that_failed_is_an_error(workdir):
    with pytest.raises(UserError, match="bad failed, and the study stopped: model.dim 33 "):
        finish_training(train.run_training, tiny_training(workdir, "bad", **{"model.dim": 33}),
                        StopSignal())


def test_a_run_without_the_checkpoints_that_it_kept_is_refused(new_run):
    run = new_run("emptied")
    save_step(run, 3)
    with pytest.raises(UserError, match="has lost the checkpoints that it kept: remove"):
        measure_runs("rope", 4, "cpu", RunDir.open(run.path))


def test_a_record_is_of_the_last_weights(monkeypatch):
    """The best weights are those with the lowest validation loss. A record of them would report a
    loss that is too low."""
    opened = []

    def open_scorer(run, which, device):
        opened.append(which)
        raise UserError("seen")

    monkeypatch.setattr(record.measure, "open_scorer", open_scorer)
    for measure_run in (record.measure_end, record.follow):
        with pytest.raises(UserError, match="seen"):
            measure_run(None, 1, "cpu")
    assert opened == ["last", "last"]


def test_a_record_has_the_ends_of_its_runs_from_short_to_long(monkeypatch):
    """The runs are given from long to short. The first is the trunk, which `measure` measures. Its
    branches are measured by `measure_end`."""
    other_values = {"loss": 2.0, "se": None, "stretches": [], "shift": None}
    monkeypatch.setattr(record.measure, "measure",
                        lambda *args, **options: {"tokens": 400, **other_values})
    monkeypatch.setattr(record, "measure_end", lambda run, *args: End(run.tokens, **other_values))
    monkeypatch.setattr(record, "hash_origin", lambda run: {})
    monkeypatch.setattr(record, "follow", lambda *args: [])
    trunk = MagicMock(record={"git": None, "torch": "2.13.0"})
    measured = measure_runs("rope", 4, "cpu", trunk, Mock(tokens=200), Mock(tokens=100))
    assert [end["tokens"] for end in measured["horizons"]] == [100, 200, 400]
