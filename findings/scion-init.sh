#!/usr/bin/env bash
# HeavyBall's Scion replaces the weights of the model by others in its first step.
#
# Versions: heavyball 3.2.1, torch 2.13.0.
# Guess, written down after a first look: an optimizer begins from the weights that it is given; its
#     first step goes a small way from them.
# Seen: the first step draws new weights: matrices and convolutions become orthogonal ones, biases
#     and the weights of norms become 0. So a pretrained layer is gone, with a learning rate of 0
#     too, and a norm gives 0. The seed is the place of the parameter in its group: torch's seed
#     changes nothing, and runs with different seeds begin with the same weights. Neither the README
#     nor the docstring says so. A state that is loaded keeps the weights.
# For gyre: it has no Scion. There, take Muon for a model that has learned something, and set the
#     weights of norms to 1 after the first step.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile heavyball==3.2.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import heavyball
import heavyball.utils
import torch
from torch import nn

WIDTH = 32
heavyball.utils.compile_mode = None  # the same steps, without a compiler
torch.set_num_threads(1)


def step(seed, optimizer_class, learning_rate):
    """Return the layers before and after one step."""
    torch.manual_seed(seed)
    before = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH))
    nn.init.normal_(before[1].bias)
    after = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH))
    after.load_state_dict(before.state_dict())
    optimizer = optimizer_class(after.parameters(), lr=learning_rate)
    for weight in after.parameters():
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    return before, after


matrices = {}
for name, optimizer_class in [("Muon", heavyball.Muon), ("Scion", heavyball.Scion)]:
    for seed in [0, 1]:
        before, after = step(seed, optimizer_class, 0.0)
        same = torch.cosine_similarity(before[1].weight.flatten(), after[1].weight.flatten(), 0)
        matrices[name, seed] = after[1].weight.detach()
        product = after[1].weight @ after[1].weight.T
        orthogonal = torch.allclose(product, torch.eye(WIDTH), atol=1e-4)
        norm = after[0].weight.abs().max().item()
        bias = after[1].bias.abs().max().item()
        print(f"{name}, seed {seed}, one step at learning rate 0: the matrix has a cosine of "
              f"{same.item():.3f} with the old one, orthogonal: {orthogonal}; the largest weight "
              f"of the norm is {norm:.0f}, of the bias {bias:.1f}")
        if name == "Muon":
            assert same > 0.9999 and norm == 1 and bias > 1
        else:
            assert abs(same) < 0.2 and orthogonal and norm == 0 and bias == 0
equal = torch.equal(matrices["Scion", 0], matrices["Scion", 1])
print(f"Scion, the matrix after the step is the same with both seeds: {equal}")
assert equal and not torch.equal(matrices["Muon", 0], matrices["Muon", 1])

before, after = step(0, heavyball.Scion, 0.0025)
x = torch.randn(1000, WIDTH)
print(f"Scion, one step at its default rate: the layers' output has a deviation of "
      f"{before(x).std().item():.3f} before, {after(x).std().item():.4f} after")
assert after(x).std() < 0.05 * before(x).std()
PYTHON
