#!/usr/bin/env bash
# By the defaults of `della`, copies of one model merge into a model much further from the base.
#
# Versions: mergekit 0.1.5, torch 2.13.0, transformers 5.24.0.
# Guess before the run: copies of one fine-tuned model, merged by any method with weights that sum
#     to 1, give that model, up to the noise of the dropped numbers.
# Seen: so it is for dare_ties, dare_linear and della_linear within 15 %. `della` gives 1.1 times
#     the difference to the base for one copy, 1.9 for two and 3.5 for eight, at a density of 0.2.
#     What is kept of a copy is enlarged by 1 / density, to make up for what was dropped. Then the
#     sum is divided by the weights of the copies that kept a number, not of all, as TIES does: that
#     makes up for it again. So more models, or a lower density, go further: up to 1 / density. With
#     `normalize: true`, dare_ties does so too; only della has it by default.
# For gyre: it merges nothing. Who merges its exports sets `normalize: false` for della.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile mergekit==0.1.5 torch==2.13.0 transformers==5.24.0 \
    numpy==2.4.6
HF_HUB_OFFLINE=1 env/bin/python - <<'PYTHON'
import shutil

import torch
import transformers
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from transformers import LlamaConfig, LlamaForCausalLM

DENSITY = 0.2


def measure_step(method, n_copies, **parameters):
    """Return how far the merged model has gone on the way from the base to the copies."""
    copies = [{"model": f"copy{i}", "parameters": {"weight": 1 / n_copies, "density": DENSITY}}
              for i in range(n_copies)]
    config = MergeConfiguration.model_validate({
        "merge_method": method, "base_model": "base", "models": copies, "dtype": "float32",
        "parameters": parameters})
    run_merge(config, "merged", MergeOptions(
        copy_tokenizer=False, write_model_card=False, quiet=True, random_seed=0))
    merged = LlamaForCausalLM.from_pretrained("merged").state_dict()
    shutil.rmtree("merged")
    along = sum(((merged[name] - base[name]) * tuned_step[name]).sum() for name in base)
    step = (along / sum((tuned_step[name] ** 2).sum() for name in base)).item()
    print(f"{n_copies} copies, {method} {parameters or ''}: {step:.2f} of the way")
    return step


transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2))
model.save_pretrained("base")
base = {name: tensor.clone() for name, tensor in model.state_dict().items()}
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.02 * torch.randn_like(parameter))
for i in range(8):
    model.save_pretrained(f"copy{i}")
tuned_step = {name: tensor - base[name] for name, tensor in model.state_dict().items()}

for method in ["dare_ties", "della_linear"]:
    assert abs(measure_step(method, 8) - 1) < 0.2
assert abs(measure_step("della", 8, normalize=False) - 1) < 0.2
assert abs(measure_step("della", 1) - 1) < 0.2
assert measure_step("della", 2) > 1.8
assert measure_step("della", 8) > 3.3
assert measure_step("dare_ties", 8, normalize=True) > 3.8
PYTHON
