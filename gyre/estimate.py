"""How long a training takes: its FLOPs, an estimate of its time, and both as text."""

import os

from errors import busy_load
from model.config import ModelConfig


def training_flops(model: ModelConfig, tokens: int) -> float:
    """Return the FLOPs of training on so many tokens: 6 for every weight in a matrix product.

    Attention and the encoding are left out, so that all arms of an ablation count alike.
    """
    return 6.0 * model.matrix_parameters * tokens


def estimate_seconds(model: ModelConfig, tokens: int, rate: float) -> float:
    """Return about how long a training on so many tokens takes on a CPU.

    `rate` is the measured rate of matrix products, in FLOP/s. Whole steps reach only a share of it,
    which is smaller in narrow models. `share` is a rough fit to what was measured (docs/speed.md):
    0.40 at width 128 (measured 0.3 to 0.5), 0.52 at 256 (0.4 to 0.5), and 0.54 at 288 (0.6 to 0.7).
    At 288 the estimate is too long, which is the better error.
    """
    share = 0.75 * model.dim / (model.dim + 110)
    return training_flops(model, tokens) / (rate * share)


def format_estimate(seconds: float) -> str:
    """Return a duration as text, such as "about 5 minutes"."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * size:
            number = seconds / size
            return f"about {number:.0f} {unit}" if number >= 10 else f"about {number:.2g} {unit}"
    if seconds < 1.5:
        return "about a second"
    return f"about {seconds:.0f} seconds"


def describe_load() -> str:
    """Return a remark on an estimate if other processes keep this machine busy, else "".

    The measured rate does not show it: it is that of the fastest of some short products, and that
    one ran while the other processes paused.
    """
    load = busy_load()
    if not load:
        return ""
    return f", longer while others run here too (load {load:.0f} on {os.cpu_count()} cores)"


def format_rate(rate: float) -> str:
    """Return FLOP/s in GFLOP/s as text: 1,234, or 0.056 where a processor only emulates a dtype."""
    rate /= 1e9
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
