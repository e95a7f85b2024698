"""A job whose runs can be counted, for workers that are killed."""

import os
from pathlib import Path

from conftest import wait_for

from ablation.jobs import Job


def count_and_wait(train: None, folder: str, job: Job) -> int:
    """Write one more line into the file of a job, and wait until its .go is there.

    Returns the number of the process.
    """
    with Path(folder, f"{job.name}.runs").open("a", encoding="utf-8") as file:
        file.write("run\n")
    wait_for(Path(folder, f"{job.name}.go").exists)
    return os.getpid()
