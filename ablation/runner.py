"""Carries out a study: jobs side by side, from the plan to the report."""

import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ablation import plan as planning
from ablation.plan import ARMS, TIERS, Speed
from ablation.study import Study
from data.prepare import prepare
from errors import UserError, exit_in_words, say
from files import locked, read_json, write_json
from gyre.cli import ConfigParser, config_parser, load_config
from gyre.config import Config
from gyre.device import DTYPE_NAMES, Dtype, product_rates, resolve_device, resolve_dtype
from gyre.rundir import RunDir
from gyre.trainer import StopSignal

ROOT = Path(__file__).parent.parent
SPEED_STEPS = 20
SPEED_WARMUP = 5  # of these, not counted
# What the study sets for each run, so that a value for all of them would have no effect.
CHOSEN = ("seed", "model.position", "model.theta", "model.partial", "model.sinusoid",
          "log.group", "log.job_type")


def study_parser(description: str) -> ConfigParser:
    """The options of ablate.py beside those of train.py."""
    parser = config_parser(description)
    add = parser.add_argument
    add("--tier",
        help=f"Size of the study: {', '.join(TIERS)}. Default: gpu where there is one, else cpu.")
    add("--arms", metavar="A,B", help=f"Compare these instead of the tier's: {', '.join(ARMS)}.")
    add("--budget-minutes", type=float, default=45.0, metavar="M",
        help="Train on fewer tokens where the study would take longer. Default: 45.")
    add("--jobs", type=int, metavar="N",
        help="Runs at a time. Default: one for each core, with one thread each; on a GPU, 1.")
    add("--dry-run", action="store_true", help="Measure the speed, print the plan, and stop.")
    return parser


# --- processes ------------------------------------------------------------------------------------


@dataclass
class Job:
    name: str
    weight: float
    """Its share of the progress bar, in training tokens."""
    commands: Callable[[], list[list[str]]]
    """What to run, one after the other; asked for when the job's turn comes."""
    done: Callable[[], object] = lambda: None
    """Called after the last command."""


class Pool:
    """Runs jobs as processes of their own, `jobs` at a time, in order; each writes NAME.log."""

    def __init__(self, jobs: int, logs: Path, threads: int | None):
        self.jobs, self.logs = jobs, logs
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        if threads is not None:
            self.environment["OMP_NUM_THREADS"] = str(threads)

    def run(self, jobs: list[Job], bar: tqdm) -> bool:
        """Until all are done, or a signal says stop. Returns whether all are done.

        Raises UserError with the last lines of a job that failed; the others are stopped first,
        and a training run that is stopped saves where it is.
        """
        waiting, running = deque(jobs), {}
        processes: dict[str, subprocess.Popen] = {}
        with StopSignal() as stop:
            try:
                while (waiting or running) and not stop.number:
                    while waiting and len(running) < self.jobs:
                        job = waiting.popleft()
                        running[job.name] = job, self._carry_out(job, processes)
                    for job, progress in list(running.values()):
                        if next(progress, "done") == "done":
                            del running[job.name]
                            bar.update(job.weight)
                    bar.set_postfix_str(", ".join(running), refresh=False)
                    bar.update(0)  # the clock, no more often than mininterval
                    time.sleep(0.1)
            except UserError:
                if not stop.number:  # else Ctrl-C has reached the processes before us
                    raise
            finally:
                # SIGTERM, because a terminal's Ctrl-C has reached them too, and a second SIGINT
                # would not let a training run save.
                for process in processes.values():
                    process.terminate()
                for process in processes.values():
                    process.wait()
        return not waiting and not running

    def _carry_out(self, job: Job, processes: dict[str, subprocess.Popen]) -> Iterator[None]:
        """Runs the commands of a job; yields as often as it is asked while one of them runs, which
        then is in `processes`."""
        file = self.logs / f"{job.name}.log"
        for command in job.commands():
            process = processes[job.name] = self._start(command, file)
            while process.poll() is None:
                yield
            del processes[job.name]
            if process.returncode:
                text = file.read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
                last = [f"    {line}" for line in text.split("\n") if line.strip()][-12:]
                raise UserError("\n".join([
                    f"{job.name} failed (exit {process.returncode}), and the study stopped; all of "
                    f"it is in {file}, and its last lines are:", *last,
                ]))
        job.done()

    def _start(self, command: list[str], file: Path) -> subprocess.Popen:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(command)}\n")
            log.flush()
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )


def python(function: Callable, *arguments: object) -> list[str]:
    """The command that calls a function of this module in a process of its own, with arguments
    that JSON has, or paths. -P: no module is taken from the folder that the user stands in."""
    call = f"runner.{function.__name__}(*json.loads(sys.argv[1]))"
    code = f"import json, sys; from ablation import runner; {call}"
    return [sys.executable, "-P", "-c", code, json.dumps(arguments, default=str)]


def measure_run(run: str, arm: str, device: str, result: str) -> None:
    """Measure a trained run and write its record to the file `result`."""
    from gyre import measure  # beside the model it needs what the other jobs do not

    with exit_in_words():
        # `last`: the loss after all tokens, which is the one that has been agreed on beforehand.
        # Scalings of RoPE are tried on plain RoPE only.
        record = measure.measure(
            RunDir.open(run), checkpoint="last", device=device,
            rope_scaling=arm == planning.HEADLINE[0],
        )
        write_json(Path(result), {"arm": arm, **record})


def run_probe(
    name: str, arm: str, seed: int, steps: int | None, device: str, result: str
) -> None:
    """Train a probe and write its record to the file `result`."""
    from ablation import probes

    with exit_in_words():
        write_json(Path(result), probes.run_probe(name, arm, seed, steps, device))


# --- the study ------------------------------------------------------------------------------------


class Runner:
    """One study: a command, the plan it makes, and what is still missing of it."""

    def __init__(self, argv: list[str], description: str = ""):
        """Raises UserError for whatever is wrong with the command, before any work."""
        parser = study_parser(description)
        options, words = parser.split(argv)
        check_options(options)
        self.command = shlex.join(["python", "ablate.py", *argv])
        self.dry_run, self.budget = options.dry_run, options.budget_minutes
        files = options.config or ["ablation.yaml"]
        config_files = [f"--config={file}" for file in files]
        self.tier_name = options.tier
        if self.tier_name is None:
            on_gpu = uses_gpu(load_config(parser, [*config_files, *words])[0])
            self.tier_name = "gpu" if on_gpu else "cpu"
        self.tier, self.arms = planning.choose_tier(self.tier_name, options.arms)
        # The options of every run: the tier's values stand before the user's, which win.
        self.argv = [*config_files, *spelled(self.tier.overrides), *words]
        self.config = load_config(parser, self.argv)[0]
        refuse_chosen(self.config)
        self.config_of = {
            arm: load_config(parser, [*self.argv, *spelled(ARMS[arm])])[0] for arm in self.arms
        }
        # One thread each: faster than fewer runs with several, and the sums have one order.
        on_gpu = uses_gpu(self.config)
        self.threads = None if on_gpu else 1
        self.jobs = options.jobs or (1 if on_gpu else planning.cores())

        stem = Path(files[-1]).stem
        default = stem if self.tier_name == "cpu" else f"{stem}-{self.tier_name}"
        name = self.config.name or default
        self.path = Path(self.config.log.runs) / name
        self.plan_file = self.path / "plan.json"
        if not self.path.exists():
            RunDir.new_path(self.config.log.runs, name)  # refuses a bad name

    def locked(self) -> AbstractContextManager[None]:
        """Two of us in one folder would train the same runs."""
        return locked(
            self.path,
            f"another ablate.py is working on {self.path}: wait for it, or choose another folder "
            "with --name",
            wait=False,
        )

    def run(self) -> int:
        """Plan, whatever is missing of the plan, and the report; returns the exit code."""
        self.data = prepare(self.config.data)
        self.plan = self._stored_plan() or self._new_plan()
        self._print_plan()
        if self.dry_run:
            return 0
        started, before = time.perf_counter(), self.plan["minutes"]
        write_json(self.plan_file, self.plan)
        try:
            finished = self._run_all()
        finally:
            self.plan["minutes"] = before + (time.perf_counter() - started) / 60
            write_json(self.plan_file, self.plan)
        if not finished:
            say(f"stopped, and what was running has saved. To go on: {self.command}")
            return 130
        from ablation.report import mirror_in_wandb, write_report  # slow to import

        write_report(self.path)
        mirror_in_wandb(self.path, replace(self.config.log, runs=str(self.path)))
        print(self.path / "report.html")
        return 0

    # --- the plan ---

    def _stored_plan(self) -> dict[str, Any] | None:
        """The plan in the folder. Raises UserError where it is not the one the command asks for."""
        if self.plan_file.exists():
            stored = read_json(self.plan_file)
            planning.check_same(self.path, stored, self._wanted())
            say(f"plan    {self.plan_file}: going on")
            return stored
        if self.path.exists() and any(self.path.iterdir()):
            raise UserError(
                f"{self.path} is not empty and holds no plan.json, so it is not a study: choose "
                "another folder with --name"
            )
        return None

    def _new_plan(self) -> dict[str, Any]:
        dtype = self._dtype()
        speed, git = self._measure_speed(dtype)
        train = self.config.train
        step_tokens = train.batch_size * self.config.data.seq_len
        steps, minutes = planning.shrink(
            self.tier, self.arms, train.steps, step_tokens, self.config.optim.warmup_steps,
            self.budget, speed,
        )
        plan = {
            "name": self.path.name, "command": self.command, **self._wanted(),
            "tokens": steps * step_tokens, "steps": steps,
            "expected_minutes": minutes, "speed": asdict(speed), "dtype": dtype,
            "machine": planning.machine(), "versions": planning.versions(), "git": git,
            "tuning": {}, "minutes": 0.0,
        }
        return {**plan, "sha256": planning.fingerprint(plan)}

    def _wanted(self) -> dict[str, Any]:
        """What the command asks for: all of the plan that does not depend on the speed."""
        tier, lr = self.tier, None if self.tier.grid else self.config.optim.lr
        probe = {"arms": planning.probed(self.arms), "seeds": list(range(tier.probe_seeds)),
                 "steps": tier.probe_steps}
        files = self.data.manifest["files"]
        return {
            "tier": self.tier_name,
            "arms": {
                arm: {"overrides": ARMS[arm], "seeds": planning.seeds_of(tier, arm), "lr": lr}
                for arm in self.arms
            },
            "baseline": planning.BASELINE,
            "headline": planning.headline(self.arms),
            "grid": list(tier.grid),
            "tuning_seed": planning.TUNING_SEED,
            "probes": {name: probe for name in planning.PROBES},
            "budget_minutes": self.budget,
            "seq_len": self.config.data.seq_len,
            "config": {arm: decisive(config) for arm, config in self.config_of.items()},
            "data_sha256": {name: file["sha256"] for name, file in files.items()},
        }

    def _dtype(self) -> Dtype:
        """What all runs of the study have: two arms must not decide differently."""
        model, device = self.config.model, resolve_device(self.config.train.device)
        assert model.hidden_dim is not None, "ModelConfig fills it in"
        shape = (2048, model.dim, model.hidden_dim)
        dtype, _ = resolve_dtype(self.config.train.dtype, device,
                                 lambda: product_rates(device, *shape, training=True))
        return DTYPE_NAMES[dtype]

    def _measure_speed(self, dtype: Dtype) -> tuple[Speed, dict[str, Any] | None]:
        """Of as many runs side by side as the study will have, of its first arms, in a folder that
        is thrown away; and the git revision that they noted. They validate as often as a real run
        does."""
        say(f"speed   measuring {SPEED_STEPS} steps of {self.jobs} runs side by side ...")
        train = self.config.train
        with tempfile.TemporaryDirectory() as folder:
            jobs = []
            for i in range(self.jobs):
                values = {
                    **ARMS[self.arms[i % len(self.arms)]],
                    "train.steps": SPEED_STEPS,
                    "train.eval_interval": max(1, SPEED_STEPS * train.eval_interval // train.steps),
                    "optim.warmup_steps": min(SPEED_STEPS, self.config.optim.warmup_steps),
                    "train.dtype": dtype,
                    "log.runs": folder, "log.wandb": "disabled", "name": f"speed-{i}",
                }
                jobs.append(Job(f"speed-{i}", 1, partial(self._train, values)))
            pool = Pool(self.jobs, Path(folder) / "logs", self.threads)
            started = time.perf_counter()
            with tqdm(disable=True) as bar:
                if not pool.run(jobs, bar):
                    raise UserError("stopped while measuring the speed: nothing was kept")
            wall = time.perf_counter() - started
            opened = [RunDir.open(Path(folder) / job.name) for job in jobs]
            series = [run.metrics() for run in opened]
        rates = [
            statistics.median(p["train/tokens_per_second"] for p in points
                              if p["step"] > SPEED_WARMUP and "train/loss" in p)
            for points in series
        ]
        training = statistics.mean(points[-1]["seconds"] for points in series)
        return Speed(sum(rates), wall - training, self.jobs), opened[0].record["git"]

    def _print_plan(self) -> None:
        plan, manifest = self.plan, self.data.manifest
        say(f"data    {self.data.folder}: {manifest['train']['tokens']:,} training and "
            f"{manifest['val']['tokens']:,} validation tokens, vocabulary {manifest['vocab_size']}")
        for arm, parts in plan["arms"].items():
            overlay = " ".join(f"{key.split('.')[1]}={value}" for key, value in ARMS[arm].items())
            say(f"arm     {arm:<11}{overlay:<38}seeds {', '.join(map(str, parts['seeds']))}")
        if plan["grid"]:
            rates = ", ".join(f"{lr:g}" for lr in plan["grid"])
            say(f"tuning  learning rates {rates} for each arm, seed {plan['tuning_seed']}")
        steps, speed = self.config.train.steps, plan["speed"]
        shrunk = f" of {steps}, for {self.budget:g} minutes" if plan["steps"] < steps else ""
        say(f"runs    {plan['steps']} steps{shrunk}: {plan['tokens']:,} tokens each")
        say(f"speed   {speed['tokens_per_second']:,.0f} tokens/s in {speed['jobs']} processes; the "
            f"study is expected to take {plan['expected_minutes']:.1f} minutes")

    # --- the runs ---

    def _run_all(self) -> bool:
        """Whatever is missing. Returns False when a signal stopped it."""
        tuning, rest = self._tuning_jobs(), [*self._run_jobs(), *self._probe_jobs()]
        pool = Pool(self.jobs, self.path / "logs", self.threads)
        with tqdm(
            total=sum(job.weight for job in [*tuning.values(), *rest]), desc="study",
            disable=not tuning and not rest,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            dynamic_ncols=True, smoothing=0, miniters=0,
            mininterval=0.5 if sys.stderr.isatty() else 30,
        ) as bar:
            if not pool.run(list(tuning.values()), bar):
                return False
            self._choose_rates(tuning)
            return pool.run(rest, bar)

    def _tuning_jobs(self) -> dict[tuple[str, str], Job]:
        """By (arm, learning rate): those whose loss is not in the plan yet."""
        jobs = {}
        for arm in self.arms:
            for lr in self.plan["grid"]:
                if f"{lr:g}" not in self.plan["tuning"].get(arm, {}):
                    name = f"tune-{arm}-lr{lr:g}"
                    train = partial(self._train_missing, name, arm, planning.TUNING_SEED, lr)
                    jobs[arm, f"{lr:g}"] = Job(name, self.plan["tokens"] / 2, train)
        return jobs

    def _choose_rates(self, tuned: dict[tuple[str, str], Job]) -> None:
        """Read the losses of tuning runs, and give every arm its best learning rate."""
        plan = self.plan
        for (arm, lr), job in tuned.items():
            points = RunDir.open(self.path / job.name).metrics()
            loss = next(p["val/loss"] for p in reversed(points) if "val/loss" in p)
            plan["tuning"].setdefault(arm, {})[lr] = loss
        for arm, losses in plan["tuning"].items():
            best = planning.best_rate(losses)
            plan["arms"][arm]["lr"] = best
            at_edge = best in (plan["grid"][0], plan["grid"][-1])
            note = " (at the edge of the grid)" if at_edge else ""
            tqdm.write(f"tuned   {arm:<11}{best:g}{note}", file=sys.stderr)
        write_json(self.plan_file, self.plan)

    def _run_jobs(self) -> list[Job]:
        """One for each run without a result: the headline pair first, seed by seed."""
        plan, jobs = self.plan, []
        runs = [(arm, seed) for arm in self.arms for seed in plan["arms"][arm]["seeds"]]
        for arm, seed in sorted(runs, key=lambda run: (run[0] not in plan["headline"], run[1])):
            name = f"{arm}-s{seed}"
            result = self.path / "results" / f"{name}.json"
            if not result.exists():
                commands = partial(self._train_and_measure, name, arm, seed, result)
                weight = plan["tokens"] + planning.MEASURE_TOKENS
                # Loading refuses arms that differ in more than the arm, as soon as there are two.
                jobs.append(Job(name, weight, commands, lambda: Study.load(self.path)))
        return jobs

    def _probe_jobs(self) -> list[Job]:
        jobs, device = [], self.config.train.device
        for name, parts in self.plan["probes"].items():
            for seed in parts["seeds"]:
                for arm in parts["arms"]:
                    result = self.path / "probes" / f"{name}-{arm}-s{seed}.json"
                    if not result.exists():
                        command = python(run_probe, name, arm, seed, parts["steps"], device, result)
                        jobs.append(Job(result.stem, planning.PROBE_TOKENS, lambda c=command: [c]))
        return jobs

    def _train_and_measure(self, name: str, arm: str, seed: int, result: Path) -> list[list[str]]:
        measuring = python(measure_run, self.path / name, arm, self.config.train.device, result)
        return [*self._train_missing(name, arm, seed, self.plan["arms"][arm]["lr"]), measuring]

    def _train_missing(self, name: str, arm: str, seed: int, lr: float) -> list[list[str]]:
        """The command that trains what is missing of a run: all, the rest of it, or nothing.

        A tuning run has half the steps and one validation.
        """
        train, tuning = self.config.train, seed == planning.TUNING_SEED
        steps = self.plan["steps"] // 2 if tuning else self.plan["steps"]
        folder = self.path / name
        if folder.exists():
            done = steps_saved(folder)
            if done == steps:
                return []
            if done:
                return [[sys.executable, str(ROOT / "train.py"), "--resume", str(folder)]]
            shutil.rmtree(folder)  # stopped before its first checkpoint
        interval = math.ceil(train.eval_interval * steps / train.steps)
        kind = "headline" if arm in self.plan["headline"] else "secondary"
        revision = (self.plan["git"] or {}).get("revision", "no git")[:7]
        tags = [self.tier_name, self.config.data.source, kind, revision, *self.config.log.tags]
        return self._train({
            **ARMS[arm],
            # One for all runs. Studies from before it was noted have the one they ask for.
            "train.dtype": self.plan.get("dtype", train.dtype),
            "optim.lr": lr, "train.steps": steps,
            "train.eval_interval": steps if tuning else interval,
            "seed": seed, "name": name, "log.runs": str(self.path),
            "log.group": f"{self.tier_name}/{self.config.data.source}/{arm}",
            "log.job_type": "tune" if tuning else "train",
            "log.tags": json.dumps(tags),
        })

    def _train(self, values: dict[str, Any]) -> list[list[str]]:
        return [[sys.executable, str(ROOT / "train.py"), *self.argv, *spelled(values)]]


def check_options(options: Namespace) -> None:
    if not (math.isfinite(options.budget_minutes) and options.budget_minutes > 0):
        raise UserError(f"--budget-minutes must be above 0, not {options.budget_minutes:g}")
    if options.jobs is not None and options.jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {options.jobs}")


def uses_gpu(config: Config) -> bool:
    return resolve_device(config.train.device).type != "cpu"


def spelled(values: Mapping[str, Any]) -> list[str]:
    """As words of a command line."""
    return [word for key, value in values.items() for word in (f"--{key}", str(value))]


def refuse_chosen(config: Config) -> None:
    """UserError where the command sets for all runs what the study sets for each."""
    default = load_config(config_parser(), [])[0]
    for key in CHOSEN:
        value = attrgetter(key)(config)
        if value != attrgetter(key)(default):
            raise UserError(
                f"{key} {value} has no effect: the study sets it for each run "
                "(ablation/plan.py); leave it out"
            )


def decisive(config: Config) -> dict[str, Any]:
    """The part of a run's configuration that decides its numbers and is not the run's own."""
    values: dict[str, Any] = asdict(config)
    del values["log"], values["name"], values["seed"]
    del values["data"]["prepared"], values["train"]["device"]
    if not config.data.bpe_dropout:
        del values["data"]["bpe_dropout"]  # studies from before there was one go on
    return values


def steps_saved(folder: Path) -> int:
    """How far a run can go on from; 0 where it has no checkpoint that can be read."""
    try:
        return RunDir.open(folder).load_training()[1]["count"]["step"]
    except UserError:
        return 0
