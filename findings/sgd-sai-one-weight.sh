#!/usr/bin/env bash
# SGD-SaI multiplies the learning rate of a parameter with one element by 100 million.
#
# Versions: sgd-sai 1.0.3, pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: a network with one output, whose last bias has one element, learns as one
#     without that bias, or as with SGD. (That it does not was suspected after reading the source.)
# Seen: each parameter's rate is multiplied by the norm of its first gradient over the deviation of
#     that gradient's elements. Of one element the deviation is NaN, which is replaced by 0, and
#     1e-8 is added: the factor is 1e8 times the gradient. A small regression has a loss of 0.94, of
#     5e8 after one step, and ends with NaN, with rates of 0.01 (the default) down to 0.0001.
#     Without the last bias it learns. SGDSaI of pytorch_optimizer learns with the bias too.
# For gyre: it has no such optimizer, and no parameter with one element. There, leave such
#     parameters to another optimizer, or take SGDSaI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sgd-sai==1.0.3 pytorch_optimizer==4.1.0 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io
import math

import pytorch_optimizer
import sgd_sai
import torch

N_STEPS = 300
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(512, 10, generator=generator)
targets = torch.tanh(inputs @ torch.randn(10, 1, generator=generator))
targets = targets + 0.1 * torch.randn(512, 1, generator=generator)


def train(optimizer_class, rate, has_bias):
    """Return the losses of a small regression whose last layer has one output."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.Tanh(),
                                torch.nn.Linear(32, 1, bias=has_bias))
    optimizer = optimizer_class(model.parameters(), lr=rate)
    losses = []
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a banner
        for _ in range(N_STEPS):
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


for name, optimizer_class in [
        ("torch.optim.SGD", torch.optim.SGD),
        ("SGDSaI of pytorch_optimizer", pytorch_optimizer.SGDSaI),
        ("SGD_sai of sgd-sai", sgd_sai.SGD_sai)]:
    for has_bias in [False, True]:
        for rate in [1e-2, 1e-3, 1e-4]:
            losses = train(optimizer_class, rate, has_bias)
            print(f"{name}, rate {rate:g}, {'with' if has_bias else 'without'} the last bias: loss "
                  f"{losses[0]:.3g}, after one step {losses[1]:.3g}, after {N_STEPS} "
                  f"{losses[-1]:.3g}")
            if name == "SGD_sai of sgd-sai" and has_bias:
                assert losses[1] > 1e3 * losses[0] and math.isnan(losses[-1])
            else:
                assert losses[-1] < losses[1] < losses[0] < 1
PYTHON
