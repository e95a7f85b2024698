#!/usr/bin/env bash
# hessian-eigenthings gives a short last batch the weight of a full one: here half of all data.
#
# Versions: hessian-eigenthings 1.0.0a5, torch 2.13.0.
# Guess before the run: for a whole dataset, Hessian and empirical Fisher matrix are those of the
#     mean over all samples, as the documentation of the latter says, (1/N) sum g g^T, however they
#     are split into batches or microbatches. (The mean over batches was suspected after reading the
#     source.)
# Seen: with 65 samples, the largest eigenvalue of the Hessian of a linear regression is 3.2 with
#     one batch, which is exact, and with batches of 13; with batches of 64 it is 5.5, as the last
#     sample has half of the weight, and with microbatch_size=64 too. The Fisher matrix is off by a
#     half of its norm.
# For gyre: it computes no eigenvalues. There, take drop_last=True, or a batch size that divides.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hessian-eigenthings==1.0.0a5 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from hessian_eigenthings import (EmpiricalFisherOperator, HessianOperator, lanczos,
                                 supervised_loss, supervised_per_sample_loss)
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 8
N_SAMPLES = 65
torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(N_SAMPLES, WIDTH)
targets = torch.randn(N_SAMPLES, 1)
model = torch.nn.Linear(WIDTH, 1, bias=False)
mse = torch.nn.MSELoss()

residuals = model(inputs).detach() - targets
gradients = 2 * residuals * inputs
exact_hessian = 2 * inputs.T @ inputs / N_SAMPLES
exact_fisher = gradients.T @ gradients / N_SAMPLES


def matrix(operator):
    return torch.stack([operator.matvec(row) for row in torch.eye(WIDTH)]).detach()


for batch_size, microbatch_size in [(65, None), (13, None), (64, None), (65, 64)]:
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=batch_size)
    hessian = HessianOperator(model, loader, supervised_loss(mse), microbatch_size=microbatch_size)
    largest = lanczos(hessian, k=1, max_iter=WIDTH, seed=0).eigenvalues[0].item()
    exact = torch.linalg.eigvalsh(exact_hessian)[-1].item()
    print(f"batches of {batch_size}, microbatches of {microbatch_size}: largest eigenvalue of the "
          f"Hessian {largest:.2f}, of the exact one {exact:.2f}")
    # the weights that the samples have
    weights = torch.full([N_SAMPLES], 1 / N_SAMPLES)
    if 64 in [batch_size, microbatch_size]:
        weights[:64] = 0.5 / 64
        weights[64] = 0.5
        assert largest > 1.5 * exact
    else:
        assert abs(largest - exact) < 1e-3
    expected = 2 * (inputs * weights[:, None]).T @ inputs
    assert torch.allclose(matrix(hessian), expected, atol=1e-4)
    if microbatch_size is None:
        fisher = matrix(EmpiricalFisherOperator(model, loader, supervised_per_sample_loss(mse)))
        error = ((fisher - exact_fisher).norm() / exact_fisher.norm()).item()
        print(f"    relative error of the empirical Fisher matrix: {error:.3f}")
        assert error > 0.3 if batch_size == 64 else error < 1e-4
PYTHON
