#!/usr/bin/env bash
# micromlgen exchanges the two classes of a logistic regression, and has the wrong sign in an SVM.
#
# Versions: micromlgen 1.1.28, scikit-learn 1.9.1, numpy 2.4.6, and the C++ compiler of the machine.
# Guess before the run: ported classifiers predict the labels of scikit-learn. (The SVMs were
#     suspected after reading the templates.)
# Seen: with three classes they do. With two:
#     1. LogisticRegression has each label wrong: a positive score is a vote for the first class.
#     2. SVC takes the intercept with the wrong sign, whatever the kernel: on wines, the accuracy
#     falls from 0.94 to 0.71 (linear) and from 0.96 to 0.74 (RBF).
#     OneClassSVM has the sign too: with the RBF kernel, it never finds an outlier, as no sum of
#     kernels is below a negative number. Its labels are 1 and 0 instead of 1 and -1.
#     Nothing is said.
# For gyre: it has no such classifiers. There, add a third class, or compare the labels first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile micromlgen==1.1.28 scikit-learn==1.9.1 numpy==2.4.6
env/bin/python -W ignore - <<'PYTHON'
import re
import subprocess

import numpy as np
from micromlgen import port
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, OneClassSVM

MAIN = """
int main() {
    Eloquent::ML::Port::NAME model;
    float row[WIDTH];
    for (;;) {
        for (int i = 0; i < WIDTH; i++)
            if (scanf("%f", row + i) != 1) return 0;
        printf("%d\\n", (int) model.predict(row));
    }
}
"""


def run(model, x):
    """Return the labels of the ported model, compiled."""
    code = port(model)
    name = re.search(r"class (\w+) \{", code)[1]
    headers = ["cstdio", "cstdint", "cstdarg", "cstring", "cstdlib", "cmath"]
    code = "".join(f"#include <{header}>\n" for header in headers) + "using namespace std;\n" + code
    code += MAIN.replace("NAME", name).replace("WIDTH", str(x.shape[1]))
    with open("ported.cpp", "w") as file:
        file.write(code)
    subprocess.run(["c++", "-w", "-o", "ported", "ported.cpp"], check=True)
    rows = "\n".join(" ".join(str(number) for number in row) for row in x.tolist())
    output = subprocess.run(["./ported"], input=rows, capture_output=True, text=True, check=True)
    return np.array(output.stdout.split(), dtype=int)


x, three = load_wine(return_X_y=True)
x = StandardScaler().fit_transform(x)[:, :4]
two = (three > 0).astype(int)
models = {"LogisticRegression": LogisticRegression(),
          "linear SVC": SVC(kernel="linear", gamma=0.3),
          "RBF SVC": SVC(kernel="rbf", gamma=0.3)}
for name, model in models.items():
    for y in [three, two]:
        exact = model.fit(x, y).predict(x)
        ported = run(model, x)
        print(f"{name}, {y.max() + 1} classes: accuracy {(exact == y).mean():.3f} by scikit-learn, "
              f"{(ported == y).mean():.3f} ported; {(exact == ported).mean():.3f} equal")
        assert (exact == y).mean() > 0.85
        if y is three:
            assert (ported == exact).all()
            continue
        if name == "LogisticRegression":
            assert (ported == 1 - exact).all()
        else:
            # These are the labels with the other sign of the intercept.
            other_sign = model.decision_function(x) - 2 * model.intercept_
            assert (ported == (other_sign > 0)).mean() > 0.99
            assert (ported == y).mean() < 0.8

for nu in [0.1, 0.3]:
    model = OneClassSVM(kernel="rbf", gamma=0.3, nu=nu).fit(x)
    exact, ported = model.predict(x), run(model, x)
    far = run(model, x + 100)
    print(f"one-class SVM, nu {nu}: outliers {(exact == -1).mean():.3f} by scikit-learn, "
          f"{(ported != 1).mean():.3f} ported; of far points {(far != 1).mean():.3f} ported")
    assert (exact == -1).mean() > 0.05 and (model.predict(x + 100) == -1).all()
    assert (ported == 1).all() and (far == 1).all()
PYTHON
