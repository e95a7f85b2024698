#!/usr/bin/env bash
# LM-Polygraph's calibration error leaves out what is not between 0 and 1, and is 0 for log-probabilities.
#
# Versions: lm-polygraph 0.7.0, scikit-learn 1.9.1, numpy 2.4.6.
# Guess before the run: ECE() of uncertainties whose negative is not between 0 and 1, such as that of
#     the sequence probability, which is -log p, is an error, or a large number for a model that is
#     wrong. (That they are left out was suspected after reading the source.)
# Seen: they are in no bin and add nothing, but count in the number of samples. A model that is sure
#     of 50 to 100 % and right in 30 % has an error of 0.44 by -p, and of 0, which is perfect
#     calibration, by -log p, by the perplexity and by 1 - p. If one half of the confidences is above
#     1, the error of the others is halved. Nothing is said; `normalize=False` is the default.
# For gyre: it measures no uncertainty of answers. There, give negative probabilities.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scikit-learn==1.9.1 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lm-polygraph==0.7.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.metadata
import sys
from types import ModuleType

import numpy as np

# The package imports thirty others, which the metric has no use for: load its modules alone.
root = importlib.metadata.distribution("lm-polygraph").locate_file("lm_polygraph")
for name in ["lm_polygraph", "lm_polygraph.ue_metrics"]:
    package = ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
from lm_polygraph.ue_metrics.ece import ECE  # noqa: E402

generator = np.random.default_rng(0)
probability = generator.uniform(0.5, 1, 4000)
right = (generator.random(4000) < 0.3).astype(float)
bins = np.ceil(probability * 20)
error = sum(abs((probability - right)[bins == number].sum()) for number in set(bins)) / 4000
print(f"expected calibration error: {error:.3f}")
given = {}
for name, uncertainty in [("-p", -probability), ("-log p", -np.log(probability)),
                          ("the perplexity", 1 / probability), ("1 - p", 1 - probability)]:
    given[name] = ECE()(uncertainty, right)
    print(f"    by {name:15s} {given[name]:.3f}")
assert abs(given["-p"] - error) < 1e-3 and error > 0.4
assert given["-log p"] == given["the perplexity"] == given["1 - p"] == 0

scaled = np.where(np.arange(4000) % 2 == 0, probability, 100 * probability)
half = ECE()(-scaled, right)
print(f"    by -p, every second one in percent: {half:.3f}")
assert abs(half - error / 2) < 0.02
PYTHON
