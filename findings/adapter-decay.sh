#!/usr/bin/env bash
# Weight decay draws some adapters away from the model that they adapt.
#
# Versions: peft 0.21.2, transformers 5.24.0, torch 2.13.0.
# Guess before the run: an adapter starts as no change of the base model, and zero parameters are
#     no change either. Weight decay pulls towards the base model: without a gradient, nothing
#     changes.
# Seen: that holds for LoRA, LoHa, OFT and VeRA. With a rate of 2e-4 and a decay of 0.1, 10,000
#     steps without a gradient multiply the weights of DoRA's and BOFT's layers by 0.82, for these
#     train their size, and IA3's activations by 0.82. PiSSA and OLoRA take r directions of the
#     weight out of the base model into the product of the adapter's two matrices, which is
#     multiplied by 0.67; of PiSSA these are the first ones. transformers' Trainer decays all of
#     these parameters.
# For gyre: it has no adapters. An export that is adapted with one of these needs weight_decay=0 for
#     it, or loses what it was exported with.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile peft==0.21.2 transformers==5.24.0 torch==2.13.0 \
    numpy==2.4.6
HF_HOME="$folder" "$folder/env/bin/python" - <<'PYTHON'
import peft
import torch
from transformers import Trainer

WIDTH = 32
RATE = 2e-3
DECAY = 0.1
N_STEPS = 1000  # ten times the rate, a tenth of the steps
CONFIGS = {
    "LoRA": (peft.LoraConfig, {"r": 4}),
    "LoHa": (peft.LoHaConfig, {"r": 4}),
    "OFT": (peft.OFTConfig, {"oft_block_size": 4}),
    "VeRA": (peft.VeraConfig, {"r": 4}),
    "DoRA": (peft.LoraConfig, {"r": 4, "use_dora": True}),
    "BOFT": (peft.BOFTConfig, {"boft_block_size": 4}),
    "IA3": (peft.IA3Config, {"feedforward_modules": []}),
    "PiSSA": (peft.LoraConfig, {"r": 4, "init_lora_weights": "pissa"}),
    "OLoRA": (peft.LoraConfig, {"r": 4, "init_lora_weights": "olora"}),
}
torch.manual_seed(0)
weight = torch.randn(WIDTH, WIDTH)
directions = torch.linalg.svd(weight)
left, values, right = directions.U[:, 0], directions.S, directions.Vh[0]


def adapt(name):
    """Return a model of the one weight above, with an adapter."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False))
    model[0].weight.data.copy_(weight)
    config_class, options = CONFIGS[name]
    return peft.get_peft_model(model, config_class(target_modules=["0"], **options))


first = {}
for name in CONFIGS:
    model = adapt(name)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=DECAY)
    start = model(torch.eye(WIDTH)).T.detach()
    assert torch.allclose(start, weight, atol=1e-5)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(N_STEPS):
        optimizer.step()
    end = model(torch.eye(WIDTH)).T.detach()
    difference = ((end - start).norm() / start.norm()).item()
    first[name] = (left @ end @ right).item() / values[0].item()
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    names = [key for key, parameter in model.named_parameters() if parameter.requires_grad]
    print(f"{name}: the weight has changed by {difference:.1%}, its largest singular value is "
          f"{first[name]:.3f} of what it was; Trainer decays {len(decayed & set(names))} of its "
          f"{len(names)} tensors")
    assert decayed.issuperset(names)
    assert (difference > 0.15) == (name in ["DoRA", "BOFT", "IA3", "PiSSA", "OLoRA"])

for name in ["LoRA", "LoHa", "OFT", "VeRA"]:
    assert first[name] > 0.999
for name in ["DoRA", "BOFT", "IA3"]:
    assert abs(first[name] - 0.819) < 0.002
assert abs(first["PiSSA"] - 0.670) < 0.002
PYTHON
