#!/usr/bin/env bash
# popmon gives the largest shifts no p-value, and a green light.
#
# Versions: popmon 1.4.12, histogrammar 1.1.2, numpy 2.4.6, scipy 1.17.1, pandas 3.1.1.
# Guess before the run: the larger the shift, the smaller the p-value of the Kolmogorov-Smirnov test, down to
#     0, and its light stays red; `chi2_spike_count` counts bins. (That neither might hold was suspected
#     after reading the source.)
# Seen: from a score of 6.81 on, which is p = 1e-40, p-value and z-score are NaN, where ROOT, from which the
#     code was translated, has 0. NaN has a green light: with 2,000 values a week, a shift of the last one by
#     0.3 deviations is red and shifts by 1 and 3 are green. `chi2_spike_count`, "the number of normalized
#     residuals" beyond 7, is their sum: 80 for 8 bins. (Other statistics of such a week are red.)
# For gyre: it watches no data. There, watch `ks` itself, or the p-value too for NaN.
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
from popmon.analysis.comparison.comparisons import uu_chi2
from popmon.config import Settings
from popmon.pipeline.metrics import df_stability_metrics
from scipy import stats

WEEKS, ROWS = 12, 2000
START = pd.Timestamp("2026-01-01")
BINS = {"date": {"bin_width": pd.Timedelta("7D").value, "bin_offset": START.value},
        "x": {"bin_width": 0.5, "bin_offset": 0.0}}
LIGHTS = {0: "green", 1: "yellow", 2: "red"}


def draw(shift):
    """Return twelve weeks of normal values, of which those of the last are shifted."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(WEEKS, ROWS))
    values[-1] += shift
    dates = np.repeat(START + pd.to_timedelta(7 * np.arange(WEEKS), unit="D"), ROWS)
    return values, pd.DataFrame({"date": dates, "x": values.ravel()})


lights = {}
for shift in (0, 0.3, 1, 3):
    values, frame = draw(shift)
    store = df_stability_metrics(frame, settings=Settings(time_axis="date", bin_specs=BINS),
                                 time_axis="date")
    last = store["comparisons"]["x"].iloc[-1]
    score, p_value, spikes = (float(last[f"prev1_{name}"])
                              for name in ("ks", "ks_pvalue", "chi2_spike_count"))
    lights[shift] = LIGHTS[int(store["traffic_lights"]["x"].iloc[-1]["prev1_ks_zscore"])]
    due = stats.ks_2samp(values[-1], values[-2]).pvalue
    edges = np.arange(-6, 9, 0.5)
    counts = [np.histogram(week, edges)[0].astype(float) for week in values[-2:]]
    residuals = np.abs(uu_chi2(*counts)[-1])
    print(f"shift {shift}: score {score:.2f}, p = {p_value:.1e}, {lights[shift]}, where scipy has "
          f"{due:.1e}; {spikes:.1f} spikes, where {np.sum(residuals > 7)} bins are beyond 7")
    assert np.isnan(p_value) == (score > 6.8116)
    assert np.isclose(spikes, residuals[residuals > 7].sum())
assert lights == {0: "green", 0.3: "red", 1: "green", 3: "green"}
PYTHON
