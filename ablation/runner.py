"""Carry out a study: make its plan, do on Dask workers what is missing, and write the report."""

import itertools
import json
import logging
import math
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ablation import plan as planning
from ablation.jobs import do_job, request_stop
from ablation.ngrams import ngram_losses
from ablation.options import Command, resolve, to_words
from ablation.study import Study
from data.dataset import Prepared, find_prepared
from data.prepare import prepare
from errors import UserError, say
from files import first_line, locked, write_sealed
from gyre import measure
from gyre.compute import estimate_seconds, format_estimate, matmul_rates, resolve_device
from gyre.options import Config
from gyre.rundir import git_revision
from model import kernels

Plan = dict[str, Any]
"""plan.json. Fixed when it is made, except for `tuned` and `diverged`."""
CALIBRATED = 0.01  # nats that a committed run may differ by when it is trained again
Job = dict[str, Any]
"""A task for a worker, as JSON; see ablation/jobs.py."""


def run_study(argv: list[str], description: str | None = None) -> int:
    """Do what is missing of a study, and write the report. Returns the exit code."""
    command = resolve(argv, description)
    path, config = command.path, command.config
    busy = f"another ablate.py is working on {path}: wait for it, or choose another --name"
    with locked(path, busy, wait=False):
        data = find_prepared(config.data) or prepare(config.data)
        measure.check_length(data.manifest["val"]["tokens"], config.data.seq_len)
        plan = make_plan(command, data)
        print_plan(command, plan)
        if command.options.dry_run:
            return 0
        write_sealed(path / "plan.json", plan)
        if plan["grid"] and plan.get("second_val"):
            prepare(replace(config.data, second_val=True))  # here, where one sees its progress
        if command.beside:
            shutil.copytree(Path(command.options.beside, "results"), path / "results",
                            dirs_exist_ok=True)
        if not run_missing(command, plan):
            say(f"stopped, and what was running has saved. To go on: {command.line}")
            return 130
        from ablation.report import mirror_in_wandb, write_report  # slow to import

        mirrored = (path / "RESULTS.md").exists()
        write_report(path)
        if not mirrored and config.log.wandb != "disabled":
            mirror_in_wandb(path, config.log)
    return 0


# --- the plan -------------------------------------------------------------------------------------


def make_plan(command: Command, data: Prepared) -> Plan:
    """Return the plan in the study's folder, or a new one.

    Raises UserError where the folder has another plan, or something else.
    """
    tier, config, path = command.tier, command.config, command.path
    step_tokens = config.train.batch_size * config.data.seq_len
    steps = {"horizons": sorted({tokens // step_tokens for tokens in tier.horizons}),
             "tuning": min(tier.tuning_tokens, tier.horizons[-1]) // step_tokens}
    counts = {*steps["horizons"], steps["tuning"] or steps["horizons"][-1]}  # 0: not tuned
    for count, arm in itertools.product(counts, command.arm_configs.values()):
        cooldown = planning.count_cooldown(arm.optim, count)
        if not cooldown or arm.optim.warmup_steps >= count - cooldown:
            raise UserError(f"a run of {count} steps has {cooldown} of cooldown after "
                            f"{arm.optim.warmup_steps} of warm-up: choose more --tokens, or "
                            "another optim.warmup_steps or optim.cooldown")
    wanted = json.loads(json.dumps({
        "tier": command.beside.get("tier", command.options.tier), "arms": command.arms,
        "grid": tier.grid, "tuning_seeds": tier.tuning_seeds, "steps": steps,
        "seeds": list(range(tier.seeds)), "baseline": command.baseline,
        "seq_len": config.data.seq_len, "step_tokens": step_tokens,
        "config": {arm: select_decisive(config) for arm, config in command.arm_configs.items()},
        "data_sha256": {name: file["sha256"] for name, file in data.manifest["files"].items()},
    }))
    if beside := command.beside:
        if wanted["data_sha256"] != beside["data_sha256"]:
            raise UserError(f"the text or its tokens differ from those of {command.options.beside},"
                            f" made with Python {beside['versions']['python']}: give its text with "
                            "--data.files, and its tokenizer with --data.tokenizer")
        wanted |= {"committed": list(beside["arms"]), "config": wanted["config"] | beside["config"]}
    file = path / "plan.json"
    if file.exists():
        plan = planning.read_plan(path)
        if changed := [key for key, value in wanted.items() if plan.get(key) != value]:
            raise UserError(f"{file} holds another plan (these differ: {', '.join(changed)}): "
                            f"choose another folder with --name, or remove {path}")
        Study.load(path)  # refuses records that do not belong together, before more work
        say(f"plan    {file}: going on")
        return plan
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{path} is not empty and holds no plan.json, so it is not a study: choose "
                        "another folder with --name")
    train, held_out = (np.fromfile(data.folder / f"{split}.bin", dtype=data.manifest["dtype"])
                       .astype(np.int64) for split in ("train", "val"))
    return {
        "name": path.name, "command": command.line, **wanted, "dtype": config.train.dtype,
        # Measured once, or runs could differ.
        "onednn": kernels.prefers_onednn(),
        "ngrams": ngram_losses(train, held_out, data.manifest["vocab_size"]),
        "machine": planning.machine(), "versions": planning.versions(), "git": git_revision(),
        "tuned": {"arms": beside["tuned"].get("arms", {}) if beside else {}},
        "diverged": list(beside.get("diverged", ())),
        # Rates are tuned on another validation text than is reported, where those beside were.
        "second_val": beside.get("second_val", not beside),
    }


def print_plan(command: Command, plan: Plan) -> None:
    for arm, overlay in command.arms.items():
        say(f"arm     {arm:<11} {' '.join(to_words(overlay))}")
    if plan["grid"]:
        length = name_length(plan, plan["steps"]["tuning"])
        say(f"tuning  optim.lr {plan['grid']}, {length} tokens, seeds {plan['tuning_seeds']}")
    lengths = ", ".join(name_length(plan, steps) for steps in plan["steps"]["horizons"])
    say(f"runs    seeds {plan['seeds']} of each arm, for {lengths} tokens")
    dtype = getattr(torch, command.config.train.dtype)
    if resolve_device(command.config.train.device).type == "cpu":
        seconds = 0.0
        for arm in new_arms(command):
            model = command.arm_configs[arm].model
            (rate,) = matmul_rates(torch.device("cpu"), model, plan["step_tokens"], training=True,
                                   dtypes=[dtype])
            tokens = plan["step_tokens"] * count_steps(command, plan, arm)
            seconds += estimate_seconds(model, tokens, rate)
        say(f"time    {format_estimate(seconds)} of training, if this machine does it all")


def count_steps(command: Command, plan: Plan, arm: str) -> int:
    """Return the optimizer steps of all runs of a new arm: of tuning, as far as it is known, and of
    every seed the longest run and the cooldowns of the shorter ones."""
    steps = plan["steps"]
    *shorter, longest = steps["horizons"]
    optim = command.arm_configs[arm].optim
    cooldowns = sum(planning.count_cooldown(optim, count) for count in shorter)
    total = len(plan["seeds"]) * (longest + cooldowns)
    if plan["grid"] and "optim.lr" not in command.arms[arm]:
        total += len(plan["grid"]) * len(plan["tuning_seeds"]) * steps["tuning"]
    return total


def select_decisive(config: Config) -> dict[str, Any]:
    """Return the part of a configuration that decides numbers and is the same for all seeds."""
    values: dict[str, Any] = asdict(config)
    del values["log"], values["name"], values["seed"], values["data"]["prepared"]
    del values["data"]["second_val"], values["train"]["device"], values["train"]["onednn"]
    if values["data"]["separator"] is None:  # plans from before this option have none
        del values["data"]["separator"]
    return values


def name_length(plan: Plan, steps: int) -> str:
    """Return the tokens of so many steps as text, such as 2M, for the names of runs."""
    tokens = steps * plan["step_tokens"]
    for size, unit in ((planning.MILLION, "M"), (1024, "k")):
        if tokens >= size:
            return f"{tokens / size:.4g}{unit}"
    return str(tokens)


# --- what is missing ------------------------------------------------------------------------------


def run_missing(command: Command, plan: Plan) -> bool:
    """Do what is missing of the study. Returns False when Ctrl-C stopped it."""
    client = None
    with ExitStack() as held:
        while jobs := next_jobs(command, plan):
            client = client or open_client(held, command)
            if not run_jobs(command, plan, client, jobs):
                return False
    return True


def next_jobs(command: Command, plan: Plan) -> list[Job]:
    """Return the jobs that can be done now; none: the study is finished."""
    if command.beside and "calibration" not in plan:
        return [calibration_job(command, plan)]
    tuning = [job for arm in new_arms(command) for job in tuning_jobs(command, plan, arm)]
    return tuning or pair_jobs(command, plan)


def new_arms(command: Command) -> list[str]:
    """Return the arms that this study trains itself."""
    return [arm for arm in command.arms if arm not in command.beside.get("arms", ())]


def calibration_job(command: Command, plan: Plan) -> Job:
    """Return the job that trains a committed run again, to the shortest length."""
    study = Study.load(command.path)
    arm, seed = next(iter(study.records))  # a committed one: there are no others yet
    steps, name = plan["steps"]["horizons"][0], f"calibration-{arm}-s{seed}"
    training = plan_training(command, plan, name, steps, {
        **command.arms[arm], "optim.lr": study.runs(arm)[seed]["lr"], "seed": seed,
        "log.job_type": "tune", "log.group": f"{command.path.name}/calibration",
        "train.eval_interval": steps})
    return {"kind": "calibration", "name": name, "trainings": [training],
            "committed": study.losses(arm, study.horizons[0])[seed]}


def tuning_jobs(command: Command, plan: Plan, arm: str) -> list[Job]:
    """Return what `next_rates` asks for; nothing for an arm that says its own rate."""
    steps, overlay = plan["steps"]["tuning"], command.arms[arm]
    if not plan["grid"] or "optim.lr" in overlay:
        return []
    losses = planning.tuning_losses(plan).get(arm, {})
    jobs, length = [], name_length(plan, steps)
    for lr, seed in planning.next_rates(plan["grid"], plan["tuning_seeds"], losses):
        name = f"tune-{length}-{arm}-lr{lr:g}-s{seed}"
        training = plan_training(command, plan, name, steps, {
            **overlay, "optim.lr": lr, "seed": seed, "log.job_type": "tune",
            "data.second_val": plan.get("second_val", False),
            "log.group": f"{command.path.name}/tuning-{length}/{arm}",
            "train.eval_interval": math.ceil(steps / planning.VALIDATIONS)})
        jobs.append({"kind": "tuning", "name": name, "arm": arm, "lr": lr, "seed": seed,
                     "trainings": [training]})
    return jobs


def pair_jobs(command: Command, plan: Plan) -> list[Job]:
    """Return a job for each arm and seed without a record, seed by seed: the longest run, the runs
    that branch off from it, and the measurements."""
    jobs, steps = [], plan["steps"]["horizons"]
    branchings = [count - planning.count_cooldown(command.config.optim, count) for count in steps]
    for seed, arm in itertools.product(plan["seeds"], new_arms(command)):
        name = f"{arm}-s{seed}"
        if (command.path / "results" / f"{name}.json").exists() or name in plan.get("diverged", ()):
            continue
        values = {**command.arms[arm], "seed": seed, "log.job_type": "train"}
        if "optim.lr" not in values and plan["grid"]:
            values["optim.lr"] = planning.best_rate(planning.tuning_losses(plan)[arm])
        trunk, trainings = None, []
        for count in reversed(steps):
            length = name_length(plan, count)
            values |= {"train.eval_interval": count,
                       "log.group": f"{command.path.name}/{length}/{arm}"}
            longest = {"train.keep": planning.kept_steps(branchings, command.tier.followed),
                       "train.eval_interval": math.ceil(count / planning.VALIDATIONS)}
            trainings.append(plan_training(command, plan, f"{name}-{length}", count,
                                           values if trunk else values | longest, trunk))
            trunk = trainings[0]["run"]
        jobs.append({"kind": "results", "name": name, "arm": arm, "trainings": trainings,
                     "windows": command.tier.windows, "device": command.config.train.device})
    return jobs


def plan_training(
    command: Command, plan: Plan, name: str, steps: int, values: dict[str, Any],
    trunk: str | None = None,
) -> dict[str, Any]:
    """Return how to train a run: its folder, its steps and the words of the command line.

    With a `trunk` it branches off from that run where its cooldown begins.
    """
    values = {**values, "name": name, "train.steps": steps, "log.runs": str(command.path),
              "train.onednn": plan["onednn"]}
    argv = [*command.run_argv, *to_words(values)]
    if trunk is not None:
        changed = {key: value for key, value in values.items()
                   if key.partition(".")[0] in ("train", "log", "name")}
        at = steps - planning.count_cooldown(command.config.optim, steps)
        argv = ["--branch-from", trunk, "--at", str(at), *to_words(changed)]
    return {"run": str(command.path / name), "steps": steps, "argv": argv}


def keep_result(command: Command, plan: Plan, job: Job, result: Any) -> None:
    """Write down what a job has returned, and remove the checkpoints that nobody needs any more."""
    disposable = ("previous", "best", "kept" if job["kind"] == "results" else "last")
    if job["kind"] == "tuning":
        rates = plan["tuned"]["arms"].setdefault(job["arm"], {})
        rates.setdefault(f"{job['lr']:g}", {})[str(job["seed"])] = result
    elif job["kind"] == "calibration":
        plan["calibration"] = {"name": job["name"], "committed": job["committed"], "here": result}
        if result is None or abs(result - job["committed"]) > CALIBRATED:
            raise UserError(f"{job['name']} ends at {result} here and at {job['committed']} in "
                            f"{command.options.beside}: records of the two do not compare")
    elif result is None:
        # A mean over the seeds that are left would flatter the arm, so the report names this one.
        say(f"{job['name']} diverged, and is left out")
        plan.setdefault("diverged", []).append(job["name"])
    else:
        write_sealed(command.path / "results" / f"{job['name']}.json", result)
        Study.load(command.path)  # refuses arms that differ in more than the arm, at once
    write_sealed(command.path / "plan.json", plan)
    for training, name in itertools.product(job["trainings"], disposable):
        shutil.rmtree(Path(training["run"], name), ignore_errors=True)


# --- on the workers -------------------------------------------------------------------------------


def run_jobs(command: Command, plan: Plan, client: Any, jobs: list[Job]) -> bool:
    """Run jobs on the workers, and keep what they return. Returns False when Ctrl-C stopped it; the
    trainings then save first.

    Raises UserError where a job failed, after the others have saved.
    """
    from distributed import wait

    job_of = {f"{job['name']}-{time.time_ns()}": job for job in jobs}
    pending = {client.submit(do_job, str(command.path), job, key=key, priority=-number)
               for number, (key, job) in enumerate(job_of.items())}
    stopped, failure = False, None
    with tqdm(total=len(jobs), desc="jobs", dynamic_ncols=True) as bar:
        while pending:
            try:
                if stopped:
                    pending = stop_jobs(client, pending)
                done = set()
                with suppress(TimeoutError):
                    done, pending = wait(pending, 1 if stopped else None, "FIRST_COMPLETED")
                for future in done:
                    if future.status == "finished":
                        keep_result(command, plan, job_of[future.key], future.result())
                        bar.update()
                    elif not stopped:
                        stopped, failure = True, future.exception()
            except KeyboardInterrupt:
                if stopped:
                    raise
                say("\nstopping: the trainings that run save first")
                stopped = True
    if failure is not None:
        raise UserError(first_line(failure)) from failure
    return not stopped


def stop_jobs(client: Any, pending: set[Any]) -> set[Any]:
    """Tell the jobs that run to save and end, and cancel the others. Returns those that run."""
    # A worker that is just being lost does not answer. The caller asks the one that replaces it.
    answers = client.run(request_stop, {future.key for future in pending}, on_error="ignore")
    running = set().union(*answers.values())
    waiting = [future for future in pending if future.key not in running and not future.done()]
    client.cancel(waiting)
    return pending.difference(waiting)


def open_client(held: ExitStack, command: Command) -> Any:
    """Return a Dask client, open while `held` is: of a scheduler, or of worker processes of our
    own.

    On a CPU a worker has one thread, which is faster than fewer workers with more threads, and
    keeps the order of sums.
    """
    import dask
    from distributed import Client, LocalCluster

    cluster: Any = command.options.scheduler
    if cluster is None:
        on_gpu = resolve_device(command.config.train.device).type != "cpu"
        # Not daemons: they cannot start processes, as the compiler does.
        held.enter_context(dask.config.set({"distributed.worker.daemon": False}))
        cluster = held.enter_context(LocalCluster(
            n_workers=command.options.jobs or (1 if on_gpu else None), threads_per_worker=1,
            memory_limit=0, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
            env={} if on_gpu else {"OMP_NUM_THREADS": "1"}, preload=[do_job.__module__],
        ))
    try:
        client = held.enter_context(Client(cluster))
    except ValueError as error:
        raise UserError(f"--scheduler: {error}") from None
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if any(worker["nthreads"] != 1 for worker in workers):
        raise UserError(f"a worker of {cluster} has several threads, and trainings in one process "
                        "would mix: start it with --nthreads 1")
    page = f", watched at {client.dashboard_link}" if find_spec("bokeh") else ""  # else it is empty
    say(f"workers {len(workers)}{page}")
    return client
