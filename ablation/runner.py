"""Carry out a study: make its plan, do on Dask workers what is missing, and write the report."""

import asyncio
import itertools
import logging
import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import numpy as np
import torch
from tqdm import tqdm

from ablation import plan as planning
from ablation import stats
from ablation.jobs import (
    CalibrationJob,
    Job,
    RecordJob,
    RunTraining,
    TuningJob,
    do_job_on_worker,
    request_stop,
)
from ablation.ngrams import ngram_losses
from ablation.options import Command, resolve, to_words
from ablation.plan import Calibration, Plan, Steps, Tier, Tuned, list_names
from ablation.schedule import count_steps, has_result, name_length, name_tokens, next_jobs
from ablation.study import Study
from data.dataset import Prepared, find_or_prepare
from errors import UserError, find_script, require_modules, say
from files import first_line, locked, write_sealed
from gyre import measure
from gyre.code import are_of_other_code, hash_encoding
from gyre.compute import matmul_rates, resolve_device
from gyre.estimate import describe_load, estimate_seconds, format_estimate
from gyre.options import Config, changed_options, make_config
from gyre.rundir import git_revision
from model import kernels
from model.encodings import POSITIONS

ANSWER_SECONDS = 30  # that a worker has to answer before a study that stops goes without it
CALIBRATION_TOLERANCE = 0.01  # nats that a committed run may differ by when it is trained again


def run_study(run_training: RunTraining, argv: list[str], description: str | None = None) -> int:
    """Do what is missing of a study, and write the report. Returns the exit code.

    `run_training` is that of train.py.
    """
    command = resolve(argv, description)
    require_modules("distributed", "matplotlib", "scipy")  # not only hours later, for the report
    path = command.path
    config = command.config
    if command.options.dry_run:
        print_plan(command, open_plan(command))
        return 0
    busy = f"another ablate.py is working on {path}: wait for it, or choose another --name"
    with locked(path, busy, wait=False), sigterm_as_interrupt():
        plan = open_plan(command)
        print_plan(command, plan)
        planning.write_plan(path, plan)
        if plan.grid and plan.second_val:
            # Tuning runs are validated on another text. It is prepared here, and not by a worker,
            # so that one sees its progress.
            find_or_prepare(replace(config.data, second_val=True))
        if command.beside:  # the report reads all records from the study's own folder
            shutil.copytree(Path(command.options.beside, "results"), path / "results",
                            dirs_exist_ok=True)
        if not run_missing(run_training, command, plan):
            line = command.line.replace("ablate.py", find_script("ablate.py"), 1)
            say(f"stopped, and what was training has saved. To go on: {line}")
            return 130
        from ablation.report import mirror_in_wandb, write_report  # slow to import

        write_report(path)
        # This file says that the mirror was tried. If a command is interrupted before that, the
        # next one tries it. A failure of wandb is a warning, and is not tried again.
        sent = path / "wandb.sent"
        if plan.grown_from:  # the report of fewer seeds may have been sent
            sent = path / f"wandb-{len(plan.seeds)}-seeds.sent"
        if config.log.wandb != "disabled" and not sent.exists():
            mirror_in_wandb(path, config.log)
            sent.touch()
    return 0


# --- the plan -------------------------------------------------------------------------------------


def open_plan(command: Command) -> Plan:
    """Return the plan in the study's folder, or a new one. The folder stays as it is.

    The study's text is prepared for it. Raises UserError for a text that is too short to measure
    on, for runs that cannot be trained or compared, and where the folder has another plan, or
    something else.
    """
    path = command.path
    config = command.config
    data = find_or_prepare(config.data)
    measure.check_length(data.manifest["val"]["tokens"], config.data.seq_len,
                         "the text held out for validation")
    steps = plan_steps(command.tier, config.step_tokens)
    check_trainable(command, steps)
    wanted = list_fixed_fields(command, data, steps)
    if command.beside:
        check_beside(command, command.beside, wanted)
    if (path / "plan.json").exists():
        return reopen_plan(command, data, wanted)
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{path} is not empty and holds no plan.json, so it is not a study: choose "
                        "another folder with --name")
    return make_plan(command, data, wanted)


def make_plan(command: Command, data: Prepared, wanted: dict[str, Any]) -> Plan:
    """Return a new plan with the fields that are `wanted`, see `list_fixed_fields`."""
    beside = command.beside
    plan = Plan(
        name=command.path.name, command=command.line, **wanted, dtype=command.config.train.dtype,
        onednn=kernels.prefers_onednn(torch.device("cpu")),
        ngrams=ngram_losses(read_ids(data, "train"), read_ids(data, "val"),
                            data.manifest["vocab_size"]),
        machine=planning.machine(), versions=planning.versions(), git=git_revision(),
        tuned=Tuned(arms={}), diverged=[], second_val=True,
        text_sha256=data.manifest["text"]["sha256"],
    )
    if beside:
        plan.committed_grown_from = beside.grown_from
        plan.tuned.arms |= beside.tuned.arms
        plan.diverged = list_diverged(beside, plan.seeds)
        # Rates are tuned on another validation text than is reported, if those beside were.
        plan.second_val = bool(beside.second_val)
    return plan


def list_diverged(beside: Plan, seeds: list[int]) -> list[str]:
    """Return the names of the runs of these seeds that diverged in the study beside."""
    planned = list_names(beside.arms, seeds)
    return [name for name in beside.diverged or [] if name in planned]


def add_diverged(plan: Plan, names: list[str]) -> None:
    """Add to the plan those of these names of diverged runs that it does not have."""
    before = plan.diverged or []
    added = [name for name in names if name not in before]
    if added:
        plan.diverged = [*before, *added]


def list_fixed_fields(command: Command, data: Prepared, steps: Steps) -> dict[str, Any]:
    """Return the fields of the plan that the command and the text decide.

    They must be equal when a study goes on, except that seeds can be added.
    """
    beside = command.beside
    fields: dict[str, Any] = {
        # Beside a study, --tier is refused, because that study has settled it.
        "tier": beside.tier if beside else command.options.tier,
        "arms": command.arms,
        "grid": [*command.tier.grid],
        "tuning_seeds": [*command.tier.tuning_seeds],
        "steps": steps,
        "seeds": [*range(command.tier.seeds)],
        "baseline": command.baseline,
        "seq_len": command.config.data.seq_len,
        "step_tokens": command.config.step_tokens,
        "config": {arm: select_decisive(arm_config)
                   for arm, arm_config in command.arm_configs.items()},
        "data_sha256": {name: file["sha256"] for name, file in data.manifest["files"].items()},
    }
    if beside:
        fields["committed"] = [*beside.arms]
        fields["config"] |= beside.config
    return fields


def check_beside(command: Command, beside: Plan, wanted: Mapping[str, Any]) -> None:
    """Raise UserError if the new runs would not compare with the records of the study `beside`, or
    if it has none of these seeds."""
    path = Path(command.options.beside)
    if wanted["data_sha256"] != beside.data_sha256:
        raise UserError(f"the text or its tokens differ from those of {path}, made with Python "
                        f"{beside.versions['python']}: give its text with --data.files, and its "
                        "tokenizer with --data.tokenizer")
    recorded = {seed for _, seed in Study.load(path).records}
    seeds = wanted["seeds"]
    if recorded.isdisjoint(seeds):
        raise UserError(f"{path} has no record of the seeds {seeds} yet: finish that study first, "
                        "or choose more --seeds")


def plan_steps(tier: Tier, step_tokens: int) -> Steps:
    """Return the steps of the runs; a step takes `step_tokens` tokens.

    Learning rates are tuned on runs that are no longer than the longest one of the study.
    """
    shortest = tier.horizons[0]
    longest = tier.horizons[-1]
    if shortest < step_tokens:
        raise UserError(f"{shortest:,} tokens are less than a step, which takes {step_tokens:,}: "
                        "choose more --tokens, or a smaller train.batch_size or data.seq_len")
    horizons = {tokens // step_tokens for tokens in tier.horizons}
    tuning_tokens = min(tier.tuning_tokens, longest)
    return Steps(horizons=sorted(horizons), tuning=tuning_tokens // step_tokens)


def check_trainable(command: Command, steps: Steps) -> None:
    """Raise UserError for runs without a name of their own, a cooldown, or a step to be tuned on.
    """
    check_distinct_names([count * command.config.step_tokens for count in steps.horizons])
    for arm_config in command.arm_configs.values():
        check_cooldown(arm_config, steps)
    check_tuning_length(command, steps)


def check_distinct_names(horizons: list[int]) -> None:
    """Raise UserError if the runs of two of these lengths, in ascending order, had one name."""
    for shorter, longer in itertools.pairwise(horizons):
        name = name_tokens(shorter)
        if name_tokens(longer) == name:
            raise UserError(f"runs of {shorter:,} and of {longer:,} tokens would both be called "
                            f"{name}: choose --tokens that differ more")


def check_tuning_length(command: Command, steps: Steps) -> None:
    """Raise UserError if a rate is to be tuned, although its runs are shorter than a step."""
    tier = command.tier
    has_own_rates = all("optim.lr" in command.overlays[arm] for arm in command.new_arms)
    if steps.tuning == 0 and tier.grid and not has_own_rates:
        raise UserError(f"rates are tuned on {tier.tuning_tokens:,} tokens, which are less than a "
                        f"step of {command.config.step_tokens:,}: choose a smaller "
                        "train.batch_size or data.seq_len, or --no-tuning")


def check_cooldown(config: Config, steps: Steps) -> None:
    """Raise UserError if an arm has a run without a cooldown, or without a step at the full rate
    between its warm-up and its cooldown."""
    counts = {*steps.horizons}
    if steps.tuning:
        counts.add(steps.tuning)
    for count in counts:
        cooldown = planning.count_cooldown(config.optim, count)
        if not cooldown or config.optim.warmup_steps >= count - cooldown:
            raise UserError(f"a run of {count} steps has {cooldown} of cooldown after "
                            f"{config.optim.warmup_steps} of warm-up: choose more --tokens, or "
                            "another optim.warmup_steps or optim.cooldown")


def select_decisive(config: Config) -> dict[str, Any]:
    """Return the part of a configuration that decides numbers and is the same for all seeds."""
    values = msgspec.to_builtins(asdict(config))  # with lists for tuples, as JSON has them
    for name in ("log", "name", "seed"):
        del values[name]
    for name in ("prepared", "second_val"):
        del values["data"][name]
    for name in ("device", "onednn", "cuda_graphs"):
        del values["train"][name]
    return values


def add_new_options(configs: dict[str, Any]) -> dict[str, Any]:
    """Return the configurations of a plan, by arm, with the defaults of options that they lack.

    Such options are newer than the plan: of this program, or of an encoding of the user's own.
    """
    defaults = select_decisive(make_config())
    completed = {}
    for arm, config in configs.items():
        completed[arm] = defaults | config
        for section in ("model", "data", "optim", "train"):
            completed[arm][section] = defaults[section] | config[section]
    return completed


def name_changed_options(planned: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return the names of the options that differ, or are gone, in an arm that both plans have.

    An arm that only one plan has makes `arms` differ.
    """
    names: set[str] = set()
    for arm in planned.keys() & wanted.keys():
        names.update(changed_options(planned[arm], wanted[arm]))
    return sorted(names)


def reopen_plan(command: Command, data: Prepared, wanted: dict[str, Any]) -> Plan:
    """Return the plan in the study's folder, with more seeds if --seeds asks for more.

    Without --seeds, the study keeps the seeds that it has. UserError if the plan differs from what
    is `wanted` in anything else.
    """
    path = command.path
    stored = planning.read_plan(path)
    if command.options.seeds is None:
        wanted = wanted | {"seeds": stored.seeds}
    plan = grow_plan(command, stored, wanted["seeds"])
    changed = compare_plans(plan, wanted)
    if changed:
        raise UserError(f"{path / 'plan.json'} holds another plan (these differ: "
                        f"{', '.join(changed)}): {advise_changed_plan(command, plan, changed)}")
    if plan.text_sha256 is None:  # of an older version; `data_sha256` says that it is the same text
        plan.text_sha256 = data.manifest["text"]["sha256"]
    if command.beside:
        plan.committed_grown_from = command.beside.grown_from
        add_diverged(plan, list_diverged(command.beside, plan.seeds))
    study = Study.load(path)  # refuses records that do not belong together, before more work
    note_changed_encodings(study, plan.seeds)
    added = ""
    if len(plan.seeds) > len(stored.seeds):
        added = f" with more seeds, {plan.seeds[len(stored.seeds):]}"
    say(f"plan    {path / 'plan.json'}: going on{added}")
    return plan


def grow_plan(command: Command, plan: Plan, seeds: list[int]) -> Plan:
    """Return the plan with all of these seeds; as it is if they do not begin with those it has.

    Seeds that were added and have no result yet are withdrawn if `seeds` ends before them, because
    a number may have been mistyped.
    """
    if can_withdraw(command.path, plan, seeds):
        return planning.withdraw_seeds(plan, len(seeds), command.line)
    more_seeds = seeds[len(plan.seeds):]
    if not more_seeds or seeds[:len(plan.seeds)] != plan.seeds:
        return plan
    return planning.add_seeds(plan, seeds, command.line)


def can_withdraw(path: Path, plan: Plan, seeds: list[int]) -> bool:
    """Return whether a study at `path` can go back to these seeds, the first ones of its plan."""
    left_out = plan.seeds[len(seeds):]
    keeps_first_plan = plan.grown_from is not None and len(seeds) >= plan.grown_from[0]
    if not left_out or seeds != plan.seeds[:len(seeds)] or not keeps_first_plan:
        return False
    trained_arms = [arm for arm in plan.arms if arm not in (plan.committed or [])]
    return not any(has_result(path, plan, name) for name in list_names(trained_arms, left_out))


def compare_plans(plan: Plan, wanted: dict[str, Any]) -> list[str]:
    """Return the names of the fields in which a plan differs from what is `wanted`, and those of
    options in place of `config`."""
    # Both can be without options that were added since: with --beside, what is wanted has the
    # configurations of an earlier study.
    wanted = wanted | {"config": add_new_options(wanted["config"])}
    plan = msgspec.structs.replace(plan, config=add_new_options(plan.config))
    changed = [name for name, value in wanted.items() if getattr(plan, name) != value]
    if "config" in changed:
        changed.remove("config")
        changed += name_changed_options(plan.config, wanted["config"])
    return changed


def note_changed_encodings(study: Study, seeds: list[int]) -> None:
    """Print a note for each arm that lacks records of these seeds, and whose encoding is not the
    one that its other records were made with."""
    for arm, config in study.plan.config.items():
        position = config["model"]["position"]
        before = study.code_of_encoding(arm)
        is_complete = study.records_of(arm).keys() >= {*seeds}
        is_committed = arm in (study.plan.committed or [])  # then it is not trained here
        if not before or is_complete or is_committed or position not in POSITIONS:
            continue
        now = hash_encoding(position)
        if all(are_of_other_code(code, now) for code in before):
            say(f"note: the code of model.position {position} is not that of the first seeds of "
                f"{arm}, so that further ones are of another encoding: undo the change, or give "
                "the new one another name")


def advise_changed_plan(command: Command, plan: Plan, changed: list[str]) -> str:
    """Return what to do where a command wants something else than the plan in its folder."""
    added = [arm for arm in command.arms if arm not in plan.arms]
    keeps_arms = plan.arms.keys() <= command.arms.keys()
    # Without --baseline, the baseline differs only because the arms do.
    given = [name for name in changed if name != "baseline" or command.options.baseline]
    if given == ["arms"] and keeps_arms and not command.beside:
        words = ["--beside", str(command.path), *name_arms(command, added)]
        return (f"to compare {', '.join(added)} with its records, train them beside it, in a study "
                f"of their own: python {find_script('ablate.py')} {shlex.join(words)}")
    if changed == ["seeds"]:
        return f"it has {len(plan.seeds)} seeds for each arm, and loses none"
    return "choose another folder with --name"


def name_arms(command: Command, names: list[str]) -> list[str]:
    """Return the options of ablate.py that name these arms of a command."""
    known = [name for name in names if name in planning.ARMS]
    words = ["--arms", ",".join(known)] if known else []
    for name in names:
        if name not in planning.ARMS:
            overlay = ",".join(f"{option}={value}" for option, value in command.arms[name].items())
            words += ["--arm", f"{name}={overlay}"]
    return words


def read_ids(data: Prepared, split: str) -> np.ndarray:
    """Return the token ids of a split, int64 (N,)."""
    return np.fromfile(data.folder / f"{split}.bin", dtype=data.manifest["dtype"]).astype(np.int64)


def print_plan(command: Command, plan: Plan) -> None:
    """Print what is compared, and about how long it takes."""
    recorded = Study.load(Path(command.options.beside)) if command.beside else None
    for arm, overlay in command.arms.items():
        note = ""
        if recorded and arm in recorded.plan.arms:
            note = "(recorded, not trained again) "
            overlay = recorded.trained_overlay(arm)
        say(f"arm     {arm:<11} {note}{' '.join(to_words(overlay))}")
    if plan.grid:
        length = name_length(plan, plan.steps.tuning)
        say(f"tuning  optim.lr {plan.grid}, {length} tokens, seeds {plan.tuning_seeds}")
    lengths = ", ".join(name_length(plan, steps) for steps in plan.steps.horizons)
    say(f"runs    seeds {plan.seeds} of each arm, for {lengths} tokens; differences are to "
        f"{plan.baseline}")
    say(f"power   {describe_power(len(plan.seeds))}")
    device = command.config.train.device
    # A card that is named may be one of a scheduler's machines.
    if device in ("auto", "cpu") and resolve_device(device).type == "cpu":
        seconds = estimate_training(command, plan)
        if seconds > 0:
            estimate = format_estimate(seconds)
            say(f"time    {estimate} of training, besides starting and measuring, if this machine "
                f"does it all{describe_load()}")


def describe_power(n: int) -> str:
    """Return how small a difference a study with `n` seeds shows."""
    if n < 2:
        return "one seed shows no difference, because it has no interval"
    low, median, high = stats.TYPICAL_SD
    difference = stats.detectable(n) * median
    return (f"a true difference of {difference:.3f} nats shows in four of five such studies, if "
            f"its standard deviation over seeds is {median}, the median in studies/ (most: {low} "
            f"to {high})")


def estimate_training(command: Command, plan: Plan) -> float:
    """Return about how many seconds this machine takes for the trainings that are missing."""
    cpu = torch.device("cpu")
    dtype = getattr(torch, command.config.train.dtype)
    onednn = plan.onednn
    if not isinstance(onednn, bool):  # auto, in old plans
        onednn = kernels.prefers_onednn(cpu)
    seconds = 0.0
    for arm in command.new_arms:
        tokens = plan.step_tokens * count_steps(command, plan, arm)
        if tokens == 0:
            continue
        model = command.arm_configs[arm].model
        with kernels.products_by_onednn(onednn):  # as they are trained
            (rate,) = matmul_rates(cpu, model, plan.step_tokens, training=True, dtypes=[dtype])
        seconds += estimate_seconds(model, tokens, rate)
    return seconds


# --- what is missing ------------------------------------------------------------------------------


def run_missing(run_training: RunTraining, command: Command, plan: Plan) -> bool:
    """Do what is missing of the study. Returns False if Ctrl-C or SIGTERM stopped it."""
    jobs = next_jobs(command, plan)
    if not jobs:
        return True
    with ExitStack() as held:
        try:
            client = open_client(held, command)
        except KeyboardInterrupt:
            return False
        while jobs:
            if not run_jobs(run_training, command, plan, client, jobs):
                return False
            jobs = next_jobs(command, plan)
    return True


def keep_result(command: Command, plan: Plan, job: Job, result: Any) -> None:
    """Write down the Result of a job, and remove the checkpoints that nobody needs any more."""
    if isinstance(job, TuningJob):
        # If the run diverged, the plan has None for its loss, and the report says so.
        rates = plan.tuned.arms.setdefault(job.arm, {})
        rates.setdefault(repr(job.lr), {})[str(job.seed)] = result
    elif isinstance(job, CalibrationJob):
        check_calibration(command, job, result)
        plan.calibration = Calibration(job.name, job.committed, result)
    elif isinstance(job, RecordJob) and result is None:  # a run diverged
        # A mean over the seeds that are left would flatter the arm, so the report names this one.
        say(f"{job.name} diverged, and is left out")
        add_diverged(plan, [job.name])
    elif isinstance(job, RecordJob):
        write_sealed(command.path / "results" / f"{job.name}.json", result)
        Study.load(command.path)  # refuses arms that differ in more than the arm, at once
    planning.write_plan(command.path, plan)
    remove_checkpoints(job)


def check_calibration(command: Command, job: CalibrationJob, loss: float | None) -> None:
    """Raise UserError if a committed run has another loss here, or diverged (None)."""
    if loss is not None and abs(loss - job.committed) <= CALIBRATION_TOLERANCE:
        return
    here = "diverged here, and ended" if loss is None else f"ends at {loss} here and"
    raise UserError(f"{job.name} {here} at {job.committed} in {command.options.beside}: records of "
                    "the two do not compare")


def remove_checkpoints(job: Job) -> None:
    """Remove the checkpoints of a job that nobody needs once its result is written down."""
    disposable = ["previous", "best", "kept"]
    if not isinstance(job, RecordJob):  # of a run that is reported, `last` stays
        disposable.append("last")
    for training, name in itertools.product(job.trainings, disposable):
        shutil.rmtree(Path(training.folder, name), ignore_errors=True)


# --- on the workers -------------------------------------------------------------------------------


@dataclass
class RunningJobs:
    """Jobs that workers do, and what has become of them so far."""

    command: Command
    plan: Plan
    pending: dict[Any, Job]
    """Futures of the jobs that are not done."""
    bar: tqdm
    silent: set[str] = field(default_factory=set)
    """The workers that did not answer `stop_jobs`."""
    stopped: bool = False
    """Whether Ctrl-C or an error has stopped the jobs."""
    failure: BaseException | None = None
    """The error of the first job that failed."""
    not_kept: Exception | None = None
    """The error of the first result that could not be kept."""

    def collect(self, future: Any) -> None:
        """Keep the result of a job that is done, or remember its error."""
        if future.status != "finished":
            del self.pending[future]
            # Of jobs that were stopped the error tells nothing: only the first one is kept.
            if not self.stopped:
                self.stopped = True
                self.failure = future.exception()
            return
        result = future.result()  # Ctrl-C can interrupt this: the job is pending still
        job = self.pending.pop(future)
        # As long as a future is held, Dask does its job again if the worker that has the result is
        # lost. The job's checkpoints are gone by then.
        future.release()
        try:
            keep_result(self.command, self.plan, job, result)
        except Exception as error:
            self.stopped = True
            self.not_kept = self.not_kept or error
        self.bar.update()

    def raise_errors(self) -> None:
        """Raise the error of a result that could not be kept, or else UserError for a job that
        failed, or for a worker that did not answer."""
        if self.not_kept:
            if self.failure:
                say(f"error: {first_line(self.failure)}")
            raise self.not_kept
        if self.failure:
            raise UserError(first_line(self.failure)) from self.failure
        if self.silent:
            raise UserError(f"no answer from {', '.join(sorted(self.silent))} within "
                            f"{ANSWER_SECONDS} seconds, so what this worker trains may not have "
                            "saved: end the worker, and give the same command again")


def run_jobs(
    run_training: RunTraining, command: Command, plan: Plan, client: Any, jobs: list[Job]
) -> bool:
    """Run jobs on the workers, and keep what they return. Returns False if Ctrl-C or SIGTERM
    stopped it.

    The first job that fails and the first result that cannot be kept stop the others, as Ctrl-C
    does: their trainings save and end. Only then is an error raised, see `RunningJobs`. A second
    Ctrl-C, and UserError for a scheduler that has ended, come at once.
    """
    with (
        explaining_lost_scheduler(client, command),
        tqdm(total=len(jobs), desc="jobs", unit="job", dynamic_ncols=True) as bar,
    ):
        pending = submit_jobs(run_training, command, client, jobs)
        running = RunningJobs(command, plan, pending, bar)
        while pending:
            try:
                if running.stopped:
                    stop_jobs(client, pending, running.silent)
                for future in wait_for_first(pending, 1 if running.stopped else None):
                    running.collect(future)
            except KeyboardInterrupt:
                if running.stopped:
                    raise
                say("\nstopping: the trainings that run save first")
                running.stopped = True
    running.raise_errors()
    return not running.stopped


def wait_for_first(pending: dict[Any, Job], timeout: float | None) -> set[Any]:
    """Return the futures that are done, once there is one or after `timeout` seconds."""
    from distributed import wait

    if not pending:
        return set()
    with suppress(TimeoutError):
        done, _ = wait([*pending], timeout, "FIRST_COMPLETED")
        return done
    return set()


@contextmanager
def explaining_lost_scheduler(client: Any, command: Command) -> Iterator[None]:
    """Turn any error that comes of the end of the scheduler, or of our workers, into a UserError.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # The client cancels all futures, and tries to connect for a while.
        if client.status == "running" and not isinstance(error, CancelledError):
            raise
        scheduler = command.options.scheduler
        message = (f"the scheduler {scheduler} has ended: start it and its workers again, and give "
                   "the same command again")
        if scheduler is None:  # of workers of our own
            message = "the worker processes have ended: give the same command again"
        raise UserError(message) from error


def submit_jobs(
    run_training: RunTraining, command: Command, client: Any, jobs: list[Job]
) -> dict[Any, Job]:
    """Return the futures of the jobs, which workers begin in their order."""
    pending = {}
    for number, job in enumerate(jobs):
        # Dask would take a result of an earlier job for that of a job with the same key.
        key = f"{job.name}-{time.time_ns()}"
        future = client.submit(do_job_on_worker, run_training, str(command.path), job, key=key,
                               priority=-number)
        pending[future] = job
    return pending


def stop_jobs(client: Any, pending: dict[Any, Job], silent: set[str]) -> None:
    """Tell the jobs that run to save and end. The others are cancelled, and leave `pending`.

    `run_jobs` repeats this until no job is left, for two reasons. A job may begin just now. And a
    worker may be lost just now, whose jobs then go to another one. A worker that does not answer
    for ANSWER_SECONDS seconds is added to `silent`: nobody waits for its jobs.

    Raises UserError if the scheduler does not answer.
    """
    keys = {future.key for future in pending}
    try:
        answers, assigned = client.sync(ask_to_stop, client, keys, silent,
                                        callback_timeout=2 * ANSWER_SECONDS)
    except TimeoutError:
        raise UserError(f"no answer from the scheduler within {2 * ANSWER_SECONDS} seconds, so the "
                        "trainings may not have saved: end it and its workers, start them again, "
                        "and give the same command again") from None
    staying = set().union(*answers.values())
    for worker, its_keys in assigned.items():
        # It came meanwhile, or was lost before it could answer: the next round asks again.
        if worker not in answers and worker not in silent:
            staying.update(its_keys)
    abandoned = [future for future in pending if future.key not in staying and not future.done()]
    client.cancel(abandoned)
    for future in abandoned:
        del pending[future]


async def ask_to_stop(
    client: Any, keys: set[str], silent: set[str]
) -> tuple[dict[str, set[str]], dict[str, Any]]:
    """Ask all workers but the `silent` ones, all at the same time, to stop jobs.

    Adds to `silent` the workers that do not answer. Returns which of `keys` each worker that has
    answered is doing, and what the scheduler has assigned to each worker.
    """
    answers: dict[str, set[str]] = {}

    async def ask(worker: str) -> None:
        question = client.run(request_stop, keys, workers=[worker], on_error="ignore")
        try:
            answers.update(await asyncio.wait_for(question, ANSWER_SECONDS))
        except TimeoutError:
            silent.add(worker)

    workers = set(await client.processing()) - silent
    await asyncio.gather(*map(ask, workers))
    return answers, await client.processing()


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does. A second one does nothing, because some schedulers send two.
    """
    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def holding_interrupts() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of this context.

    The processes that are started within get no Ctrl-C at all, except on Windows. One that is ended
    by it while it starts would print a traceback, and so would Dask, which waits for it.
    """
    received: list[int] = []
    handlers = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # a program in the background ignores Ctrl-C
            handlers[number] = signal.signal(number, lambda number, frame: received.append(number))
    mask: set[int] = set()
    can_block = hasattr(signal, "pthread_sigmask")
    if can_block:  # processes inherit what is blocked
        resource_tracker.ensure_running()  # once it has started, nothing unblocks Ctrl-C
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


def open_client(held: ExitStack, command: Command) -> Any:
    """Return a Dask client, open while `held` is: of a scheduler, or of worker processes of our
    own.

    On a CPU a worker has one thread, which is faster than fewer workers with more threads, and
    keeps the order of sums. On a GPU it has one too: workers with as many threads as cores would be
    in each other's way.
    """
    import dask
    from distributed import Client, LocalCluster

    cluster: Any = command.options.scheduler
    if cluster is None:
        on_gpu = resolve_device(command.config.train.device).type != "cpu"
        n_workers = command.options.jobs
        if n_workers is None and on_gpu:
            n_workers = 1
        # Daemons could not start processes, and the compiler does.
        held.enter_context(dask.config.set({"distributed.worker.daemon": False}))
        with holding_interrupts():
            cluster = held.enter_context(LocalCluster(
                n_workers=n_workers, threads_per_worker=1,
                memory_limit=0,  # none: Dask would end a worker that reaches it
                dashboard_address="127.0.0.1:0",  # any free port
                silence_logs=logging.CRITICAL, env={"OMP_NUM_THREADS": "1"},
                preload=[do_job_on_worker.__module__],  # for its `dask_setup`
            ))
    # The client logs, with tracebacks, what becomes an error of one line here.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        client = held.enter_context(Client(cluster))
    except (OSError, ValueError) as error:
        if command.options.scheduler is None:
            raise
        raise UserError(f"--scheduler {cluster}: {first_line(error)}: start a scheduler, or give "
                        "the address that it prints, such as tcp://HOST:8786") from None
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if any(worker["nthreads"] != 1 for worker in workers):
        raise UserError(f"a worker of {cluster} has several threads, and trainings in one process "
                        "would mix: start it with --nthreads 1")
    # Without bokeh this page is empty.
    page = f", watched at {client.dashboard_link}" if find_spec("bokeh") else ""
    say(f"workers {len(workers)}{page}")
    return client
