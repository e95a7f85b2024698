#!/usr/bin/env bash
# In torchax, exponential_() and cauchy_() leave a tensor as it is.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2 (the same code is in torchax 0.0.13).
# Guess before the run: `exponential_` fills a tensor with exponential numbers, so that the token with the
#     largest probability / noise is a sample, as in gpt-fast; `random_` with integers. (That exponential_
#     would give the same numbers in each call was suspected after reading the source.)
# Seen: `exponential_` and `cauchy_` compute numbers, always the same ones, and throw them away: the tensor
#     keeps what was in it, which is unset memory after `torch.empty`. With ones, what looks like sampling
#     takes the most likely token each time. `random_` gives fractions between 0 and 1; with the bounds 0 and
#     10, fractions up to 10. `normal_` and `uniform_` are right.
# For gyre: it samples by PyTorch alone. There, take `-torch.log(torch.rand(...))`.
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

N = 20_000
PROBABILITIES = torch.tensor([0.4, 0.3, 0.2, 0.1])
CALLS = 300


def as_numpy(tensor):
    """Return the values of a tensor on the jax device."""
    return np.asarray(tensor.jax())


def sample(device):
    """Return the token with the largest probability / noise."""
    noise = torch.ones(4, device=device).exponential_()
    return (PROBABILITIES.to(device) / noise).argmax(-1)


torch.manual_seed(0)
ours = np.array([sample("cpu").item() for _ in range(CALLS)])
print(f"torch samples the tokens {np.bincount(ours, minlength=4) / CALLS}")
assert abs((ours == 0).mean() - 0.4) < 0.12

with torchax.default_env():
    theirs = np.array([int(as_numpy(sample("jax"))) for _ in range(CALLS)])
    print(f"torchax samples the tokens {np.bincount(theirs, minlength=4) / CALLS}")
    assert np.all(theirs == 0)
    for name in ("exponential_", "cauchy_"):
        values = as_numpy(getattr(torch.full((N,), 7.0, device="jax"), name)())
        print(f"{name} on sevens gives {np.unique(values)}")
        assert np.all(values == 7)
    for name, mean in [("normal_", 0), ("uniform_", 0.5)]:
        values = as_numpy(getattr(torch.full((N,), 7.0, device="jax"), name)())
        print(f"{name} has the mean {values.mean():.2f}, where {mean:.2f} is due")
        assert abs(values.mean() - mean) < 0.2
    for bounds in ((), (0, 10)):
        values = as_numpy(torch.zeros(N, device="jax").random_(*bounds))
        print(f"random_{bounds} gives {values[:3].round(3)}, at most {values.max():.3f}")
        assert (values == np.round(values)).mean() < 0.01
        assert values.max() < (bounds or (0, 1))[1]
assert torch.all(torch.zeros(N).random_(0, 10) % 1 == 0)
PYTHON
