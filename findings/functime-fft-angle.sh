#!/usr/bin/env bash
# functime's phase angles are 90 degrees minus the phase.
#
# Versions: functime 1.0.0, polars 2.1.0.
# Guess before the run: the angles of fft_coefficients are those of NumPy's complex numbers, in
#     degrees: 0 for a cosine, -90 for a sine, and d degrees more for a cosine that is d degrees
#     ahead. (Suspected otherwise after reading the source.)
# Seen: arctan2 gets the real part before the imaginary one (feature_extractors.py): 90 for a cosine,
#     180 for a sine, and 60 for a cosine that is 30 degrees ahead, so that angles fall where phases
#     rise. Real and imaginary parts are right.
# For gyre: it transforms no series. There, take 90 minus the angle.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile functime==1.0.0 polars==2.1.0 numpy==2.4.6 \
    scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import polars as pl
from functime.feature_extractors import fft_coefficients

N_VALUES = 32
FREQUENCY = 3
places = 2 * np.pi * FREQUENCY * np.arange(N_VALUES) / N_VALUES
for ahead in [0, 30, 60, 120, -90]:
    values = np.cos(places + np.radians(ahead))
    found = fft_coefficients(pl.Series(values))
    exact = np.fft.rfft(values)
    angle = found["angle"][FREQUENCY]
    print(f"cosine {ahead} degrees ahead: {angle:.1f}, by NumPy "
          f"{np.degrees(np.angle(exact[FREQUENCY])):.1f}")
    assert np.allclose(found["real"], exact.real) and np.allclose(found["imag"], exact.imag)
    assert np.isclose(np.degrees(np.angle(exact[FREQUENCY])), ahead)
    assert np.isclose((angle - (90 - ahead) + 180) % 360, 180)
PYTHON
