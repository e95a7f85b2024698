"""A study of the smallest size: its command line, its plan, and how to run it without Dask."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ablate
from ablation import plan, report, runner
from ablation.jobs import do_job
from ablation.plan import Plan, Steps, Tuned
from gyre.signals import StopSignal

N_WORDS = 9000  # of the text: enough for rows of eight times the training length
# So short that tests are short, and tuned all the same.
TINY = replace(plan.TIERS["smoke"], arms=("sin", "rope"), grid=(2e-3,), tuning_tokens=9 * 256,
               horizons=(2560, 25600))


@contextmanager
def tiny_tier(**changes: Any) -> Iterator[None]:
    """A context in which `--tier smoke` is TINY, with these fields changed, and no time is spent on
    estimating its time."""
    gc.freeze()  # else each collection after a training walks over all that other tests have made
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plan.TIERS, "smoke", replace(TINY, **changes))
        patch.setattr(runner, "matmul_rates", lambda *_, training, dtypes: [1e9])
        yield


def study_arguments(workdir: Path, *extra: str) -> list[str]:
    """The command line of the study. Its runs are in workdir/runs."""
    return ["--tier", "smoke", f"--data.files={workdir / 'text.txt'}",
            f"--log.runs={workdir / 'runs'}",
            f"--data.prepared={workdir / 'prepared'}", "--data.vocab_size=300",
            "--train.device=cpu",
            "--data.val_fraction=0.1", "--log.wandb=disabled", *extra]


def run_serially(train, command, plan, client, jobs) -> bool:
    """`run_jobs` without Dask."""
    for job in jobs:
        result = do_job(train, str(command.path), job, StopSignal())
        runner.keep_result(command, plan, job, result)
    return True


def ablate_in_process(argv: list[str]) -> None:
    """ablate.py without Dask and without figures: the report has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "open_client", lambda *options: None)
        patch.setattr(runner, "run_jobs", run_serially)
        patch.setattr(report.plots, "draw", lambda study: {})
        ablate.main(argv)


def make_plan(**changes: Any) -> Plan:
    """The plan of one seed, of runs of 10 and 100 steps of 256 tokens, without tuning."""
    fields: dict[str, Any] = {
        "name": "tiny", "command": "python ablate.py", "tier": "smoke", "arms": {}, "grid": [],
        "tuning_seeds": [1000], "steps": Steps(horizons=[10, 100], tuning=9), "seeds": [0],
        "baseline": "sin", "seq_len": 32, "step_tokens": 256, "config": {}, "data_sha256": {},
        "dtype": "float32", "onednn": True, "ngrams": [5.0, 3.5, 2.9], "machine": {},
        "versions": {}, "git": None, "tuned": Tuned(arms={}),
    }
    return Plan(**{**fields, **changes})
