#!/usr/bin/env bash
# In a mixture of two sources, every rank draws the same source at the same time.
#
# Versions: datasets 5.2.0, litdata 0.2.76, torch 2.13.0.
# Guess before the run: each rank draws its own rows from a mixture with probabilities 0.5 and 0.5.
#     Of the 16 rows that 8 ranks with 2 rows each put into a batch, the number from the first
#     source is binomial: 8 with a standard deviation of 2. (That the ranks agree was suspected.)
# Seen: the rows are different ones, but all ranks draw their sources by equal generators: row k is
#     of the same source on each. The standard deviation is 5.4 to 5.7, and nearly half of the
#     batches are of one source only. Shuffling the mixture with a buffer does not help, since that
#     generator is equal too. With litdata, the workers of a loader agree as well, so that two
#     workers give every batch's sources twice. In the long run the parts are right.
#     (litdata makes random.Random(seed) in every process. datasets shifts its generators by the
#     number of the worker, and not by the rank, when a rank takes its part of the mixture.)
# For gyre: a batch is a function of seed and step, and the ranks cut it. Who uses these mixtures
#     gives each rank its own seed: with datasets, split the sources by rank, then interleave.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile datasets==5.2.0 litdata==0.2.76 torch==2.13.0 numpy==2.4.6
cat > mixture.py <<'PYTHON'
import itertools
import os

import datasets
import litdata
import numpy as np
from datasets.distributed import split_dataset_by_node

N_RANKS = 8
N_ROWS_PER_RANK = 2
N_BATCHES = 300
N_SOURCE_ROWS = 4000
SECOND = 1_000_000  # where the numbers of the second source begin


def number(i):
    """Return `i`: the row that litdata writes."""
    return i


def generate(shards, first):
    """Yield the rows of a source."""
    for shard in shards:
        for i in range(shard, N_SOURCE_ROWS, N_RANKS):
            yield {"i": first + i}


def make_source(first):
    """Return a source of `datasets`, in as many shards as there are ranks."""
    arguments = {"shards": list(range(N_RANKS)), "first": first}
    return datasets.IterableDataset.from_generator(generate, gen_kwargs=arguments)


def draw_datasets(rank, buffer_size):
    """Return the rows that a rank draws from a mixture of `datasets`."""
    sources = [make_source(0), make_source(SECOND)]
    mixture = datasets.interleave_datasets(sources, probabilities=[0.5, 0.5], seed=1)
    if buffer_size > 0:
        mixture = mixture.shuffle(seed=2, buffer_size=buffer_size)
    part = split_dataset_by_node(mixture, rank=rank, world_size=N_RANKS)
    return [row["i"] for row in itertools.islice(part, N_BATCHES * N_ROWS_PER_RANK)]


def draw_seeded(rank):
    """Return the rows that a rank draws if it has its own seed."""
    sources = []
    for first in [0, SECOND]:
        sources.append(split_dataset_by_node(make_source(first), rank=rank, world_size=N_RANKS))
    mixture = datasets.interleave_datasets(sources, probabilities=[0.5, 0.5], seed=rank)
    return [row["i"] for row in itertools.islice(mixture, N_BATCHES * N_ROWS_PER_RANK)]


def make_litdata():
    """Return the mixture of litdata."""
    sources = [litdata.StreamingDataset(name, shuffle=True) for name in ["first", "second"]]
    return litdata.CombinedStreamingDataset(
        sources, weights=[0.5, 0.5], seed=1, iterate_over_all=False)


def draw_litdata(rank):
    """Return the rows that a rank draws from a mixture of litdata."""
    os.environ["WORLD_SIZE"] = str(N_RANKS)
    os.environ["GLOBAL_RANK"] = str(rank)
    rows = list(itertools.islice(make_litdata(), N_BATCHES * N_ROWS_PER_RANK))
    del os.environ["WORLD_SIZE"], os.environ["GLOBAL_RANK"]
    return rows


def measure(name, rows):
    """Print and return the deviation of the rows of the first source in a batch of all ranks."""
    rows = np.array(rows)  # ranks, rows
    assert len(np.unique(rows)) == rows.size
    is_first = rows < SECOND
    agreement = np.mean(is_first == is_first[:1])
    counts = is_first.reshape(N_RANKS, N_BATCHES, N_ROWS_PER_RANK).sum(axis=(0, 2))
    print(f"{name}: of the first source {is_first.mean():.2f}; ranks agree {agreement:.2f}; in a "
          f"batch of {N_RANKS * N_ROWS_PER_RANK}, the standard deviation is {counts.std():.1f}; "
          f"batches of it alone {np.mean(counts == N_RANKS * N_ROWS_PER_RANK):.2f}")
    assert abs(is_first.mean() - 0.5) < 0.05
    return counts.std()


if __name__ == "__main__":
    for name, first in [("first", 0), ("second", SECOND)]:
        numbers = list(range(first, first + N_SOURCE_ROWS))
        litdata.optimize(fn=number, inputs=numbers, output_dir=name, chunk_size=100, num_workers=1)

    ranks = range(N_RANKS)
    assert measure("datasets, a seed for each rank", [draw_seeded(r) for r in ranks]) < 2.5
    assert measure("datasets", [draw_datasets(r, 0) for r in ranks]) > 5
    assert measure("datasets, shuffled", [draw_datasets(r, 100) for r in ranks]) > 5
    assert measure("litdata", [draw_litdata(r) for r in ranks]) > 5

    loader = litdata.StreamingDataLoader(make_litdata(), batch_size=4, num_workers=2)
    batches = np.array([batch.numpy() for batch in itertools.islice(loader, 40)]) < SECOND
    agreement = np.mean(batches[0::2] == batches[1::2])
    print(f"litdata, one rank: two workers agree {agreement:.2f}")
    assert agreement == 1
PYTHON
if ! HF_HUB_OFFLINE=1 env/bin/python mixture.py > seen.txt 2> errors.txt; then
    cat seen.txt errors.txt
    exit 1
fi
grep -E '^(datasets|litdata)' seen.txt
