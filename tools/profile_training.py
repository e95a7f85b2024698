"""What a compiled training step on a CPU is made of: products by shape, and the other kernels.

    python -m tools.profile_training bfloat16
    python -m tools.profile_training float32 --eager

The step is that of configs/bench.yaml with random weights. Printed are milliseconds, always of the
fastest of some steps: of the whole step, of each kernel, with its calls in a step, and what is left
for Python and dispatch. For a product, GFLOP/s in the step are followed by those of the same
product alone, of contiguous operands. The last line has the rate of a product of 2048 x 2048
matrices.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from errors import report_errors
from gyre.compute import Compute, keep_freed_memory
from gyre.optim import OptimConfig, Optimizers
from gyre.options import make_config
from gyre.parser import Parser
from gyre.step import summed_loss
from gyre.yaml_files import read_yaml
from model import kernels, shared_forms
from model.transformer import Transformer

STEPS = 2
SHOWN = 0.01  # of the step: a kernel that takes less is not printed by itself
# The products that are operators, and how many of their first inputs are summands.
PRODUCTS = {
    "aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::linear": 0,
    "mkldnn::_linear_pointwise": 0,
}


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--eager", action="store_true")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    device = torch.device("cpu")
    keep_freed_memory()
    with kernels.products_by_onednn(kernels.prefers_onednn(device)):
        step = make_step(Compute(device, dtype), not options.eager)
        step()
        print_step(step, dtype)
    square = torch.randn(2048, 2048).to(dtype)
    multiply = shared_forms.onednn_product if dtype == torch.float32 else torch.mm
    (seconds,) = kernels.shortest_times([lambda: multiply(square, square)], time.perf_counter, 4)
    print(f"{2 * 2048**3 / seconds / 1e9:.0f} GFLOP/s of a large product by oneDNN")


def make_step(compute: Compute, compiled: bool) -> Callable[[], None]:
    """Return a training step."""
    config = make_config(read_yaml("bench.yaml"), {})
    sizes = replace(config.model, max_positions=config.data.seq_len, dropout=0.0)
    model = Transformer(sizes).train()
    model.init_weights(seed=1)
    optimizers = Optimizers(model, OptimConfig()).optimizers
    shape = (2, config.train.batch_size, config.data.seq_len)
    x, y = torch.randint(sizes.vocab_size, shape)
    compute_logits: Callable[[Tensor], Tensor] = model
    compute_loss: Callable[[Tensor, Tensor], Tensor] = summed_loss
    if compiled:
        compute_logits = torch.compile(model, options={"cpp.enable_kernel_profile": True})
        compute_loss = torch.compile(summed_loss, options={"cpp.enable_kernel_profile": True})

    def step() -> None:
        with compute.autocast():
            logits = compute_logits(x)
        loss = compute_loss(logits, y) / y.numel()
        del logits
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()

    return step


@dataclass
class Kernels:
    """What the kernels of a step took."""

    times: Counter[str] = field(default_factory=Counter)
    """Milliseconds by kernel."""
    calls: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, tuple[str, list[list[int]]]] = field(default_factory=dict)
    """The operator and the shapes of the operands of the kernels that are products."""


def print_step(step: Callable[[], None], dtype: torch.dtype) -> None:
    """Print the table."""
    whole = math.inf
    fastest = profile_step(step)
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        whole = min(whole, 1000 * (time.perf_counter() - started))
        found = profile_step(step)
        if found.times.total() < fastest.times.total():
            fastest = found
    print(f"{dtype}, {torch.backends.cpu.get_cpu_capability()}: {whole:.1f} ms a step")
    small = 0.0
    for kind, milliseconds in fastest.times.most_common():
        if milliseconds < SHOWN * whole:
            small += milliseconds
            continue
        calls = fastest.calls[kind]
        line = f"{milliseconds:8.1f} ms {calls:4d}  {kind}"
        if kind in fastest.shapes:
            name, shapes = fastest.shapes[kind]
            flop = count_flop(name, shapes)
            rate = flop * calls / milliseconds / 1e6
            free = flop / measure_alone(name, shapes, dtype) / 1e9
            line += f": {rate:.0f} GFLOP/s, alone {free:.0f}"
        print(line)
    print(f"{small:8.1f} ms       kernels of less than {100 * SHOWN:.0f} %")
    print(f"{whole - fastest.times.total():8.1f} ms       the rest: Python and dispatch")


def profile_step(step: Callable[[], None]) -> Kernels:
    """Take a step under the profiler."""
    found = Kernels()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step()
    events: Any = profiler.events()
    for event in events:
        kind = event.name
        if event.name in PRODUCTS:
            shapes = list_operands(event)
            kind = f"{event.name} {' x '.join(map(str, shapes))}"
            found.shapes[kind] = (event.name, shapes)
        found.times[kind] += event.self_cpu_time_total / 1000
        found.calls[kind] += 1
    return found


def list_operands(event: Any) -> list[list[int]]:
    """Return the shapes of the two matrices of a product."""
    first = PRODUCTS[event.name]
    return event.input_shapes[first : first + 2]


def count_flop(name: str, shapes: list[list[int]]) -> float:
    """Return the FLOP of a product of operands with these shapes."""
    left, right = shapes
    outputs = right[0] if "linear" in name else right[-1]
    return 2.0 * math.prod(left) * outputs


def measure_alone(name: str, shapes: list[list[int]], dtype: torch.dtype) -> float:
    """Return the seconds of a product by itself."""
    left = torch.randn(shapes[0]).to(dtype)
    right = torch.randn(shapes[1]).to(dtype)
    call = torch.matmul
    if "mkldnn" in name:
        call = shared_forms.onednn_product
    elif "linear" in name:
        call = torch.nn.functional.linear
    with torch.no_grad():
        (seconds,) = kernels.shortest_times([lambda: call(left, right)], time.perf_counter, 5)
    return seconds


if __name__ == "__main__":
    with report_errors():
        main()
