#!/usr/bin/env bash
# unit-scaling's `simulate_format` rounds stochastically whatever rounding its formats ask for.
#
# Versions: unit-scaling 0.3.5, torch 2.13.0, numpy 2.4.6.
# Guess before the run: with FPFormat(4, 3, rounding="nearest"), `simulate_format` gives the outputs
#     of weights and inputs that `quantise` of that format has rounded, the same in each pass;
#     `quantise` rounds ties to even, like torch.float8_e4m3fn, and keeps shapes in bfloat16 as in
#     float32. (That none of it holds was suspected after reading the source.)
# Seen: only the numbers of bits reach the layers: the rounding is stochastic for each format, so
#     that two passes differ, and the error is 1.4 times that of rounding to nearest. `quantise`
#     rounds ties to zero: none of those below 2 goes up, where every other one is due. A tensor in
#     bfloat16 comes out half as wide: two neighbours are read as one float32. As inputs and weights
#     are so alike, a layer gives an output of the right shape, with an error of more than half.
# For gyre: it simulates no formats. There, use float32, and round by hand before F.linear.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps unit-scaling==0.3.5
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2 \
    docstring-parser==0.18.0 tabulate==0.10.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
import torch.nn.functional as F
from torch import nn
from unit_scaling.formats import FPFormat
from unit_scaling.transforms import simulate_format

WIDTH, ROWS = 64, 256
torch.set_num_threads(1)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.linear(x)


def error(y):
    return ((y.float() - expected).norm() / expected.norm()).item()


model = Model()
weight = model.linear.weight
x = torch.randn(ROWS, WIDTH)
expected = model(x)
nearest = FPFormat(4, 3, rounding="nearest")
simulated = simulate_format(model, nearest, FPFormat(5, 2, rounding="nearest"))
first, second = simulated(x), simulated(x)
by_hand = F.linear(nearest.quantise(x), nearest.quantise(weight))
by_torch = F.linear(x.to(torch.float8_e4m3fn).float(), weight.to(torch.float8_e4m3fn).float())
difference = ((first - second).norm() / expected.norm()).item()
print(f"relative errors with E4M3 to nearest: simulate_format {error(first):.4f}, rounded by hand "
      f"{error(by_hand):.4f}, torch's float8 {error(by_torch):.4f}; two passes of simulate_format "
      f"differ by {difference:.4f}")
assert error(first) > 1.3 * error(by_hand) and difference > 0.05
assert abs(error(by_hand) - error(by_torch)) < 0.002

ties = 1 + (2 * torch.arange(8) + 1) / 16
own, due = nearest.quantise(ties), ties.to(torch.float8_e4m3fn).float()
print(f"ties:           {ties.tolist()}\nrounded:        {own.tolist()}\ntorch's float8: {due.tolist()}")
assert (own < ties).all() and (due > ties).sum() == 4

rounded = nearest.quantise(x.bfloat16())
output = F.linear(rounded, nearest.quantise(weight.bfloat16()))
print(f"bfloat16: {tuple(x.shape)} becomes {tuple(rounded.shape)}, weights "
      f"{tuple(nearest.quantise(weight.bfloat16()).shape)}; the output has shape "
      f"{tuple(output.shape)} and a relative error of {error(output):.2f}")
assert rounded.shape == (ROWS, WIDTH // 2) and output.shape == expected.shape
assert error(output) > 0.5
PYTHON
