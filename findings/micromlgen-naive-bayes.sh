#!/usr/bin/env bash
# The Gaussian naive Bayes of micromlgen has no Gaussians, and priors without a logarithm.
#
# Versions: micromlgen 1.1.28, scikit-learn 1.9.1, numpy 2.4.6, and the C++ compiler of the machine.
# Guess before the run: the ported classifier predicts the labels of scikit-learn: the largest sum
#     of log prior and log densities. (Suspected after reading the template.)
# Seen: the score is prior - sum of (log variance + |x - mean| / variance), where
#     log prior - sum of (log variance + (x - mean)**2 / variance) / 2 is due. Labels change with
#     the units of the data: with numbers 20 times as large, the distances hardly count, the class
#     with the smaller variances gets all samples, and the accuracy falls from 0.88 to 0.51. A class
#     with one sample in twenty is predicted nearly twice as often as due. Nothing is said.
# For gyre: it has no such classifier. There, port a logistic regression of three classes or more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile micromlgen==1.1.28 scikit-learn==1.9.1 numpy==2.4.6
env/bin/python -W ignore - <<'PYTHON'
import subprocess

import numpy as np
from micromlgen import port
from sklearn.naive_bayes import GaussianNB

MAIN = """
int main() {
    Eloquent::ML::Port::GaussianNB model;
    float row[WIDTH];
    for (;;) {
        for (int i = 0; i < WIDTH; i++)
            if (scanf("%f", row + i) != 1) return 0;
        printf("%d\\n", (int) model.predict(row));
    }
}
"""


def run(model, x):
    """Return the labels of the ported classifier, compiled."""
    headers = ["cstdio", "cstdint", "cstdarg", "cstring", "cstdlib", "cmath"]
    code = "".join(f"#include <{header}>\n" for header in headers) + "using namespace std;\n"
    code += port(model) + MAIN.replace("WIDTH", str(x.shape[1]))
    with open("ported.cpp", "w") as file:
        file.write(code)
    subprocess.run(["c++", "-w", "-o", "ported", "ported.cpp"], check=True)
    rows = "\n".join(" ".join(str(number) for number in row) for row in x.tolist())
    output = subprocess.run(["./ported"], input=rows, capture_output=True, text=True, check=True)
    return np.array(output.stdout.split(), dtype=int)


generator = np.random.default_rng(0)
for name, share, scale in [("balanced", 0.5, 1.0), ("in units 20 times smaller", 0.5, 20.0),
                           ("one in twenty", 0.05, 1.0)]:
    y = (generator.random(2000) < share).astype(int)
    deviations = np.where(y, 1.2, 1.0)[:, None]
    x = scale * (deviations * generator.normal(size=(len(y), 3)) + 1.5 * y[:, None])
    model = GaussianNB().fit(x, y)
    model.sigma_ = model.var_  # micromlgen reads its name before scikit-learn 1.2
    exact, ported = model.predict(x), run(model, x)
    distance = x[:, None] - model.theta_  # (N, 2, features)
    due = np.log(model.class_prior_) - (
        np.log(model.var_) + distance**2 / model.var_).sum(2) / 2
    seen = model.class_prior_ - (np.log(model.var_) + abs(distance) / model.var_).sum(2)
    right = [(labels == y).mean() for labels in [exact, ported]]
    print(f"{name}: accuracy {right[0]:.3f} by scikit-learn, {right[1]:.3f} ported; label 1 for "
          f"{exact.mean():.3f} and {ported.mean():.3f}")
    assert (due.argmax(1) == exact).all()
    assert (seen.argmax(1) == ported).mean() > 0.998
    assert right[0] > 0.85
    if scale > 1:
        assert right[1] < 0.6 and ported.mean() < 0.01
    if share < 0.5:
        assert ported.mean() > 1.5 * exact.mean()
PYTHON
