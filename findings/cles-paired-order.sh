#!/usr/bin/env bash
# CLES's effect size of paired samples depends on which one is named first.
#
# Versions: CLES 0.1.3, numpy 2.4.6.
# Guess before the run: `CLES_2paired(a, b)` is the share of pairs in which the more frequent side is larger,
#     from 50 to 100 percent: 100 if it is in every pair, 50 without an effect, and the same for (b, a).
#     (That it is not was suspected after reading the source.)
# Seen: of n - 1 comparisons for each pair, the mean is taken over n. If b is larger in each of 5 pairs, the
#     effect is 80 for (a, b) and 100 for (b, a); with 10 pairs 90 and 100. Without an effect, 10 pairs have
#     55 both ways. The functions for independent samples and for one sample are right: `CLES_1samp(b - a)`
#     is 100.
# For gyre: it names no effect sizes. There, take CLES_1samp of the differences.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps CLES==0.1.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from CLES import CLES_1samp, CLES_2paired


def due(first, second):
    """Return the share of pairs in which the more frequent side is larger, in percent; ties are halves."""
    share = np.mean(second > first) + np.mean(second == first) / 2
    return 100 * max(share, 1 - share)


for n in [5, 10, 50]:
    first = np.arange(n, dtype=float)
    for name, change in [("larger in each pair", np.ones(n)),
                         ("larger in every other pair", np.where(np.arange(n) % 2, 1.0, -1.0))]:
        second = first + change
        seen, turned = CLES_2paired(first, second), CLES_2paired(second, first)
        right = due(first, second)
        single = CLES_1samp(second - first)
        print(f"{n} pairs, {name}: {seen:.0f}, the other way round {turned:.0f}, due {right:.0f}; "
              f"CLES_1samp {single:.0f}")
        assert right == due(second, first) and np.isclose(single, right)
        if name == "larger in each pair":
            assert right == 100 and np.isclose(turned, 100) and np.isclose(seen, 100 * (n - 1) / n)
        elif n == 10:
            assert right == 50 and np.isclose(seen, 55) and np.isclose(turned, 55)
PYTHON
