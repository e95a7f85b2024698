"""List the tensors that an eager training step of bench.yaml has in memory at its peak.

    python -m tools.list_peak float32
    python -m tools.list_peak bfloat16

It prints MiB, the number of tensors and the outermost operators that allocated them. Weights,
moments and imports were there before the step, and are not among them.
"""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gyre.compute import Compute
from gyre.optim import OptimConfig, Optimizers
from gyre.options import make_config, read_yaml
from gyre.step import summed_loss
from model.transformer import Transformer

BENCH = Path(__file__).parent.parent / "configs" / "bench.yaml"


def main(dtype: str) -> None:
    events = profile_step(getattr(torch, dtype))
    sizes: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for size, operator in list_live(events):
        sizes[operator] += size
        numbers[operator] += 1
    print(f"{sum(sizes.values()) / 2**20:8.1f} MiB at the peak of a step")
    for operator, size in sizes.most_common():
        if size >= 2**20:
            print(f"{size / 2**20:8.1f} {numbers[operator]:4d} {operator}")


def profile_step(dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return the profiler's events of a third step, by time."""
    config = make_config(read_yaml(str(BENCH)), {})
    sizes = replace(config.model, max_positions=config.data.seq_len, dropout=0.0)
    model = Transformer(sizes).train()
    model.init_weights(seed=1)
    optimizers = Optimizers(model, OptimConfig()).optimizers
    shape = (2, config.train.batch_size, config.data.seq_len)
    x, y = torch.randint(sizes.vocab_size, shape)
    compute = Compute(torch.device("cpu"), dtype)

    def step() -> None:
        with compute.autocast():
            logits = model(x)
        loss = summed_loss(logits, y) / y.numel()
        del logits
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(2):
        step()
    with TemporaryDirectory() as folder:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            step()
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return sorted((event for event in events if "ts" in event), key=lambda event: event["ts"])


def list_live(events: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return the size and the operator of each tensor that is there when most memory is in use."""
    allocations: dict[int, dict[str, Any]] = {}
    at_peak: list[dict[str, Any]] = []
    total = 0
    peak = 0
    for event in events:
        if event.get("name") != "[memory]":
            continue
        size = event["args"]["Bytes"]
        address = event["args"]["Addr"]
        total += size
        if size > 0:
            allocations[address] = event
        else:
            allocations.pop(address, None)
        if total > peak:
            peak = total
            at_peak = list(allocations.values())
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    return [(event["args"]["Bytes"], name_operator(operators, event["ts"])) for event in at_peak]


def name_operator(operators: list[dict[str, Any]], time: float) -> str:
    """Return the names of the two outermost operators that run at this time."""
    running = [op["name"] for op in operators if op["ts"] <= time <= op["ts"] + op["dur"]]
    return " > ".join(running[:2])


if __name__ == "__main__":
    main(*sys.argv[1:])
