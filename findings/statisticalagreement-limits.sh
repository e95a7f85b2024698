#!/usr/bin/env bash
# statisticalagreement transforms variances twice: a precision of 0.95 is "at least -0.05".
#
# Versions: statisticalagreement 0.6.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: the lower limits of precision and accuracy hold in 95 % of samples, and are near
#     the estimates for 50 pairs, as that of their product, the concordance correlation, is. (Suspected
#     after reading the source.)
# Seen: with a true correlation of 0.95 and 50 pairs, the limit of the precision is -0.05 in the median,
#     where Fisher's is 0.92, and that of the accuracy 0: they hold in 100 % of samples. That of the
#     concordance, which is the smaller one, is 0.86.
# Cause: (1 - r^2 / 2) / (n - 3) and Lin's formula for the accuracy are variances of Fisher's z and of
#     the logit (the first one for fixed x). `precision` and `accuracy`
#     (statisticalagreement/core/_continuous_agreement.py) hand them on as those of the estimates, so
#     that they are divided by (1 - r^2)^2, or a^2 (1 - a)^2, again.
# For gyre: it measures no agreement. There, use the limits of ccc alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile statisticalagreement==0.6.0 attrs==25.3.0 numpy==2.4.6 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from scipy import stats
from statisticalagreement.core.agreement import agreement

N, N_SAMPLES, CORRELATION = 50, 1000, 0.95
accuracy = 2 / (2 + 0.3 ** 2)
rows = []
for seed in range(N_SAMPLES):
    generator = np.random.default_rng(seed)
    x, y = generator.multivariate_normal([0, 0.3], [[1, CORRELATION], [CORRELATION, 1]], N).T
    _, found = agreement(x, y, delta_criterion=0.5, pi_criterion=0.9)
    rows.append([found[name][key] for name in ["rho", "acc", "ccc"]
                 for key in ["estimate", "limit", "transformed_estimate", "transformed_variance"]])
    r = found["rho"]["estimate"]
    assert np.isclose(found["rho"]["transformed_variance"], (1 - r ** 2 / 2) / (N - 3) / (1 - r ** 2) ** 2)
rows = np.array(rows).reshape(N_SAMPLES, 3, 4)
truths = {"precision": CORRELATION, "accuracy": accuracy, "concordance": CORRELATION * accuracy}
for column, (name, truth) in enumerate(truths.items()):
    estimate, limit, transformed, variance = rows[:, column].T
    error = np.sqrt(np.median(variance))
    print(f"{name}: truth {truth:.3f}, median {np.median(estimate):.3f}, limit {np.median(limit):.3f}, which holds in "
          f"{np.mean(limit < truth):.1%}; deviation of the transformed estimate {transformed.std():.2f}, "
          f"estimated {error:.2f}")
    if name == "concordance":
        assert 0.9 < np.mean(limit < truth) < 0.98 and abs(error / transformed.std() - 1) < 0.1
        assert np.median(limit) > 0.8
    else:
        assert np.mean(limit < truth) > 0.99 and error > 5 * transformed.std()
        assert np.median(limit) < 0.2
# Fisher's limit, from the variance of z
r = rows[:, 0, 0]
due = np.tanh(np.arctanh(r) - stats.norm.ppf(0.95) / np.sqrt(N - 3))
print(f"precision by Fisher: limit {np.median(due):.3f}, which holds in {np.mean(due < CORRELATION):.1%}")
assert 0.93 < np.mean(due < CORRELATION) < 0.97 and np.median(due) > 0.9
PYTHON
