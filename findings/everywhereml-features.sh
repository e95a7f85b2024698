#!/usr/bin/env bash
# The C++ that everywhereml makes of its spectral features computes nine of the twenty otherwise.
#
# Versions: everywhereml 0.2.40, jinja2 3.1.6, jinja2-workarounds 0.1.0, python-slugify 9.2.0,
#     numpy 2.4.6, scipy 1.17.1, and the C++ compiler of the machine.
# Guess before the run: the C++ of `SpectralFeatures.to_cpp()` computes the features with which the
#     classifier was trained in Python, up to rounding. (Suspected after reading the template.)
# Seen: for windows of 32 numbers,
#     1. skewness and kurtosis are sums, not means: 32 times too large;
#     2. the positions of maximum and minimum are always 0, as they are divided by 32;
#     3. the coefficient of variation takes the variance for the standard deviation;
#     4. the absolute maximum and minimum are those of the absolute values, where Python has the
#        absolute values of maximum and minimum: 0.02 for 2;
#     5. mean change and complexity are divided by 32, where Python divides by 31.
#     Nothing is said. A decision tree that was trained in Python sees other numbers on the device.
# For gyre: it has no such features. There, train on the features that the device prints.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile jinja2==3.1.6 python-slugify==9.2.0 numpy==2.4.6 \
    scipy==1.17.1
env/bin/pip install --quiet --no-compile --no-deps everywhereml==0.2.40 jinja2-workarounds==0.1.0
env/bin/python -W ignore - <<'PYTHON'
import subprocess
from types import SimpleNamespace

import numpy as np
from everywhereml.preprocessing import SpectralFeatures

WINDOW, N_WINDOWS = 32, 50


def make_dataset(x):
    """Return what SpectralFeatures needs of a data set of windows with one number a step."""
    return SimpleNamespace(X=x, num_inputs=x.shape[1], feature_names=["x"],
                           get_annotations_by_attribute=lambda name: [WINDOW],
                           replace=lambda X, feature_names: X)


generator = np.random.default_rng(0)
x = generator.normal(0.3, 1, size=(N_WINDOWS, WINDOW)).astype(np.float32)
features = SpectralFeatures(order=2)
features.fit(make_dataset(x))
in_python = features.transform(make_dataset(x.astype(float)))
names = features.feature_names
assert in_python.shape == (N_WINDOWS, len(names)) == (N_WINDOWS, 20)

code = features.to_cpp(class_name="Features") + """
#include <cstdio>
int main() {
    Features features;
    float x[SIZE];
    while (true) {
        for (int i = 0; i < WINDOW; i++) if (std::scanf("%f", x + i) != 1) return 0;
        features.transform(x);
        for (int i = 0; i < SIZE; i++) std::printf("%.9g ", x[i]);
        std::printf("\\n");
    }
}
""".replace("SIZE", str(max(WINDOW, len(names)))).replace("WINDOW", str(WINDOW))
headers = ["cmath", "cstdint", "cstdlib", "cstring"]
header = "".join(f"#include <{name}>\n" for name in headers) + "using namespace std;\n"
with open("features.cpp", "w") as file:
    file.write(header + code)
subprocess.run(["c++", "-w", "-o", "features", "features.cpp"], check=True)
text = "\n".join(" ".join(f"{number:.9g}" for number in row) for row in x)
output = subprocess.run(["./features"], input=text, capture_output=True, text=True, check=True)
in_cpp = np.array([line.split()[:len(names)] for line in output.stdout.splitlines()], float)
assert in_cpp.shape == in_python.shape

centred = x - x.mean(1, keepdims=True)
std = np.sqrt((centred**2).mean(1))
due = {  # by the usual definitions
    "skew": (centred**3).mean(1) / std**3,
    "kurtosis": (centred**4).mean(1) / std**4,
    "first_position_of_max": x.argmax(1),
    "first_position_of_min": x.argmin(1),
    "mean_abs_change": abs(np.diff(x)).mean(1),
    "cid_ce": (np.diff(x)**2).mean(1)}
seen = {
    "skew": WINDOW * due["skew"],
    "kurtosis": WINDOW * due["kurtosis"],
    "first_position_of_max": np.zeros(N_WINDOWS),
    "first_position_of_min": np.zeros(N_WINDOWS),
    "variation_coefficient": np.where(x.mean(1) > 1e-3, std**2 / x.mean(1), 0),
    "abs_maximum": abs(x).max(1),
    "abs_minimum": abs(x).min(1),
    "mean_abs_change": due["mean_abs_change"] * (WINDOW - 1) / WINDOW,
    "cid_ce": due["cid_ce"] * (WINDOW - 1) / WINDOW}
for name, by_python, by_cpp in zip(names, in_python.T, in_cpp.T, strict=True):
    print(f"{name}: {by_python[0]:.3f} in Python, {by_cpp[0]:.3f} in C++")
    if name in due:
        assert np.allclose(by_python, due[name], rtol=1e-3, atol=1e-3)
    assert np.allclose(by_cpp, seen.get(name, by_python), rtol=1e-2, atol=1e-2)
    assert np.allclose(by_cpp, by_python, rtol=1e-2, atol=1e-2) == (name not in seen)
PYTHON
