#!/usr/bin/env bash
# In pyvene, an intervention on principal components deletes all others.
#
# Versions: pyvene 0.1.8, transformers 5.24.0, torch 2.13.0, scikit-learn 1.9.1.
# Guess before the run: PCARotatedSpaceIntervention swaps the coordinates along the given principal
#     components, or the chosen ones of them, and leaves the rest of the vector as it is, as
#     LowRankRotatedSpaceIntervention does for its directions: a source that is the base changes
#     nothing. (That it does was suspected after reading the source.)
# Seen: the vector is put together from the given components alone. With 4 of 32 components, which
#     have 15 % of the variance, a source equal to the base takes the other 85 % away, whichever
#     coordinates are swapped: what is measured is the effect of the deletion. With all components
#     it is right.
# For gyre: nobody intervenes on it. There, give a PCA with all components, and choose by
#     `subspaces`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 \
    transformers==5.24.0 matplotlib==3.11.2 scikit-learn==1.9.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pyvene==0.1.8
HF_HOME="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pyvene
import torch
from sklearn.decomposition import PCA

WIDTH, N_ROWS = 32, 2000
torch.set_num_threads(1)
generator = np.random.default_rng(0)
data = generator.normal(size=(N_ROWS, WIDTH)) @ np.diag(np.linspace(1.5, 1, WIDTH)) + 3
mean, std = data.mean(0), data.std(0)
base = torch.tensor(data[:500], dtype=torch.float32)


def measure(intervention, subspaces):
    """Return how much of its variance the base loses if the source is the base."""
    after = intervention(base.clone(), base.clone(), subspaces)
    return ((after - base).square().sum() / (base - base.mean(0)).square().sum()).item()


for n_components in (4, 16, 32):
    pca = PCA(n_components).fit((data - mean) / std)
    by_pca = pyvene.PCARotatedSpaceIntervention(
        embed_dim=WIDTH, pca=pca, pca_mean=mean, pca_std=std)
    by_rank = pyvene.LowRankRotatedSpaceIntervention(
        embed_dim=WIDTH, low_rank_dimension=n_components)
    share = pca.explained_variance_ratio_.sum()
    print(f"{n_components} components with {share:.2f} of the variance, source = base:")
    for name, subspaces in [("all coordinates", None), ("the first one", [[0]] * len(base))]:
        changes = measure(by_pca, subspaces), measure(by_rank, subspaces)
        print(f"    {name} swapped: PCA changes {changes[0]:.3f} of the variance, "
              f"LowRankRotatedSpaceIntervention {changes[1]:.3f}")
        assert changes[1] < 1e-6
        if n_components == WIDTH:
            assert changes[0] < 1e-6
        else:
            assert abs(changes[0] - (1 - share)) < 0.1
PYTHON
