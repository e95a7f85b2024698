#!/usr/bin/env bash
# The gradient of the thresholds of overcomplete's JumpReLU is 2000 times too large by default.
#
# Versions: overcomplete 0.3.0, torch 2.13.0, einops 0.8.2.
# Guess before the run: averaged over many inputs, the pseudo-gradient is the derivative of the
#     expectation, as in the JumpReLU paper; the bandwidth trades noise for bias and leaves its size
#     as it is. (That it does not was suspected after reading the source.)
# Seen: the kernels are divided by the bandwidth already, and their value is divided by it once
#     more. With the rectangle, the gradient is 1000 times the derivative for a bandwidth of 0.001,
#     and 100 times for 0.01; with the default kernel 2000 and 200 times. heaviside(), for penalties
#     on the number of active latents, does so too. In a new JumpSAE with default values, the
#     thresholds have 99.7 % of the squared gradient norm, and the norm of 1 to which train_sae
#     clips all gradients together leaves a third of those of encoder and dictionary.
# For gyre: it trains no autoencoders. There, clip the thresholds apart, and give them a rate of
#     their own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 einops==0.8.2 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps overcomplete==0.3.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import sys
import sysconfig
import types

import torch

# The modules alone, without the imports of the package's vision models.
root = sysconfig.get_path("purelib") + "/overcomplete"
for name, path in [("overcomplete", root), ("overcomplete.sae", root + "/sae")]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from overcomplete.sae import kernels
from overcomplete.sae.jump_sae import JumpSAE, heaviside, jump_relu

THRESHOLD = 0.5
torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(1_000_000, 1).abs()
density = (2 / torch.pi) ** 0.5 * torch.tensor(-THRESHOLD**2 / 2).exp().item()
ratios = {}
for kernel in ["rectangle_kernel", "silverman_kernel"]:
    for bandwidth in [0.001, 0.01, 0.1]:
        found = []
        for function, due in [(jump_relu, -THRESHOLD * density), (heaviside, -density)]:
            threshold = torch.tensor([THRESHOLD], requires_grad=True)
            kernel_function = getattr(kernels, kernel)
            output = function(x, threshold, kernel_function, torch.tensor(bandwidth))
            output.mean().backward()
            found.append(threshold.grad.item() / due)
        ratios[kernel, bandwidth] = found
        print(f"{kernel}, bandwidth {bandwidth}: gradient over derivative of the mean: "
              f"jump_relu {found[0]:.1f}, heaviside {found[1]:.1f}")
for (kernel, bandwidth), found in ratios.items():
    factor = 1 if kernel == "rectangle_kernel" else 2
    assert all(0.9 < ratio * bandwidth / factor < 1.1 for ratio in found)

directions = torch.nn.functional.normalize(torch.randn(200, 32), dim=1)
data = torch.relu(torch.randn(2000, 200)) * (torch.rand(2000, 200) < 0.03) @ directions
shares = {}
for bandwidth in [0.001, 0.1]:
    torch.manual_seed(1)
    model = JumpSAE(32, 200, bandwidth=bandwidth)
    _, _, reconstruction = model(data)
    (data - reconstruction).square().mean().backward()
    squares = {name: parameter.grad.square().sum().item()
               for name, parameter in model.named_parameters() if parameter.grad is not None}
    total = sum(squares.values())
    shares[bandwidth] = squares["thresholds"] / total, total**0.5
    print(f"new JumpSAE, bandwidth {bandwidth}: gradient norm {total**0.5:.2f}, of its square "
          f"{shares[bandwidth][0]:.1%} of the thresholds")
assert shares[0.001][0] > 0.98 and shares[0.001][1] > 2
assert shares[0.1][0] < 0.2 and shares[0.1][1] < 1
PYTHON
