#!/usr/bin/env bash
# omnimuon's Muon orthogonalizes embeddings, averages nothing, and no schedule reaches its matrices.
#
# Versions: omnimuon 0.1.2, torch 2.13.0.
# Guess before the run: a schedule that takes the rate to 0 stops all parameters, as the warm-up with cosine
#     decay that its README asks for needs; embeddings get AdamW, as its docstring says; with Nesterov's
#     momentum of 0.95, noise is averaged over some twenty steps. (The last two were suspected after reading
#     the source.)
# Seen: matrices have a rate of their own, `matrix_lr`, which torch's schedules do not know: at the end of a
#     cosine to 0 they take steps as long as at the start, and only biases stand still. An embedding is a
#     matrix, too, unless its parameter has an attribute `_is_embedding`, which is named nowhere: its first
#     step has equal singular values of 0.02, and AdamW's entries of 0.001 are nowhere. The gradient is added
#     to a mean of gradients that is as small as one of them: with ten times as much noise as signal, the
#     cosine between step and signal is 0.15, where Muon's own momentum has 0.45.
# For gyre: its schedule sets all rates, and its Muon takes no embeddings. There, take torch's Muon.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps omnimuon==0.1.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from omnimuon import Muon
from omnimuon.muon import zeropower_via_newtonschulz5
from torch import nn

RATE, MATRIX_RATE, MOMENTUM = 0.001, 0.02, 0.95
torch.set_num_threads(1)
torch.manual_seed(0)

model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 16))
tokens, targets = torch.arange(64), torch.randn(64, 16)
optimizer = Muon(model.parameters(), lr=RATE, matrix_lr=MATRIX_RATE, weight_decay=0.0)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
lengths = []
for step in range(101):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.zero_grad()
    (model(tokens) - targets).square().mean().backward()
    optimizer.step()
    changes = [new.detach() - old for new, old in zip(model.parameters(), before)]
    lengths.append([change.square().mean().sqrt().item() for change in changes])
    if step == 0:
        values = torch.linalg.svdvals(changes[0]) / MATRIX_RATE
        entries = changes[0].abs() / RATE
    if step < 100:
        schedule.step()
print(f"first step of the embedding: singular values of {values.min():.2f} to {values.max():.2f} times "
      f"the rate of matrices, entries of {entries.min():.3f} to {entries.max():.2f} times AdamW's rate")
assert values.min() > 0.5 and values.max() < 1.5 and entries.max() > 3
print(f"rate after a cosine to 0: {optimizer.param_groups[0]['lr']:.6f}")
for name, first, last in zip(["embedding", "matrix", "bias"], lengths[0], lengths[-1]):
    print(f"{name}: step of {first:.6f} at the start, {last:.6f} at the end")
assert all(last > 0.7 * first for first, last in zip(lengths[0][:2], lengths[-1][:2]))
assert lengths[-1][2] == 0


def cosine(left, right):
    """Return the cosine between two matrices."""
    return (left * right).sum() / left.norm() / right.norm()


signal = torch.linalg.qr(torch.randn(32, 32)).Q
noise = 10 * torch.randn(400, 32, 32) * signal.square().mean().sqrt()
weight = nn.Parameter(torch.zeros(32, 32))
optimizer = Muon([weight], matrix_lr=MATRIX_RATE, momentum=MOMENTUM, weight_decay=0.0)
buffer = torch.zeros(32, 32)
seen, due = [], []
for step in range(400):
    before = weight.detach().clone()
    weight.grad = signal + noise[step]
    optimizer.step()
    buffer = MOMENTUM * buffer + weight.grad
    direction = zeropower_via_newtonschulz5(weight.grad + MOMENTUM * buffer)
    if step >= 100:
        seen.append(cosine(before - weight.detach(), signal))
        due.append(cosine(direction, signal))
seen, due = torch.stack(seen).mean(), torch.stack(due).mean()
print(f"noisy gradient: cosine between step and signal {seen:.2f}, with Muon's own momentum {due:.2f}")
assert seen < 0.6 * due
PYTHON
