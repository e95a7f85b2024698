#!/usr/bin/env bash
# deepsig corrects less the more models it compares, and two models never differ.
#
# Version: deepsig 1.2.8.
# Guess, written down after a first look: multi_aso, whose Bonferroni correction is on by default,
#     compares two models as aso does, because that is one comparison. With m comparisons, each has
#     the confidence 1 - 0.05 / m: the more models, the more evidence it takes.
# Seen: it takes 0.95 + 0.05 / m. That is right for two comparisons only. One comparison has a
#     confidence of 1, so its bound is 1, the worst, for any two models, and nan for models that
#     are far apart, of which aso says 0, the best. With each further model less evidence is
#     needed: of ten models, each of the 45 comparisons has a confidence of 0.951, and should have
#     0.9989. `num_comparisons` of aso does the same, but for one comparison.
# For gyre: it does not use this. Divide 0.05 oneself: use_bonferroni=False, and confidence_level.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile deepsig==1.2.8 numpy==2.4.6 scipy==1.17.1 \
    pandas==3.1.1 joblib==1.6.0
"$folder/env/bin/python" - <<'PYTHON'
import warnings

import numpy as np
from deepsig import aso, multi_aso

warnings.simplefilter("ignore")  # of the product 0 * inf, which is looked at here

ALPHA = 0.05
OPTIONS = {"num_bootstrap_iterations": 50, "show_progress": False, "seed": 1}
generator = np.random.default_rng(0)
noise = generator.normal(size=(10, 20))


def compare(scores, **options):
    """Return the bound for the first model against the second: below 0.5, the first is better."""
    return multi_aso([list(row) for row in scores], **OPTIONS, **options)[0, 1]


for shift in [0, 1, 3]:
    better, worse = noise[0] + shift, noise[1]
    alone = aso(better, worse, **OPTIONS)
    in_matrix = compare([better, worse])
    uncorrected = compare([better, worse], use_bonferroni=False)
    print(f"two models, {shift} standard deviations apart: aso {alone:.4f}, multi_aso {in_matrix}, "
          f"without the correction {uncorrected:.4f}")
    assert np.isnan(in_matrix) if shift == 3 else in_matrix == 1
    assert abs(uncorrected - alone) < 0.02
assert alone < 0.001

noise[0] += 0.5
bounds = {}
for n_models in [3, 4, 5]:
    m = n_models * (n_models - 1) // 2
    bounds[n_models] = compare(noise[:n_models])
    seen = compare(noise[:n_models], use_bonferroni=False,
                   confidence_level=1 - ALPHA + ALPHA / m)
    bonferroni = compare(noise[:n_models], use_bonferroni=False, confidence_level=1 - ALPHA / m)
    print(f"the first of {n_models} models against the second: multi_aso {bounds[n_models]:.4f}; "
          f"at a confidence of 0.95 + 0.05 / {m} {seen:.4f}, of 1 - 0.05 / {m} {bonferroni:.4f}")
    assert abs(bounds[n_models] - seen) < 1e-9
    assert bonferroni > bounds[n_models] + 0.01
assert bounds[3] > bounds[4] > bounds[5]

corrected = [aso(noise[0], noise[1], num_comparisons=m, **OPTIONS) for m in [1, 2, 45, 1000]]
print("aso with num_comparisons 1, 2, 45 and 1000:", [f"{bound:.4f}" for bound in corrected])
assert corrected[0] < corrected[3] < corrected[2] < corrected[1]
assert corrected[3] - corrected[0] < 0.001
PYTHON
