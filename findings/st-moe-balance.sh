#!/usr/bin/env bash
# The balancing loss of st-moe-pytorch is the same if one expert of 16 has all tokens or twelve do.
#
# Versions: st-moe-pytorch 0.1.8 (and mixture-of-experts 0.2.3), torch 2.13.0.
# Guess before the run: the loss is E times the sum over experts of their share of the tokens times
#     their mean probability: with sharp gates, 16 if one expert of 16 has all tokens, 8 for two,
#     1.33 for twelve, and 1 for all. (That it has a ceiling was suspected after reading the
#     source.)
# Seen: 1.23, 1.23, 1.23 and 1. The share is counted after the tokens have been dropped that exceed
#     the capacity of an expert, in place, so that it is at most 1.25 / 16, and the loss at most the
#     capacity factor. mixture-of-experts, an older package with the same gate, is right.
# For gyre: it has no experts. There, give a `capacity_factor_train` of the number of experts, or
#     take the loss of mixture-of-experts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile st-moe-pytorch==0.1.8 colt5-attention==0.11.2 \
    mixture-of-experts==0.2.3 local-attention==1.11.2 hyper-connections==0.4.11 einops==0.8.2 \
    beartype==0.23.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from mixture_of_experts import mixture_of_experts
from st_moe_pytorch import st_moe_pytorch

N_EXPERTS = 16
N_TOKENS = 480  # divisible by each number of experts in use
SHARPNESS = 50.0

torch.set_num_threads(1)
torch.manual_seed(0)
new = st_moe_pytorch.TopNGating(dim=N_EXPERTS, num_gates=N_EXPERTS)
old = mixture_of_experts.Top2Gating(dim=N_EXPERTS, num_gates=N_EXPERTS)
with torch.no_grad():
    new.to_gates.weight.copy_(SHARPNESS * torch.eye(N_EXPERTS))
    old.w_gating.copy_(SHARPNESS * torch.eye(N_EXPERTS))


def losses(n_used):
    """Return the losses of both packages and of the formula, of tokens dealt to so many experts."""
    experts = torch.arange(N_TOKENS) % n_used
    tokens = torch.eye(N_EXPERTS)[experts][None]
    probabilities = (SHARPNESS * tokens[0]).softmax(dim=-1)
    share = torch.bincount(experts, minlength=N_EXPERTS) / N_TOKENS
    formula = N_EXPERTS * (share * probabilities.mean(dim=0)).sum()
    return new(tokens)[2].item(), old(tokens)[2].item(), formula.item()


seen = {}
for n_used in (1, 2, 12, N_EXPERTS):
    seen[n_used], older, formula = losses(n_used)
    print(f"{n_used} of {N_EXPERTS} experts in use: loss {seen[n_used]:.3f}; of mixture-of-experts "
          f"{older:.3f}, by the formula {formula:.3f}")
    assert abs(older - formula) < 1e-3
    assert abs(formula - N_EXPERTS / n_used) < 1e-3
assert abs(seen[N_EXPERTS] - 1) < 1e-3
for n_used in (1, 2, 12):
    assert 1.2 < seen[n_used] < 1.26

spread = st_moe_pytorch.TopNGating(
    dim=N_EXPERTS, num_gates=N_EXPERTS, capacity_factor_train=N_EXPERTS)
spread.to_gates.load_state_dict(new.to_gates.state_dict())
all_on_one = torch.eye(N_EXPERTS)[torch.zeros(N_TOKENS, dtype=torch.long)][None]
print(f"1 of {N_EXPERTS} with a capacity for all: loss {spread(all_on_one)[2].item():.3f}")
assert abs(spread(all_on_one)[2].item() - N_EXPERTS) < 1e-3
PYTHON
