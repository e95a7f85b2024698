"""What happens to the jobs of a study when a worker is lost, fails or is stopped."""

import asyncio
import os
import signal
import socket
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any
from unittest.mock import Mock

import dask
import pytest
from builders import ROOT, error_lines, exit_code, wait_for
from counted_job import begin_when_told, count_and_wait, wait_and_save
from distributed import Client, LocalCluster, get_worker
from tiny_study import N_WORDS, study_arguments, tiny_tier  # noqa: F401  N_WORDS is for `workdir`

import ablate
from ablation import runner
from ablation.jobs import Job, do_job_on_worker, request_stop, resumable_step
from ablation.options import resolve
from ablation.runner import run_jobs, stop_jobs, submit_jobs
from errors import UserError
from gyre.signals import StopSignal


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with tiny_tier():
        yield


def local_cluster(processes: bool, n_workers: int = 1) -> LocalCluster:
    return LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=processes,
                        protocol="tcp://", host="127.0.0.1", dashboard_address="127.0.0.1:0")


def addresses(client: Client) -> set[str]:
    """The addresses of the workers."""
    return set(client.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.slow
def test_a_recorded_job_is_not_done_again_without_its_worker(tmp_path, monkeypatch):
    """The worker that had the result of the first job is killed while the second job runs."""
    monkeypatch.setattr(runner, "do_job_on_worker", count_and_wait)
    recorded = {}
    monkeypatch.setattr(runner, "keep_result", lambda command, plan, job, result:
                        recorded.update({job.name: result}))
    (tmp_path / "first.go").touch()

    with local_cluster(processes=True, n_workers=2) as cluster, Client(cluster) as client:
        def lose_worker() -> None:
            wait_for(lambda: "first" in recorded and (tmp_path / "second.runs").exists())
            before = addresses(client)
            process = recorded["first"]  # a job returns its worker's
            os.kill(process, signal.SIGKILL)
            wait_for(lambda: not addresses(client) <= before)  # another worker replaces it
            # A job of the lowest priority: whatever else there was to do is done by then.
            client.submit(os.getpid, priority=-1000).result()
            (tmp_path / "second.go").touch()

        losing = threading.Thread(target=lose_worker)
        losing.start()
        jobs = [Job(name="first", trainings=[]), Job(name="second", trainings=[])]
        assert run_jobs(None, Mock(path=tmp_path), Mock(), client, jobs)
        losing.join()
    assert recorded.keys() == {"first", "second"}
    assert (tmp_path / "first.runs").read_text(encoding="utf-8") == "run\n"


def test_a_worker_begins_jobs_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "do_job_on_worker", begin_when_told)
    jobs = [Job(name=name, trainings=[]) for name in ("a", "b", "c", "d")]
    with local_cluster(processes=False) as cluster, Client(cluster) as client:
        pending = submit_jobs(None, Mock(path=tmp_path), client, jobs)
        (tmp_path / "go").touch()
        client.gather([*pending])
    assert (tmp_path / "begun").read_text(encoding="utf-8") == "a\nb\nc\nd\n"


class WorkerOfOneJob:
    """What `request_stop` sees of a Dask worker that does the job `key`."""

    def __init__(self, key: str):
        self.state = Mock(executing=[Mock(key=key)])
        self.stop_of_job = StopSignal()


def test_a_worker_is_told_to_stop_the_job_that_it_does():
    worker = WorkerOfOneJob("a-1")
    assert request_stop({"a-1", "b-1"}, worker) == {"a-1"}
    assert worker.stop_of_job.number == signal.SIGTERM


def test_a_worker_goes_on_with_the_job_of_another_study():
    worker = WorkerOfOneJob("other-1")
    assert request_stop({"a-1", "b-1"}, worker) == set()
    assert worker.stop_of_job.number == 0


def test_a_worker_remembers_the_jobs_of_every_study_that_stops():
    worker = WorkerOfOneJob("other-1")
    worker.stopped_keys = {"a-1"}
    request_stop({"b-1"}, worker)
    assert worker.stopped_keys == {"a-1", "b-1"}


def do_second_job(train: Any, folder: str, job: Job) -> Any:
    """Begin a job on a worker that was told to stop jobs while it did an earlier one."""
    worker = get_worker()
    request_stop({str(worker.get_current_task())}, worker)
    return do_job_on_worker(train, folder, job)


def test_a_stopped_worker_begins_no_other_job_of_the_study(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "do_job_on_worker", do_second_job)
    job = Job(name="late", trainings=[])
    with (local_cluster(processes=False) as cluster, Client(cluster) as client,
          pytest.raises(UserError, match="late was stopped before it began")):
        run_jobs(None, Mock(path=tmp_path), Mock(), client, [job])


class WorkerToldLate(WorkerOfOneJob):
    """It is told to stop its job right after the job has looked whether it was."""

    looked = False
    keys: set[str] = set()

    def get_current_task(self) -> str:
        return "a-1"

    @property
    def stopped_keys(self) -> set[str]:
        keys = self.keys
        if not self.looked:
            self.looked = True
            request_stop({"a-1"}, self)
        return keys

    @stopped_keys.setter
    def stopped_keys(self, keys: set[str]) -> None:
        self.keys = keys


def test_a_worker_told_as_it_begins_a_job_stops_it(monkeypatch):
    monkeypatch.setattr("distributed.get_worker", lambda: WorkerToldLate("a-1"))
    monkeypatch.setattr("ablation.jobs.do_job", lambda train, folder, job, stop: stop.number)
    assert do_job_on_worker(None, "", Job(name="a", trainings=[])) == signal.SIGTERM


def stopped_by(run: Any) -> tuple[list[str], list[str], set[str]]:
    """Jobs that stop_jobs leaves, the keys that it cancels, and the silent workers.

    `run` answers in place of two workers: one does "answering" and
    answers, the other is to do "elsewhere".
    """
    names = ("elsewhere", "waiting", "answering")
    futures = {name: Mock(key=name, done=lambda: False) for name in names}
    pending = {future: Job(name=name, trainings=[]) for name, future in futures.items()}

    async def processing() -> dict[str, tuple[str, ...]]:
        return {"tcp://alive": ("answering",), "tcp://other": ("elsewhere",)}

    client = Mock(run=run, processing=processing)
    client.sync = lambda function, *args, callback_timeout: asyncio.run(function(*args))
    silent: set[str] = set()
    stop_jobs(client, pending, silent)
    cancelled = client.cancel.call_args.args[0]
    return ([job.name for job in pending.values()], [future.key for future in cancelled], silent)


def test_the_jobs_of_a_worker_that_is_being_lost_are_not_cancelled():
    """Another worker will get them."""
    async def run(function, keys, workers, on_error):
        return {"tcp://alive": {"answering"}} if workers == ["tcp://alive"] else {}

    assert stopped_by(run) == (["elsewhere", "answering"], ["waiting"], set())


def test_nobody_waits_for_the_jobs_of_a_worker_that_hangs(monkeypatch):
    monkeypatch.setattr(runner, "ANSWER_SECONDS", 0.1)

    async def run(function, keys, workers, on_error):
        if workers == ["tcp://other"]:
            await asyncio.Event().wait()
        return {"tcp://alive": {"answering"}}

    assert stopped_by(run) == (["answering"], ["elsewhere", "waiting"], {"tcp://other"})


@pytest.mark.slow
def test_a_study_that_is_stopped_goes_without_a_frozen_worker(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "do_job_on_worker", wait_and_save)
    monkeypatch.setattr(runner, "ANSWER_SECONDS", 3)

    def freeze_and_interrupt() -> None:
        files = [tmp_path / "first.pid", tmp_path / "second.pid"]
        wait_for(lambda: all(file.exists() and file.stat().st_size > 0 for file in files))
        os.kill(int(files[0].read_text(encoding="utf-8")), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=freeze_and_interrupt).start()
    jobs = [Job(name=name, trainings=[]) for name in ("first", "second", "third")]
    with (local_cluster(processes=True, n_workers=2) as cluster, Client(cluster) as client,
          pytest.raises(UserError, match="no answer from tcp://127.0.0.1:[0-9]+ within 3 seconds")):
        run_jobs(None, Mock(path=tmp_path), Mock(), client, jobs)
    assert [file.name for file in tmp_path.glob("*.saved")] == ["second.saved"]
    assert not (tmp_path / "third.pid").exists()


@pytest.fixture
def scheduler(tmp_path):
    """A Dask scheduler in a process of its own, with a worker; and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    host, port = address.split(":")
    command = [sys.executable, "-m", "dask"]
    started = [Popen([*command, "scheduler", "--host", host, "--port", port, "--no-dashboard"],
                     cwd=ROOT, stderr=DEVNULL)]
    started.append(Popen([*command, "worker", f"tcp://{address}", "--nthreads", "1", "--no-nanny",
                          "--local-directory", str(tmp_path)], cwd=ROOT, stderr=DEVNULL))
    yield started[0], f"tcp://{address}"
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_end_of_the_scheduler_is_an_error_of_one_line(workdir, tmp_path, capsys, scheduler):
    process, address = scheduler
    argv = study_arguments(workdir, "--scheduler", address, "--log.runs", str(tmp_path))

    def end_scheduler() -> None:
        wait_for((tmp_path / "ablation-smoke" / "sin-s0-25k" / "last").exists)
        process.kill()

    threading.Thread(target=end_scheduler).start()
    lines = error_lines(capsys, ablate.main, *argv)
    assert lines[-1].startswith(f"error: the scheduler {address} has ended: ")


def test_the_end_of_workers_of_our_own_names_no_scheduler():
    client = Mock(status="closed")
    command = Mock(options=Mock(scheduler=None))
    with (pytest.raises(UserError, match="^the worker processes have ended: give the same command"),
          runner.explaining_lost_scheduler(client, command)):
        raise CancelledError("job")


@pytest.mark.slow
def test_ctrl_c_ends_a_study_whose_scheduler_is_frozen(
    workdir, tmp_path, capsys, monkeypatch, scheduler
):
    monkeypatch.setattr(runner, "ANSWER_SECONDS", 2)
    process, address = scheduler
    argv = study_arguments(workdir, "--scheduler", address, "--log.runs", str(tmp_path))

    def freeze_and_interrupt() -> None:
        wait_for((tmp_path / "ablation-smoke" / "sin-s0-25k" / "last").exists)
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=freeze_and_interrupt).start()
    lines = error_lines(capsys, ablate.main, *argv)
    assert lines[-1].startswith("error: no answer from the scheduler within 4 seconds, ")


def fail(train: None, folder: str, job: Job) -> None:
    raise OSError("disk\nfull")


def test_a_job_that_fails_is_an_error_of_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "do_job_on_worker", fail)
    job = Job(name="a", trainings=[])
    with (local_cluster(processes=False) as cluster, Client(cluster) as client,
          pytest.raises(UserError, match="^disk$")):
        run_jobs(None, Mock(path=tmp_path), Mock(), client, [job])


def finish_beside_another(train: None, folder: str, job: Job) -> None:
    """Return of "first" while "second" runs, which saves when it is told to stop."""
    if job.name == "second":
        wait_and_save(train, folder, job)
    wait_for(Path(folder, "second.pid").exists)


def test_a_result_that_cannot_be_kept_lets_the_others_save(tmp_path, monkeypatch):
    def keep_result(command, plan, job, result):
        raise UserError("cannot write results/first.json: No space left on device")

    monkeypatch.setattr(runner, "do_job_on_worker", finish_beside_another)
    monkeypatch.setattr(runner, "keep_result", keep_result)
    jobs = [Job(name="first", trainings=[]), Job(name="second", trainings=[])]
    with (local_cluster(processes=False, n_workers=2) as cluster, Client(cluster) as client,
          pytest.raises(UserError, match="^cannot write results/first.json: No space left")):
        run_jobs(None, Mock(path=tmp_path), Mock(), client, jobs)
    assert (tmp_path / "second.saved").exists()


def test_the_first_of_two_results_that_cannot_be_kept_is_named(monkeypatch):
    errors = [UserError("first"), UserError("second")]
    monkeypatch.setattr(runner, "keep_result", Mock(side_effect=errors))
    futures = [Mock(status="finished"), Mock(status="finished")]
    running = runner.RunningJobs(Mock(), Mock(), dict.fromkeys(futures, Mock()), bar=Mock())
    for future in futures:
        running.collect(future)
    with pytest.raises(UserError, match="^first$"):
        running.raise_errors()


@pytest.mark.slow
def test_the_address_of_a_scheduler_needs_a_port(workdir, tmp_path, capsys):
    argv = study_arguments(workdir, "--scheduler", "nowhere", "--log.runs", str(tmp_path))
    assert "missing port" in error_lines(capsys, ablate.main, *argv)[-1]


def test_a_scheduler_that_does_not_answer_is_named(workdir, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    argv = study_arguments(workdir, "--scheduler", address, "--log.runs", str(tmp_path))
    with (dask.config.set({"distributed.comm.timeouts.connect": "50ms"}), ExitStack() as held,
          pytest.raises(UserError, match=f"^--scheduler {address}: Timed out .*: start a sch")):
        runner.open_client(held, resolve(argv))


@pytest.mark.slow
def test_a_study_that_is_stopped_saves_and_can_go_on(workdir, tmp_path):
    """The workers of a scheduler live on, and nothing in them remembers the stop."""
    with local_cluster(processes=False) as cluster:
        study = tmp_path / "ablation-smoke"
        argv = study_arguments(workdir, "--scheduler", cluster.scheduler_address,
                               "--log.runs", str(tmp_path))

        def interrupt() -> None:
            wait_for((study / "sin-s0-25k" / "last").exists)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        assert exit_code(ablate.main, *argv) == 130
        assert 0 < resumable_step(study / "sin-s0-25k") < 100
        assert not (study / "rope-s0-25k").exists()  # its job waited, and was cancelled
        assert exit_code(ablate.main, *argv) == 0
