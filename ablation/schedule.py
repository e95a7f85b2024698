"""What a study has to do next: from its plan and its records to the jobs that are missing."""

import itertools
import math
from pathlib import Path
from typing import Any

from ablation import plan as planning
from ablation.jobs import CalibrationJob, Job, RecordJob, Training, TuningJob
from ablation.options import Command
from ablation.plan import Plan
from ablation.study import Study


def next_jobs(command: Command, plan: Plan) -> list[Job]:
    """Return the jobs that can be done now; none: the study is finished."""
    if command.beside and plan.calibration is None:
        return [calibration_job(command, plan)]
    tuning: list[Job] = []
    for arm in command.new_arms:
        tuning += tuning_jobs(command, plan, arm)
    if tuning:
        return tuning
    return [*record_jobs(command, plan)]


def calibration_job(command: Command, plan: Plan) -> CalibrationJob:
    """Return the job that trains a run of the study of --beside again, to the shortest length."""
    study = Study.load(command.path)
    arm, seed = next(iter(study.records))  # a committed one: there are no others yet
    steps = plan.steps.horizons[0]
    name = f"calibration-{arm}-s{seed}"
    training = plan_run(command, plan, name, steps, {
        **command.overlays[arm],
        "optim.lr": study.records_of(arm)[seed].lr,
        "seed": seed,
        "log.job_type": "tune",
        "log.group": f"{command.path.name}/calibration",
        "train.eval_interval": steps,
    })
    committed = study.losses(arm, study.horizons[0])[seed]
    return CalibrationJob(name=name, trainings=[training], committed=committed)


def tuning_jobs(command: Command, plan: Plan, arm: str) -> list[TuningJob]:
    """Return what `next_rates` asks for; nothing for an arm that says its own rate."""
    overlay = command.overlays[arm]
    if not plan.grid or "optim.lr" in overlay:
        return []
    steps = plan.steps.tuning
    length = name_length(plan, steps)
    losses = planning.tuning_losses(plan).get(arm, {})
    jobs = []
    for lr, seed in planning.next_rates(plan.grid, plan.tuning_seeds, losses):
        name = f"tune-{length}-{arm}-lr{lr:g}-s{seed}"
        training = plan_run(command, plan, name, steps, {
            **overlay,
            "optim.lr": lr,
            "seed": seed,
            "data.second_val": bool(plan.second_val),
            "log.job_type": "tune",
            "log.group": f"{command.path.name}/tuning-{length}/{arm}",
            "train.eval_interval": math.ceil(steps / planning.VALIDATIONS),
        })
        jobs.append(TuningJob(name=name, trainings=[training], arm=arm))
    return jobs


def record_jobs(command: Command, plan: Plan) -> list[RecordJob]:
    """Return a job for each arm and seed without a record, seed by seed."""
    jobs = []
    for seed, arm in itertools.product(plan.seeds, command.new_arms):
        name = f"{arm}-s{seed}"
        if not has_result(command.path, plan, name):
            trainings = plan_lengths(command, plan, arm, seed)
            jobs.append(RecordJob(name=name, trainings=trainings, arm=arm,
                                  max_spans=command.tier.max_spans,
                                  device=command.config.train.device))
    return jobs


def has_result(path: Path, plan: Plan, name: str) -> bool:
    """Return whether an arm and seed, such as rope-s0, has a record or has diverged.

    `path` is the folder of the study.
    """
    is_recorded = (path / "results" / f"{name}.json").exists()
    return is_recorded or name in (plan.diverged or [])


def plan_lengths(command: Command, plan: Plan, arm: str, seed: int) -> list[Training]:
    """Return how to train the longest run of an arm and seed, and then the runs that branch off
    from it, one for each shorter length."""
    options = {**command.overlays[arm], "seed": seed, "log.job_type": "train"}
    if "optim.lr" not in options and plan.grid:
        options["optim.lr"] = planning.best_rate(planning.tuning_losses(plan)[arm])
    *shorter, longest = plan.steps.horizons
    name = f"{arm}-s{seed}-{name_length(plan, longest)}"
    branchings = [branching(command, steps) for steps in plan.steps.horizons]
    trunk = plan_run(command, plan, name, longest, {
        **options,
        "log.group": f"{command.path.name}/{name_length(plan, longest)}/{arm}",
        "train.keep": planning.kept_steps(branchings, command.tier.followed),
        "train.eval_interval": math.ceil(longest / planning.VALIDATIONS),
    })
    trainings = [trunk]
    for steps in reversed(shorter):
        name = f"{arm}-s{seed}-{name_length(plan, steps)}"
        trainings.append(plan_branch(command, plan, name, steps, trunk, {
            **options,
            "log.group": f"{command.path.name}/{name_length(plan, steps)}/{arm}",
            "train.eval_interval": steps,
        }))
    return trainings


def plan_run(
    command: Command, plan: Plan, name: str, steps: int, options: dict[str, Any]
) -> Training:
    """Return how to train a run with these options, over what all runs share."""
    options = complete_options(command, plan, name, steps, options)
    return Training(folder=str(command.path / name), options=command.shared | options,
                    text_sha256=plan.text_sha256)


def plan_branch(
    command: Command, plan: Plan, name: str, steps: int, trunk: Training, options: dict[str, Any]
) -> Training:
    """Return how to train a run that branches off from its trunk where its cooldown begins."""
    options = complete_options(command, plan, name, steps, options)
    # All others are those of the trunk.
    changed = {option: value for option, value in options.items()
               if option.partition(".")[0] in ("train", "log", "name")}
    return Training(folder=str(command.path / name), options=changed, trunk=trunk.folder,
                    at=branching(command, steps), text_sha256=plan.text_sha256)


def complete_options(
    command: Command, plan: Plan, name: str, steps: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the options of a run with those that every run of a study has."""
    return {**options, "name": name, "train.steps": steps, "log.runs": str(command.path),
            "train.onednn": plan.onednn}


def branching(command: Command, steps: int) -> int:
    """Return the step at which the cooldown of a run begins. It is the same for all arms."""
    return steps - planning.count_cooldown(command.config.optim, steps)


def name_length(plan: Plan, steps: int) -> str:
    """Return the tokens of so many steps as text, such as 2M, for the names of runs."""
    return name_tokens(steps * plan.step_tokens)


def name_tokens(tokens: int) -> str:
    """Return a number of tokens as text, such as 2M, in four digits."""
    for size, unit in ((planning.MILLION, "M"), (1024, "k")):
        if tokens >= size:
            return f"{tokens / size:.4g}{unit}"
    return str(tokens)


def count_steps(command: Command, plan: Plan, arm: str) -> int:
    """Return the optimizer steps of the runs that a new arm lacks.

    They are those of tuning, as far as it is known. Each seed without a record adds those of its
    longest run, and of the cooldowns of the shorter ones.
    """
    optim = command.arm_configs[arm].optim
    *shorter, longest = plan.steps.horizons
    cooldowns = sum(planning.count_cooldown(optim, steps) for steps in shorter)
    missing = [seed for seed in plan.seeds
               if not has_result(command.path, plan, f"{arm}-s{seed}")]
    tuning = len(tuning_jobs(command, plan, arm)) * plan.steps.tuning
    return len(missing) * (longest + cooldowns) + tuning
