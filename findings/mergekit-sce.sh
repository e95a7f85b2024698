#!/usr/bin/env bash
# mergekit's SCE weighs models by their differences from the base, but small ones all alike.
#
# Versions: mergekit 0.1.5, torch 2.13.0, transformers 5.24.0.
# Guess before the run: SCE weighs a model by the mean square of its difference from the base, over
#     the sum of these: of two models, the one that went twice as far counts four times as much. The
#     merge follows the scale: half the differences give half the merged difference. (That it does
#     not was suspected after reading the source.)
# Seen: so it is for differences with a deviation of 0.01 and of 0.001. With 0.0003 and below, as
#     a careful fine-tuning makes, both count 0.5: weights are equal if the sum of the mean squares
#     is below 1e-6. The middle step of the three is left out then, tensor by tensor, and nothing is
#     said. `model_stock` with `filter_wise` has a bound of its own: with 1e-5, rows of 64 numbers
#     go 0.02 of the way from the base, where they go 0.75 otherwise.
# For gyre: it merges nothing. There, give weights by hand to a method that takes them, as `ties`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile mergekit==0.1.5 torch==2.13.0 transformers==5.24.0 \
    numpy==2.4.6
HF_HUB_OFFLINE=1 env/bin/python -W ignore - <<'PYTHON'
import shutil

import torch
import transformers
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from transformers import LlamaConfig, LlamaForCausalLM

MATRIX = "model.layers.0.mlp.up_proj.weight"


def save(name, steps, size):
    """Save the base plus steps times a size, under a name that was not used before."""
    model.load_state_dict({key: tensor + size * steps[key] for key, tensor in base.items()})
    model.save_pretrained(name)
    return name


def merge(method, names, **parameters):
    """Return the matrix of the merged model minus that of the base."""
    config = MergeConfiguration.model_validate({
        "merge_method": method, "base_model": "base", "dtype": "float32",
        "models": [{"model": name} for name in names], "parameters": parameters})
    run_merge(config, "merged", MergeOptions(copy_tokenizer=False, write_model_card=False,
                                             quiet=True))
    merged = LlamaForCausalLM.from_pretrained("merged").state_dict()[MATRIX]
    shutil.rmtree("merged")
    return merged - base[MATRIX]


def draw():
    return {key: torch.randn_like(tensor) for key, tensor in base.items()}


transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
    num_attention_heads=4, num_key_value_heads=2))
model.save_pretrained("base")
base = {key: tensor.clone() for key, tensor in model.state_dict().items()}
common, near, far, third = (draw() for _ in range(4))
far = {key: 2 * step for key, step in far.items()}

expected = torch.stack([steps[MATRIX].square().mean() for steps in (near, far)])
expected = expected / expected.sum()
agree = near[MATRIX] * far[MATRIX] > 0
both = torch.stack([near[MATRIX][agree], far[MATRIX][agree]], 1)
for size, equal in [(1e-2, False), (1e-3, False), (3e-4, True), (1e-4, True)]:
    merged = merge("sce", [save(f"near {size}", near, size), save(f"far {size}", far, size)]) / size
    weights = torch.linalg.lstsq(both, merged[agree][:, None]).solution.ravel()
    print(f"SCE, differences of {size:.0e} and {2 * size:.0e}: weights {weights.numpy().round(2)}, "
          f"expected {expected.numpy().round(2)}")
    assert torch.allclose(weights, torch.full((2,), 0.5) if equal else expected, atol=0.02)

tuned = [{key: common[key] + steps[key] for key in base} for steps in (near, third, draw())]
for size, stays in [(1e-2, False), (1e-3, False), (1e-5, True)]:
    names = [save(f"{i} of {size}", steps, size) for i, steps in enumerate(tuned)]
    step = sum(steps[MATRIX] for steps in tuned) / 3
    share = [((merge("model_stock", names, filter_wise=rows) / size * step).sum()
              / step.square().sum()).item() for rows in (False, True)]
    print(f"model_stock, differences of {size:.0e}: {share[1]:.2f} of the way by rows, "
          f"{share[0]:.2f} by matrices")
    assert 0.6 < share[0] < 0.9 and (share[1] < 0.1 if stays else 0.6 < share[1] < 0.9)
PYTHON
