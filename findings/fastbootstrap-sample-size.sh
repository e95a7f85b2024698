#!/usr/bin/env bash
# With a sample size, fastbootstrap's intervals of a median are those of another quantile.
#
# Versions: fastbootstrap 1.8.8 (made for Python 3.12), numpy 2.4.6, scipy 1.17.1, pandas 2.3.3.
# Guess before the run: with `sample_size=100` of 1,000 values, the interval of the median is that of 100
#     values, about three times as wide, around the median. (Suspected after reading the source.)
# Seen: the place of the quantile among 100 values is looked up among the sorted 1,000, so that "the median" is
#     the quantile of 5 %: an interval of -1.70 to -1.48 beside a `statistic_value` of -0.07, narrower
#     than without a sample size. Two samples whose medians are equal, and whose lowest tenths are not, have
#     a p-value of 0. With 2,000 of 1,000, the interval ends with the largest value. `one_sample_bootstrap`, which
#     draws, is right.
# For gyre: its report has an interval of its own. There, give no sample size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 joblib==1.6.0 psutil
"$folder/env/bin/pip" install --quiet --no-compile --no-deps --ignore-requires-python fastbootstrap==1.8.8
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import sys
from unittest.mock import MagicMock

# The package imports its plots, which the intervals do not need.
for name in ("IPython", "IPython.display", "matplotlib", "matplotlib.axes", "matplotlib.pyplot", "plotly",
             "plotly.graph_objects"):
    sys.modules[name] = MagicMock()
import numpy as np
from fastbootstrap import one_sample_bootstrap, spotify_one_sample_bootstrap, spotify_two_sample_bootstrap

N_VALUES = 1000
generator = np.random.default_rng(0)
np.random.seed(0)
values = generator.normal(size=N_VALUES)
median = np.median(values)


def show(size):
    """Return the interval of the median without draws, and the one from drawn samples of that size."""
    quick = spotify_one_sample_bootstrap(values, sample_size=size)
    drawn = one_sample_bootstrap(values, sample_size=size, statistic=np.median, seed=0, n_jobs=1,
                                 number_of_bootstrap_samples=2000)["confidence_interval"]
    low, high = quick["confidence_interval"]
    quantiles = [np.mean(values < end) for end in (low, high)]
    print(f"sample size {size}: {low:.2f} to {high:.2f}, the quantiles {quantiles[0]:.0%} to {quantiles[1]:.0%}; "
          f"drawn {drawn[0]:.2f} to {drawn[1]:.2f}; value {quick['statistic_value']:.2f}")
    return (low, high), drawn


(low, high), drawn = show(None)
assert low < median < high and np.allclose((low, high), drawn, atol=0.03)
width = high - low
(low, high), drawn = show(100)
assert high < -1.2 and low > -2.2 and drawn[0] < median < drawn[1]
assert high - low < 0.5 * (drawn[1] - drawn[0]) and drawn[1] - drawn[0] > 2 * width
(low, high), _ = show(2000)
assert low > 1.5 and high == values.max()

# The lowest tenth is moved, and the median is not.
other = np.where(values < np.quantile(values, 0.1), values - 2, values)
assert np.median(other) == median
for size in (None, 100):
    result = spotify_two_sample_bootstrap(values, other, sample_size=size)
    print(f"equal medians, sample size {size}: p {result['p_value']:.3f}, "
          f"difference {result['statistic_value']:.2f}, interval {result['confidence_interval'].round(2)}")
    assert (result["p_value"] < 0.001) == (size == 100)
PYTHON
