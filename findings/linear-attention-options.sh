#!/usr/bin/env bash
# In linear-attention-transformer, ff_glu, ff_dropout and pkm_num_keys do nothing.
#
# Versions: linear-attention-transformer 0.19.1, torch 2.13.0.
# Guess before the run: `ff_dropout=0.5` drops half of the hidden units of each feed-forward layer
#     in training, `ff_glu=True` gives them a gate and half as many parameters more, and
#     `pkm_num_keys` is the number of keys of a product-key memory. (That they are not passed on was
#     suspected after reading the source.)
# Seen: the model is the same for any value, parameter by parameter, and the loss in training is the
#     same twice. Only the layers that `attend_axially` and `receives_context` add get the first
#     two. Dropout of the attention layers works.
# For gyre: it has no such layers. There, set `p` of the Dropout modules by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile linear-attention-transformer==0.19.1 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from linear_attention_transformer import LinearAttentionTransformerLM

torch.set_num_threads(1)


def describe(**options):
    """Return the number of parameters, and how far two passes of a training model differ."""
    torch.manual_seed(0)
    model = LinearAttentionTransformerLM(
        num_tokens=32, dim=32, depth=2, max_seq_len=64, heads=2, dim_head=16, causal=True,
        local_attn_window_size=16, **options).train()
    tokens = torch.randint(0, 32, (2, 64))
    difference = (model(tokens) - model(tokens)).abs().max().item()
    return sum(parameter.numel() for parameter in model.parameters()), difference


plain, _ = describe()
memory, _ = describe(pkm_layers=(1,))
gates = 2 * (32 * 128 + 128)  # a second half of w1 and of its bias in two layers
for options, due in [({}, "the same"), ({"ff_glu": True}, f"{plain + gates:,} parameters"),
                     ({"ff_dropout": 0.5}, "two passes differ"),
                     ({"attn_layer_dropout": 0.5}, "two passes differ"),
                     ({"pkm_layers": (1,)}, "the same"),
                     ({"pkm_layers": (1,), "pkm_num_keys": 16}, "fewer parameters")]:
    n_parameters, difference = describe(**options)
    print(f"{options}: {n_parameters:,} parameters, two passes in training differ by "
          f"{difference:.3f}; due: {due}")
    assert n_parameters == (memory if "pkm_layers" in options else plain)
    assert (difference > 0.01) == ("attn_layer_dropout" in options)
assert memory > plain
PYTHON
