#!/usr/bin/env bash
# With torch 2.14, the learned phases of PoPE never learn: `clamp` has no gradient where they start.
#
# Versions: PoPE-pytorch 0.2.1, x-transformers 2.31.10, torch 2.13.0 and 2.14.1.
# Guess: a newer torch trains the phases as the older one does. (Written down after the first run: a
#     test of gyre's own PoPE had failed with torch 2.14.1.)
# Seen: phases start at 0, and are clamped to -2 pi .. 0 in the forward pass. Up to torch 2.13, a
#     number at a bound of `clamp` has the gradient 1, and from 2.14 on 0. So with 2.13 all phases of
#     both packages have moved after 50 steps, and with 2.14.1 none, without a word. Phases that are
#     to be learned end with ten times the loss. (That the gradient changed is known:
#     pytorch/pytorch#195931.)
# For gyre: `pope` computes the clamp so that a phase at its bound learns with every torch. There,
#     clamp the parameter after each step instead, or start the phases below 0.
# It downloads some 3 GB, because torch 2.14.1 for Linux comes with CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/train.py" <<'PYTHON'
import sys

import torch
import torch.nn.functional as F
from PoPE_pytorch import PoPE
from x_transformers import Decoder, TransformerWrapper

STEPS = 50


def train_model():
    """Return the phases of a model of x-transformers that learns to repeat 16 tokens."""
    torch.manual_seed(0)
    layers = Decoder(dim=64, depth=2, heads=4, attn_dim_head=16, polar_pos_emb=True)
    model = TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        half = torch.randint(64, (16, 16))
        tokens = torch.cat((half, half), dim=1)
        loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layers.polar_pos_emb.learned_bias


def train_phases():
    """Return the phases of PoPE-pytorch, and the last loss, after learning phases of -1 to 0."""
    torch.manual_seed(0)
    pope = PoPE(16, heads=4)
    wanted = -torch.rand(4, 16)
    optimizer = torch.optim.Adam(pope.parameters(), lr=1e-2)
    for _ in range(STEPS):
        q, k = torch.randn(2, 16, 4, 32, 16).unbind()
        frequencies, phases = pope(32)
        scores = []
        for bias in (phases, wanted):
            turned_q, turned_k = PoPE.apply_pope_to_qk((frequencies, bias), q, k)
            scores.append(turned_q @ turned_k.mT)
        loss = (scores[0] - scores[1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return pope.bias, loss.item()


def moved(phases):
    return (phases != 0).float().mean().item()


in_model = moved(train_model())
phases, loss = train_phases()
alone = moved(phases)
print(f"torch {torch.__version__}: moved phases {in_model:.0%} (x-transformers) and {alone:.0%} "
      f"(PoPE-pytorch, loss {loss:.2f})")
if sys.argv[1] == "learns":
    assert in_model == alone == 1
    assert loss < 0.5
else:
    assert in_model == alone == 0
    assert loss > 2
PYTHON
for version in 2.13.0 2.14.1; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install --quiet --no-compile torch==$version numpy==2.4.6 \
        PoPE-pytorch==0.2.1 x-transformers==2.31.10
done
"$folder/2.13.0/bin/python" "$folder/train.py" learns
"$folder/2.14.1/bin/python" "$folder/train.py" stands
