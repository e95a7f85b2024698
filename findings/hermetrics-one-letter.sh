#!/usr/bin/env bash
# hermetrics: the Jaro similarity of "a" and "a" is 0, and Damerau-Levenshtein is too short.
#
# Version: hermetrics 0.1.13; beside it rapidfuzz 3.13.0 (Python 3.11).
# Guess before the run: equal words have a Jaro similarity of 1, and the Damerau-Levenshtein distance is
#     the least cost of the edits that it allows. (Suspected after reading the source.)
# Seen: Jaro's window is half of the length less 1, -1 for words of one letter, which are never matched:
#     "a" and "a" have 0, also with Jaro-Winkler, which should have 1. The other distances are right.
#     In the Damerau-Levenshtein, letters between two that change places cost the larger of their
#     deletions and insertions, not both, as if they were substituted during the swap: "axb" and "bya"
#     are 2 apart, and no two edits lead from one to the other. That makes too small 6 % of the
#     distances of random words of eight letters out of four. Its first column has no cost of deletion:
#     with (5, 1, 1, 1), "abc" and "" are 3 apart for 15.
# For gyre: nothing. There, take rapidfuzz.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet hermetrics==0.1.13 rapidfuzz==3.13.0
"$folder/env/bin/python" - <<'PYTHON'
import random

from hermetrics.damerau_levenshtein import DamerauLevenshtein
from hermetrics.jaro import Jaro
from hermetrics.jaro_winkler import JaroWinkler
from hermetrics.levenshtein import Levenshtein
from hermetrics.osa import Osa
from rapidfuzz import distance as references

N_PAIRS = 5000

for word in ("a", "ab", "abc"):
    similarities = [metric().similarity(word, word) for metric in (Jaro, JaroWinkler)]
    print(f"{word} and {word}: {similarities}")
    assert similarities == ([0, 0.1] if len(word) == 1 else [1, 1])

draws = random.Random(0)
pairs = [["".join(draws.choices("abcd", k=8)) for _ in range(2)] for _ in range(N_PAIRS)]
for metric, reference, low, high in [(Levenshtein().distance, references.Levenshtein.distance, 0, 0),
                                     (Osa().distance, references.OSA.distance, 0, 0),
                                     (DamerauLevenshtein().distance, references.DamerauLevenshtein.distance,
                                      0.05, 0.5)]:
    gaps = [metric(*pair) - reference(*pair) for pair in pairs]
    wrong = sum(abs(gap) > 1e-9 for gap in gaps) / N_PAIRS
    print(f"{reference.__module__}: {wrong:.3f} of the distances are wrong, by {min(gaps)} to {max(gaps)}")
    assert low <= wrong <= high and max(gaps) < 1e-9

compute = DamerauLevenshtein().distance
print("axb and bya:", compute("axb", "bya"), "due", references.DamerauLevenshtein.distance("axb", "bya"))
assert compute("axb", "bya") == 2 and references.DamerauLevenshtein.distance("axb", "bya") == 3

seen = [metric().distance("abc", "", costs) for metric, costs in
        [(Levenshtein, (5, 1, 1)), (Osa, (5, 1, 1, 1)), (DamerauLevenshtein, (5, 1, 1, 1))]]
print("abc and nothing, deletions at 5:", seen)
assert seen == [15, 15, 3]
PYTHON
