#!/usr/bin/env bash
# After emlearn's own quantizer, its nearest neighbours are the most distant samples.
#
# Versions: emlearn 0.23.2, scikit-learn 1.9.1, numpy 2.4.6, and the C compiler of the machine.
# Guess before the run: a converted KNeighborsClassifier, whose samples are 16-bit integers,
#     predicts the labels of scikit-learn on the integers that emlearn's Quantizer makes. (Suspected
#     after reading the source.)
# Seen: by default, the Quantizer fills all 16 bits, and squared distances are added in 32 bits
#     without a sign, of which the root is taken with a sign: from 2**31 on it is 0. Two classes at
#     both ends of two features, which cannot be confused, get the labels of each other, and
#     nothing is said. Where a sum lies between 2**30 and 2**31, which is more common, the program
#     does not end (no such input here). With integers up to 10,000 all is right.
# For gyre: it has no such classifier. There, give `Quantizer(out_max=1000)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile emlearn==0.23.2 scikit-learn==1.9.1 numpy==2.4.6
env/bin/python -W ignore - <<'PYTHON'
import emlearn
import numpy as np
from emlearn.preprocessing import Quantizer
from sklearn.neighbors import KNeighborsClassifier

np.seterr(all="ignore")  # emlearn makes NumPy raise at each underflow
NEIGHBORS = 5
generator = np.random.default_rng(0)
y = np.arange(200) % 2
x = np.where(y, 1, -1)[:, None] + generator.uniform(-0.03, 0.03, size=(200, 2))
train, test = slice(0, 100), slice(100, 200)
for out_max in [None, 20_000, 10_000]:
    integers = Quantizer(out_max=out_max).fit(x[train]).transform(x).astype(int)
    squared = ((integers[test, None] - integers[train]) ** 2).sum(2)  # (N, samples)
    in_32_bits = squared % 2**32
    assert not ((in_32_bits >= 2**30) & (in_32_bits < 2**31)).any()  # there it would not end
    model = KNeighborsClassifier(NEIGHBORS).fit(integers[train], y[train])
    exact = model.predict(integers[test])
    converted = np.array(emlearn.convert(model).predict(integers[test]))
    roots = np.where(in_32_bits < 2**31, np.floor(np.sqrt(in_32_bits)), 0)
    nearest = y[train][roots.argsort(1, kind="stable")[:, :NEIGHBORS]]
    right = [(predicted == y[test]).mean() for predicted in [exact, converted]]
    print(f"integers up to {abs(integers).max()}: accuracy {right[0]:.2f} by scikit-learn, "
          f"{right[1]:.2f} by emlearn; largest squared distance {squared.max():.3g}")
    assert (converted == nearest.mean(1).round()).all()
    assert right == ([1, 1] if out_max == 10_000 else [1, 0])
PYTHON
