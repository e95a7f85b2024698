#!/usr/bin/env bash
# cryptorandom's `random_allocation` starts each group anew from an integer seed: the groups hold neighbours.
#
# Versions: cryptorandom 0.4, numpy 2.4.6.
# Guess before the run: the groups are samples of their own, for `prng=7` as for `prng=SHA256(7)`. (Suspected from
#     reading the source.)
# Seen: with `replace=True` and `prng=7`, three groups of five of 100 are the same 87, 16, 77, 24, 15; without, they are
#     87, 16, 77, 24, 15 and 92, 18, 81, 27, 17 and 97, 20, 85, 30, 19. Over 1,000 seeds, the means of two groups of
#     ten differ by 5.6 (standard deviation) where 13 is due, and are correlated by 0.8. With a SHA256 object all is right.
# Cause: the seed is handed on to `random_sample` as it is, which makes a new generator of it for each group
#     (cryptorandom/sample.py, `random_allocation`; the others call `get_prng` once). No issue was found.
# For gyre: its addresses name the sample. There, hand over `SHA256(seed)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 cryptorandom==0.4
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from cryptorandom.cryptorandom import SHA256
from cryptorandom.sample import random_allocation

for replace in [True, False]:
    for prng in [7, SHA256(7)]:
        groups = [group.tolist() for group in random_allocation(100, [5, 5, 5], replace=replace, prng=prng)]
        print(f"replace {replace}, prng {'7' if prng == 7 else 'SHA256(7)'}:", *groups)
        assert not replace or (groups[0] == groups[1] == groups[2]) == (prng == 7)

N, SIZE, N_SEEDS = 100, 10, 1000
# The difference of two means of a population of N, drawn without replacement.
due = np.arange(N).std(ddof=1) * (2 / SIZE) ** 0.5
results = {}
for name, make in {"seed": int, "SHA256(seed)": SHA256}.items():
    means = np.array([[group.mean() for group in random_allocation(N, [SIZE, SIZE], prng=make(seed))] for seed in range(N_SEEDS)])
    results[name] = (means[:, 0] - means[:, 1]).std(), np.corrcoef(means.T)[0, 1]
    print(f"prng={name}: the means differ by {results[name][0]:.1f}, {due:.1f} is due; they are correlated by {results[name][1]:.2f}")
assert results["seed"][0] < 0.5 * due and results["seed"][1] > 0.7
assert abs(results["SHA256(seed)"][0] / due - 1) < 0.1 and abs(results["SHA256(seed)"][1]) < 0.2
PYTHON
