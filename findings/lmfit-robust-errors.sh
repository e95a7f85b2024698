#!/usr/bin/env bash
# A robust fit in lmfit ignores outliers in its estimates and not in its standard errors.
#
# Version: lmfit 1.3.4, beside scipy 1.17.1.
# Guess before the run: with `loss="huber"` or another robust loss, the standard errors of a scaling
#     law E + A * n**-a are the deviations of its estimates, within a factor of 1.5.
# Seen: so it is with the plain loss. With 2 outliers of 0.2 nats among 30 losses that deviate by
#     0.01, the estimates deviate little more than without outliers, and the standard errors are 5
#     to 8 times as large as these deviations: lmfit scales the covariance by the plain chi-square,
#     in which the outliers count in full. The better a loss ignores them, the worse it is: Cauchy's
#     estimates are the best of three, and its errors the largest. An exponent of 0.30 with a true
#     deviation of 0.003 is printed as 0.30 +/- 0.026. The errors of scipy's curve_fit with the same
#     loss are at most twice the deviation.
# For gyre: its report resamples the seeds. With lmfit, fit resampled points, or rescale by cost.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile lmfit==1.3.4 scipy==1.17.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import lmfit
import numpy as np
from scipy.optimize import curve_fit

N_POINTS = 30
DEVIATION = 0.01
TRUTH = {"E": 2.0, "A": 1.5, "a": 0.3}
sizes = np.geomspace(1e6, 1e9, N_POINTS)


def scaling_law(n, E, A, a):
    return E + A * (n / 1e7) ** -a


def simulate(seed, n_outliers):
    generator = np.random.default_rng(seed)
    losses = scaling_law(sizes, **TRUTH) + generator.normal(size=N_POINTS) * DEVIATION
    losses[generator.choice(N_POINTS, size=n_outliers, replace=False)] += 0.2
    return losses


def fit_lmfit(losses, loss):
    """Return the estimate of the exponent and its standard error."""
    parameters = lmfit.create_params(**TRUTH)

    def residuals(values):
        return scaling_law(sizes, **values.valuesdict()) - losses

    result = lmfit.minimize(residuals, parameters, method="least_squares", loss=loss,
                            f_scale=DEVIATION)
    return result.params["a"].value, result.params["a"].stderr


def fit_scipy(losses, loss):
    values, covariance = curve_fit(scaling_law, sizes, losses, p0=list(TRUTH.values()),
                                   method="trf", loss=loss, f_scale=DEVIATION)
    return values[2], np.sqrt(covariance[2, 2])


ratios = {}
for loss, n_outliers in [("linear", 0), ("huber", 0), ("huber", 2), ("soft_l1", 2), ("cauchy", 2)]:
    for fit in [fit_lmfit, fit_scipy]:
        estimates, errors = np.transpose([fit(simulate(seed, n_outliers), loss)
                                          for seed in range(100)])
        ratio = np.mean(errors) / np.std(estimates)
        ratios[fit.__name__, loss, n_outliers] = ratio
        print(f"{fit.__name__}, {loss}, {n_outliers} outliers: the exponent is "
              f"{np.mean(estimates):.3f}, deviates by {np.std(estimates):.4f}, standard error "
              f"{np.mean(errors):.4f}, {ratio:.1f} times as large")
assert 0.75 < ratios["fit_lmfit", "linear", 0] < 1.33
assert 0.75 < ratios["fit_lmfit", "huber", 0] < 1.5
for loss in ["huber", "soft_l1", "cauchy"]:
    assert ratios["fit_lmfit", loss, 2] > 3.5
    assert ratios["fit_scipy", loss, 2] < 2.2
assert ratios["fit_lmfit", "cauchy", 2] > ratios["fit_lmfit", "huber", 2]
PYTHON
