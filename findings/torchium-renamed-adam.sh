#!/usr/bin/env bash
# torchium's Adai and AdaPNM are Adam, rewritten, and AccSGD is SGD with momentum.
#
# Versions: torchium 0.1.5, torch 2.13.0, numpy 2.4.6.
# Guess, written after a first comparison of all its optimizers: each of them takes other steps than Adam
#     and SGD. Adai "disentangles the effects of adaptive learning rate and momentum", so that its steps
#     are longer for larger gradients; AdaPNM weighs positive and negative momentum; AccSGD depends on
#     `kappa` and `xi`.
# Seen: after 200 steps of a network, the weights by Adai and AdaPNM are those of torch's Adam to 1e-6.
#     Gradients that are 1,000 times larger change nothing in Adai's steps. The weights by AccSGD are
#     those of SGD with a momentum of 0.9, to the last bit, whatever `kappa` and `xi` are.
# Cause: Adai's inertia, beta (1 - beta^(t-1)) / (1 - beta^t), is the recursion of Adam's corrected
#     average. AdaPNM averages the positive and the negative part of the gradient, and adds both
#     averages (torchium/optimizers/adaptive/adagrad_variants.py). AccSGD does not read its options
#     (torchium/optimizers/specialized/general.py).
# For gyre: it has AdamW and Muon. There, take the authors' optimizers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torchium==0.1.5 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

import torch

with contextlib.redirect_stdout(io.StringIO()):
    from torchium.optimizers import AccSGD, AdaPNM, Adai

torch.set_num_threads(1)


def train(kind, scale=1.0, **options):
    """Return how far each weight of a network has gone in 200 steps of a loss that is multiplied by scale."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    inputs, labels = torch.randn(64, 8), torch.randint(3, (64,))
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = kind(model.parameters(), lr=1e-3, **options)
    for _ in range(200):
        optimizer.zero_grad()
        (scale * torch.nn.functional.cross_entropy(model(inputs), labels)).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach() - start


adam = train(torch.optim.Adam)
for kind in [Adai, AdaPNM]:
    way = train(kind)
    print(f"{kind.__name__}: weights go up to {way.abs().max():.2f}; away from Adam's {(way - adam).abs().max():.1e}")
    assert adam.abs().max() > 0.1 and torch.allclose(way, adam, atol=2e-6)

small, large = train(Adai), train(Adai, scale=1000.0)
sgd_small, sgd_large = train(torch.optim.SGD), train(torch.optim.SGD, scale=1000.0)
print(f"a loss times 1000: Adai goes {large.norm() / small.norm():.3f} times as far, SGD "
      f"{sgd_large.norm() / sgd_small.norm():.0f} times")
assert torch.allclose(small, large, atol=1e-3) and sgd_large.norm() > 20 * sgd_small.norm()

heavy = train(torch.optim.SGD, momentum=0.9)
for options in [{}, {"kappa": 1.0, "xi": 1.0}, {"kappa": 1e5, "xi": 300.0}]:
    same = torch.equal(train(AccSGD, **options), heavy)
    print(f"AccSGD {options}: bits of SGD with momentum 0.9: {same}")
    assert same
PYTHON
