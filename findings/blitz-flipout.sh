#!/usr/bin/env bash
# BLiTZ's Flipout adds the mean weights with random signs, and its Radial does nothing.
#
# Versions: blitz-bayesian-pytorch 0.2.8, torch 2.13.0, numpy 2.4.6.
# Guess before the run: outputs of Flipout(BayesianLinear) have the mean and the deviation of those
#     of BayesianLinear, as the paper that it names proves; Radial(BayesianLinear) draws weights one
#     sigma away from their means, however many they are. (That Flipout is too noisy and Radial
#     without effect was suspected after reading the source.)
# Seen: where the paper multiplies the perturbation of the weights by random signs, the wrapper
#     takes whole sampled weights. With initial sigmas of 0.001, outputs deviate by their own size
#     from call to call, 100 times as much as those of BayesianLinear. Trained on a linear function
#     without noise, the means end at half of the true weights, and the squared error of single
#     predictions at half of the variance. Radial sets a method of the layer that nothing calls: its
#     outputs are those of BayesianLinear with the same seed, bit for bit.
# For gyre: its weights have no distributions. There, take BayesianLinear as it is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps blitz-bayesian-pytorch==0.2.8
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from blitz.modules import BayesianLinear
from blitz.utils import Flipout, Radial

INPUTS, OUTPUTS, ROWS, DRAWS = 32, 8, 256, 400
torch.set_num_threads(1)
torch.manual_seed(0)
plain = BayesianLinear(INPUTS, OUTPUTS)
flipout = Flipout(BayesianLinear)(INPUTS, OUTPUTS)
flipout.load_state_dict(plain.state_dict())
x = torch.randn(ROWS, INPUTS)
deviations = {}
with torch.no_grad():
    for name, layer in [("BayesianLinear", plain), ("Flipout", flipout)]:
        outputs = torch.stack([layer(x) for _ in range(DRAWS)])
        deviations[name] = outputs.std(0).mean().item()
        print(f"{name}: mean outputs have a deviation of {outputs.mean(0).std():.3f} over the "
              f"rows; one output deviates by {deviations[name]:.4f} from call to call")
assert deviations["Flipout"] > 50 * deviations["BayesianLinear"]

truth = torch.randn(OUTPUTS, INPUTS)
for name, create in [("BayesianLinear", BayesianLinear), ("Flipout", Flipout(BayesianLinear))]:
    torch.manual_seed(1)
    layer = create(INPUTS, OUTPUTS, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(3000):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (1 - step / 3000)
        x = torch.randn(ROWS, INPUTS)
        loss = (layer(x) - x @ truth.T).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    slope = ((layer.weight_mu * truth).sum() / truth.square().sum()).item()
    share = (loss / (x @ truth.T).square().mean()).item()
    print(f"{name}, trained on a linear function: mean weights are {slope:.3f} of the true ones, "
          f"the error is {share:.3f} of the variance")
    if name == "Flipout":
        assert abs(slope - 0.5) < 0.03 and abs(share - 0.5) < 0.05
    else:
        assert abs(slope - 1) < 0.01 and share < 0.01

draws = []
for wrap in [False, True]:
    layer_class = Radial(BayesianLinear) if wrap else BayesianLinear
    torch.manual_seed(2)
    layer = layer_class(INPUTS, OUTPUTS, posterior_rho_init=0)
    draws.append(layer(x))
distance = (layer.weight_sampler.w - layer.weight_mu).norm().item()
sigma = layer.weight_sampler.sigma.mean().item()
print(f"Radial: outputs equal those of BayesianLinear: {torch.equal(*draws)}; weights are "
      f"{distance:.1f} away from their means, with sigmas of {sigma:.2f}")
assert torch.equal(*draws) and distance > 10 * sigma
PYTHON
