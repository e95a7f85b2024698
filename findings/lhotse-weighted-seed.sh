#!/usr/bin/env bash
# lhotse's WeightedSimpleCutSampler draws other cuts on each rank, and ignores its seed and epoch.
#
# Versions: lhotse 1.33.0, torch 2.13.0, numpy 2.4.6.
# Guess before the run: as with the sampler that it extends, `seed` and epoch decide what an epoch
#     has: two samplers of one seed agree, and the ranks share out one draw without replacement.
#     (That they might not was suspected after reading the source.)
# Seen: the cuts are drawn from numpy's global generator. Two samplers of one seed have different
#     epochs; if numpy's state is the same, all seeds and epochs have the same. The ranks cut up
#     draws of their own: of 60 cuts of 100 that are drawn "without replacement", 8 are on both of
#     two ranks, and 11 with weights that favour 30 cuts. With numpy seeded alike on all ranks, none
#     is.
# For gyre: a batch is a function of seed and step. There, seed numpy by seed and epoch before each
#     epoch, alike on all ranks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile lhotse==1.33.0 torch==2.13.0 numpy==2.4.6 \
    urllib3==2.8.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from lhotse import CutSet, MonoCut
from lhotse.dataset.sampling.simple import SimpleCutSampler
from lhotse.dataset.sampling.weighted_simple import WeightedSimpleCutSampler

CUTS = 100
cuts = CutSet.from_cuts(MonoCut(id=str(number), start=0, duration=1.0, channel=0)
                        for number in range(CUTS))


def read(sampler, epoch=0):
    """Return the numbers of the cuts of an epoch."""
    sampler.set_epoch(epoch)
    return [int(cut.id) for batch in sampler for cut in batch]


def weighted(weights=None, **options):
    return WeightedSimpleCutSampler(cuts, weights or [1.0] * CUTS, num_samples=60, max_cuts=5,
                                    **options)


def simple(**options):
    return SimpleCutSampler(cuts, max_cuts=5, shuffle=True, **options)


def common(make, states=(0, 1), **options):
    """Return how many cuts two ranks have in common, each a process with a state of numpy."""
    shares = []
    for rank, state in enumerate(states):
        np.random.seed(state)
        shares.append(set(read(make(world_size=2, rank=rank, seed=0, **options))))
    return len(shares[0] & shares[1]), sum(map(len, shares))


np.random.seed(0)
assert read(simple(seed=0)) == read(simple(seed=0)) != read(simple(seed=1))
alike = read(weighted(seed=0)) == read(weighted(seed=0))
print(f"two samplers of seed 0 yield the same: {alike}")
assert not alike
epochs = set()
for seed, epoch in [(0, 0), (1, 0), (0, 1), (5, 7)]:
    np.random.seed(0)
    epochs.add(tuple(read(weighted(seed=seed), epoch)))
print(f"with numpy seeded alike, 4 pairs of seed and epoch have {len(epochs)} order(s)")
assert len(epochs) == 1

twice, total = common(weighted)
print(f"equal weights: of {total} cuts of two ranks, {twice} are on both")
assert total == 60 and 4 <= twice <= 18
favoured = [50.0] * 30 + [1.0] * 70
twice_favoured, total = common(weighted, weights=favoured)
print(f"weights that favour 30 cuts: of {total}, {twice_favoured} are on both")
assert total == 60 and twice_favoured > twice
twice, total = common(simple)
print(f"SimpleCutSampler: of {total}, {twice} are on both")
assert (twice, total) == (0, 100)
twice, total = common(weighted, states=(3, 3))
print(f"numpy seeded alike: of {total}, {twice} are on both")
assert (twice, total) == (0, 60)
PYTHON
