#!/usr/bin/env bash
# In ruptures, no change is found with model="cosine" and an error budget, whatever the budget is.
#
# Versions: ruptures 1.1.10, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: Binseg and Pelt with model="cosine" find the changes that KernelCPD with
#     kernel="cosine" finds, with the same penalty, and with a budget `epsilon` below the cost without a
#     change. Costs are not negative. (That they might not was suspected after reading the source.)
# Seen: the similarities of all pairs come from `pdist`, which has none of a sample with itself, and
#     the diagonal is 0 where it should be 1. A segment of n samples costs n - 1 less than it should: -48
#     for 60 samples, where 11 is due. The sum is below each epsilon at once, so Binseg and BottomUp
#     find no change with `epsilon`. Each additional segment costs 1 more, as if the penalty were p + 1,
#     and Pelt, which relies on splits that cost nothing, misses the least sum of its own costs: with
#     pen=0.5, it finds 4 changes for 18. With a given number of changes, all agree.
# For gyre: it detects no changes. There, take KernelCPD(kernel="cosine").
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ruptures==1.1.10 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import ruptures

ANGLES, LENGTH, NOISE = (0.3, 1.3, 0.1), 60, 0.5
SIZE = {"min_size": 2, "jump": 1}
generator = np.random.default_rng(0)
angles = np.repeat(ANGLES, LENGTH) + NOISE * generator.normal(size=len(ANGLES) * LENGTH)
directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
signal = directions * generator.uniform(0.5, 2, (len(angles), 1))


def compute_cost(start, end):
    """Return the number of samples, less the mean similarity of a sample with all of them, summed."""
    return end - start - np.sum(directions[start:end].sum(axis=0)**2) / (end - start)


cost = ruptures.costs.CostCosine().fit(signal)
for start, end in [(0, 1), (0, 10), (0, 60), (30, 150), (0, 180)]:
    found, due = cost.error(start, end), compute_cost(start, end)
    print(f"samples {start} to {end}: cost {found:.2f}, where {due:.2f} is due")
    assert abs(found - (due - (end - start - 1))) < 1e-9

whole = compute_cost(0, len(signal))
parts = sum(compute_cost(i * LENGTH, (i + 1) * LENGTH) for i in range(len(ANGLES)))
print(f"cost without a change {whole:.1f}, with the two changes {parts:.1f}")
for name in ("Binseg", "BottomUp"):
    search = getattr(ruptures, name)
    counts = {}
    for budget in (0, 5, parts + 2, whole - 2):
        found = search(model="cosine", **SIZE).fit(signal).predict(epsilon=budget)
        counts[float(round(budget, 1))] = len(found) - 1
    print(f"{name} with model=\"cosine\", changes by epsilon: {counts}")
    assert set(counts.values()) == {0}
    # The squared distance of directions gives the same costs, if they are right.
    found = search(model="l2", **SIZE).fit(directions).predict(epsilon=parts + 2)
    print(f"    of directions with model=\"l2\" and epsilon={parts + 2:.1f}: {found}")
    assert len(found) > 1

kernel = ruptures.KernelCPD(kernel="cosine", min_size=2).fit(signal)
pelt = ruptures.Pelt(model="cosine", **SIZE).fit(signal)
for penalty in (0.1, 0.3, 0.5):
    found = [int(end) for end in pelt.predict(pen=penalty)]
    by_kernel = kernel.predict(pen=penalty)
    best = [int(end) for end in kernel.predict(pen=penalty + 1)]
    own, of_best = (cost.sum_of_costs(ends) + penalty * (len(ends) - 1) for ends in (found, best))
    print(f"pen={penalty}: KernelCPD finds {len(by_kernel) - 1} changes, Pelt {found} with a sum of "
          f"{own:.2f}, where {best} has {of_best:.2f}")
    assert len(by_kernel) > len(found) + 5
    assert of_best < own - 0.1
assert ruptures.Dynp(model="cosine", **SIZE).fit(signal).predict(2) == kernel.predict(2)
PYTHON
