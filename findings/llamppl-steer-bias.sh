#!/usr/bin/env bash
# SMC steering of llamppl keeps particles with one probability and weights them with another.
#
# Versions: llamppl 0.2.3, numpy 2.4.6.
# Guess before the run: `smc_steer` resamples without replacement as the paper says: a particle with
#     a normalized weight of w is kept with probability min(1, cw), where these add up to N, and
#     then weighs w, or 1/c if that is more. So the mean weight of the result is an unbiased
#     estimate of the normalizing constant, as with `smc_standard`. (Not suspected: a toy program
#     was measured, with that guess.)
# Seen: `find_c` counts the last weight on the wrong side of the threshold. As soon as a particle is
#     sure to be kept, c is too small: for weights of 4, 1, 1 and 1/4 and N = 3, it is 3, where
#     min(1, cw) adds up to 2.08, and 5.56 is due. The particles that are drawn weigh 1/c, so 1.85
#     times as much as they should. The estimate of the constant is 11 % too large with 4 particles
#     of a program of 4 steps, and 86 % with stronger scores, and outcomes have too little of what
#     is rewarded: 3.27 heads for 3.78. With the c that is due in its place, all is right.
# For gyre: it decodes without particles. There, take `smc_standard`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile numpy==2.4.6
env/bin/pip install --quiet --no-compile --no-deps llamppl==0.2.3
env/bin/python -W ignore - <<'PYTHON'
import asyncio
import importlib
import site
import sys
import types
from pathlib import Path

import numpy as np

# The package imports an inference engine, which this algorithm does not use.
package = types.ModuleType("llamppl")
package.__path__ = [str(Path(folder) / "llamppl") for folder in site.getsitepackages()]
sys.modules["llamppl"] = package
Model = importlib.import_module("llamppl.modeling").Model
smc_standard = importlib.import_module("llamppl.inference.smc_standard").smc_standard
module = importlib.import_module("llamppl.inference.smc_steer")

STEPS, CHANCE = 4, 0.3


class Program(Model):
    """Toss STEPS coins; each head multiplies the weight by `head`, and each tail by `tail`."""

    def __init__(self, head, tail):
        super().__init__()
        self.head, self.tail = head, tail
        self.heads = self.tosses = 0

    async def step(self):
        head = np.random.rand() < CHANCE
        self.heads += head
        self.tosses += 1
        self.score(np.log(self.head if head else self.tail))
        if self.tosses == STEPS:
            self.finish()


def find_c(weights, n):
    """Return the c with which min(1, c * weight) adds up to n, by bisection."""
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * weights).sum() < n else (low, middle)
    return high


async def estimate(algorithm, n_runs):
    """Return the mean estimate of the constant, its standard error, and the mean heads."""
    constants, heads = [], []
    for _ in range(n_runs):
        particles = await algorithm()
        weights = np.exp([particle.weight for particle in particles])
        constants.append(weights.mean())
        heads.append(np.mean(weights * [particle.heads for particle in particles]))
    return (np.mean(constants), np.std(constants) / n_runs ** 0.5,
            np.mean(heads) / np.mean(constants))


np.random.seed(0)
weights = np.array([4, 1, 1, 0.25]) / 6.25
c, due = module.find_c(weights, 3), find_c(weights, 3)
kept = np.zeros(4)
for _ in range(4000):
    for indices in module.resample_optimal(weights, 3)[:2]:
        kept[indices] += 1 / 4000
print(f"weights {weights}, 3 to keep: c is {c:.2f}, min(1, cw) {np.minimum(1, c * weights)}; they "
      f"are kept with {kept.round(2)}, and {np.minimum(1, due * weights).round(2)}, c = {due:.2f}, "
      "is due")
assert np.isclose(c, 3) and np.isclose(due, 2 / 0.36)
assert np.abs(kept - np.minimum(1, due * weights)).max() < 0.03
assert kept[1] > 1.5 * min(1, c * weights[1])

original = module.find_c
for head, tail, bias in [(2, 0.5, 0.06), (4, 0.1, 0.5)]:
    constant = (CHANCE * head + (1 - CHANCE) * tail) ** STEPS
    heads = STEPS * CHANCE * head / (CHANCE * head + (1 - CHANCE) * tail)
    print(f"a head weighs {head}, a tail {tail}: the constant is {constant:.3f}, the mean of the "
          f"heads {heads:.2f}")
    for name, algorithm, function in [
            ("smc_standard", lambda: smc_standard(Program(head, tail), 4), original),
            ("smc_steer", lambda: module.smc_steer(Program(head, tail), 4, 2), original),
            ("smc_steer, c by hand", lambda: module.smc_steer(Program(head, tail), 4, 2), find_c)]:
        module.find_c = function
        mean, error, seen = asyncio.run(estimate(algorithm, 2000))
        print(f"    {name}: {mean:.3f} (standard error {error:.3f}), heads {seen:.3f}")
        if name == "smc_steer":
            assert mean - constant > bias * constant and mean - constant > 4 * error
            assert seen < heads - 0.02
        else:
            assert abs(mean - constant) < 3.5 * error
PYTHON
