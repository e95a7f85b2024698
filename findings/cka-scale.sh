#!/usr/bin/env bash
# A layer compared with itself by cka-pytorch has a similarity of 0.03 if its outputs are small.
#
# Versions: cka-pytorch 1.1.3, torch 2.13.0, torchmetrics 1.9.0, lightning 2.6.6, numpy 2.4.6.
# Guess before the run: the CKA of a layer with itself is 1 and does not depend on the scale of its
#     outputs or on the number of epochs. (That it might was suspected after reading the source.)
# Seen: 1e-4 is added to the product of the two HSIC before the root is taken. Each is a fourth
#     power of the outputs: for an embedding of width 64 with the usual standard deviation of 0.02,
#     the root of the product is 0.0004, and the similarity with itself 0.035. HSIC is a sum over
#     batches here, so the same loader read ten times gives 0.33.
# For gyre: it does not compare layers. There, give `epsilon=0`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 torchmetrics==1.9.0 \
    lightning==2.6.6 numpy==2.4.6 seaborn==0.13.2 matplotlib==3.11.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps cka-pytorch==1.1.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from cka_pytorch import CKACalculator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_model(scale):
    """Return an embedding whose weights have this standard deviation."""
    generator = torch.Generator().manual_seed(1)
    return nn.Sequential(nn.Embedding.from_pretrained(
        scale * torch.randn(1000, 64, generator=generator), freeze=False))


def measure(model, n_epochs=1, **options):
    """Return the similarity of an embedding and itself."""
    calculator = CKACalculator(model, model, [nn.Embedding], verbose=False)
    return calculator.calculate_cka_matrix(loader, n_epochs, **options).item()


texts = torch.randint(1000, (256, 8), generator=torch.Generator().manual_seed(0))
loader = DataLoader(TensorDataset(texts, texts), batch_size=64)
seen = {}
for scale in [1, 0.1, 0.05, 0.02]:
    model = make_model(scale)
    for n_epochs in [1, 10]:
        seen[scale, n_epochs] = measure(model, n_epochs)
    print(f"an embedding of standard deviation {scale}, compared with itself: "
          f"{seen[scale, 1]:.4f}, after ten epochs {seen[scale, 10]:.4f}, "
          f"without epsilon {measure(model, epsilon=0):.4f}")
    assert abs(measure(model, epsilon=0) - 1) < 1e-4
assert abs(seen[1, 1] - 1) < 1e-4
assert 0.03 < seen[0.02, 1] < 0.04 and 0.3 < seen[0.02, 10] < 0.36
PYTHON
