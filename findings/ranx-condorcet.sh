#!/usr/bin/env bash
# ranx's Condorcet fusion orders documents that few runs found at random, with each process anew.
#
# Versions: ranx 0.3.21, numba 0.68.1, numpy 2.4.6.
# Guess before the run: a document that is ahead of another in the only run that found them both is
#     ahead of it in the fusion, and one input has one fusion. (That it might not was suspected
#     after reading the source.)
# Seen: a run that found neither of two documents votes for the second one that is asked about. If
#     one of three runs found both, each beats the other, and what remains is the order of a set of
#     strings, which is another one in each process: of the pairs that one run ordered, half or more
#     are reversed, and the second document of the run that found most is in sixth or tenth place.
#     With PYTHONHASHSEED it is the same each time, and still arbitrary. With runs that found the
#     same documents, all is well.
# For gyre: it retrieves nothing. There, take bordafuse or rrf, or fill each run up to the same
#     documents.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ranx==0.3.21 numba==0.68.1 numpy==2.4.6 \
    pandas==3.1.1 scipy==1.17.1
cat > "$folder/fuse.py" <<'PYTHON'
import json

from ranx import Run, fuse

tables = [{"x": 9.0, "a": 8.0, "b": 7.0, "c": 6.0, "d": 5.0, "e": 4.0, "f": 3.0, "g": 2.0},
          {"x": 9.0, "y": 8.0}, {"x": 9.0, "z": 8.0}]
partial = fuse([Run({"q": table}) for table in tables], norm=None, method="condorcet")
full = [dict(tables[0]), {name: float(ord(name)) for name in tables[0]}, dict(tables[0])]
complete = fuse([Run({"q": table}) for table in full], norm=None, method="condorcet")
print(json.dumps([list(partial.run["q"]), list(complete.run["q"])]))
PYTHON
for seed in 1 2 3 1; do
    PYTHONHASHSEED=$seed "$folder/env/bin/python" -W ignore "$folder/fuse.py"
done > "$folder/fusions.txt"
"$folder/env/bin/python" - "$folder/fusions.txt" <<'PYTHON'
import itertools
import json
import sys

with open(sys.argv[1]) as file:
    fusions = [json.loads(line) for line in file]
reversed_pairs = 0
ranks = []
for partial, complete in fusions:
    pairs = list(itertools.combinations("abcdefg", 2))
    wrong = sum(partial.index(first) > partial.index(second) for first, second in pairs)
    ranks.append(partial.index("a") + 1)
    print(f"fusion {' '.join(partial)}: of {len(pairs)} pairs that one run ordered, {wrong} are "
          f"reversed; a is number {ranks[-1]}")
    assert partial[0] == "x" and complete == list("xabcdefg")
    reversed_pairs += wrong
assert fusions[0] == fusions[-1]
assert len({tuple(partial) for partial, _ in fusions}) == 3
assert reversed_pairs > 0.2 * len(pairs) * len(fusions)
assert len(set(ranks)) > 1
PYTHON
