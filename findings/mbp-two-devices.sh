#!/usr/bin/env bash
# mbp-pytorch leaves out half of each batch with two devices, and three quarters with four.
#
# Versions: mbp-pytorch 0.2.6, torch 2.13.0.
# Guess before the run: a batch in micro-batches gives the gradient of the whole batch, whatever the
#     number of devices: "the maximum size of a micro-batch that can be executed on each device" is
#     ub_size, so that two devices take twice as much at once. (That rows are left out was
#     suspected after reading the source.)
# Seen: `device_ids`, which the README asks for with DataParallel, divides the number of
#     micro-batches, and their size stays as it is: of 128 rows in micro-batches of 16, two devices
#     get the first 64, and four the first 32. Loss and gradient are those of these rows, exactly;
#     the other rows are never trained on, in silence. (The list is only counted, so that a CPU
#     shows it.) And whatever the devices, the last micro-batch has the weight of a full one: of 49
#     rows, the last counts as much as 16 others.
# For gyre: it weighs micro-batches by their tokens. There, give no device_ids, and a batch that the
#     size divides.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps mbp-pytorch==0.2.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import mbp
import torch

SIZE = 16
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
x, y = torch.randn(128, 3), torch.randn(128, 1)


def by_micro_batches(n_rows, device_ids):
    """Return loss and gradient of the first n_rows."""
    @mbp.apply(["x", "y"], ub_size=SIZE, device_ids=device_ids)
    def train(x, y):
        return torch.nn.functional.mse_loss(model(x), y)

    model.zero_grad()
    loss = train(x=x[:n_rows], y=y[:n_rows])
    return loss.item(), model.weight.grad.clone()


def at_once(weights):
    """Return loss and gradient of the mean of squared errors with these weights of the rows."""
    model.zero_grad()
    errors = (model(x) - y).square()[:, 0]
    loss = (errors * weights).sum() / weights.sum()
    loss.backward()
    return loss.item(), model.weight.grad.clone()


def first(n):
    return (torch.arange(128) < n).float()


last = first(49)
last[48] = 16.0
for n_rows, device_ids, weights, what in [
        (128, None, first(128), "all 128 rows"), (128, [0], first(128), "all 128 rows"),
        (128, [0, 1], first(64), "the first 64 rows"),
        (128, [0, 1, 2, 3], first(32), "the first 32 rows"),
        (49, None, last, "49 rows, the last of which counts 16 times")]:
    loss, gradient = by_micro_batches(n_rows, device_ids)
    due_loss, due = at_once(weights)
    all_loss, all_gradient = at_once(first(n_rows))
    error = ((gradient - all_gradient).norm() / all_gradient.norm()).item()
    print(f"{n_rows} rows, device_ids={device_ids}: loss {loss:.4f}, that of {what}; of the whole "
          f"batch {all_loss:.4f}; the gradient is off by {error:.1%}")
    assert abs(loss - due_loss) < 1e-5 and torch.allclose(gradient, due, atol=1e-5)
    assert error > 0.05 or "all" in what
PYTHON
