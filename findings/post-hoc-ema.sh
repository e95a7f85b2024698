#!/usr/bin/env bash
# With update_every, the averages of ema-pytorch's PostHocEMA are mostly the initial weights.
#
# Versions: ema-pytorch 0.8.3, torch 2.13.0.
# Guess before the run: update_every saves time. An average with sigma_rel=0.1 has a width of 0.1 of
#     the training, as in the paper (Karras et al. 2024, arXiv:2312.02696), and so has one that is
#     put together afterwards from the checkpoints.
# Seen: so it is with update_every=1. Otherwise the average moves every so many steps by what it
#     should move in one. With 100, the default, and sigma_rel=0.1, 72 % of it are the weights of
#     the first step after 4,000 steps. With the 10 of the package's README the width is 0.30, and
#     25 % of an average that is put together afterwards are the weights of the first step.
# For gyre: it averages no weights. With PostHocEMA or KarrasEMA, give update_every=1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ema-pytorch==0.8.3 torch==2.13.0 numpy==2.4.6
cd "$folder"
env/bin/python - <<'PYTHON'
import math

import torch
from ema_pytorch import PostHocEMA
from ema_pytorch.post_hoc_ema import KarrasEMA

N_STEPS = 4000
SIGMA = 0.1
torch.set_num_threads(1)


def train(update_every):
    """Return an average that is kept in training, and one that is put together afterwards.

    The weights are the time from 0 to 1, its square, and 1 in the first step and 0 later: so their
    average tells the mean time, its square, and the share of the first step.
    """
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(3))])
    kept = KarrasEMA(model, sigma_rel=SIGMA, update_every=update_every)
    post_hoc = PostHocEMA(
        model, sigma_rels=(0.05, 0.28), checkpoint_every_num_steps=500,
        checkpoint_folder=f"every-{update_every}", checkpoint_dtype=torch.float32,
        update_every=update_every)
    for step in range(N_STEPS):
        time = (step + 1) / N_STEPS
        model[0].data = torch.tensor([time, time**2, float(step == 0)])
        kept.update()
        post_hoc.update()
    return {"kept in training": kept,
            "put together afterwards": post_hoc.synthesize_ema_model(sigma_rel=SIGMA)}


for update_every in [1, 10, 100]:
    for name, average in train(update_every).items():
        mean, square, first = average.ema_model[0].tolist()
        width = math.sqrt(square - mean**2)
        print(f"update_every={update_every}, {name}: mean time {mean:.2f}, width {width:.2f}, "
              f"share of the first step {first:.3f}")
        if update_every == 1:
            assert abs(width - SIGMA) < 0.01
            assert first < 0.001
        else:
            assert width > 1.5 * SIGMA
            assert first > {10: 0.005, 100: 0.6}[update_every]
PYTHON
