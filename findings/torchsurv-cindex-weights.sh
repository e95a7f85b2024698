#!/usr/bin/env bash
# In torchsurv's bootstrap of a weighted concordance index, subjects have the weights of others.
#
# Versions: torchsurv 0.2.0, torchmetrics 1.9.0, torch 2.13.0, pydantic 2.14.4, scipy 1.17.1.
# Guess before the run: `confidence_interval(method="bootstrap")` draws subjects with their weights
#     against censoring, as it does for the Brier score, so that the middle of the interval is
#     near the index. (That it does not was suspected after reading the source.)
# Seen: scores, events and times are drawn, and the weights stay where they were. Where the scores are
#     good early and bad late, the weighted index is 0.71, and its interval goes from 0.71 to 0.91,
#     around the unweighted one of 0.82; that of subjects with their own weights goes from 0.66 to
#     0.76. Without weights it is right.
# For gyre: it predicts no survival. There, draw the subjects by hand.
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
from torchsurv.metrics.cindex import ConcordanceIndex
from torchsurv.stats.ipcw import get_ipcw

N = 200
N_BOOTSTRAPS = 60

torch.set_num_threads(1)
torch.manual_seed(0)
risk = torch.randn(N)
early = torch.empty(N).exponential_() / torch.exp(2 * risk)
time = torch.where(early < 0.5, early, 0.5 + torch.empty(N).exponential_() * torch.exp(risk))
censoring = 0.7 * torch.empty(N).exponential_()
event, observed = time <= censoring, torch.minimum(time, censoring)
weight = get_ipcw(event, observed)
print(f"events: {event.sum()} of {N}; weights from {weight[event].min():.1f} to "
      f"{weight[event].max():.1f}")


def interval(draw):
    """Return the 95 % interval of the index over bootstrap samples."""
    indices = []
    for _ in range(N_BOOTSTRAPS):
        rows = torch.randint(N, [N])
        weights = draw(rows)
        indices.append(ConcordanceIndex()(risk[rows], event[rows], observed[rows], weight=weights))
    return torch.quantile(torch.stack(indices), torch.tensor([0.025, 0.975]))


def show(name, bounds):
    print(f"{name}: from {bounds[0]:.3f} to {bounds[1]:.3f}")


metric = ConcordanceIndex()
index = metric(risk, event, observed, weight=weight)
print(f"weighted index: {index:.3f}, unweighted {ConcordanceIndex()(risk, event, observed):.3f}")
library = metric.confidence_interval(method="bootstrap", n_bootstraps=N_BOOTSTRAPS)
own = interval(lambda rows: weight[rows])
of_others = interval(lambda rows: weight)
show("torchsurv's interval", library)
show("with the weights of the subjects drawn", own)
show("with the weights left where they are", of_others)
assert abs(own.mean() - index) < 0.04
assert abs(library.mean() - index) > 0.07
assert ((library - of_others).abs() < 0.06).all() and (library - own).abs().max() > 0.1

metric = ConcordanceIndex()
metric(risk, event, observed)
plain = metric.confidence_interval(method="bootstrap", n_bootstraps=N_BOOTSTRAPS)
due = interval(lambda rows: None)
show("torchsurv's interval without weights", plain)
show("by hand", due)
assert ((plain - due).abs() < 0.05).all()
PYTHON
