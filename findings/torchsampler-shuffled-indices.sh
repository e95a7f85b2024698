#!/usr/bin/env bash
# torchsampler balances no classes if the indices of the training set are in random order.
#
# Versions: torchsampler 0.1.2, torch 2.13.0, pandas 3.1.1, numpy 2.4.6.
# Guess before the run: with `indices` from a random split and the labels in the same order, each
#     class is drawn equally often. (That it might not be was suspected after reading the source.)
# Seen: the weights are sorted by index and the indices are not, so that each sample gets the weight
#     of another one. Where 10 % have label 1, about 10 % of those drawn have it, as without the
#     sampler, and a tenth of the samples is drawn nine times as often as the rest. With the indices
#     in ascending order, half of those drawn have label 1.
# For gyre: it has no classes. There, give the sampler `sorted(indices)` and labels in that order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 pandas==3.1.1 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchsampler==0.1.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import sys
import types

import torch
from torch.utils.data import TensorDataset, random_split

# The sampler asks torchvision for types only where it gets no labels.
sys.modules["torchvision"] = types.ModuleType("torchvision")
from torchsampler import ImbalancedDatasetSampler  # noqa: E402

DRAWN = 20000
labels = torch.zeros(1000, dtype=torch.long)
labels[::10] = 1
data = TensorDataset(torch.arange(1000), labels)
training, _ = random_split(data, [800, 200], torch.Generator().manual_seed(0))


def draw(indices):
    """Return what the sampler draws from these indices, given their labels."""
    torch.manual_seed(1)
    return torch.tensor(list(ImbalancedDatasetSampler(
        data, labels=labels[indices].tolist(), indices=indices, num_samples=DRAWN)))


for name, indices in [("order of random_split", list(training.indices)),
                      ("ascending order", sorted(training.indices))]:
    drawn = draw(indices)
    counts = torch.bincount(drawn, minlength=1000)[indices]
    share = labels[drawn].double().mean().item()
    often = (counts > 3 * DRAWN / len(indices))
    print(f"indices in {name}: {labels[indices].double().mean():.1%} of the training set have "
          f"label 1, and {share:.1%} of those drawn; {often.sum()} of {len(indices)} samples are "
          f"drawn often, of which {labels[indices][often].sum()} have label 1")
    assert set(drawn.tolist()) <= set(indices)
    if name == "ascending order":
        assert 0.48 < share < 0.52
        assert labels[indices][often].all()
    else:
        assert 0.07 < share < 0.2
        assert labels[indices][often].double().mean() < 0.3

# The weights that torch's own sampler needs for the same.
indices = list(training.indices)
weights = 1 / torch.bincount(labels[indices])[labels[indices]].double()
torch.manual_seed(1)
drawn = torch.tensor(indices)[torch.multinomial(weights, DRAWN, replacement=True)]
print(f"weights in the order of the indices: {labels[drawn].double().mean():.1%} have label 1")
assert 0.48 < labels[drawn].double().mean() < 0.52
PYTHON
