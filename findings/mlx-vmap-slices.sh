#!/usr/bin/env bash
# Under mx.vmap, an assignment to a slice changes the first sample of the batch alone.
#
# Versions: mlx 0.32.4, NumPy 2.4.6.
# Guess before the run: `mx.vmap(f)(x)` is `mx.stack([f(row) for row in x])` for each function that vmap takes without an error.
# Seen: if the assigned values are the same for all samples, as in `row[1:3] = 0`, `row[0] = values`,
#     `row.at[:2].add(values)` and `mx.slice_update`, the first sample of the batch is changed and all others are left as
#     they were. So are gradients: those that the assignment should cut off come through from the second sample on. With
#     values of their own for each sample, and with an array of positions instead of a slice, all are right.
# Cause: `SliceUpdate::vmap` gives the shared values a batch dimension of 1 and does not broadcast it to the size of the
#     batch (mlx/primitives.cpp); a batch of values for a shared array is broadcast. Known there, of other operations: scatter
#     along an axis of 2 and above (issue 4321), and slices of one element (issue 4444).
# For gyre: it has no vmap. There, take `mx.where` with a mask.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile "mlx[cpu]==0.32.4" numpy==2.4.6
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
N_SAMPLES = 5
x = mx.array(np.random.default_rng(0).normal(size=(N_SAMPLES, 4, 3)).astype(np.float32))
VALUES = mx.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])


def set_constant(row):
    row = row * 1
    row[1:3] = 0
    return row


def set_first(row):
    row = row * 1
    row[0] = VALUES[0]
    return row


def add_to_slice(row):
    return row.at[:2].add(VALUES)


def update_dynamically(row):
    return mx.slice_update(row, VALUES, mx.array([1]), axes=(0,))


def set_by_positions(row):
    row = row * 1
    row[mx.array([1, 2])] = VALUES
    return row


def set_own_values(row):
    values = row[2:] * 3
    row = row * 1
    row[:2] = values
    return row


def set_by_mask(row):
    return mx.where(mx.array([False, True, True, False])[:, None], 0, row)


def find_wrong(function):
    """Return the samples in which vmap differs from a loop, and those that vmap leaves as they were."""
    batched, looped = np.array(mx.vmap(function)(x)), np.array(mx.stack([function(row) for row in x]))
    assert batched.shape == looped.shape
    wrong = [sample for sample in range(N_SAMPLES) if not np.array_equal(batched[sample], looped[sample])]
    unchanged = [sample for sample in range(N_SAMPLES) if np.array_equal(batched[sample], np.array(x[sample]))]
    return wrong, unchanged


for function in (set_constant, set_first, add_to_slice, update_dynamically, set_by_positions, set_own_values, set_by_mask):
    wrong, unchanged = find_wrong(function)
    print(f"{function.__name__}: of {N_SAMPLES} samples, {wrong} differ from the loop, {unchanged} are as they were")
    is_shared_slice = function in (set_constant, set_first, add_to_slice, update_dynamically)
    assert wrong == unchanged == (list(range(1, N_SAMPLES)) if is_shared_slice else [])

gradient = np.array(mx.grad(lambda batch: mx.vmap(set_constant)(batch).sum())(x))
due = np.array(mx.grad(lambda batch: sum(set_constant(row).sum() for row in batch))(x))
print(f"gradient of the rows that are set to 0: {gradient[:, 1:3].mean((1, 2))}, due {due[:, 1:3].mean((1, 2))}")
assert not due[:, 1:3].any() and (due[:, [0, 3]] == 1).all()
assert not gradient[0, 1:3].any() and (gradient[1:, 1:3] == 1).all()
PYTHON
