#!/usr/bin/env bash
# randomization gives all subjects one order of treatments, and changes the probabilities it is given.
#
# Versions: randomization 1.0.0.
# Guess before the run: random_treatment_order draws an order for each subject, so that each treatment
#     comes first for as many subjects. simple(p=[0.2, 0.3, 0.5]) draws groups with these probabilities,
#     in each call. (That neither might hold was suspected after reading the source.)
# Seen: one list is shuffled for each subject and stored for all of them: each subject has the order of
#     the last one, with any seed, so that order and treatment cannot be told apart. simple() adds up the
#     caller's list in place: the second call with the same list has 0.2, 0.5 and 0.3, and later ones
#     approach 0.2, 0.8 and 0.
# For gyre: its studies draw orders themselves. There, take random.sample for each subject.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps randomization==1.0.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import random
from collections import Counter

from randomization.randomization import random_treatment_order, simple

SUBJECTS, TREATMENTS, DRAWS = 600, 4, 20000

for seed in (0, 1, 2):
    orders = random_treatment_order(SUBJECTS, TREATMENTS, seed=seed)
    random.seed(seed)
    order, due = list(range(TREATMENTS)), []
    for _ in range(SUBJECTS):
        random.shuffle(order)
        due.append(tuple(order))
    found = set(map(tuple, orders))
    print(f"seed {seed}: {SUBJECTS} subjects have {len(found)} order, {found}; {len(set(due))} orders "
          f"are due; treatments that come first: {len(Counter(order[0] for order in orders))}, "
          f"{len(Counter(order[0] for order in due))} are due")
    assert found == {due[-1]} and len(set(due)) == 24

probabilities = [0.2, 0.3, 0.5]
for call in range(1, 4):
    counts = Counter(simple(DRAWS, 3, p=probabilities, seed=call))
    shares = [counts[group] / DRAWS for group in range(3)]
    print(f"call {call}: shares {[round(share, 2) for share in shares]}; the list afterwards:",
          [round(value, 2) for value in probabilities])
    expected = {1: (0.2, 0.3, 0.5), 2: (0.2, 0.5, 0.3), 3: (0.2, 0.7, 0.1)}[call]
    assert max(abs(share - value) for share, value in zip(shares, expected)) < 0.02
PYTHON
