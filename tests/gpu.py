"""What only a GPU shows, in rows that each have a process and a time limit of their own.

    python3 tests/gpu.py OUT SECONDS [ROW ...]
    DEVICE=cpu python3 tests/gpu.py OUT SECONDS [ROW ...]    tries the script with small sizes

Writes OUT/rows.jsonl, a line for each figure, and OUT/ROW.txt, all that a row prints. A row that
does not fit into what is left of SECONDS is skipped. A row or a case of it that fails costs only
itself. Without names all rows run but `tests`, in the order of their worth.
"""

import copy
import gc
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.attention import SDPBackend  # noqa: E402
from torch.profiler import ProfilerActivity  # noqa: E402
from torch.profiler import profile as record  # noqa: E402

from data.dataset import TokenDataset  # noqa: E402
from formats import hf  # noqa: E402
from gyre.checkpoint import STATES, WEIGHTS, write_tensors  # noqa: E402
from gyre.compiled import compile_batch  # noqa: E402
from gyre.compute import Compute, matmul_rates, resolve_dtype  # noqa: E402
from gyre.graphed import GraphedStep, graph_batch  # noqa: E402
from gyre.optim import Optimizers, orthogonalize  # noqa: E402
from gyre.options import make_config  # noqa: E402
from gyre.parallel import Replicated, World, copy_weights  # noqa: E402
from gyre.rundir import RunDir  # noqa: E402
from gyre.signals import StopSignal  # noqa: E402
from gyre.step import PendingStep, Progress, Setup, micro_batches, start_step, summed_loss  # noqa: E402
from model.config import ModelConfig  # noqa: E402
from model.dropout import compute_mask  # noqa: E402
from model.encodings import POSITIONS  # noqa: E402
from model.generation import Batch, NextLogits, generate, next_logits  # noqa: E402
from model.sampling import Sampling  # noqa: E402
from model.transformer import KVCache, Transformer  # noqa: E402

Call = Callable[[], object]

ON_CUDA = os.environ.get("DEVICE", "cuda") == "cuda"
DEVICE = torch.device("cuda:0" if ON_CUDA else "cpu")
WORK = Path(os.environ.get("WORK", Path(tempfile.gettempdir(), "gpu_rows")))

# The model of 124 M parameters that is timed, and its batch.
MODEL: dict[str, Any] = {"dim": 768, "n_layers": 12, "n_heads": 12, "hidden_dim": 2048,
                         "vocab_size": 50304, "max_positions": 2048}
BATCH = 32
LENGTH = 1024
PROMPT = 8
NEW_TOKENS = 496
ROWS_DECODED = (1, 32)
STEPS = 60  # of the trainings that are compared
BURST = 10  # training steps that are timed together
if not ON_CUDA:
    MODEL = {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96, "vocab_size": 512,
             "max_positions": 256}
    BATCH = 2
    LENGTH = 32
    NEW_TOKENS = 40
    ROWS_DECODED = (1, 3)
    STEPS = 6
    BURST = 2

SAMPLINGS = {
    "greedy": Sampling(temperature=0), "temperature 0.8": Sampling(temperature=0.8),
    "top-k 50": Sampling(temperature=0.8, top_k=50),
    "top-p 0.9": Sampling(temperature=0.8, top_p=0.9),
}
GUESSED_PRODUCTS = 790e12  # bfloat16 FLOP/s of an H100, where row env has not measured them
GUESSED_COPY = 3.0e12  # bytes/s that its memory reads and writes, likewise


# --- what the rows share -------------------------------------------------------------------------


def result(row: str, **values: object) -> None:
    """Print the figures of one case as a line that `main` collects."""
    print("RESULT " + json.dumps({"row": row, **values}), flush=True)


@contextmanager
def attempt(row: str, *passing: type[Exception], **case: object) -> Iterator[None]:
    """Turn an exception within into a result that names this case, but for those `passing`."""
    try:
        yield
    except passing:
        raise
    except Exception as problem:
        traceback.print_exc(file=sys.stdout)
        result(row, **case, failed=f"{type(problem).__name__}: {problem}"[:300])


def wait() -> None:
    """Wait until the GPU has computed what was queued."""
    if ON_CUDA:
        torch.cuda.synchronize()


def measure_seconds(call: Call, repeats: int) -> list[float]:
    """Return the seconds of each call, with the queue of the GPU empty before and after."""
    times = []
    for _ in range(repeats):
        wait()
        started = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - started)
    return times


def repeat(call: Call, times: int) -> None:
    """Make a call so many times."""
    for _ in range(times):
        call()


def median_seconds(call: Call, calls: int, repeats: int = 4) -> float:
    """Return the seconds of one call: the median of bursts, of which the first is not counted."""
    times = measure_seconds(partial(repeat, call, calls), repeats)
    return statistics.median(times[1:]) / calls


def in_ms(times: list[float], calls: int = 1) -> list[float]:
    """Return the milliseconds of one of so many calls."""
    return [round(1e3 * each / calls, 2) for each in times]


def free_memory() -> None:
    """Return the memory of what is no longer used to the GPU."""
    gc.collect()
    if ON_CUDA:
        torch.cuda.empty_cache()


def measured_rate(name: str, otherwise: float) -> float:
    """Return what row env has measured, in FLOP/s or bytes/s."""
    file = WORK / "rates.json"
    if not file.exists():
        return otherwise
    return json.loads(file.read_text(encoding="utf-8")).get(name, otherwise)


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """Return the norm of the difference over the norm of what was wanted."""
    reference = wanted.detach().double().cpu()
    difference = got.detach().double().cpu() - reference
    return float(difference.norm() / reference.norm())


def use_cudnn_attention(on: bool) -> None:
    """Let attention use cuDNN, or not."""
    if ON_CUDA:
        torch.backends.cuda.enable_cudnn_sdp(on)


def compiler_counts() -> dict[str, object]:
    """Return what torch.compile has counted in this process."""
    counters = torch._dynamo.utils.counters
    return {"frames": dict(counters["stats"]), "graph_breaks": len(counters["graph_break"])}


# --- the machine ---------------------------------------------------------------------------------


def env() -> None:
    """The machine, its packages, the kernels of attention, and the rates of memory and products."""
    names = ("torch", "triton", "numpy", "transformers", "tokenizers", "sentencepiece",
             "safetensors", "msgspec", "datasets")
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    result("env", python=platform.python_version(), **versions, cuda=torch.version.cuda,
           cpus=os.cpu_count(), matmul_precision=torch.get_float32_matmul_precision())
    if ON_CUDA:
        with attempt("env", what="card"):
            describe_card()
    with attempt("env", what="rates"):
        measure_rates()
    with attempt("env", what="sdpa"):
        result("env", sdpa=choose_attention())


def describe_card() -> None:
    """Print what the driver says of the card."""
    result("env", gpu=torch.cuda.get_device_name(), cudnn=torch.backends.cudnn.version(),
           capability=torch.cuda.get_device_capability(),
           memory_GB=round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1))
    fields = "name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]
    print(subprocess.run(command, capture_output=True, text=True).stdout, flush=True)


def measure_rates() -> None:
    """Measure the copies of memory and the large products; later rows read them in WORK."""
    size = 2**31 if ON_CUDA else 2**24
    n = 8192 if ON_CUDA else 512
    source = torch.ones(size, dtype=torch.uint8, device=DEVICE)
    target = torch.ones_like(source)
    rates = {"copy": 2 * size / median_seconds(partial(target.copy_, source), 5)}
    del source, target
    for name, dtype, precision in (("bfloat16", torch.bfloat16, "highest"),
                                   ("float32", torch.float32, "highest"),
                                   ("tf32", torch.float32, "high")):
        torch.set_float32_matmul_precision(precision)
        x = torch.randn(n, n, device=DEVICE).to(dtype)
        y = torch.randn(n, n, device=DEVICE).to(dtype)
        rates[name] = 2 * n**3 / median_seconds(partial(torch.matmul, x, y), 5)
    torch.set_float32_matmul_precision("highest")
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "rates.json").write_text(json.dumps(rates), encoding="utf-8")
    products = {f"{name}_TFLOP_s": round(rate / 1e12, 3) for name, rate in rates.items()
                if name != "copy"}
    result("env", copy_GB_s=round(rates["copy"] / 1e9, 1), **products)


def choose_attention() -> dict[str, str]:
    """Return which kernel PyTorch chooses for each kind of our calls of attention."""
    t = 512
    choices = {}
    for name, dtype, heads, kv_heads, queries, keys, mask_kind in (
        ("train bf16", torch.bfloat16, 12, 12, t, t, "causal"),
        ("train bf16 gqa", torch.bfloat16, 12, 4, t, t, "causal"),
        ("train fp32", torch.float32, 12, 12, t, t, "causal"),
        ("train fp32 gqa", torch.float32, 12, 4, t, t, "causal"),
        ("alibi", torch.float32, 12, 12, t, t, "bias"),
        ("alibi gqa", torch.float32, 12, 4, t, t, "bias"),
        ("decode bf16", torch.bfloat16, 12, 12, 1, t, "none"),
        ("decode bf16 one key", torch.bfloat16, 12, 12, 1, 1, "none"),
        ("decode fp32", torch.float32, 12, 12, 1, t, "none"),
        ("rest of a prompt", torch.bfloat16, 12, 12, 9, t, "bool"),
    ):
        q = torch.randn(2, heads, queries, 64, device=DEVICE, dtype=dtype)
        k = torch.randn(2, kv_heads, keys, 64, device=DEVICE, dtype=dtype)
        mask = None
        if mask_kind == "bias":
            mask = torch.zeros(1, heads, queries, keys, device=DEVICE)
        if mask_kind == "bool":
            mask = torch.ones(queries, keys, device=DEVICE, dtype=torch.bool)
        chosen = torch._fused_sdp_choice(q, k, k, mask, 0.0, mask_kind == "causal",
                                         enable_gqa=heads != kv_heads)
        choices[name] = SDPBackend(chosen).name
    return choices


def auto() -> None:
    """What `auto` takes for the dtype, three times each: the answer should not be a coin's."""
    tries = 3 if ON_CUDA else 1
    for dim, hidden in ((96, 256), (288, 768), (512, 1376), (768, 2048), (2048, 5632)):
        for training, tokens in ((True, 32768), (False, 1), (False, 32)):
            with attempt("auto", dim=dim, training=training, tokens=tokens):
                config = ModelConfig(dim=dim, n_heads=2, hidden_dim=hidden, vocab_size=8)
                chosen = []
                tflops = []
                for _ in range(tries):
                    rates = matmul_rates(DEVICE, config, tokens, training=training)
                    dtype, _ = resolve_dtype("auto", DEVICE, partial(list, rates))
                    chosen.append(str(dtype))
                    tflops.append([round(rate / 1e12, 3) for rate in rates])
                result("auto", dim=dim, training=training, tokens=tokens, chosen=chosen,
                       tflops=tflops)


# --- the same numbers as on a CPU ----------------------------------------------------------------


class Pass(NamedTuple):
    """What a forward and a backward pass return."""

    logits: Tensor
    loss: Tensor
    gradient: Tensor


def run_once(model: Transformer, x: Tensor, dtype: torch.dtype = torch.float32) -> Pass:
    """Return logits, loss and gradient of tokens (B, T), with products in `dtype`."""
    model.train()
    model.zero_grad()
    with Compute(x.device, dtype).autocast():
        logits = model(x, dropout_keys=torch.arange(len(x), device=x.device))
    kept = logits.detach().clone()  # the backward pass may overwrite them
    loss = summed_loss(logits, x.roll(-1, 1)) / x.numel()
    loss.backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return Pass(kept, loss, torch.cat(gradients))


def parity() -> None:
    """Every encoding in float32 and bfloat16 beside the CPU's float32; dropout bit by bit."""
    cases: dict[str, dict[str, Any]] = {
        "rope": {}, "rope gqa": {"n_kv_heads": 2}, "rope dropout": {"dropout": 0.25},
    }
    for position in POSITIONS:
        if position != "rope":
            cases[position] = {"position": position}
    for name, fields in cases.items():
        with attempt("parity", encoding=name):
            result("parity", encoding=name, **compare_encoding(fields))
    for place in (0, 7):
        with attempt("parity", what="dropout mask", place=place):
            keys = torch.tensor([3, 2**62, -5])
            here = compute_mask(keys, place, (64, 96), 0.25)
            there = compute_mask(keys.to(DEVICE), place, (64, 96), 0.25)
            result("parity", what="dropout mask", place=place,
                   equal=torch.equal(here, there.cpu()))
    with attempt("parity", what="muon"):
        x = torch.randn(4, 96, 160, generator=torch.Generator().manual_seed(0))
        wanted = orthogonalize(x)
        result("parity", what="muon", fp32=relative_error(orthogonalize(x.to(DEVICE)), wanted),
               bf16=relative_error(orthogonalize(x.to(DEVICE).bfloat16()), wanted))


def compare_encoding(fields: dict[str, Any]) -> dict[str, object]:
    """Return the relative errors of a model on the device, and whether it writes the same texts."""
    sizes: dict[str, Any] = {"dim": 256, "n_layers": 3, "n_heads": 8, "hidden_dim": 512,
                             "vocab_size": 1000, "max_positions": 256}
    model = Transformer(ModelConfig(**(sizes | fields)))
    model.init_weights(1)
    with torch.no_grad():
        for parameter in model.layers.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)  # attention that is far from flat
    there = copy.deepcopy(model).to(DEVICE)
    x = torch.randint(1000, (3, 200), generator=torch.Generator().manual_seed(0))
    values: dict[str, object] = {}
    wanted = run_once(model, x)
    for prefix, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        got = run_once(there, x.to(DEVICE), dtype)
        for part in Pass._fields:
            error = relative_error(getattr(got, part), getattr(wanted, part))
            values[f"{prefix}_{part}"] = float(f"{error:.3g}")
    model.eval()
    there.eval()
    cache = KVCache(there.config, 3, 200, DEVICE)
    with torch.inference_mode():
        logits = next_logits(there, x[:, :150].to(DEVICE), cache)
        for place in range(150, 160):
            logits = next_logits(there, x[:, place : place + 1].to(DEVICE), cache)
        values["cache"] = float(f"{relative_error(logits, next_logits(model, x[:, :160])):.3g}")
    for name, temperature in (("same_greedy", 0.0), ("same_sampled", 0.8)):
        texts = [generate(which, [[1, 2, 3], [4] * 9], Sampling(temperature=temperature),
                          max_new_tokens=24, seed=3) for which in (model, there)]
        values[name] = texts[0] == texts[1]
    return values


# --- the commands --------------------------------------------------------------------------------

FSDP = """\
import sys
from functools import partial

import torch
import torch.distributed as dist

sys.path.insert(0, {root!r})
import gyre.build
import train
from gyre.sharding import Sharded

if {on_cuda}:
    torch.cuda.set_device(0)
dist.init_process_group("nccl" if {on_cuda} else "gloo", init_method="tcp://127.0.0.1:29555",
                        rank=0, world_size=1)
gyre.build.Replicated = partial(Sharded, shards=1)
try:
    train.main()
finally:
    dist.destroy_process_group()
"""


class Command:
    """A command of gyre in a process of its own; its output is in a file of WORK."""

    def __init__(self, name: str, *argv: str):
        self.name = name
        self.log = WORK / f"{name}.log"
        self.started = time.perf_counter()
        environment = os.environ | {"OMP_NUM_THREADS": "2" if ON_CUDA else "1"}
        with self.log.open("w", encoding="utf-8") as stream:
            self.process = subprocess.Popen([sys.executable, *argv], cwd=ROOT, stdout=stream,
                                            stderr=subprocess.STDOUT, env=environment)

    def finish(self) -> int:
        """Wait for the end, print the last lines, and return the exit code."""
        code = self.process.wait()
        seconds = time.perf_counter() - self.started
        print(f"--- {self.name}: exit code {code}, done after {seconds:.0f} s", *self.lines()[-25:],
              sep="\n", flush=True)
        return code

    def lines(self) -> list[str]:
        """Return the lines of the output that are not empty."""
        text = self.log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
        return [line for line in text.splitlines() if line.strip()]


def train() -> None:
    """train.py on the checkout's own text in several ways at once, which are compared, not timed;
    and then what is done with a run."""
    WORK.mkdir(parents=True, exist_ok=True)
    runs = Path(tempfile.mkdtemp(prefix="runs", dir=WORK))
    text = "['README.md', 'docs/*.md', 'gyre/*.py', 'model/*.py', 'data/*.py']"
    tiny = ["--config", "tiny.yaml", f"--data.files={text}", "--data.val_fraction", "0.05",
            f"--log.runs={runs}", f"--data.prepared={WORK}/prepared", "--log.wandb", "disabled",
            "--train.steps", str(STEPS), "--train.eval_interval", str(STEPS // 2),
            "--optim.warmup_steps", "3", f"--train.keep=[{STEPS // 2}]"]
    fsdp = WORK / "fsdp.py"
    fsdp.write_text(FSDP.format(root=str(ROOT), on_cuda=ON_CUDA), encoding="utf-8")
    ways = list_ways()
    commands = {}
    for name, options in ways.items():
        script = str(fsdp) if name == "fsdp" else "train.py"
        commands[name] = Command(f"train_{name}", script, *tiny, *options, "--name", name)
    codes = {name: command.finish() for name, command in commands.items()}
    for name, command in commands.items():
        reference = "cpu_muon" if name == "muon_dropout" else "cpu"
        devices = [line for line in command.lines() if line.startswith("device")]
        with attempt("train", way=name, code=codes[name], device=devices[:1]):
            wanted = read_losses(runs / reference)
            got = read_losses(runs / name)
            largest = max(abs(got[step] / loss - 1) for step, loss in wanted.items())
            result("train", way=name, code=codes[name], last=round(got[STEPS], 6),
                   largest_relative_difference=float(f"{largest:.3g}"), device=devices[:1])
    use_run(runs)
    if ON_CUDA:  # alone: it passes the check of the memory at the start, and takes all there is
        big = Command("out_of_memory", "train.py", *tiny, *ways["bf16"], "--name", "big",
                      "--train.batch_size", "30000", "--data.seq_len", "512",
                      "--model.dim", "768")
        result("train", command="out_of_memory", code=big.finish(), last_line=big.lines()[-1:])


def list_ways() -> dict[str, list[str]]:
    """Return the options of each training, by its name."""
    on_cpu = ["--train.device", "cpu", "--train.dtype", "float32", "--train.compile", "false"]
    there = ["--train.device", DEVICE.type]
    eager = [*there, "--train.dtype", "float32", "--train.compile", "false"]
    muon = ["--optim.optimizer", "muon", "--model.dropout", "0.1"]
    if not ON_CUDA:
        return {"cpu": on_cpu, "fp32": eager, "fsdp": eager}
    return {
        "cpu": on_cpu,
        "cpu_muon": [*on_cpu, *muon],
        "fp32": eager,
        "bf16": [*there, "--train.dtype", "bfloat16", "--train.compile", "false"],
        "compiled": [*there, "--train.dtype", "bfloat16", "--train.compile", "true"],
        "muon_dropout": [*eager, *muon],
        "micro": [*eager, "--train.micro_batch_size", "5"],
        "float16": [*there, "--train.dtype", "float16", "--train.compile", "false"],
        "tf32": [*eager, "--train.tf32", "true"],
        "checkpointed": [*eager, "--train.checkpoint_blocks", "true"],
        "auto": there,
        "fsdp": eager,
    }


def read_losses(run: Path) -> dict[int, float]:
    """Return the training losses of a run by step."""
    points = RunDir.open(run).metrics()
    return {point["step"]: point["train/loss"] for point in points if "train/loss" in point}


def use_run(runs: Path) -> None:
    """Generate from a run on the CPU and on the device, resume it, and evaluate one."""
    common = ["generate.py", "--run", str(runs / "fp32"), "--prompt", "def ", "--temperature", "0",
              "--max-new-tokens", "40", "--dtype", "float32"]
    commands = {
        "generate_cpu": Command("generate_cpu", *common, "--device", "cpu"),
        "generate": Command("generate", *common, "--device", DEVICE.type),
        "generate_compiled": Command("generate_compiled", *common, "--device", DEVICE.type,
                                     "--compile"),
        "evaluate": Command("evaluate", "evaluate.py", str(runs / "fp32"), "--device",
                            DEVICE.type),
    }
    codes = {name: command.finish() for name, command in commands.items()}
    wanted = written_text(commands["generate_cpu"])
    for name, code in codes.items():
        with attempt("train", command=name, code=code):
            values: dict[str, object] = {}
            if name.startswith("generate"):
                values["same_as_cpu"] = written_text(commands[name]) == wanted
            result("train", command=name, code=code, **values)
    # What it has from the step in the middle on should be what the run itself had.
    half = STEPS // 2
    branch = Command("branch", "train.py", "--branch-from", str(runs / "fp32"), "--at", str(half),
                     "--name", "branch")
    with attempt("train", command="branch"):
        code = branch.finish()
        wanted_losses = read_losses(runs / "fp32")
        got = read_losses(runs / "branch")
        differences = [abs(got[step] - wanted_losses[step]) for step in range(half + 1, STEPS + 1)]
        result("train", command="branch", code=code, largest_difference=max(differences))
    # Last, because it changes the run.
    resume = Command("resume", "train.py", "--resume", str(runs / "fp32"),
                     "--train.steps", str(STEPS + 3))
    with attempt("train", command="resume"):
        code = resume.finish()
        result("train", command="resume", code=code, steps=max(read_losses(runs / "fp32")))


def written_text(command: Command) -> list[str]:
    """Return what generate.py has printed, without its lines about speed and places."""
    aside = ("/", "prefill", "decode", "compiling", "note")
    return [line for line in command.lines() if not line.startswith(aside)]


# --- speed ---------------------------------------------------------------------------------------


def gyre_training(rows: int, compiled: bool) -> tuple[Call, Setup]:
    """Return a step as train.py takes it: reading, copies, clipping, AdamW, and its waits."""
    vocab_size = MODEL["vocab_size"]
    n_tokens = 4_000_000 if ON_CUDA else 20_000
    WORK.mkdir(parents=True, exist_ok=True)
    file = WORK / f"random{os.getpid()}.bin"
    tokens = np.random.default_rng(0).integers(vocab_size, size=n_tokens, dtype="uint16")
    tokens.tofile(file)
    config = make_config({
        "model": MODEL, "train": {"steps": 1000, "batch_size": rows},
        "data": {"source": "files", "files": ["none"], "seq_len": LENGTH,
                 "vocab_size": vocab_size},
    })
    world = World(0, 1, DEVICE)
    parallelism = Replicated(world)
    model, module = parallelism.build_model(config.model, compiled)
    copy_weights(model, model.draw_matrices(1))
    data = TokenDataset(file, dtype="uint16", vocab_size=vocab_size, seq_len=LENGTH,
                        batch_size=rows, seed=1)
    setup = Setup(
        config=config, world=world, compute=Compute(DEVICE, torch.bfloat16, compiled),
        parallelism=parallelism, data=cast(Any, None), train_data=data, val_data=data, model=model,
        wrapped=module, optimizers=Optimizers(model, config.optim, torch.bfloat16),
        loss_function=torch.compile(summed_loss) if compiled else summed_loss, rows_per_pass=rows,
        progress=Progress(), scaler=torch.amp.GradScaler(enabled=False), stop=StopSignal(),
        reads_late=ON_CUDA,
    )
    steps = iter(range(10**9))
    started: list[PendingStep] = []

    def step() -> None:
        """Start a step, and read what the one before has measured, as train.py does on CUDA."""
        started.append(start_step(setup, next(steps)))
        if len(started) > 1 or not ON_CUDA:
            started.pop(0).read()

    return step, setup


def build_peer() -> Any:
    """Return transformers' LlamaForCausalLM of the same sizes, on the device."""
    from transformers import LlamaConfig, LlamaForCausalLM  # slow to import

    fields = hf.to_config(ModelConfig(**MODEL))
    model: Any = LlamaForCausalLM(LlamaConfig(**fields, eos_token_id=None))
    return model.to(DEVICE)


def peer_training(rows: int, compiled: bool) -> tuple[Call, None]:
    """Return a step of transformers' model: its batch is there already, and nothing waits."""
    model = build_peer().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x, y = torch.randint(MODEL["vocab_size"], (2, rows, LENGTH), device=DEVICE)
    if compiled:
        model.compile()

    def step() -> None:
        with Compute(DEVICE, torch.bfloat16).autocast():
            loss = model(x, labels=y, shift_labels=y, use_cache=False).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step, None


TRAININGS: dict[str, Callable[[int, bool], tuple[Call, Setup | None]]] = {
    "gyre": gyre_training, "transformers": peer_training,
}


def warm() -> None:
    """Compile at once what later rows time: they find it in the compiler's cache."""
    command = [sys.executable, __file__, "--row"]
    jobs = {
        "gyre training": [*command, "warm_training", "gyre"],
        "transformers training": [*command, "warm_training", "transformers"],
        "gyre decoding": [*command, "warm_decoding"],
    }
    started = time.perf_counter()
    running = {name: subprocess.Popen(job, cwd=ROOT) for name, job in jobs.items()}
    for name, process in running.items():
        code = process.wait()
        result("warm", what=name, code=code, done_after_s=round(time.perf_counter() - started, 1))


def warm_training(name: str) -> None:
    """Compile the training of one program."""
    with attempt("warm", what=f"{name} training"):
        step, _ = TRAININGS[name](BATCH, True)
        first, second = measure_seconds(step, 2)
        result("warm", what=f"{name} training", first_step_s=round(first, 1),
               second_step_ms=round(1e3 * second, 1), **compiler_counts())


def warm_decoding() -> None:
    """Compile the decoding of one row."""
    use_cudnn_attention(False)
    with attempt("warm", what="gyre decoding"):
        (first,) = measure_seconds(gyre_decoding(1, SAMPLINGS["greedy"], compiled=True), 1)
        result("warm", what="gyre decoding", first_text_s=round(first, 1), **compiler_counts())


def speed() -> None:
    """Training beside transformers, in turns; compiled first."""
    for compiled in (True, False) if ON_CUDA else (False,):
        rows = BATCH
        while rows >= 1:
            try:
                compare_training(rows, compiled)
                break
            except torch.OutOfMemoryError as problem:
                result("speed", compiled=compiled, rows=rows, failed=f"{problem}"[:300])
            free_memory()
            rows //= 2
        free_memory()


def compare_training(rows: int, compiled: bool) -> None:
    """Time both programs in turns. Raises OutOfMemoryError where one of them does not fit."""
    steps: dict[str, Call] = {}
    setup: Setup | None = None
    for name, make in TRAININGS.items():
        with attempt("speed", torch.OutOfMemoryError, program=name, compiled=compiled, rows=rows):
            began = time.perf_counter()
            step, made = make(rows, compiled)
            repeat(step, 3)
            wait()
            print(f"{name}: three steps after {time.perf_counter() - began:.1f} s", flush=True)
            steps[name] = step
            if made is not None:
                setup = made
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(4 if ON_CUDA else 2):
        for name, step in steps.items():
            if ON_CUDA:
                torch.cuda.reset_peak_memory_stats()
            times[name] += measure_seconds(partial(repeat, step, BURST), 1)
            print_training(name, compiled, rows, times[name])
    if setup is None:
        return
    with attempt("speed", program="gyre without waits"):
        free = step_without_waits(setup)
        free()
        times["free"] = measure_seconds(partial(repeat, free, BURST), 3)
        result("speed", program="gyre without reading, copies and waits", compiled=compiled,
               rows=rows, ms=in_ms(times["free"], BURST))
    with attempt("speed", what="a checkpoint and a batch"):
        time_files(setup)


def print_training(name: str, compiled: bool, rows: int, times: list[float]) -> None:
    """Print the speed so far of one program: the last line counts, the others outlive a timeout."""
    flops = ModelConfig(**MODEL).flops_per_token(LENGTH)
    rate = rows * LENGTH * BURST / statistics.median(times)
    products = measured_rate("bfloat16", GUESSED_PRODUCTS)
    peak = torch.cuda.max_memory_allocated() / 1e9 if ON_CUDA else 0.0
    result("speed", program=name, compiled=compiled, rows=rows, length=LENGTH,
           bursts=len(times), tokens_per_s=round(rate), mfu=round(rate * flops / products, 4),
           ms=in_ms(times, BURST), peak_GB=round(peak, 1))


def step_without_waits(setup: Setup) -> Call:
    """Return the same work as a training step's, on one batch and without reading the loss."""
    batches = micro_batches(setup, 0)
    x = batches[0][0].to(DEVICE)
    y = batches[0][1].to(DEVICE)

    def step() -> None:
        with setup.compute.autocast():
            # dropout_keys as train_step says it: without, it would compile again
            logits = setup.wrapped(x, dropout_keys=None)
        (setup.loss_function(logits, y) * (1 / y.numel())).backward()
        nn.utils.clip_grad_norm_(setup.model.parameters(), 1.0)
        for optimizer in setup.optimizers.optimizers:
            optimizer.step()
        setup.model.zero_grad()

    return step


def time_files(setup: Setup) -> None:
    """Time how long a checkpoint takes to write, and a batch to read."""
    folder = WORK / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    files = {WEIGHTS: setup.model.state_dict(), STATES: setup.optimizers.tensors()}
    write = partial(write_tensors, folder, files, setup.world)
    result("speed", checkpoint_write_s=[round(each, 2) for each in measure_seconds(write, 2)])
    read = partial(setup.train_data.batch, 1)
    result("speed", batch_read_ms=round(1e3 * min(measure_seconds(read, 10)), 2))


def gyre_decoding(rows: int, sampling: Sampling, compiled: bool) -> Call:
    """Return what decodes NEW_TOKENS after a short prompt, for every row, in bfloat16.

    On CUDA each text uses what was recorded for the first.
    """
    model = build_model()
    recorded: list[NextLogits] = []

    def call() -> None:
        batch = Batch(model, [[1] * PROMPT], sampling, max_new_tokens=NEW_TOKENS, num_samples=rows)
        previous = recorded[0] if recorded else None
        choose_step = compile_batch if compiled else graph_batch
        step = choose_step(batch, previous)
        recorded[:] = [step]
        for _ in batch.draw(step):
            pass

    return call


def build_model() -> Transformer:
    """Return our model in bfloat16, on the device."""
    model = Transformer(ModelConfig(**MODEL))
    model.init_weights(0)
    return model.to(DEVICE, torch.bfloat16).eval()


def decode() -> None:
    """Tokens/s of decoding: of the first text, for which graphs are recorded, and of later ones."""
    use_cudnn_attention(False)
    for rows in ROWS_DECODED:
        with attempt("decode", what="one step", rows=rows):
            time_step(rows)
    for compiled, rows in itertools.product((False, True), ROWS_DECODED):
        for name, sampling in SAMPLINGS.items():
            time_gyre(rows, name, sampling, compiled)
    result("decode", what="compiled decoding", **compiler_counts())


def time_gyre(rows: int, name: str, sampling: Sampling, compiled: bool) -> None:
    """Time our decoding of three texts."""
    case = {"program": "gyre", "compiled": compiled, "rows": rows, "sampling": name}
    with attempt("decode", **case):
        times = measure_seconds(gyre_decoding(rows, sampling, compiled), 3)
        weights = 2 * ModelConfig(**MODEL).matrix_parameters
        limit = rows * measured_rate("copy", GUESSED_COPY) / weights
        tokens = rows * NEW_TOKENS
        result("decode", **case, tokens_per_s=[round(tokens / each, 1) for each in times],
               weights_only_limit=round(limit))


def time_step(rows: int) -> None:
    """Time a step after 40 or 400 tokens as it is written, and as it is recorded."""
    known = 400 if ON_CUDA else 40
    model = build_model()
    cache = KVCache(model.config, rows, 512, DEVICE, torch.bfloat16)
    token = torch.ones(rows, 1, dtype=torch.long, device=DEVICE)
    recorded = GraphedStep(model, cache, recorded=ON_CUDA)
    times = {}
    with torch.inference_mode():
        next_logits(model, token.expand(rows, known), cache)
        for name, call in (("eager_ms", next_logits), ("recorded_ms", recorded)):

            def step(call: NextLogits = call) -> None:
                cache.length = known
                call(model, token, cache)

            times[name] = round(1e3 * median_seconds(step, 20), 4)
    floor = 2 * model.config.matrix_parameters / measured_rate("copy", GUESSED_COPY)
    result("decode", what="one step", rows=rows, **times, floor_ms=round(1e3 * floor, 4))


def static() -> None:
    """transformers' decoding: with its dynamic cache, and at its best, with a static one, for which
    it compiles a CUDA graph."""
    use_cudnn_attention(False)  # it plans anew for every length
    peer = build_peer().to(torch.bfloat16).eval()
    for rows, cache in itertools.product(ROWS_DECODED, (None, "static")):
        case = {"program": "transformers", "cache": cache, "rows": rows}
        prompt = torch.ones(rows, PROMPT, dtype=torch.long, device=DEVICE)
        options: dict[str, Any] = {"attention_mask": torch.ones_like(prompt), "do_sample": False,
                                   "max_new_tokens": NEW_TOKENS, "cache_implementation": cache}
        with attempt("static", **case):
            times = measure_seconds(partial(peer.generate, prompt, **options), 3)
            tokens = rows * NEW_TOKENS
            result("static", **case, tokens_per_s=[round(tokens / each, 1) for each in times])


def profile() -> None:
    """Where the time of a compiled training step and of the decoding of a text goes."""
    with attempt("profile", what="train"):
        step, _ = gyre_training(BATCH, ON_CUDA)
        print_profile("train", step, 4)
    free_memory()
    with attempt("profile", what="decode"):
        print_profile("decode", gyre_decoding(1, SAMPLINGS["greedy"], compiled=False), 1)


def print_profile(name: str, call: Call, count: int) -> None:
    """Print the kernels of so many calls, and which share of the time the device was busy."""
    kinds = [ProfilerActivity.CPU]
    key = "self_cpu_time_total"
    if ON_CUDA:
        kinds.append(ProfilerActivity.CUDA)
        key = "self_device_time_total"
    repeat(call, 2)
    with record(activities=kinds) as seen:
        (seconds,) = measure_seconds(partial(repeat, call, count), 1)
    table = seen.key_averages()
    busy = 0.0
    launches = 0
    for event in table:
        if not ON_CUDA or str(event.device_type).endswith("CUDA"):
            busy += getattr(event, key) / 1e6
        if "LaunchKernel" in event.key:
            launches += event.count
    print(f"### {name}", table.table(sort_by=key, row_limit=22, max_name_column_width=70), sep="\n")
    result("profile", what=name, wall_ms=round(1e3 * seconds / count, 2),
           busy=round(busy / seconds, 3), launches=launches // count)


# --- the tests -----------------------------------------------------------------------------------


def tests() -> None:
    """The quick tests, but those of wandb."""
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", "-rfE",
               "-o", "addopts=-q --strict-markers", "--ignore=tests/test_wandb_log.py",
               "--ignore=tests/test_wandb_thread.py", "--deselect",
               "tests/test_report.py::test_wandb_gets_a_table_and_the_figures"]
    if find_spec("xdist") is not None:
        command += ["-n", str(max(2, (os.cpu_count() or 2) - 2)), "--dist", "loadfile"]
    if find_spec("pytest_timeout") is not None:
        command += ["--timeout=100"]
    if not ON_CUDA:
        command += ["tests/test_kernels.py"]
    result("tests", code=subprocess.run(command, cwd=ROOT).returncode)


# --- the whole -----------------------------------------------------------------------------------


class Row(NamedTuple):
    """How long a row may take on a GPU, and below how many seconds it is not begun."""

    most: float
    least: float
    run: Callable[[], None]


ROWS = {
    "env": Row(60, 15, env), "auto": Row(60, 15, auto), "parity": Row(90, 30, parity),
    "train": Row(150, 60, train), "warm": Row(150, 70, warm), "speed": Row(150, 75, speed),
    "decode": Row(150, 70, decode), "static": Row(120, 60, static),
    "profile": Row(90, 30, profile), "tests": Row(150, 100, tests),
}
SLOWER = 6  # what a CPU may take longer
STEPS_OF_ROWS = {"warm_training": warm_training, "warm_decoding": warm_decoding}


class Outcome(NamedTuple):
    """How a row ended."""

    name: str
    ended: str
    seconds: float
    figures: int
    failed: int


def main(out: Path, limit: float, names: list[str]) -> int:
    """Run rows, each in a process of its own. Returns 1 if one has failed, or a case of it."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    if not names:
        names = [name for name in ROWS if name != "tests"]
    outcomes = []
    for name in names:
        left = limit - (time.monotonic() - started)
        if left < ROWS[name].least:
            print(f"== {name}: skipped, {left:.0f} s left", flush=True)
            outcomes.append(Outcome(name, "skipped", 0.0, 0, 0))
            continue
        most = ROWS[name].most
        if not ON_CUDA:
            most *= SLOWER
        outcome = run_row(name, out, min(most, left))
        print(f"== {name}: {outcome.ended}, {outcome.seconds:.0f} s", flush=True)
        outcomes.append(outcome)
    print(f"\n{'row':10}{'ended':12}{'seconds':>8}{'figures':>9}{'failed':>8}")
    for outcome in outcomes:
        print(f"{outcome.name:10}{outcome.ended:12}{outcome.seconds:8.0f}{outcome.figures:9}"
              f"{outcome.failed:8}", flush=True)
    return int(any(outcome.ended != "ok" or outcome.failed for outcome in outcomes))


def run_row(name: str, out: Path, limit: float) -> Outcome:
    """Run one row for `limit` seconds at most; its figures are written as it prints them."""
    environment = os.environ | {
        "PYTHONUNBUFFERED": "1", "PYTHONPATH": prepend_path(ROOT), "WORK": str(WORK),
        "TORCHINDUCTOR_CACHE_DIR": str(WORK / "inductor"), "TRITON_CACHE_DIR": str(WORK / "triton"),
        "XDG_CACHE_HOME": str(WORK / "cache"), "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1",
    }
    log = out / f"{name}.txt"
    began = time.monotonic()
    ended = "timed out"
    figures = 0
    failed = 0
    # Into a file and not a pipe, which what a killed row has left behind could hold open.
    with (log.open("w", encoding="utf-8") as stream, log.open(encoding="utf-8", errors="replace")
          as reader, (out / "rows.jsonl").open("a", encoding="utf-8") as lines):
        process = subprocess.Popen(
            [sys.executable, __file__, "--row", name], stdout=stream, stderr=subprocess.STDOUT,
            env=environment, cwd=ROOT, start_new_session=True)
        rest = ""
        running = True
        while running:
            running = process.poll() is None and time.monotonic() - began < limit
            *whole, rest = (rest + reader.read()).split("\n")
            for line in whole:
                if not line.startswith("RESULT "):
                    continue
                figure = line.removeprefix("RESULT ")
                figures += 1
                failed += is_failure(json.loads(figure))
                lines.write(figure + "\n")
                lines.flush()
                print(figure[:600], flush=True)
            if running:
                time.sleep(0.2)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        else:
            ended = "ok" if process.returncode == 0 else f"exit code {process.returncode}"
    if ended.startswith("exit"):
        print(*log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:], sep="\n")
    return Outcome(name, ended, time.monotonic() - began, figures, failed)


def is_failure(figure: dict[str, Any]) -> bool:
    """Return whether a case has failed: by an exception, or by a command's exit code."""
    if figure.get("command") == "out_of_memory":
        return figure["code"] != 1  # it has to fail, with a sentence
    return "failed" in figure or figure.get("code", 0) != 0


def prepend_path(folder: Path) -> str:
    """Return PYTHONPATH with this folder before the others."""
    others = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(filter(None, (str(folder), others)))


if __name__ == "__main__":
    if sys.argv[1] == "--row":
        name, *arguments = sys.argv[2:]
        if ON_CUDA:
            torch.cuda.set_device(DEVICE)
        if name in ROWS:
            ROWS[name].run()
        else:
            STEPS_OF_ROWS[name](*arguments)
    else:
        sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
