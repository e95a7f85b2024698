#!/usr/bin/env bash
# With FairGrad of torchjd, steps get longer as gradients get shorter.
#
# Versions: torchjd 0.18.0, torch 2.13.0, scipy 1.17.1.
# Guess before the run: a step is a weighted mean of the gradients, as with the other aggregators: gradients a
#     tenth as long make steps a tenth as long, and gradient descent comes to rest in a common minimum.
#     (That the length is another one was suspected after a run of all aggregators on scaled gradients.)
# Seen: with `alpha=2`, the paper's value, gradients 1,000 times shorter make steps 10 times longer, in line
#     with the paper's equation; with 4, they are 63 times longer; with 1, all steps have one length. Gradient
#     descent jumps around a common minimum at a distance of 0.02 to 0.4 for ever, where the sum of the
#     gradients gets to 0. Below a length of about 0.003, steps change again: the equation isn't solved any more.
# For gyre: it has one loss. There, use an optimizer that normalizes steps, as Adam, or clip them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchjd==0.18.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from torchjd.aggregation import FairGrad, Sum

torch.set_num_threads(1)
torch.manual_seed(0)
gradients = torch.randn(3, 1000) + 0.3
print("alpha: length of the step for gradients times 1, 0.1, 0.01, 0.001, 1e-6; error of the equation there")
for alpha in [1.0, 2.0, 4.0]:
    lengths, errors = [], []
    for scale in [1.0, 0.1, 0.01, 0.001, 1e-6]:
        matrix = scale * gradients
        step = FairGrad(alpha)(matrix)
        weights = torch.linalg.lstsq(matrix.T.double(), step[:, None].double()).solution[:, 0]
        projections = matrix.double() @ matrix.double().T @ weights
        errors.append((projections * weights ** (1 / alpha) - 1).abs().max().item())
        lengths.append(step.norm().item())
    print(f"{alpha}: " + ", ".join(f"{length:.3f}" for length in lengths) + "; "
          + ", ".join(f"{error:.0e}" for error in errors))
    due = 1000 ** ((alpha - 1) / (alpha + 1))
    assert max(errors[:4]) < 1e-3 and abs(lengths[3] / lengths[0] / due - 1) < 0.01 and errors[4] > 0.9


def descend(aggregator, rate, n_steps=1000):
    """Return the distance from the common minimum of three bowls after gradient descent."""
    torch.manual_seed(1)
    bowls = torch.rand(3, 50) + 0.5
    weights = torch.ones(50)
    distances = []
    for _ in range(n_steps):
        weights = weights - rate * aggregator(bowls * weights)
        distances.append(weights.norm().item())
    return distances


fair, plain = descend(FairGrad(2.0), 0.05), descend(Sum(), 0.05)
print("distance from the minimum after 100, 400, 700, 1000 steps")
for name, distances in [("FairGrad", fair), ("Sum", plain)]:
    print(f"{name}: " + ", ".join(f"{distances[step - 1]:.1e}" for step in [100, 400, 700, 1000]))
assert sorted(fair[500:])[250] > 0.01 and plain[-1] < 1e-6
PYTHON
