#!/usr/bin/env bash
# torchsurv's two-sided test of a Brier score has p = 1 for a score that is far above `null_value`.
#
# Versions: torchsurv 0.2.0, torchmetrics 1.9.0, torch 2.13.0, pydantic 2.14.4, scipy 1.17.1.
# Guess before the run: `p_value("parametric", "two_sided", null_value=b)` is 2 (1 - F(|z|)), where z is the
#     difference from b in standard errors. (That it is not was suspected after reading the source.)
# Seen: it is mirrored at a score of 0.5, whatever `null_value` is. A model with a score of 0.38, which is 9
#     standard errors above the 0.25 of a model that always says 0.5, has p = 1, where 0 is due in float32;
#     one that is as far below has 0. With the bootstrap it is the same: predictions that are
#     worse than permuted ones in all of 199 permutations have p = 1. "greater" and "less" are right.
# For gyre: it fits no survival models. There, take twice the smaller one of the one-sided p-values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 scipy==1.17.1 numpy==2.4.6 \
    pandas==2.3.3 pydantic==2.14.4 packaging==26.4
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchsurv==0.2.0 torchmetrics==1.9.0 \
    lightning-utilities==0.15.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from torchsurv.metrics.brier_score import BrierScore

N = 300
NULL = 0.25
normal = torch.distributions.Normal(0.0, 1.0)
torch.manual_seed(0)

for name, truth in [("better", 0.9), ("worse", 0.35)]:
    # All are observed until 1 at least: the score at 1 is the mean of squared differences.
    said = 0.5 + 0.4 * (2 * torch.rand(N) - 1).sign() * torch.rand(N)
    right = torch.where(said > 0.5, torch.tensor(truth), torch.tensor(1 - truth))
    alive = torch.rand(N) < right
    time = torch.where(alive, torch.tensor(2.0), torch.tensor(0.5))
    metric = BrierScore()
    score = metric(said[:, None], ~alive, time, torch.tensor([1.0]))
    errors = (said - alive.float()).double() ** 2
    assert abs(float(score) - float(errors.mean())) < 1e-4
    z = (errors.mean() - NULL) / (errors.std() / N**0.5)
    due = 2 * float(normal.cdf(-z.abs()))
    seen = float(metric.p_value("parametric", "two_sided", null_value=NULL))
    less = float(metric.p_value("parametric", "less", null_value=NULL))
    greater = float(metric.p_value("parametric", "greater", null_value=NULL))
    sampled = float(metric.p_value("bootstrap", "two_sided", n_bootstraps=199))
    # The bootstrap's null is the same predictions for other subjects.
    permuted = [float(((said[torch.randperm(N)] - alive.float()) ** 2).mean()) for _ in range(199)]
    share = sum(value >= float(score) for value in permuted) / 199
    print(f"{name}: score {float(score):.3f}, {float(z):.1f} standard errors from {NULL}; two-sided p = "
          f"{seen:.1e}, due {due:.1e}; less {less:.1e}, greater {greater:.1e}; by the bootstrap "
          f"{sampled:.3f}; {share:.0%} of permuted scores are as large")
    if name == "better":
        assert seen < 1e-3 and due < 1e-3 and sampled < 0.05
    else:
        assert seen == 1 and due < 1e-3 and greater < 1e-3 and sampled == 1 and share < 0.01
PYTHON
