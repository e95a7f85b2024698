#!/usr/bin/env bash
# For the R2 of overcomplete, the mean vector explains 96 % of activations that have means.
#
# Versions: overcomplete 0.3.0, torch 2.13.0, scipy 1.17.1.
# Guess before the run: "a score of 0 indicates that the reconstruction is as good as the mean", as
#     the docstring says: the mean activation as the reconstruction of all of them has an R2 of 0,
#     and a constant added to data and reconstruction changes nothing. (That it does was suspected
#     after reading the source.)
# Seen: the variance is taken around one number, the mean of all elements of the batch. Where each
#     dimension has a mean of its own, as in language models, the mean vector alone has 0.96 with
#     means of 5 deviations, and 0.99 if one dimension of 64 has a mean of 100. train_sae logs this
#     R2: an autoencoder without one active latent, of which the bias is left, looks nearly perfect,
#     and one that explains half of what there is to explain has 0.98. Without means, the score is
#     right.
# For gyre: it trains no autoencoders. There, subtract the mean of each dimension first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 scipy==1.17.1 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps overcomplete==0.3.0
"$folder/env/bin/python" - <<'PYTHON'
import importlib.util
import sysconfig

import torch

# The module alone, without the package's vision models.
path = sysconfig.get_path("purelib") + "/overcomplete/metrics.py"
spec = importlib.util.spec_from_file_location("metrics", path)
metrics = importlib.util.module_from_spec(spec)
spec.loader.exec_module(metrics)

torch.manual_seed(0)
noise = torch.randn(4096, 64)
own_means = 5 * torch.randn(64)
one_large = torch.zeros(64)
one_large[0] = 100
scores = {}
for name, means in [("none", torch.zeros(64)), ("of 5 deviations", own_means),
                    ("one of 100", one_large)]:
    x = noise + means
    constant = x.mean(0).expand_as(x)
    half = x + 0.5**0.5 * torch.randn_like(x)  # an error of half of the variance
    for reconstruction, y in [("mean vector", constant), ("half of the variance missed", half)]:
        found = metrics.r2_score(x, y).item()
        due = (1 - (x - y).square().sum() / (x - x.mean(0)).square().sum()).item()
        scores[name, reconstruction] = found, due
        print(f"means {name}, {reconstruction}: R2 {found:.3f}, around the mean of each dimension "
              f"{due:.3f}")
assert all(abs(found - due) < 0.01 for (name, _), (found, due) in scores.items() if name == "none")
assert all(abs(due - (0 if kind == "mean vector" else 0.5)) < 0.03
           for (_, kind), (_, due) in scores.items())
assert 0.95 < scores["of 5 deviations", "mean vector"][0] < 0.97
assert scores["one of 100", "mean vector"][0] > 0.99
assert scores["of 5 deviations", "half of the variance missed"][0] > 0.97
PYTHON
