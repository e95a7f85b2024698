#!/usr/bin/env bash
# Torch-Pruning's importance by the Hessian is that of the last sample, however many were added.
#
# Versions: torch-pruning 1.6.1, torch 2.13.0.
# Guess before the run: `accumulate_grad`, called after the backward pass of each sample as the
#     docstring of GroupHessianImportance shows, adds up squared gradients; the importance of a
#     channel is the sum of w^2 times their mean, in any order of the samples. (That nothing is
#     added was suspected after reading the source.)
# Seen: each call writes over the one before. The importance of 256 samples is that of the last one,
#     bit for bit, and has nothing to do with that of all: channels that the last sample does not
#     reach have an importance of 0, and are pruned first. Of the 16 of 64 channels that are pruned,
#     5 are the right ones, where chance gives 4.
# For gyre: it prunes nothing. There, add up the squared gradients by hand, and put them in place
#     of `.grad`; without a call of `accumulate_grad`, the importance is computed from that.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch-pruning==1.6.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
import torch.nn.functional as F
import torch_pruning
from torch import nn

N_SAMPLES, WIDTH, HIDDEN, N_CLASSES = 256, 32, 64, 10
N_PRUNED = 16


def backward(index):
    """Put the gradients of one sample into `.grad`."""
    model.zero_grad()
    F.cross_entropy(model(x[index:index + 1]), y[index:index + 1]).backward()


def group():
    """Return all hidden channels, with the rows and columns that go with them."""
    graph = torch_pruning.DependencyGraph().build_dependency(model, x[:1])
    prune = torch_pruning.prune_linear_out_channels
    return graph.get_pruning_group(model[0], prune, list(range(HIDDEN)))


def importance(order):
    """Return the importance of the channels after samples in a given order."""
    scorer = torch_pruning.importance.GroupHessianImportance(normalizer=None)
    scorer.zero_grad()
    for index in order:
        backward(index)
        scorer.accumulate_grad(model)
    return scorer(group())


def exact_importance(order):
    """Return the mean over rows and columns of a channel's sum of w^2 * mean of g^2."""
    squares = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for index in order:
        backward(index)
        for name, p in model.named_parameters():
            squares[name] += p.grad**2 / len(order)
    scores = {name: p.detach()**2 * squares[name] for name, p in model.named_parameters()}
    return (scores["0.weight"].sum(1) + scores["2.weight"].sum(0)) / 2


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, N_CLASSES))
x, y = torch.randn(N_SAMPLES, WIDTH), torch.randint(N_CLASSES, (N_SAMPLES,))
everything = range(N_SAMPLES)
last = importance([N_SAMPLES - 1])
for name, order in [("in order", everything), ("reversed", everything[::-1])]:
    seen, exact = importance(order), exact_importance(order)
    lowest = set(seen.argsort()[:N_PRUNED].tolist())
    common = len(lowest & set(exact.argsort()[:N_PRUNED].tolist()))
    print(f"samples {name}: importance of the first channels "
          f"{(1e4 * seen[:4]).numpy().round(1)}e-4, exact {(1e4 * exact[:4]).numpy().round(1)}e-4; "
          f"{(seen == 0).sum()} channels of {HIDDEN} have 0, exact {(exact == 0).sum()}; "
          f"{common} of {N_PRUNED} pruned channels are right")
    assert torch.equal(seen, last) == (order[-1] == N_SAMPLES - 1)
    assert torch.allclose(seen, exact_importance(order[-1:]))
    assert (seen == 0).sum() > 20 and (exact == 0).sum() == 0 and common < N_PRUNED * 3 // 4
one = exact_importance([N_SAMPLES - 1])
print(f"the last sample alone: {(1e4 * last[:4]).numpy().round(1)}e-4, exact "
      f"{(1e4 * one[:4]).numpy().round(1)}e-4")
assert torch.allclose(last, one)
PYTHON
