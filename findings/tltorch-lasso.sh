#!/usr/bin/env bash
# In TensorLy-Torch, the lasso of a CP tensor shrinks weights that no tensor has.
#
# Versions: tensorly-torch 0.5.0, tensorly 0.10.0, torch 2.13.0.
# Guess before the run: `tensor_lasso(factorization)` gives each component of a tensor a weight, and
#     its loss is the penalty times their mean size: training with it switches off the components
#     that are not needed. (That it does not with CP was suspected after reading the source.)
# Seen: with Tucker and tensor trains it does: with weights of 0 the tensor is 0. With CP, the
#     default, the weights are parameters beside the tensor: it is the same, bit for bit, for any
#     weights, and their gradient comes from the penalty alone, which is taken twice (0.0001 for
#     0.01). So all of them fall to 0, needed or not, the loss says that the tensor is sparse, and
#     all components stay.
# For gyre: it factorizes no weights. There, take the L1 norm of `weight.weights` as the penalty.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 tensorly-torch==0.5.0 \
    tensorly==0.10.0 numpy==2.4.6 scipy==1.17.1 opt-einsum==3.4.0 packaging==26.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from tltorch import FactorizedTensor
from tltorch.tensor_hooks import tensor_lasso

SHAPE, PENALTY = (8, 8, 8), 0.01
torch.set_num_threads(1)


def flatten(weights):
    """Return the lasso weights of all modes in one vector."""
    parts = [weights] if torch.is_tensor(weights) else list(weights)
    return torch.cat([part.detach().flatten() for part in parts])


def run(factorization, rank):
    """Return size of the tensor for three weights, the first penalty, and the end of a training."""
    torch.manual_seed(0)
    target = FactorizedTensor.new(SHAPE, rank=2, factorization="cp").normal_(0, 1)
    target = target.to_tensor().detach()
    tensor = FactorizedTensor.new(SHAPE, rank=rank, factorization=factorization)
    tensor.normal_(0, 1)
    full = tensor.to_tensor().detach()
    lasso = tensor_lasso(factorization, penalty=PENALTY)
    lasso.apply(tensor)
    penalty = (tensor(), lasso.loss)[1].item()
    sizes = []
    for value in (1.0, 0.5, 0.0):
        lasso.set_weights(tensor, value)
        sizes.append((tensor().to_tensor().norm() / full.norm()).item())
    lasso.set_weights(tensor, 1.0)
    optimizer = torch.optim.Adam(tensor.parameters(), 0.01)
    for _ in range(1000):
        lasso.reset()
        loss = (tensor().to_tensor() - target).square().mean() + lasso.loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        error = ((tensor().to_tensor() - target).norm() / target.norm()).item()
    return sizes, penalty, flatten(tensor.lasso_weights), error


for factorization, rank in [("cp", 8), ("tucker", (8, 8, 8)), ("tt", (1, 8, 8, 1))]:
    sizes, penalty, weights, error = run(factorization, rank)
    n_zero = (weights <= 0.01).sum().item()
    print(f"{factorization}: size with weights 1, 0.5, 0: {[round(size, 3) for size in sizes]}; "
          f"penalty with weights of 1: {penalty:.2g} (due {PENALTY})\n"
          f"    after a training for a tensor of rank 2: {n_zero} of {len(weights)} weights "
          f"are 0, the relative error is {error:.3f}")
    if factorization == "cp":
        assert sizes == [1, 1, 1] and n_zero == len(weights) and error < 0.1
        assert abs(penalty / PENALTY**2 - 1) < 1e-4
    else:
        assert sizes[2] == 0 and n_zero < len(weights) and error < 0.5
        assert abs(penalty / PENALTY - 1) < 1e-4
PYTHON
