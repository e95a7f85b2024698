#!/usr/bin/env bash
# fastai's fit_flat_cos starts at the first epoch, whatever start_epoch says.
#
# Versions: fastai 2.8.12, torch 2.13.0.
# Guess before the run: with start_epoch=8, a training of ten epochs is resumed with the last two of
#     them, at their rates, by fit, fit_one_cycle, fit_sgdr and fit_flat_cos, all of which have
#     the argument. (That one passes a 0 on was read in the source before the run.)
# Seen: fit_flat_cos trains all ten epochs, of which seven and a half have the full learning rate; the
#     others train the last two. With eight epochs of the loaded checkpoint, that makes 18.
# Cause: its last line calls `self.fit(..., start_epoch=0)` (fastai/callback/schedule.py). The pull
#     request that brought the argument, 3653, names it for fit_flat_cos too.
# For gyre: a resumed run goes on at its step. There, give SkipToEpoch(8) in cbs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 torchvision==0.28.0 numpy==2.4.6 \
    pandas==2.3.3 matplotlib==3.11.2 scipy==1.17.1 scikit-learn==1.9.1 requests \
    pyyaml packaging cloudpickle rich
"$folder/env/bin/pip" install --quiet --no-compile --no-deps fastai==2.8.12 fastcore==2.2.41 \
    fastprogress==1.0.3 fasttransform==0.0.5 fastdownload==0.0.8 plum-dispatch==2.9.0 \
    beartype==0.23.1
export HOME="$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from fastai.callback.core import Callback
from fastai.callback import schedule  # adds the methods
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.optimizer import SGD

N_EPOCHS = 10
START = 8
torch.manual_seed(0)
ROWS = [(torch.randn(4), torch.randn(1)) for _ in range(32)]
assert schedule


class NoteRates(Callback):
    order = 61  # after the scheduler

    def __init__(self):
        self.rates = {}

    def before_batch(self):
        if self.training:
            self.rates.setdefault(self.epoch, []).append(float(self.opt.hypers[-1]["lr"]))


def train(method, *args, **options):
    loaders = DataLoaders(DataLoader(ROWS, bs=8), DataLoader(ROWS, bs=8))
    learner = Learner(loaders, torch.nn.Linear(4, 1), loss_func=torch.nn.MSELoss(), opt_func=SGD)
    notes = NoteRates()
    with learner.no_bar(), learner.no_logging():
        getattr(learner, method)(*args, cbs=notes, **options)
    return notes.rates


for method, args, options in [("fit", [N_EPOCHS], {"lr": 0.1}),
                              ("fit_one_cycle", [N_EPOCHS], {"lr_max": 0.1}),
                              ("fit_sgdr", [2, 3], {"lr_max": 0.1}),  # cycles of 3 and 6 epochs
                              ("fit_flat_cos", [N_EPOCHS], {"lr": 0.1})]:
    whole = train(method, *args, **options)
    resumed = train(method, *args, start_epoch=START, **options)
    print(f"{method}: {len(whole)} epochs; resumed at {START}, epochs {sorted(resumed)}, rates "
          f"{resumed[min(resumed)][0]:.4f} to {resumed[max(resumed)][-1]:.4f}")
    if method == "fit_flat_cos":
        assert resumed == whole and sorted(resumed) == list(range(N_EPOCHS))
        assert resumed[0] == [0.1] * 4
    else:
        assert min(resumed) == START and all(resumed[epoch] == whole[epoch] for epoch in resumed)
PYTHON
