#!/usr/bin/env bash
# torchax draws the same samples for all rows of a batch.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2 (the same code is in torchax 0.0.13).
# Guess before the run: torch.multinomial draws for each row independently, and a generator that is passed
#     twice goes on after its first use, as in PyTorch. (That neither might hold was suspected after reading
#     the source.)
# Seen: all rows are drawn with one key. 64 rows with the same probabilities are one and the same sample, and
#     rows with different ones fall on the same quantile: 200 continuations of one prompt, sampled in a batch,
#     are 200 copies. Each call with a generator starts again from its seed: an epoch of `randperm` with it has
#     the order of the last one.
# For gyre: it samples by PyTorch alone. There, draw `torch.rand` for all rows and search the cumulative sums.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 jax==0.10.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchax==0.0.14.dev20261026
JAX_PLATFORMS=cpu "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
import torchax

ROWS, TOKENS = 64, 1000


def as_numpy(tensor):
    """Return the values of a tensor on the jax device."""
    return np.asarray(tensor.jax())


uniform = torch.full((ROWS, TOKENS), 1 / TOKENS)
ours = torch.multinomial(uniform, 1, generator=torch.Generator().manual_seed(0))
print(f"{ROWS} rows of {TOKENS} equal probabilities: torch draws {len(ours.unique())} different tokens")
assert len(ours.unique()) > 50

with torchax.default_env():
    for replacement in (True, False):
        for n_samples in (1, 5):
            draws = [as_numpy(torch.multinomial(uniform.to("jax"), n_samples, replacement=replacement))
                     for _ in range(3)]
            different = [len(np.unique(draw, axis=0)) for draw in draws]
            print(f"torchax, {n_samples} of each row, replacement={replacement}: {different} different rows "
                  "in three calls")
            assert different == [1, 1, 1]
            assert len(np.unique(np.concatenate(draws), axis=0)) > 1

    # Rows with different probabilities: the token's place in the cumulative sum is the same for all.
    probabilities = torch.rand(ROWS, TOKENS, generator=torch.Generator().manual_seed(1))
    probabilities /= probabilities.sum(1, keepdim=True)
    tokens = as_numpy(torch.multinomial(probabilities.to("jax"), 1, replacement=True))
    quantiles = np.take_along_axis(probabilities.cumsum(1).numpy(), tokens, axis=1)
    print(f"rows with different probabilities: quantiles from {quantiles.min():.3f} to {quantiles.max():.3f}")
    assert np.ptp(quantiles) < 0.01

    generator = torch.Generator().manual_seed(3)
    epochs = [as_numpy(torch.randperm(TOKENS, generator=generator, device="jax")) for _ in range(2)]
    print(f"two epochs of randperm with one generator are the same: {np.array_equal(*epochs)}")
    assert np.array_equal(*epochs)
generator = torch.Generator().manual_seed(3)
assert not torch.equal(torch.randperm(TOKENS, generator=generator), torch.randperm(TOKENS, generator=generator))
PYTHON
