#!/usr/bin/env bash
# litdata's random split of a data set in one chunk is no random one: it cuts off the last rows.
#
# Versions: litdata 0.2.76, torch 2.13.0, numpy 2.4.6.
# Guess before the run: `train_test_split(shuffle=True, seed=...)` "shuffles the data before
#     splitting", and `subsample` is the "fraction of the dataset to be randomly sampled": other
#     seeds give other rows, and of rows in the order of their labels, each split has all labels.
#     (That whole chunks are shuffled was suspected after reading the source.)
# Seen: chunks are shuffled, rows are not. A chunk holds 64 MB, so that many data sets have one: for
#     every seed, the test split is the last fifth of the rows, and a sample is the first tenth. Of
#     five labels in order, the one in the test split is not in the training split. With ten chunks
#     of 100 rows, the test split is two whole chunks: rows 0 to 99 and 500 to 599, for instance.
# For gyre: it splits its text itself. There, give `subset` the indices of a random permutation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6
env/bin/pip install --quiet --no-compile lightning-utilities==0.15.2 boto3 requests tifffile
env/bin/pip install --quiet --no-compile --no-deps litdata==0.2.76
env/bin/python -W ignore - <<'PYTHON'
import os

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
import numpy as np
from litdata import StreamingDataset, train_test_split
from litdata.streaming import Cache

ROWS = 1000
SEEDS = range(5)


def write(name, chunk_size):
    """Write the integers below ROWS."""
    os.mkdir(name)
    cache = Cache(input_dir=name, **chunk_size)
    for index in range(ROWS):
        cache[index] = index
    cache.done()
    cache.merge()
    return name


def read(data):
    return sorted(int(row) for row in data)


def spans(rows):
    """Return the rows as text of spans without gaps."""
    parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return " and ".join(f"{part[0]} to {part[-1]}" for part in parts)


one = write("one", {"chunk_bytes": "64MB"})
ten = write("ten", {"chunk_size": 100})
for seed in SEEDS:
    training, test = map(read, train_test_split(StreamingDataset(one), [0.8, 0.2], seed=seed,
                                                shuffle=True))
    labels = [sorted({row // 200 for row in rows}) for rows in [training, test]]
    sample = read(StreamingDataset(one, subsample=0.1, shuffle=True, seed=seed))
    print(f"one chunk, seed {seed}: tested on rows {spans(test)}; labels {labels[0]} in the "
          f"training split, {labels[1]} in the test split; a sample of a tenth has rows "
          f"{spans(sample)}")
    assert test == list(range(800, 1000)) and sample == list(range(100))
    assert not set(labels[0]) & set(labels[1])
splits = set()
for seed in SEEDS:
    test = read(train_test_split(StreamingDataset(ten), [0.8, 0.2], seed=seed, shuffle=True)[1])
    print(f"ten chunks, seed {seed}: tested on rows {spans(test)}")
    assert len(test) == 200 and len({row // 100 for row in test}) == 2
    splits.add(tuple(test))
assert len(splits) > 1
PYTHON
