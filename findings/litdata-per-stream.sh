#!/usr/bin/env bash
# litdata's "per_stream" takes as many batches of each of two data sets, whatever their weights are.
#
# Versions: litdata 0.2.76, torch 2.13.0, numpy 2.4.6.
# Guess before the run: with weights of 0.9 and 0.1, nine of ten batches are of the first data set,
#     as nine of ten samples are with "stratified"; without weights, sizes are the weights, so that
#     a small data set lasts for the whole epoch. (That it might not was suspected after reading the
#     source.)
# Seen: a data set is drawn again until it is another one than that of the last batch. Two data sets
#     take turns: half of the batches are of each one. Of three with 0.8, 0.1 and 0.1, less than
#     half of the batches are of the first one. Without weights, a data set with a tenth of the
#     samples is in every other batch, and used up after a fifth of the epoch. "stratified" is
#     right.
# For gyre: its mixtures are drawn by their weights. There, take "stratified".
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
from collections import Counter

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
from litdata.streaming import Cache

BATCH = 10


def write(name, size, first):
    """Write a data set of the integers from `first` on, in chunks of 100."""
    os.mkdir(name)
    cache = Cache(input_dir=name, chunk_size=100)
    for index in range(size):
        cache[index] = first + index
    cache.done()
    cache.merge()
    return name


def read(names, method, weights=None):
    """Return an epoch's batches, each sample as the letter of its data set."""
    combined = CombinedStreamingDataset(
        [StreamingDataset(name, shuffle=True) for name in names], weights=weights, seed=42,
        iterate_over_all=weights is None, batching_method=method)
    loader = StreamingDataLoader(combined, batch_size=BATCH, num_workers=0)
    return ["".join("ABC"[int(sample) // 10000] for sample in batch) for batch in loader]


large, other, third = [write(name, 4000, 10000 * i) for i, name in enumerate(["a", "b", "c"])]
small = write("small", 400, 10000)
for names, weights in [([large, other], [0.9, 0.1]), ([large, other, third], [0.8, 0.1, 0.1])]:
    for method in ["stratified", "per_stream"]:
        batches = read(names, method, weights)[:200]
        shares = [value / sum(map(len, batches))
                  for _, value in sorted(Counter("".join(batches)).items())]
        print(f"weights {weights}, {method}: shares of {' '.join(f'{x:.2f}' for x in shares)} in "
              f"the first {len(batches)} batches")
        if method == "stratified":
            assert all(abs(x - y) < 0.04 for x, y in zip(shares, weights))
        else:
            assert all(len(set(batch)) == 1 for batch in batches)
            assert shares == [0.5, 0.5] if len(names) == 2 else shares[0] < 0.5

for method in ["stratified", "per_stream"]:
    batches = read([large, small], method)
    last = max(i for i, batch in enumerate(batches) if "B" in batch) + 1
    share = "".join(batches[:80]).count("B") / (80 * BATCH)
    print(f"4000 and 400 samples, no weights, {method}: the small one is {share:.0%} of the first "
          f"80 batches, and the last of it is in batch {last} of {len(batches)}")
    if method == "stratified":
        assert share < 0.15 and last > 400
    else:
        assert share == 0.5 and last <= 81
PYTHON
