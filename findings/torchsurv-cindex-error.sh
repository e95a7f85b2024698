#!/usr/bin/env bash
# torchsurv's standard error of the concordance index is twice as large as it should be.
#
# Versions: torchsurv 0.2.0, torchmetrics 1.9.0, torch 2.13.0, pydantic 2.14.4, scipy 1.17.1.
# Guess before the run: the standard error by Noether's method, with which `confidence_interval()`,
#     `p_value()` and `compare()` work by default, is the standard deviation over repeated samples
#     within 10 %, and 95 % intervals hold the true index in 90 to 98 % of them. (That they do not was
#     suspected after reading the source.)
# Seen: the paper counts for each subject the pairs that it is in. torchsurv counts a pair for the
#     one whose event is first only, so that the errors are twice as large. All of 200 intervals
#     hold the true index; without an effect no p-value is below 0.05, and 4 % are below 0.2. With
#     both sides counted, the same formula gives the standard deviation.
# For gyre: it predicts no survival. There, give method="bootstrap", if the index has no weights.
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

N = 60
N_SAMPLES = 200

torch.set_num_threads(1)
torch.manual_seed(0)


def noether(concordant, discordant):
    """Return the standard error by the formula, from each subject's numbers of pairs."""
    pairs, triples = N * (N - 1), N * (N - 1) * (N - 2)
    share_c, share_d = concordant.sum() / pairs, discordant.sum() / pairs
    both_c = (concordant * (concordant - 1)).sum() / triples
    both_d = (discordant * (discordant - 1)).sum() / triples
    mixed = (concordant * discordant).sum() / triples
    spread = share_d**2 * both_c - 2 * share_c * share_d * mixed + share_c**2 * both_d
    return (4 * spread / (share_c + share_d) ** 4 / N).sqrt().item()


def sample(effect):
    """Return the index, three standard errors, the interval and the p-value for new subjects."""
    risk = torch.randn(N)
    time = torch.empty(N).exponential_() / torch.exp(effect * risk)
    censoring = 2 * torch.empty(N).exponential_()
    event, observed = time <= censoring, torch.minimum(time, censoring)
    metric = ConcordanceIndex()
    index = metric(risk, event, observed).item()
    comparable = event[:, None] & (observed[:, None] < observed)
    concordant = (comparable & (risk[:, None] > risk)).double()
    discordant = (comparable & (risk[:, None] < risk)).double()
    assert abs(concordant.sum() / comparable.sum() - index) < 1e-5
    due = noether(concordant.sum(0) + concordant.sum(1), discordant.sum(0) + discordant.sum(1))
    one_sided = noether(concordant.sum(1), discordant.sum(1))
    lower, upper = metric.confidence_interval().tolist()
    shown = (upper - lower) / (2 * 1.96)
    return index, due, one_sided, shown, lower, upper, metric.p_value().item()


for effect in [0, 0.7]:
    rows = torch.tensor([sample(effect) for _ in range(N_SAMPLES)], dtype=torch.float64)
    index, due, one_sided, shown, lower, upper, p = rows.T
    truth = index.mean()
    held = ((lower < truth) & (truth < upper)).double().mean()
    half = 1.96 * due
    held_due = ((index - truth).abs() < half).double().mean()
    print(f"effect {effect}: index {truth:.3f}, standard deviation {index.std():.4f}; torchsurv's "
          f"error {shown.mean():.4f}, with both sides counted {due.mean():.4f}; intervals hold the "
          f"truth in {held:.1%}, with both sides in {held_due:.1%}; p < 0.05 in "
          f"{(p < 0.05).double().mean():.1%}, p < 0.2 in {(p < 0.2).double().mean():.1%}")
    assert ((shown / one_sided - 1).abs() < 0.01).all()
    assert shown.mean() > 1.7 * index.std()
    assert 0.85 < due.mean() / index.std() < 1.15
    assert held > 0.98 and 0.88 < held_due < 0.98
    if effect == 0:
        assert (p < 0.05).sum() == 0 and (p < 0.2).double().mean() < 0.08
PYTHON
