#!/usr/bin/env bash
# Torch-Pruning's geometric median takes a filter and its negative for the same filter.
#
# Versions: torch-pruning 1.6.1, torch 2.13.0.
# Guess before the run: FPGMImportance scores a filter by the sum of its distances to the others, as
#     in the paper that it names: the filter that all others can replace has the lowest one. (That
#     the distances are others was suspected after reading the source.)
# Seen: each weight is squared first, and the distances are taken between these squares. So a filter
#     and its negative, which do the opposite, have a distance of 0 and count as replaceable. Of
#     the 16 of 64 random filters that are pruned, 8 to 13 are those of the paper. With p=1, the
#     sign is lost as well.
# For gyre: it prunes nothing. There, give a function of one's own as the importance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch-pruning==1.6.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
import torch_pruning
from torch import nn

N_FILTERS, N_PRUNED = 64, 16


def score(weights, p=2):
    """Return the importance of the filters of a convolution with given weights."""
    layer = nn.Conv2d(*weights.shape[1::-1], 3, bias=False)
    layer.weight.data = weights
    image = torch.zeros(1, weights.shape[1], 8, 8)
    graph = torch_pruning.DependencyGraph().build_dependency(nn.Sequential(layer), image)
    group = graph.get_pruning_group(
        layer, torch_pruning.prune_conv_out_channels, list(range(len(weights))))
    return torch_pruning.importance.FPGMImportance(p=p, normalizer=None)(group)


def exact(weights):
    """Return the sum of the distances from each filter to the others."""
    rows = weights.flatten(1).double()
    return (rows[:, None] - rows).norm(dim=-1).sum(1).float()


torch.manual_seed(0)
one = torch.randn(1, 4, 3, 3)
for name, weights in [("the same", torch.cat([one, one])), ("a negative", torch.cat([one, -one])),
                      ("another", torch.cat([one, torch.randn(1, 4, 3, 3)]))]:
    scores = [score(weights, p)[0].item() for p in (1, 2)]
    print(f"a filter and {name}: distance {scores[0]:.2f} with p=1, {scores[1]:.2f} with p=2, "
          f"exact {exact(weights)[0]:.2f}")
    assert max(scores) < 1e-3 if name != "another" else min(scores) > 1
    assert (exact(weights)[0] < 1e-3) == (name == "the same")
for seed in range(5):
    torch.manual_seed(seed)
    weights = torch.randn(N_FILTERS, 4, 3, 3)
    pruned = set(score(weights).argsort()[:N_PRUNED].tolist())
    right = set(exact(weights).argsort()[:N_PRUNED].tolist())
    squares = exact(weights.square())
    common = len(pruned & right)
    print(f"seed {seed}: {common} of {N_PRUNED} pruned filters are those of the paper; scores "
          f"{score(weights)[:3].numpy().round(1)}, exact {exact(weights)[:3].numpy().round(1)}, "
          f"of squares {squares[:3].numpy().round(1)}")
    assert torch.allclose(score(weights), squares, rtol=1e-3)
    assert common < 14
PYTHON
