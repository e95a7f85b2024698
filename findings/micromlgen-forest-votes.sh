#!/usr/bin/env bash
# micromlgen counts the votes of a forest in 8 bits: with 256 trees, the surest samples are wrong.
#
# Versions: micromlgen 1.1.28, scikit-learn 1.9.1, numpy 2.4.6, and the C++ compiler of the machine.
# Guess before the run: a ported forest predicts the label for which most of its trees vote, and
#     more trees are better. (Suspected after reading the template.)
# Seen: votes are counted in `uint8_t`, so that 256 votes are none. With 255 trees all is right.
#     With 256, each sample for which all trees agree on the second class gets the first one: of
#     two classes that lie far apart, none of the second is found any more. With 300, a class with
#     256 to 277 votes loses to one with 44 to 23. Nothing is said.
# For gyre: it has no trees. There, port 255 trees at most.
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
from sklearn.ensemble import RandomForestClassifier

MAIN = """
int main() {
    Eloquent::ML::Port::RandomForest model;
    float row[WIDTH];
    for (;;) {
        for (int i = 0; i < WIDTH; i++)
            if (scanf("%f", row + i) != 1) return 0;
        printf("%d\\n", (int) model.predict(row));
    }
}
"""


def run(forest, x):
    """Return the labels of the ported forest, compiled."""
    headers = ["cstdio", "cstdint", "cstdarg", "cstring", "cstdlib", "cmath"]
    code = "".join(f"#include <{header}>\n" for header in headers) + "using namespace std;\n"
    code += port(forest) + MAIN.replace("WIDTH", str(x.shape[1]))
    with open("ported.cpp", "w") as file:
        file.write(code)
    subprocess.run(["c++", "-w", "-o", "ported", "ported.cpp"], check=True)
    rows = "\n".join(" ".join(str(number) for number in row) for row in x.tolist())
    output = subprocess.run(["./ported"], input=rows, capture_output=True, text=True, check=True)
    return np.array(output.stdout.split(), dtype=int)


def make_data(distance):
    """Return samples (N, 2) of two classes, and their labels (N,)."""
    y = np.arange(400) % 2
    return (generator.normal(size=(400, 2)) + distance * y[:, None]).astype(np.float32), y


generator = np.random.default_rng(0)
for distance, n_trees in [(10, 255), (10, 256), (1, 300)]:
    (x, y), (x_test, y_test) = make_data(distance), make_data(distance)
    forest = RandomForestClassifier(n_trees, max_depth=2, random_state=0).fit(x, y)
    votes = sum(np.eye(2, dtype=int)[tree.predict(x_test).astype(int)]
                for tree in forest.estimators_)  # (N, 2)
    assert (votes.sum(1) == n_trees).all()
    majority, in_8_bits = votes.argmax(1), (votes % 256).argmax(1)
    ported = run(forest, x_test)
    right = [(labels == y_test).mean() for labels in [majority, ported]]
    print(f"classes {distance} apart, {n_trees} trees: the majority is right in {right[0]:.3f}, "
          f"the ported forest in {right[1]:.3f}")
    assert (ported == in_8_bits).all()
    assert (ported == majority).all() == (n_trees == 255)
    if n_trees == 256:
        assert right[0] > 0.99 and (ported[y_test == 1] == 0).mean() > 0.95
    if n_trees == 300:
        assert right[1] < right[0] - 0.03
PYTHON
