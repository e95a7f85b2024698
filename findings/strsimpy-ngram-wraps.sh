#!/usr/bin/env bash
# strsimpy's n-gram distance lets a text match from its end back to its beginning.
#
# Version: strsimpy 0.2.1.
# Guess before the run: `NGram().distance` is Kondrak's n-gram distance, as in the Java library from which
#     it comes: the same in both orders, and about 0.5 between a text and that text twice. (Suspected
#     after reading the source.)
# Seen: the inner loop starts at 0 instead of 1, and Python reads the index -1 as the end of the row. So
#     the cost of a column's start is overwritten by that of its end, and a shorter first text may
#     match several times: "new york" and "new york new york" are 0.06 apart, and 0.53 in the other order,
#     where 0.53 is due in both; "2020" and "2020-2020" 0.11 for 0.56. Of random pairs of texts of
#     2 to 10 letters, one in eight is wrong, and one in four depends on the order.
# For gyre: it compares no texts so. There, give the longer text first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile strsimpy==0.2.1
"$folder/env/bin/python" - <<'PYTHON'
import random

from strsimpy.ngram import NGram

N_PAIRS = 3000
SPECIAL = "\n"


def compute(left, right, n=2):
    """Return Kondrak's n-gram distance by a full table, for texts of n letters and more."""
    if left == right:
        return 0.0
    padded = [SPECIAL * (n - 1) + text for text in (left, right)]
    table = [[float(i or j) for j in range(len(right) + 1)] for i in range(len(left) + 1)]
    for i in range(1, len(left) + 1):
        for j in range(1, len(right) + 1):
            pairs = list(zip(padded[0][i - 1:i - 1 + n], padded[1][j - 1:j - 1 + n]))
            counted = [x != y for x, y in pairs if (x, y) != (SPECIAL, SPECIAL)]
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1,
                              table[i - 1][j - 1] + sum(counted) / len(counted))
    return table[-1][-1] / max(len(left), len(right))


distance = NGram(2).distance
for left, right, expected in [("new york", "new york new york", 1 / 17), ("2020", "2020-2020", 1 / 9),
                              ("art", "art is not the art", 9.5 / 18)]:
    print(f"{left!r} and {right!r}: {distance(left, right):.3f}, in the other order "
          f"{distance(right, left):.3f}, due {compute(left, right):.3f}")
    assert abs(distance(left, right) - expected) < 1e-9
    assert abs(distance(right, left) - compute(left, right)) < 1e-9
    assert compute(left, right) == compute(right, left) > 0.5

random.seed(0)
wrong = asymmetric = 0
for _ in range(N_PAIRS):
    left, right = ("".join(random.choices("abcd", k=random.randint(2, 10))) for _ in range(2))
    wrong += abs(distance(left, right) - compute(left, right)) > 1e-9
    asymmetric += abs(distance(left, right) - distance(right, left)) > 1e-9
print(f"random pairs: {wrong / N_PAIRS:.1%} are wrong, and {asymmetric / N_PAIRS:.1%} depend on the order")
assert 0.08 < wrong / N_PAIRS < 0.2 and 0.18 < asymmetric / N_PAIRS < 0.36
PYTHON
