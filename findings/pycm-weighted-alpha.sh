#!/usr/bin/env bash
# pycm's weighted alpha calls independent ratings perfect as soon as one grade is frequent.
#
# Versions: pycm 4.6, krippendorff 0.9.0, numpy 2.4.6.
# Guess before the run: Krippendorff's alpha with squared distances as weights is that of the
#     package krippendorff on an interval scale, and near 0 for independent ratings. (That it might
#     not be was suspected after reading the source.)
# Seen: the chance of grades i and j together is taken as the square of the mean of the chance of i
#     for one rater and of j for the other, where the product of two means is due. Where one of five
#     grades has 90 %, the agreement by chance is above 1: independent ratings have an alpha of
#     1.07, and those that agree in half of the texts 1.04, where 0 and 0.48 are due. Where all
#     grades are equally frequent, without weights, and for weighted kappa, all is well.
# For gyre: it has no human ratings. There, take the package krippendorff.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pycm==4.6 krippendorff==0.9.0 numpy==2.4.6
"$folder/env/bin/python" -W error::RuntimeWarning - <<'PYTHON'
import krippendorff
import numpy as np
from pycm import ConfusionMatrix

GRADES, TEXTS = 5, 4000
weights = {one: {two: (one - two) ** 2 for two in range(GRADES)} for one in range(GRADES)}
generator = np.random.default_rng(0)


def rate(chances, agreement):
    """Return the grades of two raters, who agree on so many texts and else grade by chance."""
    first = generator.choice(GRADES, TEXTS, p=chances)
    second = generator.choice(GRADES, TEXTS, p=chances)
    return first, np.where(generator.uniform(size=TEXTS) < agreement, first, second)


found = {}
for name, chances in [("equal", np.full(GRADES, 1 / GRADES)),
                      ("9 of 10 are 0", np.array([0.9, 0.04, 0.03, 0.02, 0.01]))]:
    for agreement in [0.0, 0.5]:
        first, second = rate(chances, agreement)
        matrix = ConfusionMatrix(actual_vector=first.tolist(), predict_vector=second.tolist())
        due = {level: krippendorff.alpha(reliability_data=np.stack([first, second]),
                                         level_of_measurement=level)
               for level in ["interval", "nominal"]}
        alpha = matrix.weighted_alpha(weights)
        kappa = matrix.weighted_kappa(weights)
        print(f"grades {name}, agreement {agreement}: weighted alpha {alpha:.3f}, "
              f"{due['interval']:.3f} is due; unweighted {matrix.Alpha:.3f}, "
              f"{due['nominal']:.3f} is due; weighted kappa {kappa:.3f}")
        assert abs(matrix.Alpha - due["nominal"]) < 0.002
        assert abs(kappa - due["interval"]) < 0.02
        found[name, agreement] = alpha, due["interval"]
for agreement in [0.0, 0.5]:
    alpha, due = found["equal", agreement]
    assert abs(alpha - due) < 0.05
    alpha, due = found["9 of 10 are 0", agreement]
    assert abs(due - agreement) < 0.1 and 1 < alpha < 1.2
PYTHON
