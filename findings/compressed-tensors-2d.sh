#!/usr/bin/env bash
# compressed-tensors gives all tokens one scale, if the input of a layer has no batch dimension.
#
# Versions: compressed-tensors 0.20.1, torch 2.13.0, transformers 5.24.0.
# Guess before the run: with activations quantized per token, each token has a scale of its own. A
#     layer that gets its tokens as rows of a matrix, as the experts of a mixture do, rounds them as
#     one that gets them as batches of texts. (That it does not was suspected after reading the
#     source.)
# Seen: a matrix has one scale for all rows. With one token that is 100 times as large, the others
#     have an error of 0.74 with 8 bits, where a batch of texts has 0.006; without such a token it
#     is 1.5 times as large. With four dimensions, all tokens of a text in a batch share one too.
# For gyre: its exports are not quantized. There, give the layer `x[None]`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile compressed-tensors==0.20.1 torch==2.13.0 \
    transformers==5.24.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - 2>"$folder/log" <<'PYTHON'
import torch
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    apply_quantization_config,
)
from torch import nn

N_TOKENS, WIDTH = 24, 64
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False))
weights = model[0].weight.detach().clone()
per_token = QuantizationArgs(num_bits=8, strategy="token", dynamic=True, symmetric=True)
scheme = QuantizationScheme(targets=["Linear"], input_activations=per_token)
apply_quantization_config(model, QuantizationConfig(config_groups={"all": scheme}))


def round_rows(x, scale):
    return (x / scale).round().clamp(-128, 127) * scale


def errors(y, tokens):
    """Return the relative error of each token's output."""
    expected = tokens @ weights.T
    return (y.reshape(N_TOKENS, -1) - expected).norm(dim=-1) / expected.norm(dim=-1)


for factor in [1, 100]:
    tokens = torch.randn(N_TOKENS, WIDTH)
    tokens[3] *= factor
    others = torch.arange(N_TOKENS) != 3
    largest = tokens.abs().amax(-1, keepdim=True)
    exact = errors(round_rows(tokens, largest / 127.5) @ weights.T, tokens)
    one_scale = errors(round_rows(tokens, largest.max() / 127.5) @ weights.T, tokens)
    print(f"a token is {factor} times as large; by hand: error of the others "
          f"{exact[others].mean():.4f} with a scale each, {one_scale[others].mean():.4f} with one")
    for shape in [(1, N_TOKENS, WIDTH), (2, N_TOKENS // 2, WIDTH), (N_TOKENS, 1, WIDTH),
                  (N_TOKENS, WIDTH), (1, 1, N_TOKENS, WIDTH)]:
        seen = errors(model(tokens.view(shape)), tokens)
        print(f"    input {shape}: error of the others {seen[others].mean():.4f}")
        expected = exact if len(shape) == 3 else one_scale
        assert torch.allclose(seen, expected, rtol=0.02)
    if factor == 100:
        assert exact[others].max() < 0.02 and one_scale[others].min() > 0.3
PYTHON
