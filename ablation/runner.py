"""Carries out a study: jobs side by side, from the plan to the report."""

import itertools
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ablation import plan as planning
from ablation.ngrams import ngram_losses
from ablation.plan import ARMS, TIERS, Speed
from ablation.study import Study
from data.prepare import prepare
from errors import UserError, exit_in_words, say
from files import locked, write_sealed
from gyre.device import DTYPE_NAMES, Dtype, product_rates, resolve_device, resolve_dtype
from gyre.optim import OptimConfig
from gyre.options import Config, ConfigParser, config_parser, load_config
from gyre.rundir import METRICS, RunDir, locked_run
from gyre.trainer import MAX_SKIPPED_IN_A_ROW, StopSignal

ROOT = Path(__file__).parent.parent
TRAIN = [sys.executable, str(ROOT / "train.py")]
SPEED_STEPS = 20
SPEED_WARMUP = 5  # of these, not counted
# What the study sets for each run, so that a value for all of them would have no effect.
CHOSEN = ("seed", "train.steps", "train.keep", "train.eval_interval", "log.group", "log.job_type")


def study_parser(description: str) -> ConfigParser:
    """The options of ablate.py beside those of train.py."""
    parser = config_parser(description)
    add = parser.add_argument
    add("--tier", default="quick", help=f"Size of the study: {', '.join(TIERS)}.")
    add("--arms", metavar="A,B", help=f"Compare these instead of the tier's: {', '.join(ARMS)}.")
    add("--arm", action="append", default=[], metavar="NAME=OPTION=VALUE,...",
        help="Compare an arm of your own too, such as b500=model.theta=500,optim.lr=2e-3. May be "
        "given several times.")
    add("--baseline", metavar="ARM",
        help="The arm that every difference is taken to. Default: sin, or the last one.")
    add("--seeds", type=int, metavar="N", help="Seeds of each arm. Default: the tier's; quick: 6.")
    add("--tokens", metavar="A,B",
        help="Training tokens of the runs, such as 1M,4M (M: 2^20). Default: the tier's.")
    add("--no-tuning", action="store_true",
        help="Train all arms at optim.lr, but for those that say their own, instead of choosing "
        "the best rate of each.")
    add("--budget-minutes", type=float, metavar="M",
        help="Train on fewer tokens where the study would take longer. Default: 45 for the quick "
        "tier.")
    add("--jobs", type=int, metavar="N",
        help="Runs at a time. Default: one for each core, with one thread each; on a GPU, 1.")
    add("--dry-run", action="store_true", help="Measure the speed, print the plan, and stop.")
    return parser


# --- processes ------------------------------------------------------------------------------------


@dataclass
class Job:
    """Commands that run one after the other, each in a process of its own."""

    name: str
    weight: float
    """Its share of the progress bar, in training tokens."""
    commands: Iterable[list[str]]
    """Each is asked for when its turn comes, and the end of them after the last has run."""
    run: Path | None = None
    """The folder of the training run in it, by which the bar knows how far it is."""
    fragile: Sequence[Path] = ()
    """Runs in it that may diverge without failing the study."""


class Pool:
    """Runs jobs as processes of their own, `jobs` at a time, in order; each writes NAME.log."""

    def __init__(self, jobs: int, logs: Path, threads: int | None):
        self.jobs, self.logs = jobs, logs
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        if threads is not None:
            self.environment["OMP_NUM_THREADS"] = str(threads)

    def run(self, jobs: list[Job], what: str = "") -> bool:
        """Until all are done, or a signal says stop. Returns whether all are done. There is a bar
        if it is said what they are.

        Raises UserError with the last lines of a job that failed; the others are stopped first,
        and a training run that is stopped saves where it is.
        """
        bar = tqdm(
            total=sum(job.weight for job in jobs), desc=what, disable=not (jobs and what),
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            dynamic_ncols=True, smoothing=0, miniters=0,
            mininterval=0.5 if sys.stderr.isatty() else 30,
        )
        waiting, running = deque(jobs), {}
        processes: dict[str, subprocess.Popen] = {}
        finished = 0.0
        with bar, StopSignal() as stop:
            try:
                while (waiting or running) and not stop.number:
                    while waiting and len(running) < self.jobs:
                        job = waiting.popleft()
                        running[job.name] = job, self._carry_out(job, processes)
                    for job, progress in list(running.values()):
                        if next(progress, "done") == "done":
                            del running[job.name]
                            finished += job.weight
                    trained = sum(tokens_trained(job) for job, _ in running.values())
                    bar.set_postfix_str(", ".join(running), refresh=False)
                    bar.update(max(0, finished + trained - bar.n))
                    time.sleep(0.2)
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
        for command in job.commands:
            process = processes[job.name] = self._start(command, file)
            while process.poll() is None:
                yield
            del processes[job.name]
            if process.returncode and not any(map(has_diverged, job.fragile)):
                text = file.read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
                last = [f"    {line}" for line in text.split("\n") if line.strip()][-12:]
                raise UserError("\n".join([
                    f"{job.name} failed (exit {process.returncode}), and the study stopped; all of "
                    f"it is in {file}, and its last lines are:", *last,
                ]))

    def _start(self, command: list[str], file: Path) -> subprocess.Popen:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(command)}\n")
            log.flush()
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )


def tokens_trained(job: Job) -> float:
    """So far, by the last point of the job's run; never more than its weight."""
    if job.run is not None:
        unread = OSError, ValueError, LookupError, TypeError
        with suppress(*unread), (job.run / METRICS).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            whole, _, _ = file.read().rpartition(b"\n")
            return min(json.loads(whole.splitlines()[-1])["tokens"], job.weight)
    return 0.0


def python(function: Callable, *arguments: object) -> list[str]:
    """The command that calls a function of this module in a process of its own, with arguments
    that JSON has, or paths. -P: no module is taken from the folder that the user stands in."""
    call = f"runner.{function.__name__}(*json.loads(sys.argv[1]))"
    code = f"import json, sys; from ablation import runner; {call}"
    return [sys.executable, "-P", "-c", code, json.dumps(arguments, default=str)]


def measure_run(
    runs: list[str], arm: str, yarn: bool, windows: int, device: str, result: str
) -> None:
    """Measure the runs of an arm and a seed, the last of which the others branch off from, longer
    contexts with YaRN too if asked, and write their record to the file `result`."""
    from gyre import measure  # beside the model it needs what the other jobs do not

    with exit_in_words():
        *branches, trunk = map(RunDir.open, runs)
        if not trunk.kept_steps():
            raise UserError(f"{trunk.path} has no checkpoints along the way any more: remove "
                            f"{', '.join(runs)} to train them again")
        # `last`: the loss after all tokens, which is the one that has been agreed on beforehand.
        record = measure.measure(trunk, "last", windows, device, all_blocks=True,
                                 scalings=["yarn"] if yarn else [])
        shift = next(row["dloss"] for row in record["shift"] if row["delta"] == record["seq_len"])
        at_most = min(windows, measure.WINDOWS)
        ends = [measure.ending(run, at_most, device) for run in branches]
        ends.append({key: record[key] for key in ("tokens", "loss", "se", "stretches")}
                    | {"shift": shift})
        write_sealed(Path(result), {
            "arm": arm, **record, **measure.origin(trunk), "horizons": ends,
            "trajectory": measure.follow(trunk, at_most, device), "machine": planning.machine(),
            "trained_by": {key: trunk.record[key] for key in ("git", "torch")},
        })


def run_probe(
    name: str, arm: str, seed: int, steps: int | None, device: str, result: str
) -> None:
    """Train a probe and write its record to the file `result`."""
    from ablation import probes

    with exit_in_words():
        write_sealed(Path(result), probes.run_probe(name, arm, seed, steps, device))


# --- the study ------------------------------------------------------------------------------------


class Runner:
    """One study: a command, the plan it makes, and what is still missing of it."""

    def __init__(self, argv: list[str], description: str = ""):
        """Raises UserError for whatever is wrong with the command, before any work."""
        parser = study_parser(description)
        options, words = parser.split(argv)
        check_options(options)
        self.command = shlex.join(["python", "ablate.py", *argv])
        self.dry_run = options.dry_run
        self.tier_name, self.tier = options.tier, planning.choose_tier(options.tier)
        if options.seeds is not None:
            self.tier = replace(self.tier, seeds=options.seeds)
        if options.tokens is not None:
            self.tier = replace(self.tier, horizons=planning.choose_horizons(options.tokens))
        own = None if options.tokens else self.tier.budget_minutes
        self.budget = options.budget_minutes or own
        self.arms = planning.choose_arms(self.tier, options.arms, options.arm)
        self.baseline = planning.choose_baseline(options.baseline, self.arms)
        # Of arms that are not those of the tier, none stands for another.
        if options.arms or options.arm or options.no_tuning:
            self.tier = replace(self.tier, treatments=(), treatment_tokens=0)
        if options.no_tuning:
            if not self.tier.grid:
                raise UserError(f"--no-tuning has no effect: the {options.tier} tier tunes nothing")
            self.tier = replace(self.tier, grid=(), tuning_tokens=0)
        self.treatments = list(self.tier.treatments)
        files = options.config or ["ablation.yaml"]
        config_files = [f"--config={file}" for file in files]
        # The options of every run: the tier's values stand before the user's, which win.
        self.argv = [*config_files, *spelled(self.tier.overrides), *words]
        self.config = load_config(parser, self.argv)[0]
        refuse_chosen(self.config)
        overlays = {**self.arms, **{arm: ARMS[arm] for arm in self.treatments}}
        self.config_of = {}
        for arm, overlay in overlays.items():
            try:
                self.config_of[arm] = load_config(parser, [*self.argv, *spelled(overlay)])[0]
            except UserError as error:
                raise UserError(f"arm {arm}: {error}") from None
        refuse_other_lengths(self.config, self.config_of)
        if self.tier.grid and self.config.optim.lr != OptimConfig.lr:
            raise UserError(f"optim.lr {self.config.optim.lr} has no effect: the study tunes the "
                            "rate of each arm; --no-tuning trains all at this one, and an --arm "
                            "can have its own, with optim.lr=")
        if self.tier.grid and self.config.optim.muon_lr is not None:
            raise UserError(f"optim.muon_lr {self.config.optim.muon_lr} would not be tuned: leave "
                            "it out, and it is optim.lr, which is; or say --no-tuning")
        # One thread each: faster than fewer runs with several, and the sums have one order.
        on_gpu = resolve_device(self.config.train.device).type != "cpu"
        self.threads = None if on_gpu else 1
        self.jobs = options.jobs or (1 if on_gpu else planning.cores())

        stem = Path(files[-1]).stem
        default = stem if self.tier_name == "quick" else f"{stem}-{self.tier_name}"
        name = self.config.name or default
        self.path = Path(self.config.log.runs) / name
        self.plan_file = self.path / "plan.json"
        if not self.path.exists():
            RunDir.new_path(self.config.log.runs, name)  # refuses a bad name

    def locked(self) -> AbstractContextManager[None]:
        """Within `with`, this process is the only one that works on the study: a second one on the
        same folder would train the same runs."""
        return locked(
            self.path,
            f"another ablate.py is working on {self.path}: wait for it, or choose another folder "
            "with --name",
            wait=False,
        )

    def run(self) -> int:
        """Plan, whatever is missing of the plan, and the report; returns the exit code."""
        from gyre.measure import check_length  # as in `measure_run`

        self.data = prepare(self.config.data)
        check_length(self.data.manifest["val"]["tokens"], self.config.data.seq_len)
        self.plan = self._stored_plan() or self._new_plan()
        self._print_plan()
        if self.dry_run:
            return 0
        started, before = time.perf_counter(), self.plan["minutes"]
        write_sealed(self.plan_file, self.plan)
        try:
            finished = self._run_all()
        finally:
            self.plan["minutes"] = before + (time.perf_counter() - started) / 60
            write_sealed(self.plan_file, self.plan)
        if not finished:
            say(f"stopped, and what was running has saved. To go on: {self.command}")
            return 130
        from ablation.report import mirror_in_wandb, write_report  # slow to import

        write_report(self.path)
        if not self.plan.get("in_wandb"):  # asked again, wandb would have every run twice
            log = replace(self.config.log, runs=str(self.path))
            self.plan["in_wandb"] = mirror_in_wandb(self.path, log)
            write_sealed(self.plan_file, self.plan)
        print(self.path / "report.html")
        return 0

    # --- the plan ---

    def _stored_plan(self) -> dict[str, Any] | None:
        """The plan in the folder. Raises UserError where it is not the one the command asks for."""
        if self.plan_file.exists():
            stored = planning.read_plan(self.path)
            planning.check_same(self.path, stored, self._wanted())
            Study.load(self.path)  # refuses records that do not belong together, before more work
            say(f"plan    {self.plan_file}: going on")
            return stored
        if self.path.exists() and any(self.path.iterdir()):
            raise UserError(
                f"{self.path} is not empty and holds no plan.json, so it is not a study: choose "
                "another folder with --name"
            )
        return None

    def _new_plan(self) -> dict[str, Any]:
        dtype, tier = self._dtype(), self.tier
        speed, git = self._measure_speed(dtype)
        probes = sum(len(probe["arms"]) * len(probe["seeds"])
                     for probe in self._wanted()["probes"].values() if probe["steps"] is None)
        share, minutes = planning.shrink(
            tier, len(self.arms), probes, self.step_tokens, self.config.optim.warmup_steps,
            self.cooldown, self._measuring_tokens(), self.budget, speed,
        )
        steps = {
            "horizons": [int(share * tokens / self.step_tokens) for tokens in tier.horizons],
            "tuning": int(share * tier.tuning_tokens / self.step_tokens),
            "treatments": int(share * tier.treatment_tokens / self.step_tokens),
        }
        shortest = min(filter(None, (*steps["horizons"], steps["tuning"])))
        if not round(self.cooldown * shortest):
            raise UserError(f"optim.cooldown {self.cooldown} of a run of {shortest} steps is none: "
                            "choose a larger share")
        plan = {
            "name": self.path.name, "command": self.command, **self._wanted(), "steps": steps,
            "share": share, "expected_minutes": minutes, "budget_minutes": self.budget,
            "speed": speed, "dtype": dtype, "ngrams": self._ngrams(),
            "machine": planning.machine(), "versions": planning.versions(), "git": git,
            "treatment": None, "tuned": {"treatments": {}, "arms": {}}, "minutes": 0.0,
        }
        return plan

    def _wanted(self) -> dict[str, Any]:
        """What the command asks for: all of the plan that does not depend on the machine."""
        tier = self.tier
        probed = [arm for arm in planning.PROBED if self.arms.get(arm) == ARMS[arm]]
        files = self.data.manifest["files"]
        return {
            "tier": self.tier_name, "arms": self.arms, "baseline": self.baseline,
            "treatments": self.treatments, "grid": list(tier.grid),
            "tuning_seeds": list(tier.tuning_seeds), "seeds": list(range(tier.seeds)),
            "lengths": list(tier.horizons),
            "probes": {name: {"arms": probed, "seeds": list(range(tier.probe_seeds)),
                              "steps": tier.probe_steps} for name in planning.PROBES},
            "seq_len": self.config.data.seq_len, "step_tokens": self.step_tokens,
            "config": {arm: decisive(config) for arm, config in self.config_of.items()},
            "data_sha256": {name: file["sha256"] for name, file in files.items()},
        }

    @property
    def step_tokens(self) -> int:
        """Training tokens of a step."""
        return self.config.train.batch_size * self.config.data.seq_len

    @property
    def cooldown(self) -> float:
        """Share of a run's steps in which its learning rate falls."""
        assert self.config.optim.cooldown is not None, "refuse_chosen asks for wsd"
        return self.config.optim.cooldown

    def _measuring_tokens(self) -> float:
        return planning.measuring_tokens(
            self.tier, self.step_tokens, self.cooldown, self.data.manifest["val"]["tokens"],
            self.config.data.seq_len,
        )

    def _ngrams(self) -> list[float]:
        """Losses of unigrams, bigrams and trigrams on the validation split."""
        folder, dtype = self.data.folder, self.data.manifest["dtype"]
        train, held_out = (np.fromfile(folder / f"{split}.bin", dtype=dtype).astype(np.int64)
                           for split in ("train", "val"))
        return ngram_losses(train, held_out, self.data.manifest["vocab_size"])

    def _dtype(self) -> Dtype:
        """What all runs of the study have: two arms must not decide differently."""
        model, device = self.config.model, resolve_device(self.config.train.device)
        rates = partial(product_rates, device, model, self.step_tokens, training=True)
        dtype, _ = resolve_dtype(self.config.train.dtype, device, rates)
        return DTYPE_NAMES[dtype]

    def _measure_speed(self, dtype: Dtype) -> tuple[Speed, dict[str, Any] | None]:
        """Of as many runs side by side as the study will have, of its first arms, in a folder that
        is thrown away; and the git revision that they noted."""
        say(f"speed   measuring {SPEED_STEPS} steps of {self.jobs} runs side by side ...")
        overlays = list(self.arms.values())
        with tempfile.TemporaryDirectory() as folder:
            jobs = []
            for i in range(self.jobs):
                values = {
                    **overlays[i % len(overlays)],
                    "train.steps": SPEED_STEPS, "train.eval_interval": SPEED_STEPS,
                    "optim.warmup_steps": min(SPEED_STEPS, self.config.optim.warmup_steps),
                    "train.dtype": dtype,
                    "log.runs": folder, "log.wandb": "disabled", "name": f"speed-{i}",
                }
                jobs.append(Job(f"speed-{i}", 1, self._train(values)))
            pool = Pool(self.jobs, Path(folder) / "logs", self.threads)
            started = time.perf_counter()
            if not pool.run(jobs):
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
        speed = Speed(tokens_per_second=sum(rates), overhead=wall - training, jobs=self.jobs)
        return speed, opened[0].record["git"]

    def _print_plan(self) -> None:
        plan, manifest, steps = self.plan, self.data.manifest, self.plan["steps"]
        say(f"data    {self.data.folder}: {manifest['train']['tokens']:,} training and "
            f"{manifest['val']['tokens']:,} validation tokens, vocabulary "
            f"{manifest['vocab_size']}; n-grams reach "
            + ", ".join(f"{loss:.2f}" for loss in plan["ngrams"]))
        for arm, overlay in self.arms.items():
            words = " ".join(f"{key.split('.')[-1]}={value}" for key, value in overlay.items())
            say(f"arm     {arm:<11} {words}")
        if plan["treatments"]:
            say(f"tuning  which of {', '.join(plan['treatments'])} is best after "
                f"{self._amount(steps['treatments'])} tokens")
        if plan["grid"]:
            rates = ", ".join(f"{lr:g}" for lr in plan["grid"])
            say(f"tuning  learning rates {rates} for each arm, {self._amount(steps['tuning'])} "
                f"tokens, seeds {', '.join(map(str, plan['tuning_seeds']))}")
        shrunk = f" ({plan['share']:.0%} of what was asked for)" if plan["share"] < 1 else ""
        lengths = ", ".join(map(self._amount, steps["horizons"]))
        say(f"runs    seeds {', '.join(map(str, plan['seeds']))} of each arm, to {lengths} tokens"
            + shrunk)
        speed = plan["speed"]
        say(f"speed   {speed['tokens_per_second']:,.0f} tokens/s in {speed['jobs']} processes; the "
            f"study is expected to take {plan['expected_minutes']:.0f} minutes")

    def _amount(self, steps: int) -> str:
        """So many steps in tokens, as in the names of runs: 2M."""
        tokens = steps * self.step_tokens
        for size, unit in ((planning.MILLION, "M"), (1024, "k")):
            if tokens >= size:
                return f"{tokens / size:.4g}{unit}"
        return str(tokens)

    # --- the runs ---

    def _run_all(self) -> bool:
        """Whatever is missing. Returns False when a signal stopped it."""
        pool = Pool(self.jobs, self.path / "logs", self.threads)
        if not self._tune(pool, "treatments", self.treatments):
            return False
        # The first three arms and the probes to the end, then the other arms: a study takes hours,
        # and may be stopped.
        names = list(self.arms)
        for group in filter(None, (names[:3], names[3:])):
            if not self._tune(pool, "arms", group):
                return False
            self._refuse_other_rates(group)
            jobs = self._run_jobs(group)
            if group[0] == names[0]:
                jobs += self._probe_jobs()
            if not pool.run(jobs, f"runs of {', '.join(group)}"):
                return False
        return True

    # --- tuning ---

    def _tune(self, pool: Pool, stage: str, arms: list[str]) -> bool:
        """Run learning rates of these arms until each has its best. Returns whether all are done.

        An arm that says its own learning rate is not tuned, and none is without a grid.
        """
        arms = [arm for arm in arms
                if self.plan["grid"] and "optim.lr" not in self._overlay(arm, stage)]
        while jobs := [job for arm in arms for job in self._tuning_jobs(stage, arm)]:
            if not pool.run(jobs, f"tuning {stage}"):
                return False
        for arm in arms:
            losses = self._losses(stage, arm)
            best = planning.best_rate(losses)
            if math.isinf(planning.lowest(losses)):
                raise UserError(f"{arm} diverged at every learning rate from {min(losses):g} to "
                                f"{max(losses):g}: leave it out, or change its settings")
            edge = " (at the edge of what was tried)" if best in (min(losses), max(losses)) else ""
            say(f"tuned   {arm:<11} {best:g}{edge}")
        if stage == "treatments" and arms:
            best = min(arms, key=lambda arm: planning.lowest(self._losses(stage, arm)))
            self.plan["treatment"] = best
            say(f"tuned   {best} stands for {self.treatments[0]}")
        write_sealed(self.plan_file, self.plan)
        return True

    def _refuse_other_rates(self, arms: list[str]) -> None:
        """UserError where an arm has records with another rate than the one that is best now."""
        for arm in arms:
            if losses := self._losses("arms", arm):
                best, records = planning.best_rate(losses), Study.load(self.path).of(arm).values()
                if others := {record["lr"] for record in records} - {best}:
                    raise UserError(f"{arm} was run with optim.lr {others.pop():g} in {self.path}, "
                                    f"and {best:g} has turned out to be better: remove "
                                    f"results/{arm}-* and {arm}-s*, to run it again")

    def _losses(self, stage: str, arm: str) -> planning.Losses:
        return planning.tuning_losses(self.plan, stage).get(arm, {})

    def _tuning_jobs(self, stage: str, arm: str) -> list[Job]:
        """What `next_rates` asks for."""
        plan, steps = self.plan, planning.stage_steps(self.plan, stage)
        amount, jobs = self._amount(steps), []
        for lr, seed in planning.next_rates(plan["grid"], plan["tuning_seeds"],
                                            self._losses(stage, arm)):
            name = f"tune-{amount}-{arm}-lr{lr:g}-s{seed}"
            values = {
                **self._overlay(arm, stage), "optim.lr": lr, "seed": seed, "name": name,
                "train.steps": steps,
                "train.eval_interval": math.ceil(steps / planning.VALIDATIONS),
                "log.group": f"{self.path.name}/tuning-{amount}/{arm}", "log.job_type": "tune",
            }
            commands = self._train_and_note(values, stage, arm)
            jobs.append(Job(name, steps * self.step_tokens, commands, self.path / name,
                            fragile=[self.path / name]))
        return jobs

    def _train_and_note(
        self, values: dict[str, Any], stage: str, arm: str
    ) -> Iterator[list[str]]:
        """The commands of a tuning run; then its loss is noted in the plan."""
        yield from self._train_missing(values)
        run, loss = self.path / values["name"], None
        if not has_diverged(run):
            points = reversed(RunDir.open(run).metrics())
            loss = next(point["val/loss"] for point in points if "val/loss" in point)
        rates = self.plan["tuned"][stage].setdefault(arm, {})
        rates.setdefault(f"{values['optim.lr']:g}", {})[str(values["seed"])] = loss
        write_sealed(self.plan_file, self.plan)
        remove_checkpoints(run, "last", "previous", "best")

    def _overlay(self, arm: str, stage: str = "arms") -> Mapping[str, Any]:
        """Of the config, for an arm: the first treatment's is that of the best."""
        if stage == "arms" and self.treatments and arm == self.treatments[0]:
            return ARMS[self.plan["treatment"]]
        return {**ARMS, **self.arms}[arm]

    # --- the runs that are reported, and the probes ---

    def _run_jobs(self, arms: list[str]) -> list[Job]:
        """One for each of these arms and each seed without a record, seed by seed."""
        steps, jobs = self.plan["steps"]["horizons"], []
        trained = (steps[-1] + self.cooldown * sum(steps[:-1])) * self.step_tokens
        diverged = self.plan.get("diverged", [])
        for seed, arm in itertools.product(self.plan["seeds"], arms):
            result = self.path / "results" / f"{arm}-s{seed}.json"
            runs = [self.path / f"{result.stem}-{self._amount(count)}" for count in steps]
            if result.exists():
                for run in runs:  # where a stop came between the record and this
                    remove_checkpoints(run, "previous", "best", "kept")
            elif result.stem not in diverged:
                commands = self._train_and_measure(arm, seed, runs, result)
                weight = trained + self._measuring_tokens()
                jobs.append(Job(result.stem, weight, commands, runs[-1], fragile=runs))
        return jobs

    def _train_and_measure(
        self, arm: str, seed: int, runs: list[Path], result: Path
    ) -> Iterator[list[str]]:
        """The commands of an arm and a seed: the longest run, those that branch off, the record;
        then the disk is freed of the checkpoints that were measured, and the runs stay."""
        steps = self.plan["steps"]["horizons"]
        values = {**self._overlay(arm), "seed": seed, "log.job_type": "train"}
        if "optim.lr" not in values and self.plan["grid"]:
            values["optim.lr"] = planning.best_rate(self._losses("arms", arm))
        for run, count in reversed(list(zip(runs, steps, strict=True))):
            own = {**values, "name": run.name, "train.steps": count, "train.eval_interval": count,
                   "log.group": f"{self.path.name}/{self._amount(count)}/{arm}"}
            branch = None
            if run == runs[-1]:
                kept = planning.kept_steps(steps, self.cooldown, self.tier.followed)
                own["train.keep"] = json.dumps(kept)
                own["train.eval_interval"] = math.ceil(count / planning.VALIDATIONS)
            else:
                branch = ["--branch-from", str(runs[-1]), "--at",
                          str(count - round(self.cooldown * count))]
            yield from self._train_missing(own, branch)
            if has_diverged(run) and steps_saved(run) < count:
                # A mean over what is left of it would flatter the arm.
                say(f"\n{result.stem} diverged, and is left out")
                self.plan.setdefault("diverged", []).append(result.stem)
                write_sealed(self.plan_file, self.plan)
                return
        yarn = self._overlay(arm) == ARMS["rope"]
        yield python(measure_run, runs, arm, yarn, self.tier.windows, self.config.train.device,
                     result)
        for run in runs:
            remove_checkpoints(run, "previous", "best", "kept")
        Study.load(self.path)  # refuses arms that differ in more than the arm, as soon as they do

    def _probe_jobs(self) -> list[Job]:
        jobs, device = [], self.config.train.device
        for name, parts in self.plan["probes"].items():
            for seed, arm in itertools.product(parts["seeds"], parts["arms"]):
                result = self.path / "probes" / f"{name}-{arm}-s{seed}.json"
                if not result.exists():
                    command = python(run_probe, name, arm, seed, parts["steps"], device, result)
                    jobs.append(Job(result.stem, planning.PROBE_TOKENS, [command]))
        return jobs

    def _train_missing(
        self, values: dict[str, Any], branch: list[str] | None = None
    ) -> list[list[str]]:
        """The command that trains what is missing of a run: all, the rest of it, or nothing."""
        folder = self.path / values["name"]
        if folder.exists():
            done = steps_saved(folder)
            if done == values["train.steps"]:
                return []
            if done:
                return [[*TRAIN, "--resume", str(folder)]]
            if has_diverged(folder):
                return []  # it would again
            with locked_run(folder):  # by no process that has outlived an earlier ablate.py
                shutil.rmtree(folder)  # stopped before its first checkpoint
        revision = (self.plan["git"] or {}).get("revision", "no git")[:7]
        tags = [self.tier_name, self.config.data.source, revision, *self.config.log.tags]
        values = {**values, "train.dtype": self.plan["dtype"], "log.runs": str(self.path),
                  "log.tags": json.dumps(tags)}
        if branch is None:
            return self._train(values)
        # All else is that of the run it branches off from.
        own = {key: values[key] for key in values
               if key.partition(".")[0] in ("train", "log", "name") and key != "train.dtype"}
        return [[*TRAIN, *branch, *spelled(own)]]

    def _train(self, values: Mapping[str, Any]) -> list[list[str]]:
        return [[*TRAIN, *self.argv, *spelled(values)]]


def check_options(options: Namespace) -> None:
    budget = options.budget_minutes
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise UserError(f"--budget-minutes must be above 0, not {budget:g}")
    for name in ("jobs", "seeds"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1, not {value}")


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
    if config.optim.schedule != "wsd":
        raise UserError(f"optim.schedule must be wsd, not {config.optim.schedule}: a study's runs "
                        "of different lengths are one run until they cool down")


def refuse_other_lengths(base: Config, arms: Mapping[str, Config]) -> None:
    """UserError for an arm with a text, steps, batches, schedule or dtype of its own: all runs of a
    study branch off at the same steps, and are compared at the same tokens."""
    names = ["train.steps", "train.batch_size", "train.dtype", "train.keep", "optim.schedule",
             "optim.cooldown", "seed", *(f"data.{name}" for name in vars(base.data))]
    for arm, config in arms.items():
        for name in names:
            if attrgetter(name)(config) != attrgetter(name)(base):
                raise UserError(f"--arm {arm}: {name} is the same in all arms of a study: say "
                                f"--{name} for all, or compare in another way")


def decisive(config: Config) -> dict[str, Any]:
    """The part of a run's configuration that decides its numbers and is not the run's own."""
    values: dict[str, Any] = asdict(config)
    del values["log"], values["name"], values["seed"]
    del values["data"]["prepared"], values["train"]["device"]
    return values


def remove_checkpoints(run: Path, *names: str) -> None:
    """Free the disk; the points and the configuration of the run stay."""
    for name in names:
        shutil.rmtree(run / name, ignore_errors=True)


def has_diverged(run: Path) -> bool:
    """Whether the last steps of a run had a loss or a gradient that was not finite, so that
    training gave up, at one more of them."""
    if not run.exists():
        return False  # it failed before its first step
    steps = [point for point in RunDir.open(run).metrics() if "train/loss" in point]
    last = steps[1 - MAX_SKIPPED_IN_A_ROW :]
    return len(last) == MAX_SKIPPED_IN_A_ROW - 1 and all(
        None in (point["train/loss"], point["train/grad_norm"]) for point in last)


def steps_saved(folder: Path) -> int:
    """How far a run can go on from; 0 where it has no checkpoint yet. Raises UserError for one that
    cannot be read."""
    run = RunDir.open(folder)
    return run.load_training()[1]["count"]["step"] if run.has_training else 0
