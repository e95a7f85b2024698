#!/usr/bin/env bash
# infomeasure's NSB estimate of an entropy has another posterior: off both ways, then NaN.
#
# Versions: infomeasure 0.6.3, numpy 2.4.6, scipy 1.17.1.
# Guess, written after the first run: `entropy(data, approach="nsb", K=k)` is the estimator of
#     Nemenman, Shafee and Bialek, as numerical integration gives it, and corrects the plug-in
#     estimate upwards where samples are few.
# Seen: the logarithm of the posterior adds up the terms of the values times their counts, as if
#     counts were numbers of values with a count, and the integral over beta ends at log K. 60 draws
#     from 20 equal values have 2.90, less than the plug-in's 2.92; the paper's estimate is 2.97,
#     and the truth is 3.00. 60 draws of a skewed distribution with an entropy of 1.67 have 1.85,
#     where 1.68 is due. 200 draws from 5 values, and 1,000 from 50, give NaN, without a word;
#     100 from 100 give it too, as "no coincidences", where 44 values were not drawn.
# For gyre: it estimates no entropies from counts. There, take "grassberger" or "chao_shen".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile infomeasure==0.6.3 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import infomeasure
import numpy as np
from scipy.special import gammaln, polygamma, psi

CASES = [(20, 60, None), (20, 60, 0.3), (100, 100, None), (5, 200, None), (50, 1000, 1.0)]
generator = np.random.default_rng(0)


def estimate(counts, n_values):
    """Return the NSB estimate in nats, by a sum over log(beta) from -12 to 12."""
    betas = np.exp(np.linspace(-12, 12, 20_001))[:, None]
    n_draws = counts.sum()
    padded = np.zeros(n_values)
    padded[:len(counts)] = counts
    total = n_draws + n_values * betas[:, 0]
    log_evidence = gammaln(n_values * betas[:, 0]) - gammaln(total)
    log_evidence += (gammaln(padded + betas) - gammaln(betas)).sum(1)
    # The prior is flat in the expected entropy, whose derivative in log(beta) this is.
    prior = n_values * polygamma(1, n_values * betas + 1) - polygamma(1, betas + 1)
    weights = np.exp(log_evidence - log_evidence.max()) * (prior * betas)[:, 0]
    alphas = padded + betas
    means = psi(total + 1) - (alphas * psi(alphas + 1)).sum(1) / total
    return weights @ means / weights.sum()


def compute_entropy(probabilities):
    positive = probabilities[probabilities > 0]
    return -(positive * np.log(positive)).sum()


results = {}
for n_values, n_draws, concentration in CASES:
    probabilities = np.full(n_values, 1 / n_values)
    if concentration is not None:
        probabilities = generator.dirichlet(np.full(n_values, concentration))
    draws = generator.choice(n_values, size=n_draws, p=probabilities)
    counts = np.unique(draws, return_counts=True)[1]
    found = infomeasure.entropy(draws, approach="nsb", K=n_values)
    due = estimate(counts, n_values)
    plug_in = compute_entropy(counts / n_draws)
    truth = compute_entropy(probabilities)
    results[n_values, n_draws, concentration] = found, due, plug_in
    print(f"{n_draws} draws of {n_values} values, truth {truth:.3f}: {found:.3f}, where {due:.3f} "
          f"is due; plug-in {plug_in:.3f}")
    assert abs(due - truth) < abs(plug_in - truth) + 0.02
found, due, plug_in = results[20, 60, None]
assert found < plug_in - 0.01 < due - 0.04
found, due, plug_in = results[20, 60, 0.3]
assert found > due + 0.1 > plug_in + 0.15
assert all(np.isnan(results[case][0]) for case in CASES[2:])
PYTHON
