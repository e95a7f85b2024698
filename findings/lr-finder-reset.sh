#!/usr/bin/env bash
# The second `reset()` of a learning rate finder brings back the moments of the last test.
#
# Versions: torch-lr-finder 0.2.2, torch 2.13.0.
# Guess before the run: `reset()` restores model and optimizer to their initial states, as it says,
#     after each range test. (That it does so only once was suspected after reading the source.)
# Seen: once. An optimizer that has taken steps gets the stored moments themselves, not copies, so
#     that the next range test writes over them. The second `reset()` restores the weights, but
#     leaves Adam with the moments of a test that has diverged: second moments are 17 times too
#     large, and the 50 steps that follow move the weights by 55 % of their way. With
#     `memory_cache=False`, and for an optimizer without steps, all is well.
# For gyre: it has no such finder. There, give `memory_cache=False`, or make a finder for each test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch-lr-finder==0.2.2 matplotlib==3.11.2 \
    tqdm==4.70.1 packaging==26.4 torch==2.13.0 numpy==2.4.6
TMPDIR="$folder" "$folder/env/bin/python" - <<'PYTHON' 2> /dev/null
import copy

import torch
from torch.utils import data
from torch_lr_finder import LRFinder

DIM = 16
N_STEPS = 50

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(256, DIM, generator=generator)
targets = inputs @ torch.randn(DIM, 1, generator=generator)
loss_of = torch.nn.MSELoss()


def train(model, optimizer, n_steps):
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()


def second_moments(optimizer):
    return optimizer.state[optimizer.param_groups[0]["params"][0]]["exp_avg_sq"].clone()


def measure(n_tests, n_warm, memory_cache):
    """Return how much larger second moments are after tests and resets, and how far 50 steps go."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(DIM, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(model, optimizer, n_warm)
    start = copy.deepcopy(model.state_dict())
    expected = second_moments(optimizer) if n_warm else None
    finder = LRFinder(model, optimizer, loss_of, memory_cache=memory_cache)
    loader = data.DataLoader(data.TensorDataset(inputs, targets), batch_size=32)
    for _ in range(n_tests):
        finder.range_test(loader, end_lr=100, num_iter=100)
        finder.reset()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, start[name])
    ratio = 1.0
    if n_warm:
        ratio = (second_moments(optimizer) / expected).median().item()
    train(model, optimizer, N_STEPS)
    return ratio, (model[0].weight - start["0.weight"]).abs().mean().item()


_, way = measure(0, 50, True)
_, cold_way = measure(0, 0, True)
for n_tests, n_warm, memory_cache in ((1, 50, True), (2, 50, True), (2, 50, False), (2, 0, True)):
    ratio, moved = measure(n_tests, n_warm, memory_cache)
    share = moved / (way if n_warm else cold_way)
    print(f"{n_tests} tests and resets after {n_warm} steps, memory_cache={memory_cache}: second "
          f"moments times {ratio:.3g}, the next {N_STEPS} steps go {share:.0%} of their way")
    if (n_tests, n_warm, memory_cache) == (2, 50, True):
        assert ratio > 10 and share < 0.7
    else:
        assert ratio == 1 and abs(share - 1) < 1e-3
PYTHON
