#!/usr/bin/env bash
# popmon computes the population stability index and the Jensen-Shannon divergence from counts.
#
# Versions: popmon 1.4.12, histogrammar 1.1.2, numpy 2.4.6, scipy 1.17.1, pandas 3.1.1.
# Guess before the run: `psi` and `jsd` compare shares: they do not depend on the number of rows, are 0 for
#     equal shares, and the second is at most ln 2, as the usual limits of 0.1 and 0.25 need. (That they might
#     not was suspected after reading the source.)
# Seen: they take the counts of the bins. Two weeks with equal shares, one of which has twice the rows, have a
#     PSI of 694 and a JSD of 85 for 1,000 rows, ten times as much for 10,000, and 0 if the rows are equal.
#     A shift by half a deviation has a PSI of 264 with 1,000 rows, where 0.25 is due; a week without a shift
#     that has half of the rows has more.
# For gyre: it watches no data. There, divide by the rows first, in a function of one's own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile popmon==1.4.12 histogrammar==1.1.2 numpy==2.4.6 \
    scipy==1.17.1 pandas==3.1.1
TQDM_DISABLE=1 MPLBACKEND=agg MPLCONFIGDIR="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import logging

logging.disable(logging.CRITICAL)

import numpy as np
import pandas as pd
from popmon.config import Settings
from popmon.pipeline.metrics import df_stability_metrics
from scipy.spatial.distance import jensenshannon
from scipy.stats import norm

START = pd.Timestamp("2026-01-01")
BINS = {"date": {"bin_width": pd.Timedelta("7D").value, "bin_offset": START.value},
        "x": {"bin_width": 0.5, "bin_offset": 0.0}}
EDGES = np.arange(-6, 7, 0.5)


def compare(rows, last_rows, shift):
    """Return what popmon has for the last of four weeks against the third, and what is due."""
    sizes = [rows, rows, rows, last_rows]
    weeks = [norm.ppf((np.arange(size) + 0.5) / size) for size in sizes]
    weeks[-1] = weeks[-1] + shift
    dates = np.repeat(START + pd.to_timedelta(7 * np.arange(4), unit="D"), sizes)
    frame = pd.DataFrame({"date": dates, "x": np.concatenate(weeks)})
    store = df_stability_metrics(frame, settings=Settings(time_axis="date", bin_specs=BINS),
                                 time_axis="date")
    last = store["comparisons"]["x"].iloc[-1]
    counts = [np.histogram(week, EDGES)[0].astype(float) for week in weeks[-2:]]
    due = []
    for first, second in (counts, [count / count.sum() for count in counts]):
        p, q = first + 1e-5, second + 1e-5
        due.append(np.sum((p - q) * np.log(p / q)))
    assert np.isclose(last["prev1_psi"], due[0])
    return last["prev1_psi"], due[1], last["prev1_jsd"], jensenshannon(*counts) ** 2


found = {}
for rows, last_rows, shift in ((1000, 1000, 0), (1000, 2000, 0), (10_000, 20_000, 0),
                               (1000, 500, 0), (1000, 1000, 0.5), (10_000, 10_000, 0.5)):
    psi, psi_due, jsd, jsd_due = found[rows, last_rows, shift] = compare(rows, last_rows, shift)
    print(f"{rows} rows against {last_rows}, shift {shift}: PSI {psi:.2f}, where {psi_due:.3f} is due; "
          f"JSD {jsd:.2f}, where {jsd_due:.4f} is due")
assert found[1000, 1000, 0][0] < 1e-9 and found[1000, 2000, 0][0] > 600
assert 9.5 < found[10_000, 20_000, 0][0] / found[1000, 2000, 0][0] < 10.5
assert found[1000, 1000, 0.5][0] > 900 * found[1000, 1000, 0.5][1]
assert found[1000, 2000, 0][2] > 30 and found[1000, 2000, 0][3] < 1e-3
assert found[1000, 500, 0][0] > found[1000, 1000, 0.5][0]
PYTHON
