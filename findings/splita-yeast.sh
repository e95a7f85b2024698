#!/usr/bin/env bash
# splita's YEAST compares each look's z-value with a constant: the more looks, the more false alarms.
#
# Versions: splita 0.1.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: `YEASTSequentialTest(alpha=0.05)`, "providing always-valid Type I error control",
#     stops in at most 5 % of experiments without an effect, however often it is updated. (Suspected
#     after reading the source.)
# Seen: updated after each value of both groups, from the 30th to the 3,000th, it stops in 13 % of them,
#     and within 30,000 values in 16 %. Levy's inequality for the sum of all 30,000 is exceeded in 3 %.
# Cause: Levy's inequality bounds the largest sum of a fixed number of values: the difference times n
#     against the deviation of the last sum. `update` divides by the standard error of the current n
#     (splita/sequential/yeast.py), and the largest z-value of a growing sample has no bound.
# For gyre: it has no sequential test. There, take `EValue`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile splita==0.1.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from scipy.stats import norm
from splita.sequential.yeast import YEASTSequentialTest

N_EXPERIMENTS, START, N, FAR = 400, 30, 3000, 30_000


def running_z(control, treatment):
    """Return the z-value of the first n values of both groups, for each n."""
    counts = np.arange(1, len(control) + 1)
    variances = [(np.cumsum(values**2) - np.cumsum(values) ** 2 / counts) / np.maximum(counts - 1, 1)
                 for values in (control, treatment)]
    difference = (np.cumsum(treatment) - np.cumsum(control)) / counts
    return difference[START - 1:] / np.sqrt(sum(variances)[START - 1:] / counts[START - 1:])


boundary = YEASTSequentialTest(alpha=0.05)._boundary
stopped, sums_beyond = np.zeros((N_EXPERIMENTS, 2), bool), np.zeros(N_EXPERIMENTS, bool)
for seed in range(N_EXPERIMENTS):
    control, treatment = np.random.default_rng(seed).normal(size=(2, FAR))
    z = running_z(control, treatment)
    stopped[seed] = abs(z[:N - START + 1]).max() >= boundary, abs(z).max() >= boundary
    # Levy: P(max |S_k| > c) <= 2 P(|S_n| > c)
    sums = np.cumsum(treatment - control)
    sums_beyond[seed] = abs(sums).max() > norm.ppf(1 - 0.05 / 4) * np.sqrt(2 * FAR)
    if seed < 20:
        test = YEASTSequentialTest(alpha=0.05)
        states = [test.update(control[:START], treatment[:START])]
        states += [test.update(control[n:n + 1], treatment[n:n + 1]) for n in range(START, N)]
        assert np.allclose([state.z_statistic for state in states], z[:N - START + 1], atol=1e-8)
        assert any(state.should_stop for state in states) == stopped[seed, 0]
shares = stopped.mean(axis=0)
print(f"bound {boundary:.2f}: stopped without an effect in {shares[0]:.1%} of experiments within {N} values, in "
      f"{shares[1]:.1%} within {FAR}; by Levy's inequality for the sum in {sums_beyond.mean():.1%}")
assert shares[0] > 0.1 and shares[1] > shares[0] + 0.02
assert sums_beyond.mean() < 0.07
PYTHON
