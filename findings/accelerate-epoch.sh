#!/usr/bin/env bash
# In accelerate, epochs that end by `break` are all the same epoch.
#
# Versions: accelerate 1.15.0, torch 2.13.0.
# Guess before the run: each `for` over a prepared loader is an epoch with a shuffle of its own,
#     also where the last one ended by `break`. set_epoch() of the data set holds.
# Seen: with use_seedable_sampler=True, and with a stream that has a set_epoch(), as those of
#     datasets have, every such loop gives the same rows: a training that calls 1000 steps an epoch
#     never sees the rest. The loader calls set_epoch() with a count of its own when a loop starts,
#     over the caller's, and counts after the last batch only (data_loader.py). loader.set_epoch()
#     before each loop cures it. With the default sampler, rows differ.
# For gyre: its batches are a function of seed and step, and it has no epochs. An export that is
#     trained further with accelerate needs that call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
HF_HOME="$folder" "$folder/env/bin/python" - <<'PYTHON'
import itertools

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState
from torch.utils.data import DataLoader, IterableDataset

N_ROWS = 20
N_STEPS = 6
N_EPOCHS = 4


class Stream(IterableDataset):
    """The numbers below N_ROWS, shuffled by the epoch."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        return iter(torch.randperm(N_ROWS, generator=generator).tolist())


def rows(dataset, seedable, whole, cured):
    """Return the first N_STEPS rows of each epoch, which ends there if it is not whole."""
    AcceleratorState._reset_state(reset_partial_state=True)
    config = DataLoaderConfiguration(use_seedable_sampler=seedable)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    shuffle = None if isinstance(dataset, Stream) else True
    loader = accelerator.prepare(DataLoader(dataset, shuffle=shuffle))
    epochs = []
    for epoch in range(N_EPOCHS):
        if isinstance(dataset, Stream):
            dataset.set_epoch(epoch)
        if cured:
            loader.set_epoch(epoch)
        epochs.append([])
        for step, batch in enumerate(loader, 1):
            epochs[-1].append(batch.item())
            if step == N_STEPS and not whole:
                break
    return [epoch[:N_STEPS] for epoch in epochs]


torch.manual_seed(0)
for name, dataset, seedable in [("default", range(N_ROWS), False),
                                ("seedable", range(N_ROWS), True),
                                ("stream", Stream(), False)]:
    for whole, cured in itertools.product([False, True], [False, True]):
        epochs = rows(dataset, seedable, whole, cured)
        n_different = len(set(map(tuple, epochs)))
        print(f"{name}{', whole epochs' if whole else ''}{', loader.set_epoch()' if cured else ''}:"
              f" {n_different} different epochs, {epochs[0]}, {epochs[1]} ...")
        is_broken = name != "default" and not whole and not cured
        assert n_different == (1 if is_broken else N_EPOCHS)
PYTHON
