#!/usr/bin/env bash
# In Keras, istft without a window gives back the signal times the overlap: 4 times, or 8 times.
#
# Versions: keras 3.15.1, jax 0.10.2, torch 2.13.0, scipy 1.17.1, numpy 2.4.6.
# Guess before the run: `istft` with the arguments of `stft` gives back the signal, as its
#     documentation says, and `window=None` is a window of ones, on each backend. (The factor came
#     out of a comparison of the backends. None was suspected.)
# Seen: without a window, the sum of overlapping frames is divided by the stride instead of the sum
#     of the window: with a stride of a quarter, each sample is 4 times as large. Where the FFT is
#     twice as long as the frame, JAX and NumPy take a window of the FFT's length, so that the
#     spectrum is another one as well, and the factor is 8; with torch it is 4. "hann" and a tensor
#     of ones are right on all three. Nothing is said.
# For gyre: it has no Fourier transforms. There, give a tensor of ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile keras==3.15.1 jax==0.10.2 torch==2.13.0 \
    scipy==1.17.1 numpy==2.4.6
cat > "$folder/invert.py" <<'PYTHON'
import sys

import keras
import numpy as np
from keras import ops

FRAME, N_SAMPLES = 64, 384
signal = np.random.default_rng(0).normal(size=N_SAMPLES).astype(np.float32)
# Samples that all frames reach that overlap there.
inside = slice(128, 256)


def measure(stride, fft_length, window, center):
    """Return the median ratio of the inverse to the signal, its spread, and the first spectrum."""
    given = {"window": window, "center": center}
    spectrum = ops.stft(signal, FRAME, stride, fft_length, **given)
    inverse = ops.istft(spectrum, FRAME, stride, fft_length, length=N_SAMPLES, **given)
    ratios = (ops.convert_to_numpy(inverse) / signal)[inside]
    return np.median(ratios), np.quantile(ratios, 0.95) - np.quantile(ratios, 0.05), spectrum


backend = keras.backend.backend()
assert backend == sys.argv[1]
ones = np.ones(FRAME, np.float32)
for stride, fft_length in [(16, 64), (32, 64), (16, 128)]:
    for center in [True, False]:
        by_window = {}
        for name, window in [("hann", "hann"), ("ones", ones), ("None", None)]:
            ratio, spread, spectrum = measure(stride, fft_length, window, center)
            by_window[name] = ratio
            if name == "ones":
                with_ones = ops.convert_to_numpy(spectrum[0])
            assert spread < 1e-3
        same = np.allclose(with_ones, ops.convert_to_numpy(spectrum[0]), atol=1e-3)
        print(f"{backend}, frame {FRAME}, stride {stride}, FFT {fft_length}, center {center}: "
              f"inverse / signal is {by_window['hann']:.3f} with hann, {by_window['ones']:.3f} "
              f"with ones, {by_window['None']:.3f} with None; spectra with ones and None are "
              f"{'equal' if same else 'not equal'}")
        assert abs(by_window["hann"] - 1) < 1e-3 and abs(by_window["ones"] - 1) < 1e-3
        length = FRAME if backend == "torch" else fft_length
        assert abs(by_window["None"] - length / stride) < 1e-2
        assert same == (backend == "torch" or fft_length == FRAME)
PYTHON
for backend in numpy jax torch; do
    KERAS_BACKEND=$backend JAX_PLATFORMS=cpu "$folder/env/bin/python" -W ignore \
        "$folder/invert.py" "$backend"
done
