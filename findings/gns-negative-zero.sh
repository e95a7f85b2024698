#!/usr/bin/env bash
# gns-pytorch reports a gradient noise scale of 0 when the noise is largest.
#
# Versions: gns-pytorch 0.1.5, torch 2.13.0.
# Guess before the run: the more noise, the larger the reported scale; an estimate far above the size
#     of the batch is rough, and a mean of many calls, as the package recommends, makes it good. (That
#     it is not was suspected after reading the source.)
# Seen: with 16 of 64 samples, the default, true scales of 1 and 100 are found. Where the scale is
#     10,000, half of the calls return 0: the estimate of the squared mean gradient is negative there,
#     and a negative quotient is replaced by 0, the value of no noise at all. The median is 0, the mean
#     a twentieth of the truth, and the running mean falls to a hundredth. Where there is nothing but
#     noise, so that the scale is infinite, the numbers are the same: a batch looks large enough.
# For gyre: it measures no noise scale. There, average both squared norms over many calls, divide the
#     averages, and read a negative quotient as a scale too large to measure.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile gns-pytorch==0.1.5 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import gc
import random
import statistics

import torch
from gns_pytorch import compute_gns

WIDTH, BATCH, CALLS = 1000, 64, 300
gc.freeze()  # compute_gns collects garbage in each call
torch.set_num_threads(1)
random.seed(0)
torch.manual_seed(0)
model = torch.nn.Linear(WIDTH, 1, bias=False)


def measure(scale):
    """Return what compute_gns reports in each call, and the estimate from the averaged norms.

    The loss of a sample x is its product with the weights: its gradient is x, with a mean of 1 in
    each place and a variance of `scale`, which is then the noise scale.
    """
    reported, squares, totals = [], [], []
    for _ in range(CALLS):
        rows = float(scale != float("inf")) + min(scale, 1e4) ** 0.5 * torch.randn(BATCH, WIDTH)
        reported.append(compute_gns(model(rows).squeeze(1), model))
        mean = rows[:BATCH // 4].double()  # by default, a quarter of the batch is used
        totals.append(mean.mean(0).square().sum().item())
        squares.append(mean.square().sum(1).mean().item())
    count = BATCH // 4
    total, square = statistics.mean(totals), statistics.mean(squares)
    noise = (square - total) / (1 - 1 / count)
    return reported, noise / ((count * total - square) / (count - 1))


def running(values):
    """Return the running means 0.9 * mean + 0.1 * value, as in the package's example."""
    mean, means = 0.0, []
    for value in values:
        mean = 0.9 * mean + 0.1 * value
        means.append(mean)
    return means


print("scale: median, mean, calls that return 0, smallest running mean; quotient of averages")
for scale in [1.0, 100.0, 10_000.0, float("inf")]:
    reported, quotient = measure(scale)
    median, mean = statistics.median(reported), statistics.mean(reported)
    zeros = sum(value == 0 for value in reported) / CALLS
    smallest = min(running(reported)[50:])
    print(f"{scale:7}: {median:6.1f}, {mean:6.1f}, {100 * zeros:4.1f} %, {smallest:6.1f}; "
          f"{quotient:.1f}")
    if scale <= 100:
        assert zeros < 0.02 and abs(median / scale - 1) < 0.2 and abs(quotient / scale - 1) < 0.1
    else:
        assert 0.3 < zeros < 0.7 and median < 400 and mean < 4_000 and smallest < 400
PYTHON
