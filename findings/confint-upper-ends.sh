#!/usr/bin/env bash
# diff-binom-confint's modified Wilson interval of 19 right answers in 20 is 0.76 to 0.0013.
#
# Versions: diff-binom-confint 0.1.0, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3.
# Guess before the run: each of its 95 % intervals of one proportion is mirrored when right and wrong answers
#     change places, and holds the true proportion in about 95 % of samples, apart from the ends where Wald's is
#     known to fail. (Suspected after reading the source.)
# Seen: the upper limit of "modified-wilson" lacks its "1 -" where one, two or (of more than 50) three answers are
#     wrong: 0.0013 for a due 0.9987, below the lower limit; neither raised nor warned about. With 40 answers and a
#     true share of 0.97, it holds the truth in 38 % of samples. The lower limit of "pratt", as in R's
#     DescTools that it was ported from, is not the mirror of the upper one: 0.81 for 18 in 20, where it should be
#     0.68, and 76 % of samples for a true share of 0.9; and its upper limit for one right answer is that for none.
#     The eight other methods tried are mirrored.
# For gyre: it computes no interval of a proportion. There, take "wilson" or "clopper-pearson".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 diff-binom-confint==0.1.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from diff_binom_confint import compute_confidence_interval
from scipy import stats


def limits(method, n_total):
    intervals = [compute_confidence_interval(k, n_total, 0.95, method) for k in range(n_total + 1)]
    return np.array([(float(interval.lower_bound), float(interval.upper_bound)) for interval in intervals])


def held(ends, share):
    chances = stats.binom.pmf(np.arange(len(ends)), len(ends) - 1, share)
    return chances @ ((ends[:, 0] <= share) & (share <= ends[:, 1]))


print("answers 18 and 19 in 20, share of samples that hold 0.9 and 0.97 in 40, largest difference from the mirror")
unlike = {}
for method in ("wilson", "wilson-cc", "agresti-coull", "jeffreys", "clopper-pearson", "arcsine", "mid-p",
               "modified-jeffreys", "modified-wilson", "pratt"):
    few, many = limits(method, 20), limits(method, 40)
    unlike[method] = np.abs(1 - many[::-1, ::-1] - many).max()
    print(f"{method:18}", *few[18:20].round(4).tolist(), f"{held(many, 0.9):.1%} {held(many, 0.97):.1%}",
          f"{unlike[method]:.4f}")
    if method == "modified-wilson":
        assert (few[18:20, 1] < 0.02).all() and (few[18:20, 0] > 0.69).all()
        assert np.allclose(few[18:20, 1], few[[2, 1], 0]), "The lower limit of as many wrong answers."
        assert held(many, 0.97) < 0.4
        assert (limits(method, 100)[97:100, 1] < 0.01).all()
    elif method == "pratt":
        exact = limits("clopper-pearson", 20)
        print("pratt, upper limits of 1 and 2 in 20:", few[1:3, 1].round(4), "exact", exact[1:3, 1].round(4))
        assert few[18, 0] > 0.8 and abs(few[2, 1] - exact[2, 1]) < 0.001 and exact[18, 0] < 0.69
        assert few[1, 1] < 0.17 and exact[1, 1] > 0.24 and np.isclose(few[1, 1], exact[0, 1])
        assert held(many, 0.9) < 0.8
    else:
        assert unlike[method] < 0.001
        assert held(many, 0.9) > 0.93
assert unlike["modified-wilson"] > 0.9 and unlike["pratt"] > 0.05
PYTHON
