#!/usr/bin/env bash
# Multi-SLERP of mergekit is a mean with another length, and NuSLERP takes columns for rows.
#
# Versions: mergekit 0.1.5, torch 2.13.0, transformers 5.24.0.
# Guess before the run: Multi-SLERP of two models with weights of 0.9 and 0.1 is SLERP a tenth of
#     the way, within a percent of the angle. NuSLERP with `nuslerp_row_wise` interpolates row by
#     row, as the documents say. (That neither is so was suspected after reading the source.)
# Seen: Multi-SLERP is the weighted mean of the two directions, set to the weighted mean of the
#     lengths, within float32. The documents describe a second step, in the space that touches the
#     sphere at that mean; there, the weighted sum is zero for any weights: the step does nothing.
#     For models 89 degrees apart, weights of 0.9 and 0.1 turn by 6.3 degrees, where SLERP turns by
#     8.9. NuSLERP with `nuslerp_row_wise: true` interpolates the columns of a matrix, and with
#     `false` its rows.
# For gyre: it merges nothing. There, take `slerp` for two models, and turn the option around.
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


def merge(method, weight, **parameters):
    """Return the matrix of the merged models, where the second one has a given weight."""
    config = MergeConfiguration.model_validate({
        "merge_method": method, "dtype": "float32", "parameters": parameters,
        "models": [{"model": "first", "parameters": {"weight": 1 - weight}},
                   {"model": "second", "parameters": {"weight": weight}}]})
    run_merge(config, "merged", MergeOptions(copy_tokenizer=False, write_model_card=False,
                                             quiet=True))
    merged = LlamaForCausalLM.from_pretrained("merged").state_dict()[MATRIX]
    shutil.rmtree("merged")
    return merged


def slerp(weight, a, b):
    """Return the spherical interpolation between the last dimensions of two tensors."""
    lengths = a.norm(dim=-1, keepdim=True), b.norm(dim=-1, keepdim=True)
    angle = torch.acos((a * b).sum(-1, keepdim=True) / lengths[0] / lengths[1])
    return (torch.sin((1 - weight) * angle) * a + torch.sin(weight * angle) * b) / torch.sin(angle)


def measure_angle(matrix):
    """Return the angle between a matrix and the first one, in degrees."""
    cosine = (matrix * first).sum() / matrix.norm() / first.norm()
    return torch.rad2deg(torch.acos(cosine)).item()


transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
matrices = []
for seed, name in enumerate(["first", "second"]):
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2))
    model.save_pretrained(name)
    matrices.append(model.state_dict()[MATRIX].clone())
first, second = matrices
print(f"angle between the two: {measure_angle(second):.1f} degrees")

units = first / first.norm(), second / second.norm()
for weight in (0.1, 0.25, 0.5):
    merged = merge("multislerp", weight)
    mean = (1 - weight) * units[0] + weight * units[1]
    length = (1 - weight) * first.norm() + weight * second.norm()
    exact = length * slerp(weight, units[0].ravel(), units[1].ravel()).reshape(first.shape)
    mean = length * mean / mean.norm()
    by_slerp = merge("nuslerp", weight)
    print(f"weight of the second {weight}: Multi-SLERP turns by {measure_angle(merged):.2f} "
          f"degrees, SLERP by {measure_angle(exact):.2f}, NuSLERP by "
          f"{measure_angle(by_slerp):.2f}, the mean of the directions by {measure_angle(mean):.2f}")
    assert (merged - mean).norm() < 1e-5 * length
    assert weight == 0.5 or (merged - exact).norm() > 0.03 * length
    assert (by_slerp - slerp(weight, first.ravel(), second.ravel()).reshape(first.shape)).norm() < (
        1e-5 * length)

rows, columns = slerp(0.25, first, second), slerp(0.25, first.T, second.T).T
for row_wise in (True, False):
    merged = merge("nuslerp", 0.25, nuslerp_flatten=False, nuslerp_row_wise=row_wise)
    from_rows, from_columns = (merged - rows).norm().item(), (merged - columns).norm().item()
    print(f"NuSLERP, nuslerp_row_wise={row_wise}: distance {from_rows:.1e} from the interpolation "
          f"by rows, {from_columns:.1e} from that by columns")
    right, wrong = (from_columns, from_rows) if row_wise else (from_rows, from_columns)
    assert right < 1e-5 and wrong > 1e-3
PYTHON
