#!/usr/bin/env bash
# curriculus' test split consists of examples of its train split.
#
# Version: curriculus 0.1.6.
# Guess before the run: with `train_ratio=0.8`, no example of the test split is in the train split.
# Seen: of three datasets of 1,000 examples each, all 600 examples of the test split are among the 2,400 of the train
#     split, and 600 examples are in neither. So it is with fewer steps, and with `oversampling`; with `shuffled=True`,
#     about 500 of 600 are. Of one dataset of 1,000, the test split is its first 200.
# Cause: the ratio divides the number of steps, and each split begins anew with the whole datasets (curriculus/dataset.py,
#     `Curriculus`). No issue was found.
# For gyre: its held-out text is cut off before. There, cut the datasets before, and make a curriculum of each part.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile curriculus==0.1.6
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

from curriculus import Curriculus

NAMES = ["easy", "medium", "hard"]
SIZE = 1000


def split(names, **options):
    """Return the texts of the train and of the test split, four to one."""
    datasets = [{"name": name, "dataset": [{"text": f"{name} {number}"} for number in range(SIZE)]} for name in names]
    with contextlib.redirect_stdout(io.StringIO()):
        splits = Curriculus(datasets, train_ratio=0.8, seed=0, **options)
        return [[example["text"] for example in splits[name]] for name in ("train", "test")]


OPTIONS = {"defaults": {}, "1,000 steps": {"total_steps": 1000}, "oversampling": {"oversampling": True},
           "shuffled": {"shuffled": True, "shuffle_seed": 1}}
for name, options in OPTIONS.items():
    train, test = split(NAMES, **options)
    seen = sum(text in set(train) for text in test)
    n_unused = len(NAMES) * SIZE - len({*train, *test})
    print(f"{name}: {seen} of {len(test)} test examples are among the {len(train)} of the train split, {n_unused} are in neither")
    assert len(train) == 4 * len(test) and n_unused > 400
    assert seen > 0.75 * len(test) if name == "shuffled" else seen == len(test)

train, test = split(NAMES[:1])
assert train == [f"easy {number}" for number in range(800)] and test == train[:200]
PYTHON
