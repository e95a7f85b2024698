#!/usr/bin/env bash
# Energon's EpochizeDataset gives empty epochs for ever once the data set behind it has ended.
#
# Versions: megatron-energon 7.4.1, torch 2.13.0, numpy 2.4.6.
# Guess before the run: it "repeats the underlying dataset if the iterator is exhausted", as its
#     docstring says: 10 samples in epochs of 7 are 0 to 6, then 7 to 9 and 0 to 3, and so on. And
#     LimitDataset without `reset_after_epoch` goes on in its second epoch. (That nothing comes after
#     the end, and that it is reset always, was suspected after reading the source.)
# Seen: the second epoch is 7 to 9, and all later ones are empty, without an error or a warning, also
#     if the length divides: a training on finite data stops learning after its first pass. The ended
#     iterator is kept and asked again in each epoch; the length is still given as 7. Around
#     RepeatDataset all epochs are full. A LimitDataset of 7 gives 0 to 6 in each epoch, with
#     `reset_after_epoch=False`, the default, and with True, so that 7 to 9 are never seen.
# For gyre: a batch is a function of seed and step. There, put a RepeatDataset around finite data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile megatron-energon==7.4.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from dataclasses import dataclass

from megatron.energon import (EpochizeDataset, LimitDataset, RepeatDataset, Sample, SavableDataset,
                              WorkerConfig)

SAMPLES = 10
EPOCHS = 6


@dataclass
class Number(Sample):
    value: int = 0


class Numbers(SavableDataset):
    """The numbers from 0 to 9, which can be saved and restored at any place."""

    _savable_fields = ("offset",)

    def __init__(self, worker_config):
        super().__init__(worker_config=worker_config)
        self.reset_state_own()

    def reset_state_own(self):
        self.offset = 0

    def len_worker(self, worker_idx=None):
        return SAMPLES

    def worker_has_samples(self):
        return True

    def config(self):
        return {"type": "Numbers"}

    def __iter__(self):
        while self.offset < SAMPLES:
            value = self.offset
            self.offset += 1
            yield Number(__key__=str(value), __restore_key__=("Numbers", value), value=value)
        self.offset = 0

    def restore_sample(self, restore_key):
        value = restore_key[1]
        return Number(__key__=str(value), __restore_key__=restore_key, value=value)


def epochs(make):
    """Return the numbers of each epoch of the data set that `make` makes."""
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = make(Numbers(config), config)
    config.worker_activate(0)
    given = [[sample.value for sample in dataset] for _ in range(EPOCHS)]
    length = dataset.len_worker(0)
    config.worker_deactivate()
    return given, length


for length in [5, 7, 10, 13]:
    given, promised = epochs(
        lambda numbers, config: EpochizeDataset(numbers, length=length, worker_config=config))
    print(f"epochs of {length}:", *given)
    values = list(range(SAMPLES))
    n_filled = -(-SAMPLES // length)
    assert given[:n_filled] == [values[start:start + length] for start in range(0, SAMPLES, length)]
    assert given[n_filled:] == [[]] * (EPOCHS - n_filled) and promised == length

given, _ = epochs(lambda numbers, config: EpochizeDataset(
    RepeatDataset(numbers, worker_config=config), length=7, worker_config=config))
print("around RepeatDataset, epochs of 7:", *given)
assert sum(given, []) == [position % SAMPLES for position in range(7 * EPOCHS)]
for reset in [False, True]:
    given, _ = epochs(lambda numbers, config: LimitDataset(
        numbers, length=7, reset_after_epoch=reset, worker_config=config))
    print(f"LimitDataset of 7, reset_after_epoch={reset}:", *given)
    assert given == [list(range(7))] * EPOCHS
PYTHON
