#!/usr/bin/env bash
# statisticalagreement's `log=True` takes the logarithm of the criterion and not that of the data.
#
# Versions: statisticalagreement 0.6.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: `agreement(x, y, 10, 0.9, log=True)` is the agreement of log(x) and log(y), with
#     log(1.1) as criterion for 10 percent. (Suspected after reading the source.)
# Seen: the logarithms are computed and not used. Two methods that differ by 10 % at one deviation agree
#     within 10 % in 65 % of the pairs; the coverage probability says 3 %, that of a difference of
#     0.095 units. The total deviation index is 4.07, where 0.16 is due. With another unit, the answer
#     changes: in thousandths of it, the coverage is 100 %.
# Cause: `x = np.log(x_float)`, and all indices take `x_float` (statisticalagreement/core/agreement.py).
# For gyre: it measures no agreement. There, take the logarithms before the call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile statisticalagreement==0.6.0 attrs==25.3.0 numpy==2.4.6 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from statisticalagreement.core.agreement import agreement

generator = np.random.default_rng(0)
x = generator.lognormal(3, 0.5, 100)
y = x * np.exp(generator.normal(0, 0.1, 100))
_, found = agreement(x, y, delta_criterion=10, pi_criterion=0.9, log=True)
_, due = agreement(np.log(x), np.log(y), delta_criterion=np.log(1.1), pi_criterion=0.9)
_, plain = agreement(x, y, delta_criterion=np.log(1.1), pi_criterion=0.9)
_, scaled = agreement(x / 1000, y / 1000, delta_criterion=10, pi_criterion=0.9, log=True)
_, scaled_due = agreement(np.log(x / 1000), np.log(y / 1000), delta_criterion=np.log(1.1), pi_criterion=0.9)
within = np.mean(np.abs(np.log(x / y)) < np.log(1.1))
print(f"{within:.0%} of the pairs are within 10 percent")
for name in ["ccc", "msd", "cp", "tdi"]:
    print(f"{name}: {found[name]['estimate']:.4f} with log=True, due {due[name]['estimate']:.4f}, "
          f"without logarithms {plain[name]['estimate']:.4f}; in thousandths {scaled[name]['estimate']:.4f}")
    assert np.isclose(found[name]["estimate"], plain[name]["estimate"])
    assert np.isclose(scaled_due[name]["estimate"], due[name]["estimate"])
assert found["cp"]["criterion"] == np.log(1.1)
assert found["cp"]["estimate"] < 0.05 and due["cp"]["estimate"] > 0.5 and within > 0.5
assert scaled["cp"]["estimate"] > 0.9
PYTHON
