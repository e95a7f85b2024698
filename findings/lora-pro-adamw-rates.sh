#!/usr/bin/env bash
# lora-pro-adamw: a resumed schedule reaches the adapters only, and rank-stabilized adapters step too far.
#
# Versions: lora-pro-adamw 0.2.1, peft 0.21.2, torch 2.13.0.
# Guess before the run: a training that is resumed from the states of model, optimizer and schedule ends where
#     one without a stop ends; the step of the merged weight does not depend on the scale of the adapter, as in
#     the paper of LoRA-Pro. (Both were suspected after reading the source, and written down before the run.)
# Seen: after `load_state_dict`, the schedule moves the rates of the adapters. All other trained weights,
#     here a head in `modules_to_save`, keep the rate of the checkpoint: at the end of a decay to 0 it is still
#     half of the first one, and `param_groups` says 0 for both. The last weights are off by half of what was
#     learned after the stop. With `use_rslora=True`, steps are the root of the rank times as long: 2 times with
#     rank 4, 4 times with rank 16.
# Cause: torch's `load_state_dict` gives the inner AdamW new groups, and `param_groups` of the wrapper keeps
#     the old ones. The scale is alpha / r for every adapter, and is alpha / sqrt(r) there (adamw.py).
# For gyre: it has no adapters. There, assign `optimizer.param_groups` anew after a resumption, and take
#     adapters without `use_rslora`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==5.24.0 \
    accelerate==1.15.0 peft==0.21.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lora-pro-adamw==0.2.1
export HOME="$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import copy

import torch
from lora_pro import LoRAProAdamW
from peft import LoraConfig, get_peft_model

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(1)
INPUTS, TARGETS = torch.randn(64, 16, generator=generator), torch.randn(64, 4, generator=generator)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = torch.nn.Linear(16, 24), torch.nn.Linear(24, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(x)))


def make(rank=4, rslora=False, saved=("head",)):
    torch.manual_seed(0)
    return get_peft_model(Net(), LoraConfig(r=rank, lora_alpha=rank, target_modules=["inner"],
                                            modules_to_save=list(saved) or None, use_rslora=rslora))


def make_optimizer(model, mode):
    optimizer = LoRAProAdamW(model, lr=1e-2, weight_decay=0.0, lorapro_mode=mode)
    return optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=60)


def train(model, optimizer, schedule, n_steps):
    for _ in range(n_steps):
        optimizer.zero_grad()
        ((model(INPUTS) - TARGETS) ** 2).mean().backward()
        optimizer.step()
        schedule.step()
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])


for mode in ["full", "efficient"]:
    model = make()
    due = train(model, *make_optimizer(model, mode), 60)
    model = make()
    optimizer, schedule = make_optimizer(model, mode)
    at_stop = train(model, optimizer, schedule, 30)
    states = copy.deepcopy([part.state_dict() for part in (model, optimizer, schedule)])

    model = make()
    optimizer, schedule = make_optimizer(model, mode)
    for part, state in zip((model, optimizer, schedule), states):
        part.load_state_dict(state)
    resumed = train(model, optimizer, schedule, 30)
    shown = [group["lr"] for group in optimizer.param_groups]
    used = optimizer._base.param_groups[0]["lr"]
    print(f"{mode}: rates shown at the end {shown}, used for the head {used:.4f}; last weights off by "
          f"{(resumed - due).norm() / (due - at_stop).norm():.0%} of the way after the stop")
    assert shown == [0.0, 0.0] and abs(used - 0.005) < 1e-6
    assert (resumed - due).norm() > 0.2 * (due - at_stop).norm()


def move(rank, rslora):
    """Return how far five steps move the merged weight."""
    model = make(rank, rslora, saved=())
    layer = model.base_model.model.inner
    before = layer.get_delta_weight("default").clone()
    optimizer = LoRAProAdamW(model, lr=1e-3, weight_decay=0.0)
    train(model, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0), 5)
    return (layer.get_delta_weight("default") - before).norm().item()


for rank in [4, 16]:
    plain, stabilized = move(rank, False), move(rank, True)
    print(f"rank {rank}: five steps move the weight by {plain:.4f}, with use_rslora by {stabilized:.4f}, "
          f"{stabilized / plain:.2f} times as far")
    assert abs(stabilized / plain - rank**0.5) < 0.2
PYTHON
