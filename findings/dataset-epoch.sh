#!/usr/bin/env bash
# A streamed data set forgets its epoch and its place as soon as it is batched.
#
# Version: datasets 5.2.0.
# Guess before the run: set_epoch(1) gives another order, and load_state_dict the rest of the epoch,
#     also if batch(), take() or map() is called on the data set after it. (The effect was met in a
#     test of other guesses.)
# Seen: each of these returns a data set of epoch 0 without a state, whatever was set before: a loop
#     over rows.batch(4) has the same order in every epoch, and starts at the first row after
#     load_state_dict. Nothing is said. Called on the result of batch(4), both work.
#     (The methods make a new IterableDataset, and pass on neither _epoch nor _starting_state_dict.)
# For gyre: it streams text once, to prepare it, and its order is a function of seed and epoch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile datasets==5.2.0 numpy==2.4.6
HF_HUB_OFFLINE=1 HF_HOME="$folder/home" env/bin/python - <<'PYTHON'
import itertools
import logging

import datasets

logging.getLogger("datasets").setLevel(logging.ERROR)
N_ROWS = 60
N_SEEN = 40


def make():
    """Return a streamed data set of 20 shards, which are shuffled, and the rows a little."""
    rows = datasets.Dataset.from_dict({"i": list(range(N_ROWS))})
    return rows.to_iterable_dataset(num_shards=20).shuffle(seed=1, buffer_size=1)


def read(rows):
    """Return the numbers of the rows."""
    return [row["i"] for row in rows]


def read_batches(batches):
    """Return the numbers of the rows of all batches."""
    return list(itertools.chain.from_iterable(batch["i"] for batch in batches))


rows = make()
orders = []
for epoch in range(3):
    rows.set_epoch(epoch)
    orders.append(read(rows))
different = len({tuple(order) for order in orders})
print(f"3 epochs, rows themselves: {different} orders")
assert different == 3

for name in ["batch(4)", "take(60)", "map", "set on the result of batch(4)"]:
    found = []
    for epoch in range(3):
        rows = make()
        rows.set_epoch(epoch)
        if name == "take(60)":
            found.append(read(rows.take(N_ROWS)))
        elif name == "map":
            found.append(read(rows.map(lambda row: row)))
        else:
            batches = rows.batch(4)
            if name != "batch(4)":
                batches.set_epoch(epoch)
            found.append(read_batches(batches))
    different = len({tuple(order) for order in found})
    print(f"3 epochs, {name}: {different} orders")
    assert different == (3 if name.startswith("set on") else 1)
    assert sorted(found[0]) == list(range(N_ROWS))

rows = make()
assert read(itertools.islice(rows, N_SEEN)) == orders[0][:N_SEEN]
state = rows.state_dict()
resumed = make()
resumed.load_state_dict(state)
rest = read(resumed)
resumed = make()
resumed.load_state_dict(state)
batched = read_batches(resumed.batch(4))
print(f"resumed after {N_SEEN} of {N_ROWS} rows: {len(rest)} rows left, in batches {len(batched)}")
assert rest == orders[0][N_SEEN:]
assert batched == orders[0]
PYTHON
