#!/usr/bin/env bash
# Of pycop's copulas, BB1's distribution, BB2's density and Joe's samples are none of a copula.
#
# Versions: pycop 0.0.13, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3, matplotlib 3.11.1.
# Guess before the run: each of the families has C(u, 1) = u, a density that is the derivative of the
#     distribution, and samples that are uniform in each variable. (Written down after a first
#     comparison by numbers had met differences.)
# Seen: BB1's `get_cdf` takes its two parameters the other way round than `get_pdf`, and has a bracket
#     too few: C(0.5, 1) is 0.32. BB2's density has 0.19 of the probability between 0.2 and 0.8 in both
#     variables, where its distribution has 0.47: a -1 stands outside of the exponential. Of 20,000
#     samples of Joe's copula, 12 % are below 0.1, and their mean is 0.47. Clayton, Gumbel, Frank,
#     Plackett and FGM pass, and so does BB1's density.
# For gyre: it has no copulas. There, compare the density with differences of the distribution first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 \
    matplotlib==3.11.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pycop==0.0.13
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from pycop import archimedean, simulation
from scipy import stats

grid = 0.2 + 0.6 * (np.arange(1000) + 0.5) / 1000
first, second = np.meshgrid(grid, grid)
families = {"clayton": [[1.0]], "frank": [[5.0]], "plackett": [[4.0]], "fgm": [[0.7]],
            "BB1": [[0.5, 1.5]], "BB2": [[1.0, 1.0], [1.0, 0.5]]}
for family, settings in families.items():
    copula = archimedean(family=family)
    for parameters in settings:
        # A single parameter is a number for some families and a list for others.
        try:
            density = copula.get_pdf(first, second, parameters)
        except TypeError:
            parameters = parameters[0]
            density = copula.get_pdf(first, second, parameters)
        margin = copula.get_cdf(0.5, 1 - 1e-12, parameters)
        mass = 0.36 * density.mean()
        corners = [copula.get_cdf(u, v, parameters)
                   for u, v in [(0.8, 0.8), (0.2, 0.8), (0.8, 0.2), (0.2, 0.2)]]
        volume = corners[0] - corners[1] - corners[2] + corners[3]
        print(f"{family} with {parameters}: C(0.5, 1) = {margin:.3f}; between 0.2 and 0.8 in both "
              f"variables, the density has {mass:.3f}, the distribution {volume:.3f}")
        assert (abs(margin - 0.5) > 0.1) == (family == "BB1")
        assert (abs(mass - volume) > 0.05) == family.startswith("BB")
        if family == "BB1":
            right = 0
            for u, v, sign in [(0.8, 0.8, 1), (0.2, 0.8, -1), (0.8, 0.2, -1), (0.2, 0.2, 1)]:
                theta, delta = parameters
                inner = ((u**-theta - 1) ** delta + (v**-theta - 1) ** delta) ** (1 / delta)
                right += sign * (1 + inner) ** (-1 / theta)
            print(f"     by the formula {right:.3f}")
            assert abs(right - mass) < 0.001

np.random.seed(0)
for family, parameter in [("clayton", 2.0), ("gumbel", 2.0), ("frank", 5.0), ("joe", 2.0), ("joe", 3.0)]:
    samples = simulation.simu_archimedean(family, 2, 20_000, parameter)
    low = [np.mean(values < 0.1) for values in samples]
    p = min(stats.kstest(values, "uniform").pvalue for values in samples)
    print(f"{family} with {parameter}: means {np.mean(samples[0]):.3f} and {np.mean(samples[1]):.3f}, "
          f"{low[0]:.1%} and {low[1]:.1%} below 0.1; Kolmogorov-Smirnov p = {p:.1e}")
    assert (p < 1e-8) == (family == "joe")
PYTHON
