"""Trainings in one process, one after the other: each is what it is alone."""

import pytest
import torch
from builders import tiny_argv
from resumption import assert_equal_runs

import train

BFLOAT16 = ["--train.dtype=bfloat16", "--train.onednn=false"]
FLOAT32 = ["--train.dtype=float32", "--train.onednn=true"]
EAGER = ["--train.dtype=float32", "--train.onednn=false"]


def train_all(*trainings: tuple[int, list[str]]) -> None:
    """Train with so many threads and this command line, one after the other, in this process."""
    for threads, argv in trainings:
        torch.set_num_threads(threads)
        with pytest.raises(SystemExit, match="0"):
            train.main(argv)


@pytest.mark.slow
def test_trainings_in_one_process_are_those_alone(workdir, launch_ranks):
    trainings = {"bfloat16": (2, BFLOAT16), "float32": (1, FLOAT32), "eager": (2, EAGER)}
    commands = {}
    for name, (threads, options) in trainings.items():
        argv = tiny_argv(workdir, "--data.seq_len=32", "--train.steps=4", *options)
        commands[name] = (threads, [*argv, "--name", f"{name}-together"])
        launch_ranks(1, train_all, (threads, [*argv, "--name", f"{name}-alone"])).join()
    launch_ranks(1, train_all, *commands.values()).join()
    for name in trainings:
        assert_equal_runs(workdir / "runs" / f"{name}-together", workdir / "runs" / f"{name}-alone")
