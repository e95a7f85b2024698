#!/usr/bin/env bash
# lion-pytorch's decoupled decay divides by the constructor's rate, which a group need not have.
#
# Versions: lion-pytorch 0.2.5, torch 2.13.0, numpy 2.4.6.
# Guess before the run: with `decoupled_weight_decay=True`, a weight shrinks by `weight_decay` in a
#     step at the initial rate of its group, and by less as a schedule lowers that rate, the same
#     after a resumption. (That only the constructor's rate counts was suspected after reading the
#     source.)
# Seen: the rate of a group is divided by that of the constructor, 1e-4 by default. With
#     weight_decay=0.01, a group with a rate of 0.001 loses 10 % of its weights in each step, one
#     with 0.01 all of them in the first, and one with 1e-5 a thousandth of them. The rate is not
#     in the state either: resumed with a constructor that is given half of the rate, weights decay
#     twice as fast. The default, without `decoupled_weight_decay`, is right.
# For gyre: its decay is not divided. There, divide `weight_decay` of each group by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lion-pytorch==0.2.5
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import copy

import torch
from lion_pytorch import Lion

DECAY = 0.01
torch.set_num_threads(1)


def shrink(optimizer, weights):
    """Return the share that one step without a gradient takes from each of the weights."""
    before = [weight.detach().clone() for weight in weights]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    return [1 - (weight / old).mean().item() for weight, old in zip(weights, before)]


for decoupled in [False, True]:
    rates = [1e-5, 1e-4, 1e-3, 1e-2]
    weights = [torch.nn.Parameter(torch.ones(8)) for _ in rates]
    groups = [{"params": [weight], "lr": rate} for weight, rate in zip(weights, rates)]
    optimizer = Lion(groups, weight_decay=DECAY, decoupled_weight_decay=decoupled)
    shares = shrink(optimizer, weights)
    print(f"decoupled_weight_decay={decoupled}, decay {DECAY}: "
          + ", ".join(f"rate {rate:g} loses {share:.3g}" for rate, share in zip(rates, shares)))
    for rate, share in zip(rates, shares):
        due = DECAY * rate / (1e-4 if decoupled else 1)
        assert abs(share - due) < 1e-3 * due + 1e-6

weight = torch.nn.Parameter(torch.ones(8))
optimizer = Lion([weight], lr=1e-3, weight_decay=DECAY, decoupled_weight_decay=True)
first = shrink(optimizer, [weight])[0]
resumed = Lion([weight], lr=5e-4, weight_decay=DECAY, decoupled_weight_decay=True)
resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
second = shrink(resumed, [weight])[0]
print(f"rate 0.001 in the constructor: a step loses {first:.4f}; resumed with 0.0005 in the "
      f"constructor, rate {resumed.param_groups[0]['lr']:g} from the state: {second:.4f}")
assert abs(first - DECAY) < 1e-5 and abs(second - 2 * DECAY) < 1e-5
PYTHON
