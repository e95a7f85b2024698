#!/usr/bin/env bash
# An attributor of dattri takes the projection of the one that is made after it.
#
# Versions: dattri 0.3.0, torch 2.13.0, scipy 1.17.1.
# Guess before the run: attributors with options of their own do not change each other; without
#     `projector_kwargs`, whose default is None, TracIn multiplies the gradients as they are, as in
#     the paper. (That neither holds was suspected after reading the source.)
# Seen: the options are written into one dictionary of the module, which all attributors keep. So an
#     attributor's scores become, digit by digit, those of the one made last, and later ones without
#     options have the last options. Where TRAK has cached the training set, and another TRAK with
#     another seed is made, test gradients are projected by another matrix than the cached ones: the
#     same scores, asked for again, have a correlation of -0.2 to 0.1 with the first ones, where
#     seeds alone give 0.92. Without options, TracIn projects to 512 dimensions too, also the
#     gradient of 178 parameters, with errors of up to a quarter of the largest inner product.
# For gyre: it attributes nothing to samples. There, make one attributor to a process, and give it
#     all options of the projection.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 tqdm==4.70.1 \
    pyyaml==6.0.4
env/bin/pip install --quiet --no-compile --no-deps dattri==0.3.0
TQDM_DISABLE=1 env/bin/python -W ignore - <<'PYTHON'
import torch
from dattri.algorithm.tracin import TracInAttributor
from dattri.algorithm.trak import TRAKAttributor
from dattri.task import AttributionTask
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(60, 8)
labels = (inputs[:, 0] + inputs[:, 1] * inputs[:, 2] > 0).long()
train = DataLoader(TensorDataset(inputs[:40], labels[:40]), batch_size=20)
test = DataLoader(TensorDataset(inputs[40:], labels[40:]), batch_size=20)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs[:40]), labels[:40]).backward()
    optimizer.step()


def loss(parameters, batch):
    x, y = batch
    logits = torch.func.functional_call(model, parameters, x.unsqueeze(0))
    return nn.functional.cross_entropy(logits, y.unsqueeze(0))


def probability(parameters, batch):
    return torch.exp(-loss(parameters, batch))


def correlate(first, second):
    return torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1].item()


def tracin(**options):
    return TracInAttributor(task, torch.ones(1), normalized_grad=False, **options)


task = AttributionTask(loss_func=loss, model=model, checkpoints=model.state_dict())
rows = []
for x, y in zip(inputs, labels):
    grads = torch.autograd.grad(loss(dict(model.named_parameters()), (x, y)), model.parameters())
    rows.append(torch.cat([grad.flatten() for grad in grads]))
exact = torch.stack(rows[:40]) @ torch.stack(rows[40:]).T

first = tracin()
before = first.attribute(train, test)
second = tracin(projector_kwargs={"proj_dim": 4, "proj_seed": 1})
other = second.attribute(train, test)
after = first.attribute(train, test)
third = tracin().attribute(train, test)
error = (before - exact).abs().max() / exact.abs().max()
print(f"TracIn without options: the largest error is {error:.1%} of the largest inner product")
print(f"another one with 4 dimensions is made; the first one again: equal to its own scores "
      f"{torch.equal(after, before)}, to those of the other {torch.equal(after, other)}; a third "
      f"one without options: {torch.equal(third, other)}")
assert 0.001 < error < 0.5
assert torch.equal(after, other) and torch.equal(third, other) and not torch.equal(after, before)
assert correlate(before, exact) > 0.98 > 0.9 > correlate(third, exact)


def trak(seed):
    return TRAKAttributor(task, correct_probability_func=probability, regularization=0.001,
                          projector_kwargs={"proj_dim": 256, "proj_seed": seed})


first = trak(0)
first.cache(train)
before = first.attribute(test)
again = correlate(before, first.attribute(test))
mixed = []
for seed in [1, 2, 3]:
    trak(seed)
    mixed.append(correlate(before, first.attribute(test)))
second = trak(1)
second.cache(train)
other = correlate(before, second.attribute(test))
print(f"TRAK, cached: correlation of its scores with their repetition {again:.2f}; with a TRAK of "
      f"another seed {other:.2f}; with their repetition after one of three others is made "
      + ", ".join(f"{value:.2f}" for value in mixed))
assert again > 0.999 and other > 0.85 and all(abs(value) < 0.4 for value in mixed)
PYTHON
