#!/usr/bin/env bash
# boothy's two-sided p-value is near 2 if the first mean is the smaller one.
#
# Versions: boothy 0.1.1, numpy 2.4.6.
# Guess before the run: `Hypothesis(a, b).eval(null_type="==")` has the same p-value with a and b
#     exchanged, at most 1, and below 0.05 in 5 % of cases without an effect. (That it has not was
#     suspected after reading the source.)
# Seen: the shares above the difference and below minus the difference are added up, whatever its sign: if
#     it is negative, these are the complements of both tails. A difference of 10 standard errors has p =
#     0 one way and p = 2 the other way. By default, 100 values are drawn from each sample, however many
#     it has: with 10 values in each and no effect, 25 % have p < 0.05, all of them with the larger mean
#     first.
# For gyre: its report has a paired test of its own. There, take scipy.stats.bootstrap or
#     permutation_test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps boothy==0.1.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import sys
import types

# The package imports what it draws with, which the test does not need.
for name in ["matplotlib", "matplotlib.pyplot", "matplotlib.patches", "seaborn"]:
    sys.modules[name] = types.ModuleType(name)
import numpy as np
from boothy import Hypothesis

np.random.seed(0)
generator = np.random.default_rng(0)


def p_value(first, second, **options):
    """Return boothy's p-value of equal means."""
    test = Hypothesis(first, second)
    test.eval(null_type="==", **options)
    return test.p_val


first, second = generator.normal(1.5, 1, 100), generator.normal(0, 1, 100)
one, other = p_value(first, second), p_value(second, first)
print(f"means 1.5 and 0, 100 values in each: p = {one:.3f}; the other way round p = {other:.3f}")
assert one < 0.01 and other > 1.99

defaults, sized, larger_first = [], [], []
for _ in range(300):
    first, second = generator.normal(size=(2, 10))
    defaults.append(p_value(first, second) < 0.05)
    sized.append(min(p_value(first, second, samples=10), p_value(second, first, samples=10)) < 0.05)
    larger_first.append(first.mean() > second.mean())
wrong = np.array(defaults)
share = np.mean(np.array(larger_first)[wrong])
print(f"no effect, 10 values in each: p < 0.05 in {wrong.mean():.0%} of 300 cases, with the larger mean "
      f"first in {share:.0%} of these; with samples=10, and the larger mean first, in {np.mean(sized):.0%}")
assert wrong.mean() > 0.15 and share == 1 and np.mean(sized) < 0.15
PYTHON
