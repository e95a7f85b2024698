#!/usr/bin/env bash
# In laplace-torch, a regression with ten outputs is trained with a prior ten times as strong.
#
# Versions: laplace-torch 0.3, torch 2.13.0.
# Guess before the run: `marglik_training` of a linear regression ends at the maximum of the
#     posterior, which is ridge regression, with any number of outputs: outputs that are copies of
#     one have the weights that it has alone. (That they have not was suspected after reading the
#     source.)
# Seen: with one output it is ridge regression to five digits. With D outputs it is that with D
#     times the prior precision, to five digits too: the squared error is a mean over samples and
#     outputs, and the prior is divided by the number of samples alone. With 10 outputs and a
#     precision of 10, a weight of 0.86 becomes 0.35. The Laplace approximation that is returned, and
#     its marginal likelihood, have the precision as given, and so are not taken at the maximum.
# For gyre: it has no such training. There, train each output alone, or the model by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 \
    tqdm==4.67.1 opt-einsum==3.4.0 torchmetrics==1.9.0 einops==0.8.2 einconv==0.1.0 \
    linear-operator==0.6.1 jaxtyping==0.3.11
"$folder/env/bin/pip" install --quiet --no-compile --no-deps laplace-torch==0.3 asdfghjkl==0.1a4 \
    curvlinops-for-pytorch==3.0.1 backpack-for-pytorch==1.7.1 unfoldNd==0.2.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from laplace import marglik_training
from torch.utils.data import DataLoader, TensorDataset

N_SAMPLES, N_EPOCHS, PRECISION = 50, 600, 10.0
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(N_SAMPLES, 3)
y = x @ torch.tensor([[1.0], [2.0], [-1.0]]) + 0.5 * torch.randn(N_SAMPLES, 1)


def solve_ridge(precision):
    """Return the weights of the maximum of the posterior with unit noise."""
    return torch.linalg.solve(x.T @ x + precision * torch.eye(3), x.T @ y).flatten()


def train(n_outputs):
    """Train on copies of one output with fixed precision. Return weights and precision."""
    data = TensorDataset(x, y.repeat(1, n_outputs))
    posterior, model, _, _ = marglik_training(
        torch.nn.Linear(3, n_outputs, bias=False), DataLoader(data, N_SAMPLES),
        likelihood="regression", hessian_structure="diag", optimizer_kwargs={"lr": 0.05},
        n_epochs=N_EPOCHS, n_epochs_burnin=N_EPOCHS, n_hypersteps=1, lr_hyp=0.0,
        prior_structure="scalar", prior_prec_init=PRECISION, sigma_noise_init=1.0,
        fix_sigma_noise=True)
    return model.weight.detach(), posterior.prior_precision.item()


for n_outputs in (1, 3, 10):
    weights, precision = train(n_outputs)
    due, stronger = solve_ridge(PRECISION), solve_ridge(n_outputs * PRECISION)
    print(f"{n_outputs} equal outputs, prior precision {precision:.4g}: weights of the first "
          f"{[round(w, 4) for w in weights[0].tolist()]}\n"
          f"    ridge regression with {PRECISION:g}: {[round(w, 4) for w in due.tolist()]}, "
          f"with {n_outputs * PRECISION:g}: {[round(w, 4) for w in stronger.tolist()]}")
    assert abs(precision / PRECISION - 1) < 1e-4
    assert torch.allclose(weights, stronger.expand_as(weights), atol=1e-3)
    if n_outputs > 1:
        assert (weights - due).abs().max() > 0.2
PYTHON
