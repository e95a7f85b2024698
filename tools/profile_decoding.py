"""What a step of compiled decoding on a CPU is made of: the time of each kernel.

    python -m tools.profile_decoding ROWS DTYPE [LAYERS]

The model is that of configs/bench.yaml with random weights, of 2 layers unless told otherwise. It
is compiled into a temporary folder with marks around the kernels, which take time themselves.
Printed are the microseconds of a step that each kernel takes, its calls in a step, and its name.
"""

import os
import sys
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gyre import compiled
from gyre.options import make_config, read_yaml
from model.generation import Batch
from model.sampling import Sampling
from model.transformer import Transformer

STEPS = 200
SHOWN = 1.0  # microseconds of a step


def main(rows: int, dtype: torch.dtype, layers: int) -> None:
    """Print the table for so many rows."""
    config = make_config(read_yaml("bench.yaml"), {}).model
    model = Transformer(replace(config, n_layers=layers))
    model.init_weights(0)
    model = model.to(dtype).eval()
    compiled.OPTIONS["cpp.enable_kernel_profile"] = True
    with TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        decode(model, rows)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            decode(model, rows)
    for kernel in sorted(profiler.key_averages(), key=time_itself, reverse=True):
        microseconds = time_itself(kernel) / STEPS
        if microseconds >= SHOWN:
            print(f"{microseconds:8.0f} {kernel.count / STEPS:6.1f}  {kernel.key}")


def decode(model: Transformer, rows: int) -> None:
    """Decode a text of each row, greedily."""
    batch = Batch(model, [[1]], Sampling(temperature=0), max_new_tokens=STEPS, num_samples=rows)
    for _ in batch.draw(compiled.compile_batch(batch)):
        pass


def time_itself(kernel: Any) -> float:
    """Return the microseconds of a kernel, without those of what it calls."""
    return kernel.self_cpu_time_total


if __name__ == "__main__":
    given = sys.argv[1:]
    n_layers = 2
    if len(given) == 3:
        n_layers = int(given[2])
    main(int(given[0]), getattr(torch, given[1]), n_layers)
