#!/usr/bin/env bash
# torch-ks-nf4's linear layer drops the scale of its weights: outputs are sqrt(n) times as large.
#
# Versions: torch-ks-nf4 0.1.5, torch 2.13.0.
# Guess before the run: `NF4Linear` has the outputs of the `nn.Linear` it is made from, up to an error of 10 %, and
#     takes about a quarter of half-precision memory. (That the scale isn't kept was read before the run.)
# Seen: outputs have the direction of nn.Linear's, with a cosine of 0.995, and are 8 times as large for 64 inputs,
#     23 times for 512: the largest of PyTorch's initial weights, 1 / sqrt(n), has become 1. Multiplied by the
#     largest weight, they are right within 10 %. The table has 0.558 and 0.689 where NF4 has 0.563 and 0.723. The
#     float32 weights stay: a layer takes 4.5 bytes for each weight, more than without quantization.
# Cause: `NF_Format` divides the tensor by its largest magnitude and returns the codes alone; `NF4_unpack` looks up
#     values between -1 and 1 (torch_ks_nf4/modules.py). There are no blocks: one magnitude counts for a matrix.
# For gyre: its exports are not quantized. There, take bitsandbytes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 torch-ks-nf4==0.1.5
export OMP_NUM_THREADS=1
"$folder/env/bin/python" - <<'PYTHON'
import torch
import torch.nn.functional as F
from torch_ks_nf4 import NF4Linear

# quantiles of the paper, as in its reference implementation
NF4 = torch.tensor([-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0, 0.0795803,
                    0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0])

for n_inputs in [64, 512]:
    torch.manual_seed(0)
    quantized = NF4Linear(n_inputs, 256, bias=False)
    torch.manual_seed(0)
    plain = torch.nn.Linear(n_inputs, 256, bias=False)
    assert torch.equal(quantized.weight[0], plain.weight)
    inputs = torch.randn(32, n_inputs)
    with torch.no_grad():
        found, due = quantized(inputs), plain(inputs)
    ratio = (found.std() / due.std()).item()
    largest = plain.weight.abs().max().item()
    error = ((found * largest - due).norm() / due.norm()).item()
    cosine = F.cosine_similarity(found.flatten(), due.flatten(), dim=0).item()
    n_bytes = sum(tensor.nbytes for tensor in [quantized.weight, quantized.packed_weight]) / quantized.weight.numel()
    print(f"{n_inputs} inputs: outputs are {ratio:.1f} times as large, cosine {cosine:.3f}; with the scale, an error of "
          f"{error:.3f}; {n_bytes} bytes for each weight")
    assert 0.98 < ratio / n_inputs**0.5 < 1.03 and cosine > 0.99 and error < 0.11 and n_bytes == 4.5

table = quantized.quantizer.nf4_codebook.float()
print("codes that are not NF4's:", [f"{code:.3f} for {due:.3f}" for code, due in zip(table, NF4) if abs(code - due) > 0.003])
assert (abs(table - NF4) > 0.003).nonzero().flatten().tolist() == [13, 14]
PYTHON
