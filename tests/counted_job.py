"""Jobs that leave files behind, for workers that are killed or frozen."""

import os
from pathlib import Path
from typing import Any

from builders import wait_for
from distributed import get_worker

from ablation.jobs import Job
from errors import UserError
from gyre.signals import StopSignal


def count_and_wait(train: None, folder: str, job: Job) -> int:
    """Write one more line into the file of a job, and wait until its .go is there.

    Returns the number of the process.
    """
    with Path(folder, f"{job.name}.runs").open("a", encoding="utf-8") as file:
        file.write("run\n")
    wait_for(Path(folder, f"{job.name}.go").exists)
    return os.getpid()


def begin_when_told(train: None, folder: str, job: Job) -> None:
    """Wait until the file `go` is there, and write the name of the job into the file `begun`."""
    wait_for(Path(folder, "go").exists)
    with Path(folder, "begun").open("a", encoding="utf-8") as file:
        file.write(f"{job.name}\n")


def wait_and_save(train: None, folder: str, job: Job) -> None:
    """Write the number of the process into the .pid of a job, wait until it is told to stop, and
    leave a .saved."""
    stop = StopSignal()
    worker: Any = get_worker()
    worker.stop_of_job = stop
    Path(folder, f"{job.name}.pid").write_text(str(os.getpid()), encoding="utf-8")
    wait_for(lambda: stop.number != 0)
    Path(folder, f"{job.name}.saved").touch()
    raise UserError(f"{job.name} was stopped, and has saved")
