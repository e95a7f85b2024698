"""Carries out a study: jobs side by side, from the plan to the report."""

import argparse
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
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from ablation import plan as planning
from ablation.plan import ARMS, TIERS, Speed
from ablation.study import Study
from data.prepare import prepare
from errors import UserError, exit_in_words, say
from files import read_json, write_json
from gyre.cli import config_parser, parse
from gyre.config import Config
from gyre.device import resolve_device
from gyre.rundir import RunDir
from gyre.trainer import StopSignal

ROOT = Path(__file__).parent.parent
SPEED_STEPS = 20
SPEED_WARMUP = 5  # of these, not counted
# What the study sets for each run, so that a value for all of them would have no effect.
CHOSEN = ("seed", "model.position", "model.theta", "model.partial", "model.sinusoid",
          "log.group", "log.job_type")  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tier",
        help=f"Size of the study: {', '.join(TIERS)}. Default: gpu where there is one, else cpu.",
    )
    parser.add_argument(
        "--arms",
        metavar="A,B",
        help=f"Compare these instead of the tier's: {', '.join(ARMS)}.",
    )
    parser.add_argument(
        "--budget-minutes",
        type=float,
        default=45.0,
        metavar="M",
        help="Train on fewer tokens where the study would take longer. Default: 45.",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="Runs at a time. Default: one for each core, with one thread each; on a GPU, 1.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Measure the speed, print the plan, and stop."
    )


@dataclass
class Job:
    name: str
    weight: float
    """Its share of the progress bar, in training tokens."""
    commands: Callable[[], list[list[str]]]
    """What to run, one after the other; asked for when the job's turn comes."""
    done: Callable[[], None] = lambda: None


class Pool:
    """Runs jobs as processes of their own, `jobs` at a time, in order."""

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
        with StopSignal() as stop:
            try:
                while (waiting or running) and not stop.number:
                    while waiting and len(running) < self.jobs:
                        job = waiting.popleft()
                        running[job.name] = (job, deque(job.commands()), None)
                    for name, (job, commands, process) in list(running.items()):
                        if process is not None and process.poll() is None:
                            continue
                        if process is not None and process.returncode:
                            if stop.number:  # Ctrl-C reached the process before us
                                break
                            raise UserError(self._last_words(name, process.returncode))
                        if commands:
                            running[name] = (job, commands, self._start(name, commands.popleft()))
                            continue
                        del running[name]
                        job.done()
                        bar.update(job.weight)
                    bar.set_postfix_str(", ".join(running), refresh=False)
                    bar.update(0)  # the clock, no more often than mininterval
                    time.sleep(0.1)
            finally:
                self._end([process for _, _, process in running.values() if process])
        return not waiting and not running

    def _start(self, name: str, command: list[str]) -> subprocess.Popen:
        with self._log(name).open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(command)}\n")
            log.flush()
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )

    def _end(self, processes: list[subprocess.Popen]) -> None:
        """SIGTERM, because a terminal's Ctrl-C has reached them too, and a second SIGINT would not
        let a training run save."""
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()

    def _log(self, name: str) -> Path:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"{name}.log"

    def _last_words(self, name: str, code: int) -> str:
        text = self._log(name).read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
        return "\n".join([
            f"{name} failed (exit {code}), and the study stopped; all of it is in "
            f"{self._log(name)}, and its last lines are:",
            *(f"    {line}" for line in lines[-12:]),
        ])  # fmt: skip


def python(function: Callable, *arguments: object) -> list[str]:
    """The command that calls a function of this module in a process of its own. -P: the folder
    that the user stands in is no place for modules."""
    call = f"import sys; from ablation import runner; runner.{function.__name__}(*sys.argv[1:])"
    return [sys.executable, "-P", "-c", call, *map(str, arguments)]


def measure_run(run: str, arm: str, device: str, result: str) -> None:
    from gyre import measure  # beside the model it needs what the other jobs do not

    with exit_in_words():
        # `last`: the loss after all tokens, which is the one that has been agreed on beforehand.
        record = measure.measure(
            RunDir.open(run),
            checkpoint="last",
            device=device,
            rope_scaling=arm == planning.HEADLINE[0],  # of plain RoPE
        )
        write_json(Path(result), {"arm": arm, **record})


def run_probe(name: str, arm: str, seed: str, steps: str, device: str, result: str) -> None:
    from ablation import probes

    with exit_in_words():
        options = {"steps": int(steps)} if steps != "None" else {}
        write_json(Path(result), probes.run_probe(name, arm, int(seed), device=device, **options))


class Runner:
    def __init__(self, argv: list[str], description: str):
        """Raises UserError for whatever is wrong with the command, before any work."""
        parser = config_parser(description)
        add_options(parser)
        splitter = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        add_options(splitter)
        splitter.add_argument("--config", default="ablation.yaml")
        splitter.add_argument("--name")
        ours, rest = splitter.parse_known_args(argv)
        self.dry_run, self.command = ours.dry_run, shlex.join(["python", "ablate.py", *argv])
        if not (math.isfinite(ours.budget_minutes) and ours.budget_minutes > 0):
            raise UserError(f"--budget-minutes must be above 0, not {ours.budget_minutes:g}")
        if ours.jobs is not None and ours.jobs < 1:
            raise UserError(f"--jobs must be at least 1, not {ours.jobs}")
        self.budget, self.tier_name = ours.budget_minutes, ours.tier
        file = ["--config", ours.config]
        if self.tier_name is None:
            self.tier_name = "gpu" if on_gpu(parse(parser, [*file, *rest])[0]) else "cpu"
        self.tier, self.arms = planning.choose_tier(self.tier_name, ours.arms)
        # The tier's values stand before the user's own, which win.
        self.argv = [*file, *options(self.tier.overrides), *rest]
        self.config = parse(parser, self.argv)[0]
        refuse_chosen(self.config)
        self.config_of = {
            arm: parse(parser, [*self.argv, *options(ARMS[arm])])[0] for arm in self.arms
        }
        # One thread each: faster than fewer runs with several, and the sums have one order.
        self.threads = None if on_gpu(self.config) else 1
        self.jobs = ours.jobs or (1 if on_gpu(self.config) else planning.cores())

        stem = Path(ours.config).stem
        default = stem if self.tier_name == "cpu" else f"{stem}-{self.tier_name}"
        self.name = ours.name or default
        self.path = Path(self.config.log.runs) / self.name
        if not self.path.exists():
            RunDir.new_path(self.config.log.runs, self.name)  # refuses a bad name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two of us in one folder would train the same runs."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_name(f".{self.name}.lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise UserError(
                f"another ablate.py is working on {self.path}: wait for it, or choose another "
                "folder with --name"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def run(self) -> int:
        self.data = prepare(self.config.data)
        self.plan = self._plan()
        self._print_plan()
        if self.dry_run:
            return 0
        write_json(self.path / "plan.json", self.plan)
        started, before = time.perf_counter(), self.plan["minutes"]
        try:
            finished = self._run_all()
        finally:
            self.plan["minutes"] = before + (time.perf_counter() - started) / 60
            write_json(self.path / "plan.json", self.plan)
        if not finished:
            say(f"stopped, and what was running has saved. To go on: {self.command}")
            return 130
        self._report()
        return 0

    # --- the plan ---

    def _plan(self) -> dict[str, Any]:
        """The plan in the folder, where there is one; else a new one."""
        wanted = self._wanted()
        file = self.path / "plan.json"
        if file.exists():
            stored = read_json(file)
            planning.check_same(self.path, stored, wanted)
            say(f"plan    {file}: going on")
            return stored
        if self.path.exists() and any(self.path.iterdir()):
            raise UserError(
                f"{self.path} is not empty and holds no plan.json, so it is not a study: choose "
                "another folder with --name"
            )
        speed, git = self._measure_speed()
        train = self.config.train
        step_tokens = train.batch_size * self.config.data.seq_len
        steps, minutes = planning.shrink(
            self.tier, self.arms, train.steps, step_tokens, self.config.optim.warmup_steps,
            self.budget, speed,
        )  # fmt: skip
        plan = {
            "name": self.name,
            "command": self.command,
            **wanted,
            "tokens": steps * step_tokens,
            "steps": steps,
            "expected_minutes": minutes,
            "speed": asdict(speed),
            "machine": planning.machine(),
            "versions": planning.versions(),
            "git": git,
            "tuning": {},
            "minutes": 0.0,
        }
        return {**plan, "sha256": planning.fingerprint(plan)}

    def _wanted(self) -> dict[str, Any]:
        """What the command asks for: all of the plan that does not depend on the speed."""
        grid, lr = list(self.tier.grid), self.config.optim.lr
        return {
            "tier": self.tier_name,
            "arms": {
                arm: {
                    "overrides": ARMS[arm],
                    "seeds": planning.seeds_of(self.tier, arm),
                    "lr": None if grid else lr,
                }
                for arm in self.arms
            },
            "baseline": planning.BASELINE,
            "headline": planning.headline(self.arms),
            "grid": grid,
            "tuning_seed": planning.TUNING_SEED,
            "probes": {
                name: {
                    "arms": planning.probed(self.arms),
                    "seeds": list(range(self.tier.probe_seeds)),
                    "steps": self.tier.probe_steps,
                }
                for name in planning.PROBES
            },
            "budget_minutes": self.budget,
            "seq_len": self.config.data.seq_len,
            "config": {arm: decisive(config) for arm, config in self.config_of.items()},
            "data_sha256": {
                name: file["sha256"] for name, file in self.data.manifest["files"].items()
            },
        }

    def _measure_speed(self) -> tuple[Speed, dict[str, Any] | None]:
        """Of as many runs side by side as the study will have, of its first arms, in a folder that
        is thrown away; and the git revision that they noted. They validate as often as a real run
        does."""
        say(f"speed   measuring {SPEED_STEPS} steps of {self.jobs} runs side by side ...")
        train = self.config.train
        often = max(1, SPEED_STEPS * train.eval_interval // train.steps)
        with tempfile.TemporaryDirectory() as folder:
            runs = {f"speed-{i}": self.arms[i % len(self.arms)] for i in range(self.jobs)}
            overrides = {
                "train.steps": SPEED_STEPS, "train.eval_interval": often, "log.runs": folder,
                "optim.warmup_steps": min(SPEED_STEPS, self.config.optim.warmup_steps),
                "log.wandb": "disabled",
            }  # fmt: skip
            jobs = [
                Job(name, 1, partial(self._commands, ARMS[arm] | overrides | {"name": name}))
                for name, arm in runs.items()
            ]
            pool = Pool(self.jobs, Path(folder) / "logs", self.threads)
            started = time.perf_counter()
            with tqdm(disable=True) as bar:
                if not pool.run(jobs, bar):
                    raise UserError("stopped while measuring the speed: nothing was kept")
            wall = time.perf_counter() - started
            opened = [RunDir.open(Path(folder) / name) for name in runs]
            series = [run.metrics() for run in opened]
        rates = [
            statistics.median(
                point["train/tokens_per_second"]
                for point in points
                if point["step"] > SPEED_WARMUP and "train/loss" in point
            )
            for points in series
        ]
        training = statistics.mean(points[-1]["seconds"] for points in series)
        return Speed(sum(rates), wall - training, self.jobs), opened[0].record["git"]

    def _print_plan(self) -> None:
        plan, manifest = self.plan, self.data.manifest
        tokens = {split: manifest[split]["tokens"] for split in ("train", "val")}
        say(
            f"data    {self.data.folder}: {tokens['train']:,} training and {tokens['val']:,} "
            f"validation tokens, vocabulary {manifest['vocab_size']}"
        )
        for arm, parts in plan["arms"].items():
            overlay = " ".join(f"{key.split('.')[1]}={value}" for key, value in ARMS[arm].items())
            say(f"arm     {arm:<11}{overlay:<38}seeds {', '.join(map(str, parts['seeds']))}")
        if plan["grid"]:
            rates = ", ".join(f"{lr:g}" for lr in plan["grid"])
            say(f"tuning  learning rates {rates} for each arm, seed {plan['tuning_seed']}")
        steps, speed = self.config.train.steps, plan["speed"]
        shrunk = f" of {steps}, for {self.budget:g} minutes" if plan["steps"] < steps else ""
        say(f"runs    {plan['steps']} steps{shrunk}: {plan['tokens']:,} tokens each")
        say(
            f"speed   {speed['tokens_per_second']:,.0f} tokens/s in {speed['jobs']} processes; the "
            f"study is expected to take {plan['expected_minutes']:.1f} minutes"
        )

    # --- the runs ---

    def _commands(self, overrides: dict[str, Any]) -> list[list[str]]:
        return [[sys.executable, str(ROOT / "train.py"), *self.argv, *options(overrides)]]

    def _training(self, name: str, arm: str, seed: int, lr: float | None) -> list[list[str]]:
        """The command that trains what is missing of a run: all, the rest of it, or nothing.

        `lr` None: the arm's tuned one. A tuning run has half the steps and one validation.
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
        every = math.ceil(train.eval_interval * steps / train.steps)
        kind = "headline" if arm in self.plan["headline"] else "secondary"
        revision = (self.plan["git"] or {}).get("revision", "no git")[:7]
        tags = [self.tier_name, self.config.data.source, kind, revision, *self.config.log.tags]
        return self._commands({
            **ARMS[arm],
            "optim.lr": lr or self.plan["arms"][arm]["lr"],
            "train.steps": steps,
            "train.eval_interval": steps if tuning else every,
            "seed": seed,
            "name": name,
            "log.runs": str(self.path),
            "log.group": f"{self.tier_name}/{self.config.data.source}/{arm}",
            "log.job_type": "tune" if tuning else "train",
            "log.tags": json.dumps(tags),
        })  # fmt: skip

    def _train_and_measure(self, name: str, arm: str, seed: int, result: Path) -> list[list[str]]:
        device = self.config.train.device
        measuring = python(measure_run, self.path / name, arm, device, result)
        return [*self._training(name, arm, seed, None), measuring]

    def _run_all(self) -> bool:
        """Whatever is missing. Returns False when a signal stopped it."""
        tuning, rest = self._tuning_jobs(), [*self._headline_jobs(), *self._probe_jobs()]
        pool = Pool(self.jobs, self.path / "logs", self.threads)
        with tqdm(
            total=sum(job.weight for job in [*tuning.values(), *rest]), desc="study",
            disable=not tuning and not rest,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            dynamic_ncols=True, smoothing=0, miniters=0,
            mininterval=0.5 if sys.stderr.isatty() else 30,
        ) as bar:  # fmt: skip
            if not pool.run(list(tuning.values()), bar):
                return False
            self._choose_rates(list(tuning))
            return pool.run(rest, bar)

    def _tuning_jobs(self) -> dict[tuple[str, float], Job]:
        plan = self.plan
        return {
            (arm, lr): Job(
                tuning_name(arm, lr),
                plan["tokens"] / 2,
                partial(self._training, tuning_name(arm, lr), arm, planning.TUNING_SEED, lr),
            )
            for arm in self.arms
            for lr in plan["grid"]
            if f"{lr:g}" not in plan["tuning"].get(arm, {})
        }

    def _choose_rates(self, tuned: list[tuple[str, float]]) -> None:
        """Read the losses of tuning runs, and give every arm its best learning rate."""
        plan = self.plan
        for arm, lr in tuned:
            points = RunDir.open(self.path / tuning_name(arm, lr)).metrics()
            loss = next(p["val/loss"] for p in reversed(points) if "val/loss" in p)
            plan["tuning"].setdefault(arm, {})[f"{lr:g}"] = loss
        for arm, losses in plan["tuning"].items():
            best = planning.best_rate(losses)
            plan["arms"][arm]["lr"] = best
            at_edge = best in (plan["grid"][0], plan["grid"][-1])
            note = " (at the edge of the grid)" if at_edge else ""
            tqdm.write(f"tuned   {arm:<11}{best:g}{note}", file=sys.stderr)
        write_json(self.path / "plan.json", plan)

    def _headline_jobs(self) -> list[Job]:
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
        jobs = []
        for name, parts in self.plan["probes"].items():
            for seed in parts["seeds"]:
                for arm in parts["arms"]:
                    result = self.path / "probes" / f"{name}-{arm}-s{seed}.json"
                    if not result.exists():
                        device = self.config.train.device
                        command = python(run_probe, name, arm, seed, parts["steps"], device, result)
                        jobs.append(Job(result.stem, planning.PROBE_TOKENS, lambda c=command: [c]))
        return jobs

    def _report(self) -> None:
        from ablation.report import log_to_wandb, write_report  # scipy: slow to import

        write_report(self.path)
        log_to_wandb(self.path, replace(self.config.log, runs=str(self.path)))
        print(self.path / "report.html")


def on_gpu(config: Config) -> bool:
    return resolve_device(config.train.device).type != "cpu"


def tuning_name(arm: str, lr: float) -> str:
    return f"tune-{arm}-lr{lr:g}"


def options(values: dict[str, Any]) -> list[str]:
    return [part for key, value in values.items() for part in (f"--{key}", str(value))]


def refuse_chosen(config: Config) -> None:
    """UserError where the command sets for all runs what the study sets for each."""
    for key in CHOSEN:
        *parents, name = key.split(".")
        part = getattr(config, parents[0]) if parents else config
        default = next(f.default for f in fields(part) if f.name == name)
        if getattr(part, name) != default:
            raise UserError(
                f"{key} {getattr(part, name)} has no effect: the study sets it for each run "
                "(ablation/plan.py); leave it out"
            )


def decisive(config: Config) -> dict[str, Any]:
    """The part of a run's configuration that decides its numbers and is not the run's own."""
    values = asdict(config)
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
