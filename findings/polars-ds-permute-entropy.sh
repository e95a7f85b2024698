#!/usr/bin/env bash
# polars-ds's permutation entropy with a delay compares neighbours, not values that far apart.
#
# Versions: polars-ds 0.13.0, polars 1.44.2.
# Guess before the run: with tau=2 and n_dims=3, the patterns are the orders of x[i], x[i + 2] and
#     x[i + 4] for each i, as in Bandt and Pompe's definition with a delay. (Suspected otherwise
#     after reading the source.)
# Seen: the other columns are moved by 1 and 2 instead of 2 and 4, and only each second start is
#     counted: orders of x[2i], x[2i + 1] and x[2i + 2] (exprs/ts_features.py). Of a period of four
#     with noise, the entropy with tau=4 is 0, where 1.79 is due, that of noise: values a
#     period apart differ by noise only. With tau=2 it is 0.70 for 1.39. Of a series in which noise and
#     a rising line take turns, it is 1.55 for 1.36 with tau=2. With tau=1 it is right.
# For gyre: it measures no such entropy. There, interleave: take the patterns of each series by
#     gather_every.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile polars-ds==0.13.0 polars==1.44.2 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import polars as pl
import polars_ds as pds

N_VALUES = 2000
N_DIMS = 3


def entropy(windows):
    patterns = np.argsort(windows, axis=1)
    shares = np.unique(patterns, axis=0, return_counts=True)[1] / len(patterns)
    return -np.sum(shares * np.log(shares))


def compute_exact(values, tau):
    """Return the permutation entropy by its definition."""
    starts = np.arange(len(values) - tau * (N_DIMS - 1))
    return entropy(values[starts[:, None] + tau * np.arange(N_DIMS)])


def compute_seen(values, tau):
    """Return the entropy of neighbours from each tau-th value on."""
    starts = np.arange(0, len(values) - N_DIMS + 1, tau)
    return entropy(values[starts[:, None] + np.arange(N_DIMS)])


rng = np.random.default_rng(0)
noise = rng.normal(size=N_VALUES)
places = np.arange(N_VALUES)
series = {
    "noise": noise,
    "period of four": np.sin(np.pi / 2 * places + 0.3) + 0.001 * noise,
    "noise and a line in turn": np.where(places % 2 == 0, noise, 0.01 * places - 10),
}
for name, values in series.items():
    table = pl.DataFrame({"x": values})
    for tau in [1, 2, 4]:
        found = table.select(pds.query_permute_entropy("x", tau=tau, n_dims=N_DIMS)).item()
        exact = compute_exact(values, tau)
        print(f"{name}, tau {tau}: {found:.3f}, by the definition {exact:.3f}")
        assert np.isclose(found, compute_seen(values, tau), atol=0.02)
        if tau == 1:
            assert np.isclose(found, exact)
        elif name != "noise":
            assert abs(found - exact) > 0.1
PYTHON
