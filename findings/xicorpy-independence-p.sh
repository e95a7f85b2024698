#!/usr/bin/env bash
# xicorpy's p-values call 4 of 10 independent pairs dependent at the level of 5 %.
#
# Versions: xicorpy 0.6, numpy 2.4.6, pandas 2.3.3, scipy 1.17.1, scikit-learn 1.9.1.
# Guess before the run: with get_p_values=True, 5 % of the pairs of independent normal values have
#     p < 0.05. (That they might not was suspected after reading the source.)
# Seen: it is so with get_modified_xi=False. By default, without ties, the modified xi of Lin and Han is
#     taken, whose variance is about 2 / (5 n m). It is doubled, and the deviation, which already
#     falls with n, is divided by sqrt(n) again. With 50, 200 and 1,000 values, 32 %, 41 % and 46 % of
#     the pairs have p < 0.05, and 24 %, 35 % and 44 % have p < 0.001. Divided by the deviation of the
#     paper, the same xi has p < 0.05 in 6 % of the pairs. (Values of y with few levels, issue 11, are
#     still not found to be ties unless x has them too: coin flips and noise have 0.23 and p = 0.)
# For gyre: it tests no such dependence. There, take scipy.stats.chatterjeexi.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile xicorpy==0.6 numpy==2.4.6 pandas==2.3.3 \
    scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from scipy.stats import chatterjeexi, norm
from xicorpy import compute_xi_correlation

PAIRS = 1000
generator = np.random.default_rng(0)
for size in (50, 200, 1000):
    near = min(int(size**0.5), 10)  # neighbours, by default
    deviation = (2 / (5 * size * near) + 8 * near / (15 * size**2)) ** 0.5  # Lin and Han (2021)
    found, plain, due, scipys = [], [], [], []
    for _ in range(PAIRS):
        x, y = generator.normal(size=(2, size))
        xi, p = compute_xi_correlation(list(x), list(y), get_p_values=True)
        assert abs(p - norm.sf(size**0.5 * xi / (2**0.5 * deviation))) < 1e-6
        found.append(p)
        due.append(norm.sf(xi / deviation))
        first = compute_xi_correlation(list(x), list(y), get_modified_xi=False, get_p_values=True)
        plain.append(first[1])
        scipys.append(chatterjeexi(x, y, y_continuous=True).pvalue)
    shares = [np.mean(np.array(ps) < 0.05) for ps in (found, plain, due, scipys)]
    tiny = np.mean(np.array(found) < 0.001)
    print(f"{size} values: p < 0.05 in {shares[0]:.0%} of {PAIRS} independent pairs, p < 0.001 in")
    print(f"  {tiny:.0%}. p < 0.05 with get_modified_xi=False: {shares[1]:.0%}, with the deviation")
    print(f"  of the paper: {shares[2]:.0%}, scipy's chatterjeexi: {shares[3]:.0%}")
    assert shares[0] > 0.3 and tiny > 0.2 and max(shares[1:]) < 0.1

x, flips = generator.normal(size=1000), generator.integers(0, 2, 1000)
xi, p = compute_xi_correlation(list(x), list(flips), get_p_values=True)
print(f"coin flips and noise: xi {xi:.2f}, p {p:.0e}; scipy's {chatterjeexi(x, flips).pvalue:.2f}")
assert xi > 0.2 and p < 1e-6
PYTHON
