#!/usr/bin/env bash
# deeplens-sae gives the decoder's rows unit norm, not its features, and never clips gradients.
#
# Versions: deeplens-sae 0.1.1, torch 2.13.0.
# Guess before the run: with unit_norm_decoder=True, the default, "each feature's decoder weight
#     vector" has norm 1 after each step, as the documentation says, so that the L1 penalty cannot
#     be lowered by small activations and long vectors. With grad_clip_norm, gradients are clipped.
#     (Both were suspected otherwise after reading the source.)
# Seen: an nn.Linear has its outputs as rows: the vectors of the 16 inputs get norm 1, those of the
#     64 features have 0.35 to 0.61 at the start, and 0.24 to 0.79 after 500 steps. Gradients are
#     clipped after zero_grad and before backward, when there are none: with a limit of 1e-9, all
#     weights are those without a limit, bit for bit. (With bfloat16 on a GPU, they are clipped.)
# For gyre: it trains no such autoencoders. There, normalize with dim=0 and clip by a hook.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile wandb==0.23.1 PyYAML==6.0.3 matplotlib==3.10.8 \
    pandas==2.3.3 tqdm==4.67.1 transformers==4.57.6 datasets==4.4.2 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps deeplens-sae==0.1.1
cd "$folder"  # it saves checkpoints here
env/bin/python -W ignore - <<'PYTHON'
import contextlib
import io

import torch
from deeplens.sae import SparseAutoencoder
from deeplens.train import SAETrainer

WIDTH = 16
N_FEATURES = 64
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
directions = torch.randn(N_FEATURES, WIDTH, generator=generator)
amounts = torch.rand(4000, N_FEATURES, generator=generator)
is_active = torch.rand(4000, N_FEATURES, generator=generator) < 0.05
inputs = (amounts * is_active) @ directions


def train(limit):
    """Return decoder weights (WIDTH, N_FEATURES) before and after 500 steps, with a norm limit."""
    torch.manual_seed(0)
    model = SparseAutoencoder(WIDTH, N_FEATURES, input_norm=False, beta_l1=0.01)
    before = model.decoder.weight.detach().clone()
    loader = torch.utils.data.DataLoader(inputs, batch_size=80)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = SAETrainer(loader, loader, model,
                             optim=torch.optim.SGD(model.parameters(), lr=0.5), epochs=10,
                             device="cpu", grad_clip_norm=limit, log_to_wandb=False)
        trainer.train()
    return before, model.decoder.weight.detach()


before, after = train(None)
for name, weight in [("at the start", before), ("after 500 steps", after)]:
    features = weight.norm(dim=0)
    rows = weight.norm(dim=1)
    print(f"{name}: norms of the features' vectors {features.min():.2f} to {features.max():.2f}, "
          f"of the rows {rows.min():.2f} to {rows.max():.2f}")
    assert features.max() < 0.95 and features.min() < 0.5
    assert torch.allclose(rows, torch.ones(WIDTH), atol=1e-5)
_, limited = train(1e-9)
print(f"with gradients clipped at 1e-9, weights move by {(limited - before).abs().max():.2f}, and "
      f"differ by {(limited - after).abs().max()} from those without clipping")
assert torch.equal(limited, after) and (limited - before).abs().max() > 0.05
PYTHON
