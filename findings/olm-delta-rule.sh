#!/usr/bin/env bash
# OpenLanguageModel's Gated DeltaNet and Kimi Delta Attention have no delta rule: values of a key add up.
#
# Versions: openlanguagemodel 2.2.1, transformers 5.24.0, torch 2.13.0.
# Guess before the run: with a gate of 1, a value that is written to a key replaces the one that was there, as in the
#     papers that are named and in Qwen3-Next of transformers. (That the term is missing was read before the run.)
# Seen: two values of one key are read as their sum, and a token that comes 100 times has an output 100 times as
#     large as the first time; by the rule it stays as it is. Where no key comes twice, both agree. The layers are those
#     of the package's Qwen3-Next, Qwen3.5 and Kimi Linear.
# Cause: S = alpha * S + beta * k v^T, without what k reads of S before: beta * k (v - alpha * S^T k)^T
#     (olm/nn/attention/gated_deltanet.py and kda.py); the docstring has the shorter formula, and calls it the gated
#     delta rule.
# For gyre: its attention is softmax. There, no weights of such models can be used.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==5.24.0 \
    datasets==5.2.0 openlanguagemodel==2.2.1
export OMP_NUM_THREADS=1 TRANSFORMERS_VERBOSITY=error
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from olm.nn.attention import KimiDeltaAttention
from olm.nn.attention.gated_deltanet import GatedDeltaNet
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

SIZE = 4  # of a key and of a value; a token is both, one behind the other


def make(layer_class):
    """A layer that keeps everything (alpha 1) and writes everything (beta 1)."""
    sizes = {"num_heads": 1, "head_dim": SIZE}
    if layer_class is GatedDeltaNet:
        sizes = {"num_key_heads": 1, "num_value_heads": 1, "key_head_dim": SIZE, "value_head_dim": SIZE}
    layer = layer_class(2 * SIZE, **sizes).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.q_norm.weight.fill_(1)
        layer.k_norm.weight.fill_(1)
        layer.q_proj.weight[:, :SIZE] = layer.k_proj.weight[:, :SIZE] = torch.eye(SIZE)
        layer.v_proj.weight[:, SIZE:] = torch.eye(SIZE)
        layer.alpha_proj.bias.fill_(30)
        layer.beta_proj.bias.fill_(30)
        layer.out_proj.weight[:SIZE] = 2 * torch.eye(SIZE)  # the output gate is sigmoid(0)
    return layer


def compute_due(tokens):
    keys, values = tokens[None, :, None, :SIZE], tokens[None, :, None, SIZE:]
    ones = torch.ones(1, len(tokens), 1)
    outputs, _ = torch_recurrent_gated_delta_rule(keys * SIZE**0.5, keys, values, g=0 * ones, beta=ones,
                                                  initial_state=None, output_final_state=False)
    return outputs[0, :, 0]


def compute_outputs(layer, tokens):
    with torch.no_grad():
        return layer(tokens[None])[0, :, :SIZE]


torch.manual_seed(0)
keys, values = torch.eye(SIZE), torch.randn(SIZE, SIZE)
distinct = torch.cat([keys, values], -1)
overwritten = torch.cat([keys[[0, 0]], values[[0, 1]]], -1)
repeated = distinct[:1].expand(100, -1)
for layer in [make(GatedDeltaNet), make(KimiDeltaAttention)]:
    name = type(layer).__name__
    assert torch.allclose(compute_outputs(layer, distinct), compute_due(distinct), atol=1e-4)
    found, due = compute_outputs(layer, overwritten)[1], compute_due(overwritten)[1]
    print(f"{name}: second value {[round(x, 2) for x in values[1].tolist()]}, read {[round(x, 2) for x in found.tolist()]}")
    assert torch.allclose(due, values[1], atol=1e-4) and torch.allclose(found, values[0] + values[1], atol=1e-3)
    ratio, ratio_due = [(outputs[-1].norm() / outputs[0].norm()).item()
                        for outputs in [compute_outputs(layer, repeated), compute_due(repeated)]]
    print(f"    the 100th time, a token's output is {ratio:.1f} times as large as the first time, due {ratio_due:.1f}")
    assert abs(ratio - 100) < 1 and abs(ratio_due - 1) < 1e-3
PYTHON
