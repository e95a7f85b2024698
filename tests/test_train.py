"""The loop: exact resumption, fair randomness, signals, processes, and what it reports."""

import json
import math
import os
import platform
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import train
from data.prepare import prepare
from errors import UserError
from gyre.device import resolve_compile, resolve_device, resolve_dtype
from gyre.loss import evaluate
from gyre.parallel import World
from gyre.rundir import RunDir
from gyre.trainer import Trainer
from model.position import POSITIONS
from train import load

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with a text of some thousand words; all runs of this module live here."""
    folder = tmp_path_factory.mktemp("world")
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdeé", k=rng.randint(1, 4))) for _ in range(50)]
    lines = (" ".join(rng.choices(words, k=8)) for _ in range(220))
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def arguments(world: Path, *extra: str) -> list[str]:
    """A model of no two equal sizes, in float32: 12 steps are 2.6 epochs."""
    return [
        "--data.files", str(world / "text.txt"), "--data.prepared", str(world / "prepared"),
        "--data.vocab_size", "300", "--data.seq_len", "20", "--model.dim", "48",
        "--model.n_layers", "2", "--model.n_heads", "6", "--model.n_kv_heads", "2",
        "--optim.warmup_steps", "3", "--train.steps", "12", "--train.batch_size", "27",
        "--train.eval_interval", "5", "--train.sample_tokens", "4", "--train.dtype", "float32",
        "--train.device", "cpu", "--log.runs", str(world / "runs"), "--log.wandb", "disabled",
        *extra,
    ]  # fmt: skip


def run(*argv: str) -> int:
    with pytest.raises(SystemExit) as caught:
        train.main(list(argv))
    return caught.value.code


def command(*argv: str) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *argv]


def points(path: Path, key: str = "train/loss") -> dict[int, float]:
    """{step: value}; each step may stand there once."""
    found = [(p["step"], p[key]) for p in RunDir.open(path).metrics() if key in p]
    assert len(dict(found)) == len(found)
    return dict(found)


def equal_runs(a: Path, b: Path) -> None:
    """Bitwise: every loss, the weights and the optimizers' state."""
    for key in ("train/loss", "train/grad_norm", "val/loss", "val/bpb"):
        assert points(a, key) == points(b, key)
    (weights_a, state_a), (weights_b, state_b) = (RunDir.open(p).load_training() for p in (a, b))
    assert weights_a.keys() == weights_b.keys()
    assert all(torch.equal(weights_a[k], weights_b[k]) for k in weights_a)
    flat = [torch.utils._pytree.tree_leaves(s["optimizers"]) for s in (state_a, state_b)]
    for x, y in zip(*flat, strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y
    counts = [{**s["count"], "seconds": None} for s in (state_a, state_b)]
    assert counts[0] == counts[1]


EXACT = ["--model.dropout", "0.2", "--train.micro_batch_size", "10", "--optim.optimizer", "muon",
         "--train.sample_prompt", "ab"]  # fmt: skip


@pytest.fixture(scope="module")
def straight(world) -> Path:
    """The run that nothing ever interrupted."""
    assert run(*arguments(world, *EXACT, "--name", "straight")) == 0
    return world / "runs" / "straight"


def test_a_run_leaves_what_the_readme_says(world, straight):
    assert sorted(p.name for p in straight.iterdir()) == [
        "best", "config.yaml", "last", "manifest.json", "metrics.jsonl", "previous", "run.json",
        "tokenizer.model",
    ]  # fmt: skip
    assert list(points(straight)) == list(range(1, 13))
    assert list(points(straight, "val/loss")) == [5, 10, 12]
    assert list(points(straight, "sample")) == [5, 10, 12]
    assert points(straight)[12] < points(straight)[1] - 0.1
    assert all(p["tokens"] == p["step"] * 27 * 20 for p in RunDir.open(straight).metrics())


def test_a_run_with_bpe_dropout_counts_passes_over_the_text_and_resumes(world, capfd):
    assert run(*arguments(world), "--data.bpe_dropout", "0.1", "--name", "varied") == 0
    said = "".join(capfd.readouterr())
    assert " training tokens in 12 passes and " in said
    path = world / "runs" / "varied"
    one_pass = RunDir.open(path).manifest["train"]["tokens"] / 12
    assert f"({12 * 27 * 20 / one_pass:.1f} epochs)" in said
    assert run("--resume", str(path), "--train.steps", "13") == 0


def test_killed_and_resumed_twice_equals_never_stopped(world, straight):
    """kill -9 in the middle of an evaluation interval, then a stop past the epoch's end."""
    path = world / "runs" / "killed"
    slow = f"""
import os, signal, sys, train
sys.path.insert(0, {str(ROOT)!r})
step = train.Trainer.step
def deadly(self, *args):
    if self.count["step"] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *args)
train.Trainer.step = deadly
train.main({arguments(world, *EXACT, "--name", "killed")!r})
"""
    done = subprocess.run([sys.executable, "-c", slow], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list(points(path)) == list(range(1, 8))  # two steps past the checkpoint

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", stopping_at(11))
        assert run("--resume", str(path)) == 128 + signal.SIGTERM
    assert run("--resume", str(path)) == 0
    equal_runs(straight, path)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_step_saves_and_says_how_to_resume(world, straight, number, code):
    path = world / "runs" / f"signal-{code}"
    process = subprocess.Popen(
        command(*arguments(world, *EXACT, "--name", path.name, "--train.steps", "2000",
                           "--train.eval_interval", "1000")),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (path / "metrics.jsonl").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert f"python train.py --resume {path}" in errors and "Traceback" not in errors
    _, state = RunDir.open(path).load_training()
    assert state["count"]["step"] == max(points(path)) >= 1


def test_what_one_looks_at_does_not_change_what_one_trains(world, straight):
    """Neither how often a run evaluates, nor whether it samples, nor what it samples."""
    for name, extra in (
        ("looks-often", ["--train.eval_interval", "2"]),
        ("no-samples", ["--train.sample_tokens", "0"]),
    ):
        argv = [*arguments(world, *EXACT), *extra, "--name", name]
        assert run(*argv) == 0
        assert points(world / "runs" / name) == points(straight)


def test_encodings_of_one_seed_see_the_same_weights_and_batches(world):
    trainers = {}
    for position in POSITIONS:
        config, _ = load(arguments(world, "--model.position", position))
        trainers[position] = Trainer(config, World(1, 1, CPU), None)  # rank 1 writes nothing
    weights = {p: t.module.state_dict() for p, t in trainers.items()}
    for position in POSITIONS:
        for name, weight in weights["none"].items():
            assert torch.equal(weights[position][name], weight)
        for step in (0, 5, 11):
            for a, b in zip(trainers[position].train_data.batch(step),
                            trainers["none"].train_data.batch(step), strict=True):  # fmt: skip
                assert torch.equal(a, b)


def test_accumulation_is_exact_under_unequal_splits(world):
    """27 rows as 27, as 10 + 10 + 7 and as 27 x 1 give the same gradient."""
    norms, losses = [], []
    for size in ("27", "10", "1"):
        name = f"micro-{size}"
        argv = arguments(world, "--train.micro_batch_size", size, "--name", name)
        assert run(*argv, "--train.steps", "3") == 0
        norms.append(points(world / "runs" / name, "train/grad_norm"))
        losses.append(points(world / "runs" / name))
    for other in (1, 2):
        for step in (1, 2, 3):
            assert losses[other][step] == pytest.approx(losses[0][step], abs=1e-6)
            assert norms[other][step] == pytest.approx(norms[0][step], rel=1e-5)


def test_two_processes_equal_one(world):
    """27 rows over two processes are 14 and 13; micro-batches of 5 make 3 and 3."""
    extra = ["--train.micro_batch_size", "5", "--model.position", "sinusoidal"]
    assert run(*arguments(world, *extra, "--name", "one")) == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                "--standalone", str(ROOT / "train.py")]  # fmt: skip
    done = subprocess.run(
        [*torchrun, *arguments(world, *extra, "--name", "two")], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, two = (world / "runs" / name for name in ("one", "two"))
    for key in ("train/loss", "val/loss", "val/bpb"):
        a, b = points(one, key), points(two, key)
        assert a.keys() == b.keys()
        assert all(a[step] == pytest.approx(b[step], abs=1e-6) for step in a)
    assert {p.name for p in one.iterdir()} == {p.name for p in two.iterdir()}
    weights = [RunDir.open(p).load_weights("last") for p in (one, two)]
    assert weights[0].keys() == weights[1].keys()


@pytest.mark.parametrize("position", POSITIONS)
def test_every_encoding_learns(world, position):
    argv = arguments(world, "--model.position", position, "--name", f"learns-{position}")
    assert run(*argv, "--optim.lr", "1e-2", "--train.steps", "30") == 0
    losses = points(world / "runs" / f"learns-{position}")
    assert losses[30] < losses[1] - 1.5


def test_losses_that_are_not_numbers_are_skipped_counted_and_finally_stop(world, capfd):
    def poisoned(steps: set[int]):
        def step(self, *args, step=Trainer.step):
            if self.count["step"] in steps:
                hook = self.module.norm.register_forward_hook(lambda m, i, out: out * math.nan)
            try:
                return step(self, *args)
            finally:
                if self.count["step"] - 1 in steps:
                    hook.remove()

        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", poisoned({2, 3, 6}))
        assert run(*arguments(world, "--name", "hiccup")) == 0
    losses = points(world / "runs" / "hiccup")
    assert [step for step, loss in losses.items() if loss is None] == [3, 4, 7]
    assert points(world / "runs" / "hiccup", "train/skipped")[12] == 3
    weights = RunDir.open(world / "runs" / "hiccup").load_weights("last")
    assert all(w.isfinite().all() for w in weights.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", poisoned({6, 7, 8}))
        assert run(*arguments(world, "--name", "diverged")) == 2
    assert "not finite 3 steps in a row, up to step 9" in capfd.readouterr().err
    weights, state = RunDir.open(world / "runs" / "diverged").load_training()
    assert state["count"]["step"] == 5
    assert all(w.isfinite().all() for w in weights.values())


def test_validation_is_over_every_byte_and_leaves_no_trace(world):
    config, _ = load(arguments(world))
    trainer = Trainer(config, World(1, 1, CPU), None)
    val_data = trainer.data.dataset("val", seq_len=20)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    results = [evaluate(trainer.module, val_data, n, CPU, torch.float32) for n in (27, 27, 4)]
    assert torch.equal(torch.get_rng_state(), before) and trainer.module.training
    assert results[0] == results[1]  # bit for bit
    assert results[2][1] == results[0][1] and results[2][0] == pytest.approx(
        results[0][0], rel=1e-6
    )

    data = prepare(config.data)
    text = (world / "text.txt").read_text(encoding="utf-8")
    held_out = text[int(len(text) * 0.9) :]
    assert data.manifest["val"]["bytes"] == len(held_out.encode()) > len(held_out)
    stream = torch.tensor([data.tokenizer.eos_id, *data.tokenizer.encode(held_out)])
    assert results[0][1] == len(stream) - 1
    nats = 0.0
    for start in range(0, len(stream) - 1, 20):
        row = stream[start : start + 21]
        logits = trainer.module.eval()(row[None, :-1])[0]
        nats += F.cross_entropy(logits, row[1:], reduction="sum").item()
    assert results[0][0] == pytest.approx(nats, rel=1e-5)


def test_a_run_reports_bits_per_byte(world, straight):
    manifest = json.loads((straight / "manifest.json").read_text(encoding="utf-8"))
    loss, bpb = points(straight, "val/loss"), points(straight, "val/bpb")
    for step in loss:
        nats = loss[step] * (manifest["val"]["tokens"] - 1)
        assert bpb[step] == pytest.approx(nats / math.log(2) / manifest["val"]["bytes"], rel=1e-9)


def test_best_is_the_lowest_validation(world, straight):
    best = RunDir.open(straight).load_weights("best")
    config, _ = load(arguments(world, *EXACT))
    trainer = Trainer(config, World(1, 1, CPU), None)
    trainer.module.load_state_dict(best)
    nats, tokens = evaluate(
        trainer.module, trainer.data.dataset("val", seq_len=20), 27, CPU, torch.float32
    )
    assert nats / tokens == pytest.approx(min(points(straight, "val/loss").values()), abs=1e-6)


def test_resuming_keeps_what_decides_the_numbers(world, straight, capfd):
    for change, word in (
        (["--seed", "2"], "seed"), (["--model.dim", "96"], "model"),
        (["--optim.lr", "1"], "optim"), (["--train.batch_size", "3"], "train.batch_size"),
    ):  # fmt: skip
        assert run("--resume", str(straight), *change) == 2
        assert f"{word} of {straight} cannot change on --resume" in capfd.readouterr().err
    assert run("--resume") == 2
    assert "--resume" in capfd.readouterr().err
    assert run("--resume", str(straight)) == 2
    assert "has finished its 12 steps: give --train.steps" in capfd.readouterr().err
    assert run("--resume", str(world / "nowhere")) == 2


def test_a_text_that_changed_is_not_resumed_on(world, tmp_path, capfd):
    """Also where the tokenizer is the same: one word of the validation part is enough."""
    text = tmp_path / "text.txt"
    original = (world / "text.txt").read_text(encoding="utf-8")
    text.write_text(original, encoding="utf-8")
    argv = arguments(world, "--data.files", str(text), "--log.runs", str(tmp_path / "runs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", stopping_at(6))
        assert run(*argv, "--name", "changed") == 143
    text.write_text(original[:-10] + "a b c d e\n", encoding="utf-8")
    assert run("--resume", str(tmp_path / "runs" / "changed")) == 2
    assert "has changed since it was started" in capfd.readouterr().err
    text.write_text(original, encoding="utf-8")
    assert run("--resume", str(tmp_path / "runs" / "changed")) == 0


def stopping_at(number: int):
    def step(self, *args, step=Trainer.step):
        return step(self, *args) or self.count["step"] == number

    return step


def test_a_longer_run_says_how_it_goes_on(world, capfd):
    path = world / "runs" / "longer"
    assert run(*arguments(world, "--name", "longer")) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", stopping_at(14))
        assert run("--resume", str(path), "--train.steps", "17") == 143
    assert f"python train.py --resume {path} --train.steps 17" in capfd.readouterr().err
    assert run("--resume", str(path)) == 2
    assert run("--resume", str(path), "--train.steps", "17") == 0
    assert list(points(path)) == list(range(1, 18))


def test_ctrl_c_before_the_loop_ends_without_a_traceback(world, monkeypatch, capfd):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "prepare", interrupted)
    assert run(*arguments(world, "--name", "interrupted")) == 130
    assert "Traceback" not in capfd.readouterr().err


def test_a_name_that_is_taken_is_refused_and_an_unset_one_found(world, straight, capfd):
    assert run(*arguments(world, "--name", "straight")) == 2
    assert "already exists" in capfd.readouterr().err
    assert run(*arguments(world, "--name", "a/b")) == 2
    assert "run name 'a/b' must be letters" in capfd.readouterr().err
    config, _ = load(["--config", "small.yaml", *arguments(world), "--model.position", "alibi"])
    assert config.name == "small-alibi-s1"
    (world / "runs" / "small-alibi-s1").mkdir()
    config, _ = load(["--config", "small.yaml", *arguments(world), "--model.position", "alibi"])
    assert config.name == "small-alibi-s1-2"


def test_devices_and_dtypes_resolve_or_are_refused_in_words():
    assert resolve_device("cpu") == CPU
    for device, words in (("cuda:99", "has 0 CUDA devices|has . CUDA"), ("tpu", "not known"),
                          ("meta", "not supported")):  # fmt: skip
        with pytest.raises(UserError, match=words):
            resolve_device(device)
    with pytest.raises(UserError, match="float16 needs a CUDA device, not cpu"):
        resolve_dtype("float16", CPU)
    assert resolve_dtype("float32", CPU)[0] == torch.float32
    dtype, why = resolve_dtype("auto", CPU)
    assert dtype in (torch.float32, torch.bfloat16) and "hardware" in why


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_on_a_cpu_freed_memory_serves_the_next_tensors():
    program = """
import resource, sys, torch
from gyre.device import resolve_device
if sys.argv[1] == "kept":
    resolve_device("cpu")
for mebibytes in (1, 40):  # below and above what glibc at most takes from its heap
    for times in (20, 10):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            torch.ones(mebibytes * 2**20 // 4).add(1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

    def page_faults(how):
        ran = subprocess.check_output([sys.executable, "-c", program, how], cwd=ROOT, text=True)
        return [int(line) for line in ran.split()]

    assert max(page_faults("kept")) < 1_000  # a block of 40 MiB has 10 240 pages
    assert page_faults("returned")[1] > 10_000


def test_compilation_is_chosen_by_the_work_and_given_up_without_a_compiler(monkeypatch):
    assert resolve_compile(False, CPU, 1e30) == (False, "eager, as asked")
    assert resolve_compile("auto", CPU, 1e6)[0] is False
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    yes, why = resolve_compile(True, CPU, 1e6)
    assert not yes and "no C++ compiler found" in why


@pytest.mark.parametrize(
    "extra, words",
    [
        (
            ["--train.batch_size", "1", "--train.sample_prompt", "ab " * 99],
            "train.sample_prompt has",
        ),
        (["--data.seq_len", "5000"], "seq_len"),
        (["--model.head_dim", "7"], "model.head_dim must be even"),
        (["--data.prepared", "/proc/nowhere"], "--data.prepared"),
        (["--data.files", "nowhere.txt"], "nowhere.txt"),
        (["--train.dtype", "float16"], "float16 needs a CUDA device"),
        (["--train.device", "cuda:7"], "cuda:7"),
        (["--data.vocab_size", "50000"], "50000"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_run(world, capfd, extra, words):
    before = sorted((world / "runs").iterdir()) if (world / "runs").exists() else []
    assert run(*arguments(world, *extra, "--name", "bad")) == 2
    errors = capfd.readouterr().err
    assert "Traceback" not in errors
    (line,) = [x for x in errors.splitlines() if x.startswith("error: ")]
    assert words in line
    assert (sorted((world / "runs").iterdir()) if before else []) == before
