#!/usr/bin/env bash
# A generator on the CPU uses 32 of a seed's 64 bits.
#
# Version: torch 2.13.0.
# Guess before the run: manual_seed accepts 64 bits and initial_seed returns them, so seeds that
#     differ give different numbers. (That they might not was suspected beforehand.)
# Seen: seeds that agree in their lowest 32 bits give the same numbers for ever. Of 200,000 random
#     64-bit seeds, two pairs meet, as is likely with 32 bits. NumPy uses all
#     bits.
# For gyre: model/transformer.py makes a generator from 63 bits of a hash of (seed, name). Two of
#     a hundred tensors meet with a probability of about one in a million.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import torch


def draw(seed):
    generator = torch.Generator().manual_seed(seed)
    assert generator.initial_seed() == seed
    return tuple(torch.randint(2**62, (4,), generator=generator).tolist())


def draw_numpy(seed):
    return tuple(np.random.default_rng(seed).integers(2**62, size=4).tolist())


same = {}
for name, function in {"torch": draw, "numpy": draw_numpy}.items():
    same[name] = function(1) == function(1 + 2**32) == function(1 + 5 * 2**40)
    print(f"{name}: seeds 1, 1 + 2**32 and 1 + 5 * 2**40 give the same numbers: {same[name]}")
seeds = np.random.default_rng(0).integers(2**63, size=200_000).tolist()
n_streams = len({draw(seed) for seed in seeds})
print(f"torch: {len(set(seeds)):,} seeds give {n_streams:,} streams")

assert same == {"torch": True, "numpy": False}
assert n_streams < len(set(seeds)) == 200_000
PYTHON
