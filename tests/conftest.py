"""The fixtures of several test files, and how pytest runs them all. builders.py has the rest.

The process of pytest-xdist that hands out tests imports this file too. So PyTorch, which takes
seconds, is imported where it is needed.
"""

import gc
import multiprocessing
import multiprocessing.forkserver
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import clean_environment  # first: it sets the environment
import pytest

# A tenth of the time, else: each collection walks over all that torch and transformers have made.
gc.set_threshold(100_000)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs an NVIDIA GPU where there is none."""
    if item.get_closest_marker("cuda"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs an NVIDIA GPU")


MEMORY = Path("/dev/shm")
"""A file system in memory, on Linux. Removing the files of all tests takes seconds on a disk."""
ROOM_FOR_TESTS = 8 << 30
"""Free bytes of MEMORY from which on temporary folders are made there."""


def pytest_configure(config: pytest.Config) -> None:
    """Make temporary folders in memory, and let `pytest -m cuda` see the GPUs.

    CUDA asks which GPUs are visible when it is first used.
    """
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_FOR_TESTS:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if selects_cuda(config.option.markexpr):
        del os.environ["CUDA_VISIBLE_DEVICES"]
        if clean_environment.VISIBLE_GPUS is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = clean_environment.VISIBLE_GPUS


LONGEST = ("test_workers", "test_compiled", "test_web", "test_sharding", "test_wandb_log",
           "test_faults", "test_runner", "test_resume", "test_train")
"""The test files that take longest. Begun first, none of them runs alone at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first. Leave out the tests marked `cuda` unless they are asked for,
    because no GPU is visible."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    if selects_cuda(config.option.markexpr):
        return
    left_out = [item for item in items if item.get_closest_marker("cuda")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Keep what has been imported out of all later collections of garbage."""
    gc.freeze()


def selects_cuda(expression: str) -> bool:
    """Whether the expression of `pytest -m` asks for the tests that need an NVIDIA GPU."""
    return re.search(r"(?<!not )\bcuda\b", expression) is not None


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, request) -> Path:
    """A folder with text.txt; the runs of a test file and their prepared data live in it.

    A test file that needs another length says so as N_WORDS.
    """
    from builders import random_text

    folder = tmp_path_factory.mktemp("workdir")
    text = random_text(getattr(request.module, "N_WORDS", 1760))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def launch_ranks(tmp_path_factory) -> Iterator[Callable[..., Any]]:
    """Start ranks, `launch(size, target, *args)`, by fork from a process that has imported what
    they need: imports take longer than a tiny training. Returns `Ranks`."""
    from builders import Ranks

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["builders", "gyre.sharding", "torch._dynamo"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for those imports
        multiprocessing.forkserver.ensure_running()

    def launch(size: int, target: Callable, *args: Any) -> Ranks:
        log = tmp_path_factory.mktemp("ranks") / "stderr"
        return Ranks(context, log, size, target, *args)

    yield launch
    for process in multiprocessing.active_children():
        process.kill()  # of a test that failed


@pytest.fixture
def run_name(request) -> str:
    """A name for the run of this test, which no other test's run has."""
    return re.sub(r"[^a-z0-9_]+", "-", request.node.name)


@pytest.fixture
def new_run(tmp_path) -> Callable[..., Any]:
    """`builders.empty_run` in tmp_path."""
    from builders import empty_run

    return partial(empty_run, tmp_path)


@pytest.fixture
def draw_instead(monkeypatch) -> Callable[[list[int]], None]:
    """Draw these tokens, one after the other, instead of those of the model. For one row."""
    import torch

    def draw_instead(tokens: list[int]) -> None:
        drawn = iter(tokens)
        monkeypatch.setattr("model.generation.sample",
                            lambda logits, *options: torch.tensor([next(drawn)]))

    return draw_instead


@pytest.fixture
def nobody_is_logged_in(monkeypatch, tmp_path) -> Iterator[None]:
    """A machine without the developer's key and settings, and a wandb that has seen no other."""
    for name in os.environ:
        if name.startswith("WANDB_") or name == "NETRC":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_HTTP_TIMEOUT", "1")
    (tmp_path / "home").mkdir()
    yield
    wandb = sys.modules.get("wandb")
    if wandb is not None:  # None: a test has said that it is not installed
        wandb.teardown()
