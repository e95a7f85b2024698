#!/usr/bin/env bash
# torchjd's Krum adds up distances instead of their squares, and picks attackers that Krum leaves out.
#
# Versions: torchjd 0.18.0, torch 2.13.0.
# Guess before the run: Krum picks the row with the smallest sum of squared distances to its nearest
#     n - f - 2 others, as in the paper of Blanchard et al. (2017) that its docstring names. (That the
#     distances are not squared was suspected after reading the source.)
# Seen: the sums are of plain distances, in which the distance of 0 between attackers who send the same
#     vector counts for more. Of 10 rows with 3 attackers, who send minus 1.8 times the gradient, Krum
#     never picks an attacker, and torchjd always does. Of normal rows in 2 dimensions, it picks another
#     one in a fifth of the cases.
# For gyre: it trusts its processes. There, compute the scores by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torchjd==0.18.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from torchjd.aggregation import Krum

ROWS, ATTACKERS, TRIALS = 10, 3, 500
torch.set_num_threads(1)


def choose(rows, attackers, power):
    """Return the row with the smallest sum of distances, raised to a power, to the nearest others."""
    count = len(rows)
    scores = []
    for i in range(count):
        distances = sorted((rows[i] - rows[j]).norm().item() ** power for j in range(count) if j != i)
        scores.append(sum(distances[:count - attackers - 2]))
    return min(range(count), key=scores.__getitem__)


def pick(rows, attackers):
    """Return the row that Krum returns."""
    chosen = Krum(n_byzantine=attackers)(rows)
    return (rows - chosen).norm(dim=1).argmin().item()


def compare(make, attackers, name):
    """Print how often the choices are attackers, and how often torchjd's differs; return these."""
    torch.manual_seed(0)
    bad, worse, other = 0, 0, 0
    for _ in range(TRIALS):
        rows = make()
        seen, due = pick(rows, attackers), choose(rows, attackers, 2)
        assert seen == choose(rows, attackers, 1)
        bad += due < attackers
        worse += seen < attackers
        other += seen != due
    print(f"{name}: one of these is chosen in {100 * bad / TRIALS:.1f} % by squared distances, in "
          f"{100 * worse / TRIALS:.1f} % by torchjd; choices differ in {100 * other / TRIALS:.1f} %")
    return bad / TRIALS, worse / TRIALS, other / TRIALS


def attack():
    """Return 7 noisy gradients, and before them 3 copies of a vector that points the other way."""
    width = 1000
    gradient = torch.full((width,), 0.65, dtype=torch.float64)
    honest = gradient + torch.randn(ROWS - ATTACKERS, width, dtype=torch.float64)
    return torch.cat([(-1.8 * gradient).expand(ATTACKERS, width), honest])


due, seen, other = compare(attack, ATTACKERS, "3 attackers of 10")
assert due < 0.01 and seen > 0.99
due, seen, other = compare(lambda: torch.randn(ROWS, 2, dtype=torch.float64), 2, "2 of 10 normal rows")
assert 0.15 < other < 0.3
PYTHON
