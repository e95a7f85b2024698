#!/usr/bin/env bash
# grain's repeated interleave mixes up its passes from the third on: elements come twice or never.
#
# Version: grain 0.2.18.
# Guess before the run: RepeatIterDataset(InterleaveIterDataset(data sets), n) yields each element n times,
#     once in each pass, in the same order. One state restores any number of iterators alike.
# Seen: the first two passes are right. From the third on, data sets that are open first are read twice and
#     others never, if there are more data sets than `cycle_length`: of 33 elements of six data sets, in
#     four passes 21 come six times and 12 twice. A state that was restored once restores the next
#     iterator wrongly: 16 of 28 elements are repetitions, 7 are lost. All of it without a word; after other
#     transformations, each pass is the first.
# Cause: `set_state` keeps the caller's list `iterators_in_use_indices` as its own (interleave.py), and
#     changes it when it opens the next data set. RepeatIterDataset restores its first state, the
#     same dictionary, before each pass.
# For gyre: a batch is a function of seed and step. There, repeat the data sets that are interleaved, or copy
#     a state before `set_state`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile grain==0.2.18 numpy==2.4.6
"$folder/env/bin/python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { tail -20 "$folder/errors"; exit 1; }
import collections
import copy

import grain
from grain.experimental import InterleaveIterDataset, RepeatIterDataset, WindowShuffleIterDataset

N_PASSES = 4
SETS = [grain.MapDataset.range(100 * number, 100 * number + number + 3) for number in range(6)]


def interleave(cycle_length):
    return InterleaveIterDataset([numbers.to_iter_dataset() for numbers in SETS], cycle_length=cycle_length)


def count_passes(name, data):
    """Return how many elements come how often in N_PASSES passes, and which passes are the first one."""
    first = [int(number) for number in data]
    numbers = [int(number) for number in RepeatIterDataset(data, N_PASSES)]
    times = collections.Counter(collections.Counter(numbers).values())
    passes = [numbers[i * len(first):(i + 1) * len(first)] == first for i in range(N_PASSES)]
    print(f"{name}: {len(first)} elements, {N_PASSES} passes: equal to the first {passes}; how often: how many "
          f"elements {dict(times)}")
    return times, passes


once_each = collections.Counter({N_PASSES: 33})
for cycle_length in [1, 2, 3]:
    times, passes = count_passes(f"cycles of {cycle_length} of 6", interleave(cycle_length))
    assert times != once_each and passes == [True, True, False, False]
assert times == {6: 21, 2: 12}
assert count_passes("cycles of 6 of 6", interleave(6)) == (once_each, [True] * N_PASSES)
shuffled = WindowShuffleIterDataset(grain.MapDataset.range(33).to_iter_dataset(), window_size=5, seed=1)
assert count_passes("shuffled in windows", shuffled) == (once_each, [True] * N_PASSES)

iterator = iter(interleave(3))
for _ in range(5):
    next(iterator)
state = iterator.get_state()
due = [int(number) for number in iterator]
for number, given in enumerate([copy.deepcopy(state), copy.deepcopy(state), state, state]):
    restored = iter(interleave(3))
    restored.set_state(given)
    found = [int(number) for number in restored]
    lost, repeated = set(due) - set(found), len(found) - len(set(found))
    print(f"{'a copy of the state' if number < 2 else 'the state'}: {len(found)} elements for {len(due)}, "
          f"{len(lost)} lost, {repeated} repeated")
    assert (len(lost), repeated) == ((7, 16) if number == 3 else (0, 0)) and (number == 3 or found == due)
PYTHON
