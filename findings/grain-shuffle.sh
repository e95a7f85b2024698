#!/usr/bin/env bash
# After grain's shuffle of a million records, a record and its successor are correlated by 0.4.
#
# Version: grain 0.2.18.
# Guess before the run: shuffle() is a pseudo-random permutation: the places in the data set of one
#     record and the next are uncorrelated, whatever the seed and the size.
# Seen: so it is for 10,000 records. From about 50,000 on, it depends on the size, and not on the
#     seed: the correlation is 0.4 for a million and 0.55 for a billion, though below 0.1 for ten
#     million and for 300,000. With two sources of equal size, one behind the other, the next
#     record is of the same source with a probability of 0.73 and 0.79. The mean of 8 records of a
#     million has 2.6 times the variance that it should have, and that of 32 an eighth; of a
#     billion records, that of 256 has 13 to 35 times. IndexSampler has the same order.
# For gyre: it orders rows by numpy's permutation. Who uses grain shuffles the file itself before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile grain==0.2.18 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import grain
import numpy as np

N_SEEN = 10_000


def excess(places, batch_size):
    """Return the variance of the mean of a batch, over that of independent uniform numbers."""
    n_batches = len(places) // batch_size
    means = places[:n_batches * batch_size].reshape(n_batches, batch_size).mean(axis=1)
    return means.var() * 12 * batch_size


def measure(name, places):
    """Print what is known of shuffled places, each from 0 to 1, and return the correlation."""
    correlation = np.corrcoef(places[:-1], places[1:])[0, 1]
    sources = places < 0.5
    same = np.mean(sources[:-1] == sources[1:])
    ratios = [f"{excess(places, size):.2f} for {size}" for size in [8, 32, 256]]
    print(f"{name}: correlation with the next {correlation:.2f}; of the same source {same:.2f}; "
          f"variance of a batch's mean, over what is right: {', '.join(ratios)}")
    return correlation


independent = np.random.default_rng(0).random(N_SEEN)
assert abs(measure("independent numbers of numpy", independent)) < 0.05
for n_records in [10_000, 1_000_000, 1_000_000_000]:
    for seed in [0, 1, 2]:
        shuffled = grain.MapDataset.range(n_records).shuffle(seed=seed)
        places = np.array([shuffled[i] for i in range(N_SEEN)]) / n_records
        correlation = measure(f"{n_records} records, grain, seed {seed}", places)
        if n_records == 10_000:
            assert abs(correlation) < 0.05
        else:
            assert correlation > 0.3
        sampler = grain.samplers.IndexSampler(n_records, shuffle=True, seed=seed, num_epochs=1)
        for i in range(100):
            assert sampler[i].record_key == shuffled[i]
        if n_records == 1_000_000:
            assert excess(places, 8) > 2
            assert excess(places, 32) < 0.3
        if n_records == 1_000_000_000:
            assert excess(places, 256) > 8
PYTHON
