#!/usr/bin/env bash
# scikits.bootstrap's moving blocks never reach the last value of a series.
#
# Versions: scikits.bootstrap 1.1.1.
# Guess before the run: `bootstrap_indices_moving_block` starts blocks anywhere from the first value
#     to length - block_length, as its documentation says, so that each value inside a long series is
#     drawn equally often, and the last one as often as the first. (That the last start is left out
#     was read in the source before the run.)
# Seen: the starts end one too early (`rng.integers(0, n_obs - block_length)`, whose upper end is
#     exclusive): the last value is in none of 5,000 samples, and the one before it in half as many as
#     its mirror image. A series of 24 values whose last one is 1000 has the bootstrap means of one
#     that ends with 0, bit for bit. With wrap=True all values are drawn equally often; a block as
#     long as the series raises an error.
# For gyre: its report resamples seeds. There, give wrap=True, or draw the starts yourself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scikits.bootstrap==1.1.1 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from scikits.bootstrap import bootstrap_indices_moving_block

N_SAMPLES = 5000


def draws(length, block_length, wrap):
    """Return how often each value is in a sample, on average."""
    counts = np.zeros(length)
    for places in bootstrap_indices_moving_block(np.zeros(length), n_samples=N_SAMPLES, seed=0,
                                                 block_length=block_length, wrap=wrap):
        counts += np.bincount(places, minlength=length)
    return counts / N_SAMPLES


for length, block_length in [(12, 3), (24, 6), (100, 10)]:
    counts = draws(length, block_length, wrap=False)
    # with all starts, the counts are those of a series that is read backwards
    starts = np.arange(length - block_length + 1)
    due = np.zeros(length)
    for start in starts:
        due[start:start + block_length] += 1
    due *= length / due.sum()
    print(f"{length} values, blocks of {block_length}: first values {np.round(counts[:3], 2)}, last "
          f"ones {np.round(counts[-3:], 2)}, where {np.round(due[-3:], 2)} is due")
    wrapped = draws(length, block_length, wrap=True)
    assert counts[-1] == 0 and counts[0] > 0.8 * due[0]
    assert counts[-2] < 0.6 * counts[1]
    assert np.abs(wrapped - 1).max() < 0.1

series = np.random.default_rng(0).normal(size=24)
means = {}
for last in [0, 1000]:
    series[-1] = last
    places = bootstrap_indices_moving_block(series, n_samples=N_SAMPLES, block_length=6, seed=0)
    means[last] = np.array([series[sample].mean() for sample in places])
    print(f"the last value is {last}: mean {series.mean():.2f}, bootstrap means "
          f"{means[last].min():.3f} to {means[last].max():.3f}")
assert np.array_equal(means[0], means[1000])

try:
    list(bootstrap_indices_moving_block(series, n_samples=1, block_length=24, seed=0))
except ValueError as error:
    print(f"one block: ValueError: {error}")
else:
    raise SystemExit("one block works")
PYTHON
