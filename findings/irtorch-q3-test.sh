#!/usr/bin/env bash
# irtorch's test of local independence rejects it for independent items.
#
# Versions: irtorch 0.5.6, torch 2.13.0.
# Guess before the run: `q3(sample_hypothesis_test=True)` draws from the null hypothesis, so that about
#     5 % of the pairs of items have p < 0.05 if the responses are independent given theta. (That the
#     abilities of the drawn responses are not estimated was read in the source before the run.)
# Seen: of 15 pairs of six independent items, all have p < 0.05, and of 105 pairs of 15 items a third,
#     with 600 people. If the abilities of each draw are estimated like those of the data, it is none
#     and 3 %.
# Cause: residuals of the data are taken at estimated abilities, which makes correlations of about
#     -1 / (items - 1). The drawn responses are compared with the abilities that they are drawn from,
#     and have none (irtorch/evaluator.py, `q3`).
# For gyre: it has no item responses. There, add 1 / (items - 1) to Q3, or estimate the abilities of
#     each draw.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 irtorch==0.5.6 \
    plotly==6.3.0
"$folder/env/bin/python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
import contextlib
import io

import numpy as np
import torch
from irtorch.estimation_algorithms import MML
from irtorch.models import TwoParameterLogistic

torch.set_num_threads(1)
N_PEOPLE = 600
N_DRAWS = 40


def correlations(model, data, theta):
    residuals = model.evaluate.residuals(data=data, theta=theta, average_over="none")
    return np.corrcoef(residuals.detach().numpy(), rowvar=False)


for n_items in [6, 15]:
    torch.manual_seed(0)
    abilities = torch.randn(N_PEOPLE, 1)
    shares = torch.sigmoid(abilities - torch.linspace(-1.5, 1.5, n_items))
    data = (torch.rand(N_PEOPLE, n_items) < shares).float()
    model = TwoParameterLogistic(latent_variables=1, items=n_items)
    pairs = np.triu_indices(n_items, 1)
    with contextlib.redirect_stdout(io.StringIO()):
        model.fit(train_data=data, algorithm=MML(), max_epochs=200)
        q3, p_values = model.evaluate.q3(data, sample_hypothesis_test=True, samples=200)
        # the same with the abilities of each draw estimated, as those of the data are
        theta = model.latent_scores(data=data, rescale=False)
        observed = correlations(model, data, theta)[pairs]
        draws = []
        for _ in range(N_DRAWS):
            drawn = model.sample_test_data(theta)
            drawn_theta = model.latent_scores(data=drawn, rescale=False)
            draws.append(correlations(model, drawn, drawn_theta)[pairs])
    rejected = np.mean(p_values.to_numpy()[pairs] < 0.05)
    scores = (observed - np.mean(draws, axis=0)) / np.std(draws, axis=0)
    due = np.mean(np.abs(scores) > 1.96)
    print(f"{n_items} independent items: mean Q3 {observed.mean():.3f}, p < 0.05 for {rejected:.0%} of "
          f"{len(observed)} pairs; with estimated abilities in the draws, whose mean Q3 is "
          f"{np.mean(draws):.3f}, for {due:.0%}")
    assert abs(observed.mean() + 1 / (n_items - 1)) < 0.04
    assert rejected > 0.3 and due < 0.2
PYTHON
