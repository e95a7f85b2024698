#!/usr/bin/env bash
# In kronfluence, the influence of a grouped convolution is that of the mean over its groups.
#
# Versions: kronfluence 1.0.1, torch 2.13.0, accelerate 1.15.0.
# Guess before the run: with the strategy "identity", scores are products of the gradients of single samples,
#     for linear layers and for Conv2d with each of its options, or such a layer is refused (an even kernel
#     with `padding="same"` is).
# Seen: it is so for strides, dilations and paddings. With groups, inputs are averaged over the groups before
#     gradients are made: in a depthwise convolution, as in MobileNet and ConvNeXt, each channel's kernel
#     gets the gradient that the mean of all channels would give. Its scores have a correlation of
#     0.71 with the right ones, and its self-influences are a quarter of what they should be, in silence. With
#     `padding_mode` "circular" or "reflect", borders count as zeros, and the correlation is 0.87.
# For gyre: it has no convolutions. There, leave grouped convolutions out of `get_influence_tracked_modules`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 accelerate==1.15.0 \
    einops==0.8.2 opt-einsum==3.4.0 safetensors==0.8.0 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps einconv==0.1.0 kronfluence==1.0.1
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import copy
import logging

import torch
from kronfluence.analyzer import Analyzer, prepare_model
from kronfluence.arguments import FactorArguments, ScoreArguments
from kronfluence.task import Task
from torch import nn
from torch.utils.data import TensorDataset

CHANNELS, SIDE = 8, 6
torch.set_num_threads(1)


class Squares(Task):
    """The summed squared error, as the loss and as the measurement."""

    def compute_train_loss(self, batch, model, sample=False):
        return (model(batch[0]) - batch[1]).square().sum()

    def compute_measurement(self, batch, model):
        return self.compute_train_loss(batch, model)


def network(**options):
    """Return a network with one convolution that has the options."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, **options)
    layers = [convolution, nn.Tanh(), nn.Flatten()]
    width = nn.Sequential(*layers)(torch.zeros(1, CHANNELS, SIDE, SIDE)).shape[1]
    return nn.Sequential(*layers, nn.Linear(width, 2))


def due(model, queries, samples):
    """Return products of the convolution's gradients, (queries, samples)."""
    gradients = []
    for data in [queries, samples]:
        rows = []
        for pair in data:
            loss = Squares().compute_train_loss([tensor[None] for tensor in pair], model)
            grads = torch.autograd.grad(loss, list(model[0].parameters()))
            rows.append(torch.cat([grad.flatten() for grad in grads]))
        gradients.append(torch.stack(rows))
    return gradients[0] @ gradients[1].T


def seen(model, queries, samples, name):
    """Return the scores of the convolution that kronfluence computes, (queries, samples)."""
    tracked = prepare_model(copy.deepcopy(model), Squares())
    analyzer = Analyzer(name, tracked, Squares(), cpu=True, disable_tqdm=True, log_level=logging.ERROR,
                        disable_model_save=True)
    analyzer.fit_all_factors("factors", samples, per_device_batch_size=8,
                             factor_args=FactorArguments(strategy="identity"))
    analyzer.compute_pairwise_scores(
        "scores", "factors", queries, samples, per_device_query_batch_size=8, per_device_train_batch_size=8,
        score_args=ScoreArguments(compute_per_module_scores=True))
    return analyzer.load_pairwise_scores("scores")["0"]


torch.manual_seed(1)
data = TensorDataset(torch.randn(24, CHANNELS, SIDE, SIDE), torch.randn(24, 2))
cases = {"plain": {}, "stride": {"stride": 2}, "dilation": {"dilation": 2}, "two groups": {"groups": 2},
         "depthwise": {"groups": CHANNELS}, "circular": {"padding_mode": "circular"},
         "reflect": {"padding_mode": "reflect"}}
print("convolution: largest error by the largest score, correlation, mean self-influence (due: 1)")
numbers = {}
for name, options in cases.items():
    model = network(**options)
    right, scores = due(model, data, data), seen(model, data, data, name)
    error = ((scores - right).abs().max() / right.abs().max()).item()
    off = ~torch.eye(len(data), dtype=torch.bool)
    correlation = torch.corrcoef(torch.stack([right[off], scores[off]]))[0, 1].item()
    share = (scores.diagonal() / right.diagonal()).mean().item()
    numbers[name] = error, correlation, share
    print(f"{name}: {error:.6f}, {correlation:.2f}, {share:.2f}")
for name in ["plain", "stride", "dilation"]:
    assert numbers[name][0] < 1e-4
for name in ["two groups", "depthwise", "circular", "reflect"]:
    assert numbers[name][0] > 0.02
assert numbers["depthwise"][1] < 0.9 and numbers["depthwise"][2] < 0.5
PYTHON
