#!/usr/bin/env bash
# hyppo's partial correlation is 0 if either variable falls with the controlled one.
#
# Versions: hyppo 0.5.2, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: the statistic of PartialCorr is the correlation of the residuals, whatever the
#     signs of the variables are, and 5 % of independent pairs have p < 0.05. (That neither might
#     hold was suspected after reading the source.)
# Seen: it is right if both variables rise with the controlled one. If one of them falls, the
#     statistic is 0 and p 0.5: a partial correlation of 0.50 with 200 samples, p = 7e-14, is not found
#     after x, y or both change their sign. p is that of one side, of the absolute value: 10 % of
#     independent pairs have p < 0.05.
# For gyre: its report does not use it. There, take pingouin.partial_corr, or PartialDcorr.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hyppo==0.5.2 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from hyppo.conditional import PartialCorr
from scipy import stats

SIZE, PAIRS = 200, 2000
generator = np.random.default_rng(0)


def correlate_residuals(x, y, z):
    """Return the correlation of the residuals of x and y after z, and its two-sided p-value."""
    x, y = (values - np.polyval(np.polyfit(z, values, 1), z) for values in (x, y))
    r = np.corrcoef(x, y)[0, 1]
    t = r * np.sqrt((len(z) - 3) / (1 - r**2))
    return r, 2 * stats.t.sf(abs(t), len(z) - 3)


def draw(effect):
    """Return x, y and z, where x and y rise with z, and y by `effect` with what else is in x."""
    z, noise_x, noise_y = generator.normal(size=(3, SIZE))
    return z + noise_x, z + effect * noise_x + noise_y, z


x, y, z = draw(0.5)
for sign_x in (1, -1):
    for sign_y in (1, -1):
        found, p = PartialCorr().test(*(v[:, None] for v in (sign_x * x, sign_y * y, z)))
        due, due_p = correlate_residuals(sign_x * x, sign_y * y, z)
        print(f"{sign_x:2d} * x and {sign_y:2d} * y: statistic {found:.3f}, p {p:.1e}; residuals "
              f"correlate by {due:.3f}, p {due_p:.1e}")
        assert due_p < 1e-8
        if sign_x == sign_y == 1:
            assert abs(found - due) < 1e-9
        else:
            assert found == 0 and p == 0.5

shares = {"hyppo": 0, "residuals": 0}
for _ in range(PAIRS):
    x, y, z = draw(0)
    _, p = PartialCorr().test(x[:, None], y[:, None], z[:, None])
    _, due_p = correlate_residuals(x, y, z)
    assert abs(p - due_p / 2) < 1e-6  # one side, whichever it is
    shares["hyppo"] += (p < 0.05) / PAIRS
    shares["residuals"] += (due_p < 0.05) / PAIRS
print(f"independent pairs with p < 0.05: {shares['hyppo']:.1%}, by residuals {shares['residuals']:.1%}")
assert 0.08 < shares["hyppo"] < 0.12 and 0.035 < shares["residuals"] < 0.065
PYTHON
