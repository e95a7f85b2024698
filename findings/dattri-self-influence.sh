#!/usr/bin/env bash
# dattri gives every sample the same self-influence if the loader has batches of one sample.
#
# Versions: dattri 0.3.0, torch 2.13.0, scipy 1.17.1.
# Guess before the run: `self_attribute(loader)` of an influence function is the diagonal of
#     `attribute(loader, loader)`, for each batch size. (That it is not was suspected after reading
#     the source.)
# Seen: each batch is added to the whole result. With one sample to a batch, which is DataLoader's
#     default, every sample has the sum over all; a mislabelled sample, which has the largest
#     self-influence otherwise, is not to be told from others. So it is with IFAttributorExplicit
#     and IFAttributorCG. One batch of all samples is right, other sizes raise an error, and
#     `attribute` is right with each.
# For gyre: it attributes nothing to samples. There, take the diagonal of `attribute`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 tqdm==4.70.1 \
    pyyaml==6.0.4
env/bin/pip install --quiet --no-compile --no-deps dattri==0.3.0
TQDM_DISABLE=1 env/bin/python -W ignore - <<'PYTHON'
import torch
from dattri.algorithm.influence_function import IFAttributorCG, IFAttributorExplicit
from dattri.task import AttributionTask
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

N_SAMPLES = 20
torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(N_SAMPLES, 3)
targets = inputs @ torch.tensor([[1.0], [2.0], [-1.0]]) + 0.1 * torch.randn(N_SAMPLES, 1)
targets[7] += 5  # a wrong label
data = TensorDataset(inputs, targets)
model = nn.Linear(3, 1, bias=False)
with torch.no_grad():
    model.weight.copy_(torch.linalg.lstsq(inputs, targets).solution.T)


def loss(parameters, batch):
    x, y = batch
    return (torch.func.functional_call(model, parameters, x) - y).square().mean()


# By hand: the gradient of a sample is 2 (wx - y) x, and the Hessian the mean of 2 x x'.
gradients = 2 * (model(inputs) - targets).detach() * inputs
hessian = 2 * inputs.T @ inputs / N_SAMPLES
due = (gradients * torch.linalg.solve(hessian, gradients.T).T).sum(1)

task = AttributionTask(loss_func=loss, model=model, checkpoints=model.state_dict())
for name, make in [("explicit", IFAttributorExplicit),
                   ("conjugate gradients", lambda task: IFAttributorCG(task, max_iter=3))]:
    for size in [N_SAMPLES, 1]:
        attributor = make(task)
        attributor.cache(DataLoader(data, batch_size=N_SAMPLES))
        loader = DataLoader(data, batch_size=size)
        diagonal = attributor.attribute(loader, loader).diagonal()
        seen = attributor.self_attribute(loader)
        assert torch.allclose(diagonal, due, rtol=1e-3, atol=1e-5)
        print(f"{name}, batches of {size}: the mislabelled sample has "
              f"{seen[7]:.3f}, the others {min(seen[:7].min(), seen[8:].min()):.3f} to "
              f"{max(seen[:7].max(), seen[8:].max()):.3f}; the diagonal of attribute has "
              f"{diagonal[7]:.3f}, and {due.sum():.3f} for all together")
        if size == 1:
            assert torch.equal(seen, seen[:1].expand(N_SAMPLES))
            assert torch.allclose(seen, due.sum(), rtol=1e-3)
        else:
            assert torch.allclose(seen, due, rtol=1e-3, atol=1e-5)
assert due.argmax() == 7 and due[7] > 5 * due[torch.arange(N_SAMPLES) != 7].max()
PYTHON
