#!/usr/bin/env bash
# pymannkendall's Yue-Wang test, which is for autocorrelated series, finds trends in white noise.
#
# Versions: pymannkendall 1.4.3, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: a Mann-Kendall test that is corrected for autocorrelation finds a trend in
#     5 % of series without one at a level of 5 %, and in fewer autocorrelated ones than the test
#     without a correction. (That it might not was suspected after reading the source.)
# Seen: in 44 % of white noise and in half of autocorrelated series, where the test without a
#     correction finds one in 5 and in 26 %. By default it adds up the autocorrelations of all lags.
#     Those of a sample add up to -1/2, whatever the series, so that the variance is multiplied by
#     0.15 on average where 1 is due, and by 0.38 where 3 is due. With `lag=1`, the test finds a
#     trend in 7 % of white noise, and in 12 % of autocorrelated series.
# For gyre: its report tests no trends. There, give `lag=1`, or take the test with prewhitening.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pymannkendall==1.4.3 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pymannkendall

LENGTH = 80
SERIES = 200
generator = np.random.default_rng(0)


def draw(correlation):
    """Return an autoregressive series of order 1 without a trend."""
    noise = generator.normal(size=LENGTH + 50)
    series = noise.copy()
    for step in range(1, len(series)):
        series[step] = correlation * series[step - 1] + noise[step]
    return series[50:]


def factor(series):
    """Return 1 + 2 * sum of (1 - k / n) * r_k over all lags k, of the series without its slope."""
    rest = series - pymannkendall.sens_slope(series).slope * np.arange(len(series))
    rest = rest - rest.mean()
    lags = np.arange(1, LENGTH)
    correlations = np.array([rest[lag:] @ rest[:-lag] for lag in lags]) / (rest @ rest)
    assert abs(correlations.sum() + 0.5) < 1e-9
    return 1 + 2 * np.sum((1 - lags / LENGTH) * correlations)


tests = {
    "original": pymannkendall.original_test,
    "Yue-Wang": pymannkendall.yue_wang_modification_test,
    "Yue-Wang, lag 1": lambda series: pymannkendall.yue_wang_modification_test(series, lag=1),
    "prewhitened": pymannkendall.pre_whitening_modification_test,
}
found = {}
for correlation in [0.0, 0.5]:
    factors = []
    counts = dict.fromkeys(tests, 0)
    for _ in range(SERIES):
        series = draw(correlation)
        for name, test in tests.items():
            counts[name] += test(series).h
        ratio = tests["Yue-Wang"](series).var_s / tests["original"](series).var_s
        assert abs(ratio / factor(series) - 1) < 1e-6
        factors.append(ratio)
    for name, count in counts.items():
        found[name, correlation] = count / SERIES
        print(f"autocorrelation {correlation}: {name} finds a trend in {count / SERIES:.1%}")
    print(f"    the variance is multiplied by {np.mean(factors):.2f} on average, "
          f"{(1 + correlation) / (1 - correlation):.0f} is due")
    assert np.mean(factors) < 0.45
assert found["Yue-Wang", 0.0] > 0.35 and found["Yue-Wang", 0.5] > 0.4
assert found["original", 0.0] < 0.1 and found["Yue-Wang, lag 1", 0.0] < 0.1
assert found["prewhitened", 0.5] < 0.1 < found["original", 0.5] < 0.4
PYTHON
