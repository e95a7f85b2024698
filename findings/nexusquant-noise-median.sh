#!/usr/bin/env bash
# nexusquant's noise level is 70,000 times too large for as many tokens as dimensions.
#
# Versions: nexusquant-kv 0.6.3, numpy 2.4.6.
# Guess before the run: for noise with a deviation of 1, `estimate_noise_sigma` is 1 within a few
#     percent, whatever the number of tokens, and at most one of its dimensions counts as signal.
#     (That the median of the eigenvalues is taken for the variance was suspected after reading.)
# Seen: the median of the Marchenko-Pastur law is found by a sum over a grid that starts where the
#     density of a square matrix is infinite: the first point gets everything, and the median is
#     1e-10 instead of 0.653. With as many tokens as dimensions, the level is 70,000, and shrinkage
#     deletes all signal; with half as many it is 0, and nothing is shrunk. `mp_signal_dims`, which
#     the pipeline calls, divides by no median at all: of noise in 128 dimensions, 63 count as
#     signal with 64 tokens, 13 with 128, and 3 with 512, where the law's edge lets none through.
#     With 2,048 tokens, both are right.
# For gyre: it compresses no cache. There, calibrate with 16 times as many tokens as dimensions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps nexusquant-kv==0.6.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sysconfig

import numpy as np

N_DIMS = 128


def load(name):
    """Load one file of numpy code: the package around it imports torch."""
    path = f"{sysconfig.get_paths()['purelib']}/nexusquant/core/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


threshold, shrinkage = load("mp_threshold"), load("optimal_shrinkage")
generator = np.random.default_rng(0)

# the median by sampling: the middle eigenvalue of a large noise matrix
large = np.linalg.eigvalsh(np.cov(generator.normal(size=(1001, 1000)).T))
medians = shrinkage.mp_median(1.0), shrinkage.mp_median(0.5)
print(f"median of the law, ratio 1: {medians[0]:.3g}, {np.median(large):.3f} by sampling; ratio "
      f"0.5: {medians[1]:.3f}")
assert medians[0] < 1e-9 and abs(np.median(large) - 0.653) < 0.02
assert abs(medians[1] - 0.83) < 0.01

signal = generator.normal(size=N_DIMS)
signal *= 10 / np.linalg.norm(signal)
for n_tokens in [64, 127, 128, 256, 512, 2048]:
    counts = []
    for _ in range(20):
        noise = generator.normal(size=(n_tokens, N_DIMS))
        eigenvalues = np.linalg.eigvalsh(np.cov(noise.T))[::-1]
        counts.append((threshold.mp_signal_dims(eigenvalues, n_tokens, N_DIMS),
                       (eigenvalues > (1 + np.sqrt(N_DIMS / n_tokens)) ** 2).sum()))
    counted, beyond = np.mean(counts, axis=0)
    mixed = noise + generator.normal(size=(n_tokens, 1)) * signal
    eigenvalues = np.linalg.eigvalsh(np.cov(mixed.T))[::-1]
    sigma = shrinkage.estimate_noise_sigma(eigenvalues, n_tokens, N_DIMS)
    kept, due = [shrinkage.variance_retained(eigenvalues, shrinkage.optimal_shrinkage_frobenius(
        eigenvalues, n_tokens, N_DIMS, level)) for level in [None, 1.0]]
    print(f"{n_tokens} tokens, {N_DIMS} dimensions: {counted:.1f} of noise count as signal, "
          f"{beyond:.1f} are beyond the law's edge; with a signal of 10 times the noise, its level is "
          f"{sigma:.3g}, and shrinkage keeps {kept:.0%} of the variance; with the level given, {due:.0%}")
    assert beyond < 1 and due > 0.25
    if n_tokens in [127, 128]:
        assert counted > 8 and sigma > 10_000 and kept == 0
    elif n_tokens == 64:
        assert counted == 63 and sigma < 1e-3
    else:
        assert abs(sigma - 1) < 0.05 and abs(kept - due) < 0.05
        assert counted < 1.5 if n_tokens == 2048 else counted > 2
PYTHON
