#!/usr/bin/env bash
# The losses of sparsify that are to revive dead latents do not train the encoder.
#
# Versions: eai-sparsify 1.3.3, transformers 4.57.6, torch 2.13.0.
# Guess before the run: the AuxK loss trains the dead latents that it decodes, encoder and decoder,
#     and the Multi-TopK loss those beyond the first k (Gao et al. 2024, arXiv:2406.04093): a latent
#     is dead as its encoder does not reach the top k. (That the encoder is left out was suspected
#     after reading the source.)
# Seen: the gradient of both losses for the encoder is 0 in every element, where a difference
#     quotient is not; only the decoder learns from them. The encoder's own backward returns a
#     gradient of the k chosen values and drops that of all others, from which both losses take
#     theirs. So no loss moves a dead latent towards the top k. Nothing is said. The gradient of
#     the main loss is right.
# For gyre: it trains no sparse autoencoders. There, compute pre_acts again by relu and linear.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile eai-sparsify==1.3.3 transformers==4.57.6 \
    torch==2.13.0 numpy==2.4.6 accelerate==1.15.0 datasets==5.0.1 einops==0.8.2 \
    natsort==8.4.0 schedulefree==1.4.1 simple-parsing==0.1.9
cd "$folder"
SPARSIFY_DISABLE_TRITON=1 env/bin/python - <<'PYTHON'
import torch
from sparsify import SparseCoder, SparseCoderConfig

WIDTH = 16
N_LATENTS = 64
N_ALIVE = 40
STEP = 1e-6

torch.set_num_threads(1)
torch.manual_seed(0)
config = SparseCoderConfig(num_latents=N_LATENTS, k=4, multi_topk=True)
coder = SparseCoder(WIDTH, config).double()
x = torch.randn(256, WIDTH).double()
dead = torch.arange(N_LATENTS) >= N_ALIVE
with torch.no_grad():
    coder.encoder.bias[dead] = -1.0


def measure(name):
    """Return the encoder's gradient, and the derivative by the biases of the dead latents."""
    coder.zero_grad()
    getattr(coder(x, dead_mask=dead), name).backward()
    losses = []
    with torch.no_grad():
        for shift in [STEP, -2 * STEP]:
            coder.encoder.bias[dead] += shift
            losses.append(getattr(coder(x, dead_mask=dead), name).item())
        coder.encoder.bias[dead] += STEP
    by_difference = (losses[0] - losses[1]) / (2 * STEP)
    encoder = max(p.grad.abs().max().item() for p in coder.encoder.parameters())
    dead_sum = coder.encoder.bias.grad[dead].sum().item()
    decoder = coder.W_dec.grad[dead].abs().max().item()
    print(f"{name}: largest gradient in the encoder {encoder:.2g}, of dead latents in the decoder "
          f"{decoder:.2g}; by the dead latents' biases {dead_sum:.2g}, by differences "
          f"{by_difference:.2g}")
    return encoder, decoder, dead_sum, by_difference


for name in ["auxk_loss", "multi_topk_fvu"]:
    encoder, decoder, _, by_difference = measure(name)
    assert encoder == 0 and decoder > 1e-4 and abs(by_difference) > 1e-3
encoder, _, dead_sum, by_difference = measure("fvu")
assert encoder > 1e-3 and abs(dead_sum / by_difference - 1) < 1e-4
PYTHON
