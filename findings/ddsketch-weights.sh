#!/usr/bin/env bash
# ddsketch: quantiles of weighted values depend on the unit of the weights, and may be no value at all.
#
# Versions: ddsketch 3.0.1, six 1.17.0.
# Guess before the run: `add(value, weight)` takes any positive weight, and quantiles are the same if all
#     weights are multiplied by a constant, as the mean is; they are values within 1 %. (That they might
#     not was suspected after reading the source.)
# Seen: the rank of a quantile is its share of the sum of the weights minus 1. With weights of 0.1, the
#     99 % quantile of 1 to 100 is 89. If the weights add up to 1, as normalized ones do, every quantile
#     above 0 is the smallest value, and if to less than 1, it is the middle of an empty bin: -0.99, where
#     all values are positive. With weights of 1 and more it is right.
# For gyre: it keeps no sketches. There, scale the weights so that they add up to many.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ddsketch==3.0.1 six==1.17.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from ddsketch import DDSketch

VALUES, SHARES = [float(value) for value in range(1, 101)], (0.25, 0.5, 0.99)


def sketch(weight):
    """Return the quantiles and the mean of the values, all with one weight."""
    sketch = DDSketch(relative_accuracy=0.01)
    for value in VALUES:
        sketch.add(value, weight)
    return [sketch.get_quantile_value(share) for share in SHARES], sketch.avg


found = {}
for weight in (10, 1, 0.1, 0.01, 0.005):
    found[weight], mean = sketch(weight)
    print(f"weights of {weight}, sum {weight * len(VALUES):g}: quantiles "
          f"{[round(value, 2) for value in found[weight]]} of {SHARES}, mean {mean:.2f}")
    assert abs(mean - 50.5) < 1e-9

due = [VALUES[int(share * (len(VALUES) - 1))] for share in SHARES]
for weight in (10, 1):
    assert all(abs(value / right - 1) < 0.011 for value, right in zip(found[weight], due))
assert abs(found[0.1][2] - 89) < 1
assert all(abs(value - VALUES[0]) < 0.02 for value in found[0.01])
assert all(value < 0 for value in found[0.005])
PYTHON
