#!/usr/bin/env bash
# LM-Polygraph's binned normalizer gives the most certain text the confidence of the least certain.
#
# Versions: lm-polygraph 0.7.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: BinnedPCCNormalizer gives each text the mean quality of its bin: the less
#     uncertain, the higher, and a text that is less uncertain than all of those for calibration has
#     that of the first bin. (That it has another one was suspected after reading the source.)
# Seen: it has that of the last bin, as has the least uncertain text of the calibration itself. With
#     answers that are right in 95 % where the uncertainty is lowest, and in 4 % where it is highest,
#     a new answer just below the lowest has a confidence of 0.04, and one just above it 0.95. With
#     perplexities, which begin at 1, all texts that the model is sure of are there. Nothing is said.
# For gyre: it measures no uncertainty of answers. There, clip uncertainties to above the lowest one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lm-polygraph==0.7.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.metadata
import sys
from types import ModuleType

import numpy as np

# The package imports thirty others, which the normalizer has no use for: load its modules alone.
root = importlib.metadata.distribution("lm-polygraph").locate_file("lm_polygraph")
for name in ["lm_polygraph", "lm_polygraph.normalizers"]:
    package = ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
from lm_polygraph.normalizers.binned_pcc import BinnedPCCNormalizer  # noqa: E402

N_BINS = 10
generator = np.random.default_rng(0)
uncertainty = generator.uniform(0, 1, 5000)
quality = (generator.random(5000) < 1 - uncertainty).astype(float)
normalizer = BinnedPCCNormalizer()
normalizer.fit(quality, uncertainty, num_bins=N_BINS)
order = np.argsort(uncertainty)
means = quality[order].reshape(N_BINS, -1).mean(1)
print("mean quality of the bins, from certain to uncertain:", means.round(2).tolist())

lowest = uncertainty.min()
given = {}
for text, value in [("below the lowest", lowest - 1e-9), ("far below it", -5.0),
                    ("the lowest itself", lowest), ("just above it", lowest + 1e-9),
                    ("in the middle", 0.5), ("the highest", uncertainty.max())]:
    given[text] = normalizer.transform(np.array([value]))[0]
    print(f"    {text:18s} confidence {given[text]:.2f}")
last = given["the highest"]
assert last < 0.1 and abs(last - means[-1]) < 0.01
assert given["below the lowest"] == given["far below it"] == given["the lowest itself"] == last
assert given["just above it"] > 0.9 and abs(given["just above it"] - means[0]) < 0.01
assert 0.4 < given["in the middle"] < 0.6

perplexity = np.where(generator.random(5000) < 0.3, 1.0, 1 + generator.gamma(2, 2, 5000))
right = (generator.random(5000) < 1 / perplexity).astype(float)
normalizer.fit(right, perplexity, num_bins=N_BINS)
sure = normalizer.transform(np.array([1.0]))[0]
truth = right[perplexity == 1].mean()
print(f"texts of perplexity 1, which are right in {truth:.0%}: confidence {sure:.2f}")
assert truth == 1 and sure < 0.15
PYTHON
