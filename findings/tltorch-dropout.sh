#!/usr/bin/env bash
# In TensorLy-Torch, tensor dropout changes the mean of the weights, and has no effect in a TRL.
#
# Versions: tensorly-torch 0.5.0, tensorly 0.10.0, torch 2.13.0.
# Guess before the run: `tensor_dropout(weight, p, min_dim=d)` drops components of the modes with
#     more than d of them, keeps the others, and keeps the mean of the weights; a layer that has
#     such a weight drops. (That both are wrong was suspected after reading the source.)
# Seen: a Tucker tensor is divided by 1 - p for each mode, dropped or not. With p = 0.5 and the
#     ranks of a convolution (16, 16, 3, 3), the default min_dim of 3 makes the mean of the weights
#     4 times as large; if no mode has more than `min_dim` components, nothing is dropped, and all
#     weights are 16 times as large in training. Tensor trains have it too; CP does not. The tensor
#     regression layer (TRL), for which the paper made the method, never calls the hook: its passes
#     in training are equal, whatever p is.
# For gyre: it factorizes no weights. There, give a `min_dim` below the smallest rank, and take no
#     TRL.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 tensorly-torch==0.5.0 \
    tensorly==0.10.0 numpy==2.4.6 scipy==1.17.1 opt-einsum==3.4.0 packaging==26.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from tltorch import TRL, FactorizedConv, FactorizedTensor
from tltorch.tensor_hooks import tensor_dropout

N_DRAWS = 1000
torch.set_num_threads(1)
torch.manual_seed(0)


def measure_mean(factorization, rank, p, min_dim):
    """Return the mean weights of training, projected on the full weights: due 1."""
    weight = FactorizedTensor.new((16, 16, 3, 3), rank=rank, factorization=factorization)
    weight.normal_(0, 1)
    full = weight.to_tensor().detach()
    tensor_dropout(weight, p=p, min_dim=min_dim)
    weight.train()
    with torch.no_grad():
        assert torch.equal(weight.eval()().to_tensor(), full)  # no dropout in evaluation
        weight.train()
        draws = [weight().to_tensor() for _ in range(N_DRAWS)]
    mean = torch.stack(draws).mean(0)
    n_different = len({tuple(draw.flatten().tolist()) for draw in draws[:20]})
    return ((mean * full).sum() / full.square().sum()).item(), n_different


tucker, train = (16, 16, 3, 3), (1, 16, 9, 3, 1)
for factorization, rank, p, min_dim, due in [
        ("cp", 16, 0.5, 3, 1), ("tucker", tucker, 0.5, 3, 4), ("tucker", tucker, 0.5, 16, 16),
        ("tt", train, 0.5, 3, 2), ("tt", train, 0.5, 16, 8)]:
    scale, n_different = measure_mean(factorization, rank, p, min_dim)
    print(f"{factorization} of rank {rank}, p = {p}, min_dim = {min_dim}: "
          f"mean weights {scale:.2f} times the weights (due 1), "
          f"{n_different} of 20 draws differ")
    assert abs(scale / due - 1) < 0.15
    assert n_different == (1 if min_dim == 16 else 20)

convolution = FactorizedConv(8, 8, 3, order=2, factorization="tucker", rank=0.5)
regression = TRL((8, 8), (8,), factorization="tucker", rank=(8, 8, 8))
for name, layer, x in [("FactorizedConv", convolution, torch.randn(5, 8, 8, 8)),
                       ("TRL", regression, torch.randn(5, 8, 8))]:
    tensor_dropout(layer.weight, p=0.9)
    layer.train()
    equal = all(torch.equal(layer(x), layer(x)) for _ in range(10))
    print(f"{name} with p = 0.9: passes in training are equal: {equal}")
    assert equal == (name == "TRL")
PYTHON
