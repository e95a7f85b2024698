#!/usr/bin/env bash
# A resumed mixture of litdata repeats some rows and leaves out others.
#
# Version: litdata 0.2.76.
# Guess before the run: a StreamingDataLoader that loads a state yields the batches that the first
#     would have yielded next, also for a CombinedStreamingDataset and two workers: the state has
#     what each worker took of each source.
# Seen: with weights 0.7 and 0.3 and batches of 4, that is so after 10 batches. After 20 batches it
#     is not: from the first batch on the rows are others, 4 of them had been seen, and others never
#     come. Nothing is said. A single source resumes exactly, and so does the mixture without
#     workers. A resume repeats less than a batch for each worker and source; the order is another
#     one until the end of the epoch.
#     (Each source is told only the sum over the workers. _replay_sampling deals it out in whole
#     batches, as if the batches were of this source alone: of 60 rows, 32 and 28 instead of 30 and
#     30.)
# For gyre: a batch is a function of seed and step, and there is no place to remember.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile litdata==0.2.76 torch==2.13.0 numpy==2.4.6
cat > resume.py <<'PYTHON'
import copy
import itertools

import litdata

BATCH_SIZE = 4
N_BATCHES = 60
N_SOURCE_ROWS = 1000
SECOND = 1_000_000  # where the numbers of the second source begin


def number(i):
    """Return `i`: the row that litdata writes."""
    return i


def make_loader(is_mixture, n_workers):
    """Return a loader of the first source, or of the mixture of both."""
    rows = litdata.StreamingDataset("first", shuffle=True)
    if is_mixture:
        second = litdata.StreamingDataset("second", shuffle=True)
        rows = litdata.CombinedStreamingDataset(
            [rows, second], weights=[0.7, 0.3], seed=1, iterate_over_all=False)
    return litdata.StreamingDataLoader(rows, batch_size=BATCH_SIZE, num_workers=n_workers)


def read(loader, n_batches):
    """Return the next rows of the loader."""
    batches = itertools.islice(iter(loader), n_batches)
    return [row for batch in batches for row in batch.tolist()]


def measure(is_mixture, n_workers, n_before):
    """Print and return how many rows are repeated by a run that is resumed after `n_before`."""
    uninterrupted = read(make_loader(is_mixture, n_workers), N_BATCHES)
    loader = make_loader(is_mixture, n_workers)
    before = read(loader, n_before)
    assert before == uninterrupted[:len(before)]
    state = copy.deepcopy(loader.state_dict())
    resumed = make_loader(is_mixture, n_workers)
    resumed.load_state_dict(state)
    after = read(resumed, N_BATCHES - n_before)
    n_repeated = len(set(before) & set(after))
    is_equal = before + after == uninterrupted
    source = "mixture" if is_mixture else "one source"
    print(f"{source}, {n_workers} workers, resumed after {n_before} batches: "
          f"{'the same rows' if is_equal else 'other rows'}, {n_repeated} repeated")
    assert is_equal == (n_repeated == 0)
    return n_repeated


if __name__ == "__main__":
    for name, first in [("first", 0), ("second", SECOND)]:
        numbers = list(range(first, first + N_SOURCE_ROWS))
        litdata.optimize(fn=number, inputs=numbers, output_dir=name, chunk_size=100, num_workers=1)
    assert measure(False, 2, 20) == 0
    assert measure(True, 0, 20) == 0
    assert measure(True, 2, 10) == 0
    assert measure(True, 2, 20) == 4
PYTHON
if ! env/bin/python resume.py > seen.txt 2> errors.txt; then
    cat seen.txt errors.txt
    exit 1
fi
grep -E '^(mixture|one source)' seen.txt
