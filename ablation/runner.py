"""Carry out a study: from the plan over its runs, side by side on Dask workers, to the report.

Every job can be repeated: what is on the disk is not done again, and a training that was stopped
or killed is resumed. So a job whose worker is lost simply runs on another one.
"""

import itertools
import json
import logging
import math
import runpy
import shlex
import shutil
import signal
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ablation import plan as planning
from ablation.ngrams import ngram_losses
from ablation.plan import ARMS, TIERS
from ablation.study import Study
from data.dataset import find_prepared
from data.prepare import prepare
from data.sources import DataConfig
from errors import UserError, say
from files import first_line, locked, write_sealed
from gyre import measure
from gyre.device import resolve_device
from gyre.options import Config, Parser, make_config, read_yaml
from gyre.rundir import RunDir, git_revision
from gyre.signals import StopSignal

ROOT = Path(__file__).parent.parent
# What the study sets for each run, so that a value for all of them would have no effect.
CHOSEN = ("seed", "train.steps", "train.keep", "train.eval_interval", "log.group", "log.job_type")
TUNED = ("optim.lr", "optim.muon_lr")
# What all arms share: they branch off at the same steps and are compared at the same tokens.
SHARED = ("train.steps", "train.batch_size", "train.dtype", "train.keep", "optim.schedule",
          "optim.cooldown", "seed", *(f"data.{option.name}" for option in fields(DataConfig)))


@dataclass
class StudyOptions:
    """What a study compares."""

    tier: str = "quick"
    """Size of the study: quick, full or smoke."""
    arms: str | None = None
    """Compare these instead of the tier's, such as rope,sin,nope."""
    arm: list[str] = field(default_factory=list)
    """Compare an arm of your own too, as NAME=OPTION=VALUE,..., such as
    b500=model.theta=500,optim.lr=2e-3. May be given several times."""
    baseline: str | None = None
    """The arm that every difference is taken to. Default: sin, or the last one."""
    seeds: int | None = None
    """Seeds of each arm. Default: the tier's; quick: 6."""
    tokens: str | None = None
    """Training tokens of the runs, such as 1M,4M (M: 2^20). Default: the tier's; quick:
    512k,1M."""
    no_tuning: bool = False
    """Train all arms at optim.lr, but for those that say their own, instead of choosing the best
    rate of each."""
    jobs: int | None = None
    """Runs at a time on this machine. Default: one for each core, with one thread each; on a GPU,
    1."""
    scheduler: str | None = None
    """Address of a Dask scheduler, such as tcp://HOST:8786, whose workers see the same files; they
    then do the work."""
    dry_run: bool = False
    """Print the plan, and stop."""


class Stopped(Exception):
    """A training was told to stop, and has saved."""


class Runner:
    """One study: a command, the plan it makes, and what is still missing of it."""

    def __init__(self, argv: list[str], description: str | None = None):
        """Raises UserError for whatever is wrong with the command, before any work."""
        parser = Parser(description)
        parser.add_fields(StudyOptions, heading="the study")
        parser.add_config()
        options = parser.parse_args(argv)
        self.command = shlex.join(["python", "ablate.py", *argv])
        self.options = options
        planning.check_name("tier", options.tier, TIERS)
        self.tier = choose_tier(options)
        self.arms = planning.choose_arms(self.tier, options.arms, options.arm or [])
        self.baseline = planning.choose_baseline(options.baseline, self.arms)
        files = options.config or ["ablation.yaml"]
        # The options of every run: the tier's values stand before the user's, which win.
        layers = [*map(read_yaml, files), self.tier.overrides, options.given]
        self.config = make_config(*layers)
        self.argv = [word for file in files for word in ("--config", file)]
        self.argv += [*spelled(self.tier.overrides), *spelled(options.given)]
        self.config_of = {}
        for arm, overlay in self.arms.items():
            arm_parser = Parser()
            arm_parser.add_config()
            try:
                given = arm_parser.parse_args(spelled(overlay)).given
                self.config_of[arm] = make_config(*layers, given)
            except UserError as error:
                raise UserError(f"arm {arm}: {error}") from None
        check_study(self.config, self.config_of, bool(self.tier.grid))
        self.cooldown = self.config.optim.cooldown or 0.0  # a schedule of wsd has one
        stem = Path(files[-1]).stem
        default = stem if options.tier == "quick" else f"{stem}-{options.tier}"
        name = self.config.name or default
        self.path = Path(self.config.log.runs) / name
        self.plan_file = self.path / "plan.json"
        if not self.path.exists():
            RunDir.new_path(self.config.log.runs, name)  # refuses a bad name

    def run(self) -> int:
        """Do whatever is missing of the plan, and the report. Returns the exit code."""
        busy = (f"another ablate.py is working on {self.path}: wait for it, or choose another "
                "folder with --name")
        with locked(self.path, busy, wait=False):
            self.data = find_prepared(self.config.data) or prepare(self.config.data)
            measure.check_length(self.data.manifest["val"]["tokens"], self.config.data.seq_len)
            self.plan = self.make_plan()
            self.print_plan()
            if self.options.dry_run:
                return 0
            write_sealed(self.plan_file, self.plan)
            started, before = time.perf_counter(), self.plan["minutes"]
            try:
                with open_client(self.options.scheduler, self.config, self.options.jobs) as client:
                    finished = self.run_all(client)
            finally:
                self.plan["minutes"] = before + (time.perf_counter() - started) / 60
                write_sealed(self.plan_file, self.plan)
            if not finished:
                say(f"stopped, and what was running has saved. To go on: {self.command}")
                return 130
            self.report()
        return 0

    def report(self) -> None:
        """Write the report, and send it to wandb the first time."""
        from ablation.report import mirror_in_wandb, write_report  # slow to import

        write_report(self.path)
        if not self.plan.get("in_wandb"):
            log = replace(self.config.log, runs=str(self.path))
            self.plan["in_wandb"] = mirror_in_wandb(self.path, log)
            write_sealed(self.plan_file, self.plan)
        print(self.path / "report.html")

    # --- the plan ---

    def make_plan(self) -> dict[str, Any]:
        """Return the plan in the folder, or a new one.

        Raises UserError where the folder has a plan of something else.
        """
        tier, config = self.tier, self.config
        probed = [arm for arm in planning.PROBED if self.arms.get(arm) == ARMS[arm]]
        if len(probed) < 2:  # a probe compares encodings, and knows nothing of the study's model
            probed = []
        self.step_tokens = config.train.batch_size * config.data.seq_len
        steps = {"horizons": [tokens // self.step_tokens for tokens in tier.horizons],
                 "tuning": tier.tuning_tokens // self.step_tokens}
        for count in filter(None, (*steps["horizons"], steps["tuning"])):
            cooldown = round(self.cooldown * count)
            if not cooldown or config.optim.warmup_steps >= count - cooldown:
                raise UserError(f"a run of {count} steps has {cooldown} of cooldown after "
                                f"{config.optim.warmup_steps} of warm-up: choose more --tokens, or "
                                "another optim.warmup_steps or optim.cooldown")
        files = self.data.manifest["files"]
        wanted = json.loads(json.dumps({
            "tier": self.options.tier, "arms": self.arms, "baseline": self.baseline,
            "grid": tier.grid, "tuning_seeds": tier.tuning_seeds, "steps": steps,
            "seeds": list(range(tier.seeds)),
            "probes": {name: {"arms": probed, "seeds": list(range(tier.probe_seeds)),
                              "steps": tier.probe_steps} for name in planning.PROBES},
            "seq_len": config.data.seq_len, "step_tokens": self.step_tokens,
            "config": {arm: decisive(config) for arm, config in self.config_of.items()},
            "data_sha256": {name: file["sha256"] for name, file in files.items()},
        }))
        if self.plan_file.exists():
            stored = planning.read_plan(self.path)
            if changed := [key for key, value in wanted.items() if stored.get(key) != value]:
                raise UserError(f"{self.plan_file} is of another plan ({', '.join(changed)}), and "
                                "plans do not mix: choose another folder with --name, or remove "
                                f"{self.path}")
            Study.load(self.path)  # refuses records that do not belong together, before more work
            say(f"plan    {self.plan_file}: going on")
            return stored
        if self.path.exists() and any(self.path.iterdir()):
            raise UserError(f"{self.path} is not empty and holds no plan.json, so it is not a "
                            "study: choose another folder with --name")
        folder, width = self.data.folder, self.data.manifest["dtype"]
        train, held_out = (np.fromfile(folder / f"{split}.bin", dtype=width).astype(np.int64)
                           for split in ("train", "val"))
        return {
            "name": self.path.name, "command": self.command, **wanted,
            "dtype": config.train.dtype,
            "ngrams": ngram_losses(train, held_out, self.data.manifest["vocab_size"]),
            "machine": planning.machine(), "versions": planning.versions(),
            "git": git_revision(), "tuned": {"arms": {}}, "minutes": 0.0,
        }

    def print_plan(self) -> None:
        plan, manifest = self.plan, self.data.manifest
        losses = ", ".join(f"{loss:.2f}" for loss in plan["ngrams"])
        say(f"data    {self.data.folder}: {manifest['train']['tokens']:,} training tokens; loss of "
            f"1-, 2- and 3-grams: {losses}")
        for arm, overlay in self.arms.items():
            say(f"arm     {arm:<11} {' '.join(spelled(overlay))}")
        if plan["grid"]:
            tokens = self.amount(plan["steps"]["tuning"])
            say(f"tuning  optim.lr {plan['grid']}, {tokens} tokens, seeds {plan['tuning_seeds']}")
        lengths = ", ".join(map(self.amount, plan["steps"]["horizons"]))
        say(f"runs    seeds {plan['seeds']} of each arm, for {lengths} tokens")

    def amount(self, steps: int) -> str:
        """Return so many steps in tokens, as in the names of runs: 2M."""
        tokens = steps * self.step_tokens
        for size, unit in ((planning.MILLION, "M"), (1024, "k")):
            if tokens >= size:
                return f"{tokens / size:.4g}{unit}"
        return str(tokens)

    # --- the runs ---

    def run_all(self, client: Any) -> bool:
        """Do whatever is missing. Returns False when Ctrl-C stopped it."""
        while jobs := [job for arm in self.arms for job in self.tuning_jobs(arm)]:
            if not self.run_jobs(client, jobs, "tuning"):
                return False
        for arm in self.arms:
            self.settle_rate(arm)
        return self.run_jobs(client, [*self.pair_jobs(), *self.probe_jobs()], "runs")

    def run_jobs(self, client: Any, jobs: list[dict[str, Any]], description: str) -> bool:
        """Run jobs on the workers, and keep what they return. Returns False when Ctrl-C stopped it;
        the trainings then save first.

        Raises UserError where a job failed, after the others have saved.
        """
        from distributed import as_completed

        if not jobs:
            return True
        logs = str(self.path / "logs")
        job_of = {f"{job['name']}-{time.time_ns()}": job for job in jobs}
        futures = [client.submit(carry_out, {**job, "logs": logs}, key=key, priority=-number)
                   for number, (key, job) in enumerate(job_of.items())]
        stopped, failure, waiting = False, None, as_completed(futures)
        with tqdm(total=len(jobs), desc=description, dynamic_ncols=True) as bar:
            while not waiting.is_empty():
                try:
                    for future in waiting:
                        if future.status == "finished":
                            self.keep(job_of[future.key], future.result())
                            bar.update()
                        elif future.status == "error" and not stopped:
                            stopped, failure = True, future.exception()
                            stop_jobs(client, futures)
                except KeyboardInterrupt:
                    if stopped:
                        raise
                    say("\nstopping: the trainings that run save first")
                    stopped = True
                    stop_jobs(client, futures)
        if failure is not None:
            raise UserError(first_line(failure)) from failure
        return not stopped

    def keep(self, job: dict[str, Any], result: Any) -> None:
        """Write down what a job has returned, and free the disk of what was measured."""
        if job["kind"] == "tune":
            rates = self.plan["tuned"]["arms"].setdefault(job["arm"], {})
            rates.setdefault(f"{job['lr']:g}", {})[str(job["seed"])] = result
            write_sealed(self.plan_file, self.plan)
            remove_checkpoints(Path(job["trainings"][0]["run"]), "last", "previous", "best")
        elif result is None:
            # A mean over what is left of the arm would flatter it.
            say(f"{job['name']} diverged, and is left out")
            self.plan.setdefault("diverged", []).append(job["name"])
            write_sealed(self.plan_file, self.plan)
        else:
            write_sealed(Path(job["result"]), result)
            for training in job.get("trainings", ()):
                remove_checkpoints(Path(training["run"]), "previous", "best", "kept")
            Study.load(self.path)  # refuses arms that differ in more than the arm, at once

    def settle_rate(self, arm: str) -> None:
        """Say which learning rate is best. UserError where an arm diverged at all of them."""
        losses = planning.tuning_losses(self.plan, "arms").get(arm)
        if not losses:
            return
        best = planning.best_rate(losses)
        if None in losses[best].values():
            raise UserError(f"{arm} diverged at every learning rate from {min(losses):g} to "
                            f"{max(losses):g}: leave it out, or change its settings")
        say(f"tuned   {arm:<11} {best:g}")

    def tuning_jobs(self, arm: str) -> list[dict[str, Any]]:
        """Return what `next_rates` asks for; nothing for an arm that says its own rate."""
        plan, steps = self.plan, self.plan["steps"]["tuning"]
        if not plan["grid"] or "optim.lr" in self.arms[arm]:
            return []
        losses = planning.tuning_losses(plan, "arms").get(arm, {})
        jobs = []
        for lr, seed in planning.next_rates(plan["grid"], plan["tuning_seeds"], losses):
            name = f"tune-{self.amount(steps)}-{arm}-lr{lr:g}-s{seed}"
            training = self.training(name, steps, {
                **self.arms[arm], "optim.lr": lr, "seed": seed,
                "train.eval_interval": math.ceil(steps / planning.VALIDATIONS),
                "log.group": f"{self.path.name}/tuning-{self.amount(steps)}/{arm}",
                "log.job_type": "tune",
            })
            jobs.append({"kind": "tune", "name": name, "arm": arm, "lr": lr, "seed": seed,
                         "trainings": [training]})
        return jobs

    def pair_jobs(self) -> list[dict[str, Any]]:
        """Return a job for each arm and seed without a record, seed by seed: the longest run, those
        that branch off from it, and the measurements."""
        plan, jobs = self.plan, []
        steps, followed = plan["steps"]["horizons"], self.tier.followed
        for seed, arm in itertools.product(plan["seeds"], self.arms):
            name = f"{arm}-s{seed}"
            result = self.path / "results" / f"{name}.json"
            if result.exists() or name in plan.get("diverged", []):
                continue
            values = {**self.arms[arm], "seed": seed, "log.job_type": "train"}
            if "optim.lr" not in values and plan["grid"]:
                losses = planning.tuning_losses(plan, "arms")[arm]
                values["optim.lr"] = planning.best_rate(losses)
            trunk, trainings = None, []
            for count in reversed(steps):
                amount = self.amount(count)
                options = {**values, "train.eval_interval": count,
                           "log.group": f"{self.path.name}/{amount}/{arm}"}
                if trunk is None:
                    options |= {"train.keep": planning.kept_steps(steps, self.cooldown, followed),
                                "train.eval_interval": math.ceil(count / planning.VALIDATIONS)}
                trainings.append(self.training(f"{name}-{amount}", count, options, trunk))
                trunk = trainings[0]["run"]
            jobs.append({
                "kind": "pair", "name": name, "arm": arm, "trainings": trainings,
                "yarn": self.arms[arm] == ARMS["rope"], "windows": self.tier.windows,
                "device": self.config.train.device, "result": str(result),
            })
        return jobs

    def probe_jobs(self) -> list[dict[str, Any]]:
        """Return a job for each probe without a record."""
        jobs = []
        for probe, parts in self.plan["probes"].items():
            for seed, arm in itertools.product(parts["seeds"], parts["arms"]):
                result = self.path / "probes" / f"{probe}-{arm}-s{seed}.json"
                if not result.exists():
                    jobs.append({
                        "kind": "probe", "name": result.stem, "result": str(result),
                        "arguments": [probe, arm, seed, parts["steps"], self.config.train.device],
                    })
        return jobs

    def training(
        self, name: str, steps: int, values: dict[str, Any], trunk: str | None = None
    ) -> dict[str, Any]:
        """Return how to train a run: its folder, its steps and the words of the command line.

        With a `trunk` it branches off from that run where its cooldown begins.
        """
        revision = (self.plan["git"] or {}).get("revision", "no git")[:7]
        tags = [self.options.tier, self.config.data.source, revision, *self.config.log.tags]
        values = {**values, "name": name, "train.steps": steps, "log.runs": str(self.path),
                  "log.tags": tags}
        if trunk is None:
            argv = [*self.argv, *spelled(values)]
        else:
            changed = {key: value for key, value in values.items()
                       if key.partition(".")[0] in ("train", "log", "name")}
            at = steps - round(self.cooldown * steps)
            argv = ["--branch-from", trunk, "--at", str(at), *spelled(changed)]
        return {"run": str(self.path / name), "steps": steps, "argv": argv}


# --- on a worker ----------------------------------------------------------------------------------


def carry_out(job: dict[str, Any]) -> Any:
    """Do a job, with what it prints in logs/NAME.log; see `do_job`."""
    log = Path(job["logs"], f"{job['name']}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        return do_job(job)


def do_job(job: dict[str, Any]) -> Any:
    """Do a job: return the loss of a tuning run or the record of a pair or a probe; None where a
    run diverged. Whatever of it is on the disk already is not done again."""
    if job["kind"] == "probe":
        from ablation.probes import run_probe

        return run_probe(*job["arguments"])
    runs = []
    for training in job["trainings"]:
        if not train_run(training):
            return None
        runs.append(RunDir.open(training["run"]))
    if job["kind"] == "tune":
        return next(point["val/loss"] for point in reversed(runs[0].metrics())
                    if "val/loss" in point)
    trunk, *branches = runs
    if not trunk.checkpoints.kept_steps():
        raise UserError(f"{trunk.path} has no checkpoints along the way any more: remove "
                        f"{', '.join(str(run.path) for run in runs)} to train them again")
    # `last`: the loss after all tokens, which is the one that has been agreed on beforehand.
    record = measure.measure(trunk, "last", job["windows"], job["device"], all_blocks=True,
                             scalings=["yarn"] if job["yarn"] else [])
    shift = next(row["dloss"] for row in record["shift"] if row["delta"] == record["seq_len"])
    at_most = min(job["windows"], measure.WINDOWS)
    ends = [measure.ending(run, at_most, job["device"]) for run in reversed(branches)]
    ends.append({key: record[key] for key in ("tokens", "loss", "se", "stretches")}
                | {"shift": shift})
    return {
        "arm": job["arm"], **record, **measure.origin(trunk), "horizons": ends,
        "trajectory": measure.follow(trunk, at_most, job["device"]),
        "machine": planning.machine(),
        "trained_by": {key: trunk.record[key] for key in ("git", "torch")},
    }


def train_run(training: dict[str, Any]) -> bool:
    """Train what is missing of a run: all, the rest of it, or nothing. Returns False where it
    diverged. Raises Stopped where it was told to stop, and UserError where it failed."""
    folder, argv = Path(training["run"]), training["argv"]
    if folder.exists():
        done = steps_saved(folder)
        if done == training["steps"]:
            return True
        if has_diverged(folder):
            return False  # it would again
        if done:
            argv = ["--resume", str(folder)]
        else:
            shutil.rmtree(folder)  # stopped before its first checkpoint
    torch._dynamo.reset()  # as in a process of its own: no run depends on what was compiled before
    print("$", shlex.join(["python", "train.py", *argv]), flush=True)
    try:
        # As the command would: the run is the one that a user would start.
        runpy.run_path(str(ROOT / "train.py"))["main"](argv)
        code = 0
    except SystemExit as stop:
        code = stop.code
    if code == 128 + signal.SIGTERM:
        raise Stopped(folder.name)
    if code and not has_diverged(folder):
        raise UserError(f"{folder.name} failed (exit {code}), and the study stopped; why is in the "
                        f"job's log in {folder.parent / 'logs'}")
    return not code


def request_stop(number: int) -> None:
    """Let the trainings of this worker stop after their step and save; 0: let them train."""
    StopSignal.number = number


def stop_jobs(client: Any, futures: list[Any]) -> None:
    """Cancel the jobs that wait, and let those that run save and end."""
    running = {key for keys in client.processing().values() for key in keys}
    client.cancel([future for future in futures if future.key not in running])
    client.run(request_stop, signal.SIGTERM)


def ignore_interrupts() -> None:
    """Leave Ctrl-C, which a terminal sends to workers too, to the command."""
    with suppress(ValueError):  # a worker whose main thread is not ours
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def open_client(scheduler: str | None, config: Config, jobs: int | None) -> Iterator[Any]:
    """Yield a Dask client: of a scheduler, or of worker processes of our own.

    On a CPU a worker has one thread: faster than fewer runs with several, and the sums have one
    order.
    """
    import dask
    from distributed import Client, LocalCluster

    with ExitStack() as held:
        if scheduler is not None:
            client = held.enter_context(Client(scheduler))
            client.run(request_stop, 0)  # its workers may have stopped another study
        else:
            on_gpu = resolve_device(config.train.device).type != "cpu"
            # Not daemons, which may have no children, as the compiler has.
            held.enter_context(dask.config.set({"distributed.worker.daemon": False}))
            cluster = held.enter_context(LocalCluster(
                n_workers=jobs or (1 if on_gpu else planning.cores()), threads_per_worker=1,
                memory_limit=0, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
                env={} if on_gpu else {"OMP_NUM_THREADS": "1"},
            ))
            client = held.enter_context(Client(cluster))
            client.run(ignore_interrupts)
        say(f"workers {len(client.scheduler_info()['workers'])}, watched at "
            f"{client.dashboard_link}")
        yield client


# --- checks ---------------------------------------------------------------------------------------


def choose_tier(options: Namespace) -> planning.Tier:
    """Return the tier, changed as the options say."""
    tier = TIERS[options.tier]
    for name in ("jobs", "seeds"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise UserError(f"--{name} must be at least 1, not {getattr(options, name)}")
    if options.seeds is not None:
        tier = replace(tier, seeds=options.seeds)
    if options.tokens is not None:
        tier = replace(tier, horizons=planning.choose_horizons(options.tokens))
    if options.no_tuning:
        if not tier.grid:
            raise UserError(f"--no-tuning has no effect: the {options.tier} tier tunes nothing")
        tier = replace(tier, grid=(), tuning_tokens=0)
    return tier


def check_study(base: Config, arms: Mapping[str, Config], tuned: bool) -> None:
    """Raise UserError where the command sets for all runs what the study sets for each, or an arm
    has a text, steps, batches, schedule or dtype of its own."""
    default = make_config()
    for key in (*CHOSEN, *(TUNED if tuned else ())):
        value = attrgetter(key)(base)
        if value != attrgetter(key)(default):
            advice = "; --no-tuning trains all arms at optim.lr" if key in TUNED else ""
            raise UserError(f"{key} {value} has no effect: the study sets it for each run "
                            f"(ablation/plan.py); leave it out{advice}")
    if base.optim.schedule != "wsd":
        raise UserError(f"optim.schedule must be wsd, not {base.optim.schedule}: a study's runs of "
                        "different lengths are one run until they cool down")
    if base.train.dtype == "auto":
        raise UserError("train.dtype auto could be another for each run: say float32 or bfloat16")
    for arm, config in arms.items():
        for key in SHARED:
            if attrgetter(key)(config) != attrgetter(key)(base):
                raise UserError(f"--arm {arm}: {key} is the same in all arms of a study: set "
                                f"--{key} for all")


def spelled(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a layer, or dotted values, as words of a command line."""
    words: list[str] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            words += spelled(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            words.append(f"--{prefix}{key}={text}")
    return words


def decisive(config: Config) -> dict[str, Any]:
    """Return the part of a run's configuration that decides its numbers and is not the run's
    own."""
    values: dict[str, Any] = asdict(config)
    del values["log"], values["name"], values["seed"]
    del values["data"]["prepared"], values["train"]["device"]
    return values


def remove_checkpoints(run: Path, *names: str) -> None:
    """Free the disk; the points and the configuration of the run stay."""
    for name in names:
        shutil.rmtree(run / name, ignore_errors=True)


def has_diverged(run: Path) -> bool:
    """Whether a run ended in steps whose loss or gradient was not finite: training gives up at the
    third in a row, and two of them are written down."""
    if not run.exists():
        return False  # it failed before its first step
    steps = [point for point in RunDir.open(run).metrics() if "train/loss" in point][-2:]
    return len(steps) == 2 and all(
        None in (point["train/loss"], point["train/grad_norm"]) for point in steps)


def steps_saved(folder: Path) -> int:
    """Return how far a run can go on from; 0 where it has no checkpoint yet."""
    checkpoints = RunDir.open(folder).checkpoints
    if not checkpoints.has_training:
        return 0
    with checkpoints.open("last") as last:
        return checkpoints.load_training(last)["progress"]["step"]
