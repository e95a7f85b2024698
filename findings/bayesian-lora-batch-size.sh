#!/usr/bin/env bash
# bayesian-lora's predictive variance grows with the batch size of the loader of training data.
#
# Versions: bayesian-lora 0.0.6, transformers 4.57.6, torch 2.13.0.
# Guess before the run: the Kronecker factors are those of the training data, so that the variance
#     of a prediction does not depend on the loader's batch size: a comment there says so of the
#     gradients. It is near that of a Laplace approximation with the exact Gauss-Newton matrix.
#     (That it is not was suspected after reading the source.)
# Seen: with batches of 1, the variance of the difference of two logits is 0.37, where the exact
#     matrix gives 0.39; with 4, 16 and 64 it is 1.4, 4.7 and 11.8. Gradients of the mean loss of a
#     batch are squared, and their sum is not multiplied by the batch size: the curvature is that of
#     one example for each batch. The last batches are full, as the documentation demands.
# For gyre: it has no adapters. There, calculate the factors with batches of 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile bayesian-lora==0.0.6 transformers==4.57.6 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import types

import torch
from bayesian_lora import (calculate_kronecker_factors, cholesky_decompose_small_factors,
                           variance)
from torch import nn
from torch.func import functional_call, jacrev

RANK = 4
WIDTH = 24
N_CLASSES = 3
N_TRAIN = 512
PRIOR_VARIANCE = torch.tensor(1.0)
torch.set_num_threads(1)


class Model(nn.Module):
    """A classifier of texts of one token (B, 1, WIDTH) with a LoRA adapter."""

    def __init__(self):
        super().__init__()
        self.lora_A = nn.Linear(WIDTH, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, N_CLASSES)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = noise / parameter.shape[-1] ** 0.5
        self.head.requires_grad_(False)

    def forward(self, x):
        return self.head(x + self.lora_B(self.lora_A(x)))[:, -1]


def contrast(covariance):
    """Return the mean variance of the difference of the first two logits."""
    return (covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]).mean().item()


model = Model()
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(N_TRAIN, 1, WIDTH, generator=generator)
test_inputs = torch.randn(5, 1, WIDTH, generator=generator)
adapter = {name: parameter.detach() for name, parameter in model.named_parameters()
           if "lora" in name}
test_jacobian = jacrev(lambda p: functional_call(model, p, (test_inputs,)))(adapter)

# the exact Gauss-Newton matrix of each layer, in float64
jacobian = jacrev(lambda p: functional_call(model, p, (inputs,)))(adapter)
probabilities = model(inputs).softmax(-1).detach().double()
curvature = torch.diag_embed(probabilities) - probabilities[:, :, None] * probabilities[:, None, :]
exact = 0
for name in adapter:
    train_rows = jacobian[name].flatten(2).double()
    test_rows = test_jacobian[name].flatten(2).double()
    precision = torch.einsum("ncp,ncd,ndq->pq", train_rows, curvature, train_rows)
    precision += torch.eye(len(precision)) / PRIOR_VARIANCE
    covariance = torch.linalg.inv(precision)
    exact = exact + torch.einsum("ncp,pq,ndq->ncd", test_rows, covariance, test_rows)
print(f"the exact Gauss-Newton matrix: the difference of two logits has variance "
      f"{contrast(exact):.3f}")

seen = {}
for batch_size in [1, 4, 16, 64]:
    torch.manual_seed(0)  # labels are sampled
    loader = torch.utils.data.DataLoader(inputs, batch_size=batch_size)
    # the rank of the large factors is their width, so that nothing is lost
    factors = calculate_kronecker_factors(
        model, lambda model, batch: model(batch), loader, n_kfac=WIDTH, lr_threshold=10,
        target_module_keywords=["lora"])
    factors = cholesky_decompose_small_factors(factors, 10, "cpu", torch.float32)
    tokens = types.SimpleNamespace(input_ids=torch.zeros(len(test_inputs), 1))
    seen[batch_size] = contrast(variance(
        tokens, test_jacobian, factors, PRIOR_VARIANCE, N_CLASSES, RANK, WIDTH, "cpu"))
    print(f"factors of the same {N_TRAIN} examples in batches of {batch_size}: "
          f"{seen[batch_size]:.3f}")
assert 0.8 < seen[1] / contrast(exact) < 1.2
assert seen[4] > 3 * seen[1] and seen[16] > 9 * seen[1] and seen[64] > 20 * seen[1]
PYTHON
