#!/usr/bin/env bash
# unit-scaling's attention drops weights after `eval()` too.
#
# Versions: unit-scaling 0.3.5, torch 2.13.0.
# Guess before the run: after `eval()`, a TransformerStack with dropout_p=0.1 is deterministic: two
#     passes are equal, bit for bit. (That they are not was suspected after reading the source.)
# Seen: MHSA gives its `dropout_p` to scaled_dot_product_attention in each mode, and that function
#     has no mode of its own. So an evaluated model is a random one: with 0.1 two passes over one
#     text differ by a quarter of the size of the outputs, with one layer or four. The loss of an
#     evaluation is that of random models, and not of the model. The dropout of the residual
#     branches is off, as it should be.
# For gyre: it has no dropout. There, set `dropout_p = 0` in each MHSA before an evaluation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps unit-scaling==0.3.5
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2 \
    docstring-parser==0.18.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
import unit_scaling as uu

TOKENS, VOCABULARY, HIDDEN, DROPOUT = 64, 32, 64, 0.1
torch.set_num_threads(1)


def relative(left, right):
    return ((left - right).norm() / left.norm()).item()


def make(layers, dropout):
    torch.manual_seed(0)
    return uu.TransformerDecoder(HIDDEN, VOCABULARY, layers, heads=4, dropout_p=dropout)


torch.manual_seed(0)
text = torch.randint(VOCABULARY, (8, TOKENS))
with torch.no_grad():
    for layers in (1, 4):
        model = make(layers, DROPOUT).eval()
        off = make(layers, 0.0).eval()
        assert torch.equal(off(text), off(text))
        difference = relative(model(text), model(text))
        branch = uu.Dropout(DROPOUT).eval()
        assert torch.equal(branch(off(text)), branch(off(text)))
        for module in model.modules():
            if isinstance(module, uu.MHSA):
                module.dropout_p = 0.0
        repaired = relative(model(text), model(text))
        print(f"{layers} layers, dropout {DROPOUT}, after eval(): two passes differ by "
              f"{difference:.2f} of the outputs; with MHSA's dropout_p set to 0 by {repaired}")
        assert difference > 0.05 and repaired == 0
PYTHON
