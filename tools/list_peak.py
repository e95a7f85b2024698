"""List the tensors that an eager training step of bench.yaml has in memory at its peak.

    python -m tools.list_peak float32
    python -m tools.list_peak bfloat16

It prints MiB, the number of tensors and the outermost operators that allocated them. Weights,
moments and imports were there before the step, and are not among them.
"""

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from errors import report_errors
from gyre.compute import Compute
from gyre.parser import Parser
from tools.profile_training import make_step


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
    step = make_step(Compute(torch.device("cpu"), dtype), compiled=False)
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
    with report_errors():
        parser = Parser(__doc__)
        parser.add_argument("dtype", choices=["float32", "bfloat16"])
        main(parser.parse_args().dtype)
