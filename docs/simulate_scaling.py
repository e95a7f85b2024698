"""Train one step of a large model in a world of 512 processes that do not exist, and count.

    python -m docs.simulate_scaling        writes docs/scaling.json and docs/scaling.png

The program is gyre's own: dividing, the passes of a micro-batch, clipping, AdamW. Its tensors have
shapes and no content, and PyTorch's fake process group answers at once. Counted are the memory of
one process at its peak, and number and size of its collectives; docs/scaling.md says what follows
from them. It takes some minutes.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from gyre.device import autocast
from gyre.optim import OptimConfig, Optimizers, gather_tensor
from gyre.parallel import World
from gyre.sharding import Sharded
from gyre.step import summed_loss
from model.config import ModelConfig

DOCS = Path(__file__).parent
# What the estimate assumes of a machine with eight GPUs, each way and for each GPU.
FLOPS = 400e12  # bfloat16, of 989e12 that an H100 has by its data sheet
INSIDE, BETWEEN = 450e9, 50e9  # bytes/s: NVLink inside of a node, 400 Gbit/s between nodes
NODE = 8
CPU = torch.device("cpu")
ROWS, SEQ_LEN = 1, 2048  # of the micro-batch of one process
MODELS = {
    "100M": ModelConfig(dim=768, n_layers=12, n_heads=12, hidden_dim=2048, vocab_size=16384,
                        max_positions=SEQ_LEN),
    "1.3B": ModelConfig(dim=2048, n_layers=24, n_heads=16, hidden_dim=5632, vocab_size=32000,
                        max_positions=SEQ_LEN, tie_embeddings=False),
    "7B": ModelConfig(dim=4096, n_layers=32, n_heads=32, hidden_dim=11008, vocab_size=32000,
                      max_positions=SEQ_LEN, tie_embeddings=False),
}
CASES = [  # (model, processes, over how many of them it is divided)
    *(("100M", n, n) for n in (2, 4, 8, 64, 512)),
    *((model, 512, shards) for model in ("1.3B", "7B") for shards in (512, 8)),
]


class CollectiveCounter(TorchDispatchMode):
    """Counts collectives by kind, and the bytes of what they gather, scatter or sum, whole."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if "c10d" in name and "wait" not in name:
            kind = next(kind for kind in ("gather", "scatter", "reduce") if kind in name)
            tensors = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
            self.calls[kind] += 1
            self.bytes[kind] += max(t.nbytes for t in tensors)
        return func(*args, **(kwargs or {}))


def simulate(name: str, size: int, shards: int) -> dict[str, Any]:
    """One process's second step: the first makes AdamW's moments."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    parallelism = Sharded(World(0, size, CPU), shards)
    model, module = parallelism.wrap(MODELS[name], None, False, checkpoint_activations=True)
    optimizers = Optimizers(model, OptimConfig())
    with FakeTensorMode(allow_non_fake_inputs=True):
        tokens = torch.zeros(ROWS, SEQ_LEN, dtype=torch.long)
        for _ in range(2):
            memory, counter = MemTracker(), CollectiveCounter()
            memory.track_external(model, *optimizers.optimizers)
            with counter, memory:
                with parallelism.averaging(module, last=True):
                    with autocast(CPU, torch.bfloat16):
                        logits = module(tokens)
                    summed_loss(logits, tokens).backward()
                gather_tensor(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
                for optimizer in optimizers.optimizers:
                    optimizer.step()
                optimizers.zero_grad()
    dist.destroy_process_group()
    peak = memory.get_tracker_snapshot("peak")[CPU]
    own = sum(p.to_local().numel() for p in model.parameters())  # type: ignore[attr-defined]
    return {
        "model": name, "processes": size, "shards": shards, "tokens": ROWS * SEQ_LEN,
        "parameters": sum(p.numel() for p in model.parameters()), "own_parameters": own,
        "peak_bytes": peak["Total"], "calls": dict(counter.calls), "bytes": dict(counter.bytes),
    }


# --- what follows ---------------------------------------------------------------------------------


def communication(case: dict[str, Any]) -> float:
    """Seconds that the collectives of one micro-batch and one step take by bandwidth alone.

    A ring of n processes moves (n-1)/n of what is gathered or scattered through every link, and
    twice that of what is summed.
    """
    shards, groups = case["shards"], case["processes"] // case["shards"]
    moved = (case["bytes"]["gather"] + case["bytes"]["scatter"]) * (shards - 1) / shards
    summed = 2 * case["bytes"]["reduce"] * (groups - 1) / groups
    return moved / (INSIDE if shards <= NODE else BETWEEN) + summed / BETWEEN


def arithmetic(case: dict[str, Any], tokens: int) -> float:
    """Seconds for so many tokens of one process: 6 FLOPs a weight, and 2 that are done again."""
    return 8 * case["parameters"] * tokens / FLOPS


def hidden_from(case: dict[str, Any]) -> float:
    """Tokens of a process from which on arithmetic takes longer than communication."""
    return communication(case) / arithmetic(case, 1)


def table(cases: list[dict[str, Any]]) -> str:
    """In Markdown."""
    head = ("model | processes | divided over | weights, gradients, moments | peak | collectives | "
            "moved | takes | hidden from")
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for case in cases:
        cells = [
            case["model"], case["processes"], case["shards"],
            f"{16 * case['own_parameters'] / 1e9:.3g} GB", f"{case['peak_bytes'] / 1e9:.3g} GB",
            sum(case["calls"].values()), f"{sum(case['bytes'].values()) / 1e9:.3g} GB",
            f"{1e3 * communication(case):.3g} ms", f"{hidden_from(case):,.0f} tokens",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def draw(cases: list[dict[str, Any]], file: Path) -> None:
    """Time of a step against the tokens of one process: the larger of the two is what it takes."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    tokens = [2**n for n in range(8, 18)]
    for axes, model in zip(figure.subplots(1, 2, sharey=True), ("1.3B", "7B"), strict=True):
        of_model = [case for case in cases if case["model"] == model]
        times = [arithmetic(of_model[0], n) for n in tokens]
        axes.plot(tokens, times, color="black", label="arithmetic")
        for case, style in zip(of_model, ("--", ":"), strict=True):
            axes.axhline(communication(case), color="0.4", linestyle=style,
                         label=f"collectives, divided over {case['shards']}")
        axes.set(xscale="log", yscale="log", title=f"{model}, 512 processes",
                 xlabel="tokens of one process in a step")
        axes.legend(fontsize=7, frameon=False)
    figure.axes[0].set_ylabel("seconds")
    figure.savefig(file, dpi=110, metadata={"Software": None})


def main() -> None:
    cases = [simulate(*case) for case in tqdm(CASES)]
    record = {"torch": torch.__version__, "cases": cases}
    (DOCS / "scaling.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(cases, DOCS / "scaling.png")
    print(table(cases))


if __name__ == "__main__":
    main()
