"""What a step of compiled decoding on a CPU is made of: the time of each kind of kernel.

    python -m tools.profile_decoding 32 bfloat16
    python -m tools.profile_decoding 8 float32 --config MODEL.yaml --tokens 64 --folder COMPILED

The model is that of configs/bench.yaml with random weights, unless told otherwise. It is compiled
with marks around the kernels. With --folder, what was compiled is kept there for the next call.
Printed are microseconds of a step, always of the fastest of some texts. First comes the whole step,
measured without the profiler. Then come the kernels, with their calls in a step, and what is left
for Python and dispatch. For a product, the rate in the step is followed by the rate of the same
product alone, with the weights of all layers in turn. Products that are sums (model/kernels.py says
when) count as attention, because the compiler fuses them with it. The decoding of the first token
and what is packed before it count as sampling.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from errors import report_errors
from gyre import compiled
from gyre.compute import keep_freed_memory
from gyre.options import make_config
from gyre.parser import Parser
from gyre.yaml_files import read_yaml
from model import kernels, packed_forms
from model.config import ModelConfig
from model.generation import Batch
from model.sampling import Sampling
from model.transformer import Transformer, linear

TEXTS = 4
# Part of the name of a compiled kernel -> what it does. The first that fits counts.
KINDS = {
    "softmax": "attention, rotations, cache",
    "silu": "SwiGLU's gate",
    "rsqrt": "norms, embeddings",
}
PRODUCTS = ("linear_pointwise", "mm_out", "onednn_product")


@dataclass(frozen=True)
class Product:
    """A matrix product of a step."""

    name: str
    inputs: int
    outputs: int

    def __str__(self) -> str:
        return f"{self.name}, {self.inputs} x {self.outputs}"

    def rate(self, rows: int, microseconds: float) -> float:
        """Return GFLOP/s."""
        return 2e-3 * rows * self.inputs * self.outputs / microseconds


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--config", default="bench.yaml")
    parser.add_argument("--tokens", type=int, default=200, help="new tokens of each row")
    parser.add_argument("--folder", help="keep what is compiled in this folder")
    options = parser.parse_args()
    config = make_config(read_yaml(options.config), {}).model
    config = replace(config, max_positions=options.tokens + 1, dropout=0.0)
    compiled.OPTIONS["cpp.enable_kernel_profile"] = True
    folder = TemporaryDirectory() if options.folder is None else nullcontext(options.folder)
    device = torch.device("cpu")
    keep_freed_memory()
    with folder as path, kernels.products_by_onednn(kernels.prefers_onednn(device)):
        os.environ["XDG_CACHE_HOME"] = path
        print_step(config, options.rows, getattr(torch, options.dtype), options.tokens)


def print_step(config: ModelConfig, rows: int, dtype: torch.dtype, tokens: int) -> None:
    """Print the table."""
    model = Transformer(config)
    model.init_weights(0)
    model = model.to(dtype).eval()
    products = list_products(model, rows)
    whole, times, calls = measure_step(model, products, rows, tokens)
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"{rows} rows, {dtype}, {capability}: {whole:.0f} us a step")
    alone = {str(product): product for product in products}
    packs = bool(compiled.choose_groups(model, rows))
    for kind, microseconds in times.most_common():
        line = f"{microseconds / tokens:8.0f} us {calls[kind] / tokens:6.1f}  {kind}"
        if kind in alone:
            product = alone[kind]
            rate = product.rate(rows, microseconds / calls[kind])
            free = product.rate(rows, measure_alone(product, config.n_layers, rows, dtype, packs))
            line += f": {rate:.0f} GFLOP/s, alone {free:.0f}"
        print(line)
    rest = whole - times.total() / tokens
    print(f"{rest:8.0f} us         the rest: Python and dispatch")


def measure_step(
    model: Transformer, products: list[Product], rows: int, tokens: int
) -> tuple[float, Counter[str], Counter[str]]:
    """Return the microseconds of a step, and those and the calls of the kernels of a text."""
    decode(model, rows, tokens)
    whole = math.inf
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for _ in range(TEXTS):  # the fastest counts, because other programs only add time
        whole = min(whole, 1e6 * decode(model, rows, tokens) / tokens)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            decode(model, rows, tokens)
        profiled, calls = sum_times(profiler.events(), products)  # the calls of all texts are equal
        if not times or profiled.total() < times.total():
            times = profiled
    return whole, times, calls


def decode(model: Transformer, rows: int, tokens: int) -> float:
    """Decode a text of each row, greedily. Return the seconds."""
    batch = Batch(model, [[1]], Sampling(temperature=0), max_new_tokens=tokens, num_samples=rows)
    step = compiled.compile_batch(batch)
    started = time.perf_counter()
    for _ in batch.draw(step):
        pass
    return time.perf_counter() - started


def list_products(model: Transformer, rows: int) -> list[Product]:
    """Return the products of a step in their order, those that are joined as one."""
    groups = compiled.choose_groups(model, rows)
    tensors = compiled.read_tensors(model)
    if not groups:
        groups = [[name] for name in tensors if name.endswith(".weight") and "norm" not in name]
        groups.append(groups.pop(0))  # the embeddings, which are tied
    products = []
    for group in groups:
        parts = [name.removesuffix(".weight").rpartition(".")[2] for name in group]
        outputs = sum(len(tensors[name]) for name in group)
        products.append(Product(" ".join(parts), tensors[group[0]].shape[1], outputs))
    return products


def sum_times(events: Any, products: list[Product]) -> tuple[Counter[str], Counter[str]]:
    """Return microseconds and calls of each kind of kernel."""
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    n_products = 0
    for event in sorted(events, key=lambda event: event.time_range.start):
        kind = name_kind(event.name)
        if any(part in event.name for part in PRODUCTS) and "aoti" in event.name:
            kind = str(products[n_products % len(products)])
            n_products += 1
        times[kind] += event.self_cpu_time_total
        calls[kind] += 1
    return times, calls


def name_kind(name: str) -> str:
    """Return what a kernel does."""
    if "graph_" not in name and "cpp_fused" not in name:
        return "sampling and the first token: torch's operators"
    for part, kind in KINDS.items():
        if part in name:
            return kind
    return name


def measure_alone(
    product: Product, layers: int, rows: int, dtype: torch.dtype, packs: bool
) -> float:
    """Return the microseconds of a product by itself, with packed weights or not."""
    weights = [torch.randn(product.outputs, product.inputs).to(dtype) for _ in range(layers)]
    x = torch.randn(rows, product.inputs).to(dtype)
    call: Callable[[Tensor, Tensor], Tensor] = linear
    if packs:
        packed = [packed_forms.pack_matrices([weight], rows) for weight in weights]
        products = packed_forms.GroupedProducts([[weight] for weight in weights], packed)
        call = products.multiply

    def multiply() -> None:
        for weight in weights:
            call(x, weight)

    (seconds,) = kernels.shortest_times([multiply], time.perf_counter, rounds=20)
    return 1e6 * seconds / layers


if __name__ == "__main__":
    with report_errors(), torch.inference_mode():
        main()
