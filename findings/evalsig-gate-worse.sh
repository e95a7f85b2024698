#!/usr/bin/env bash
# evalsig's sequential gate for a better model fires for a worse one.
#
# Versions: evalsig 0.1.2, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: `sequential_gate(diffs, alternative="greater")` of a model that is clearly worse
#     has `stopped=False`, which means, says its docstring, that "we walked the whole stream without
#     crossing the boundary". (Suspected after reading the source.)
# Seen: at the end of the stream, `stopped` is whether 0 is outside the interval on either side: of 100
#     models that lose 15 points on 600 questions, all have `stopped=True`, as of 100 that win 15. The
#     gate for "less" stops 100 % of both, too. Without a difference it is 1 %.
# Cause: the last outcome is returned with the two-sided flag of `confidence_sequence`, half_width <
#     |mean| (evalsig/inference/sequential.py).
# For gyre: it has no release gate. There, ask whether the end of the interval is above 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile evalsig==0.1.2 numpy==2.4.6 scipy==1.17.1 pyarrow==26.0.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from evalsig import sequential_gate

N_MODELS, N_QUESTIONS = 100, 600


def fire(effect, alternative):
    """Return the outcomes of the gate for models whose answers are right more often by `effect`."""
    outcomes = []
    for seed in range(N_MODELS):
        generator = np.random.default_rng(seed)
        differences = generator.choice([-1, 0, 1], N_QUESTIONS, p=[0.15 - effect / 2, 0.7, 0.15 + effect / 2])
        outcomes.append(sequential_gate(differences, alternative=alternative))
    return outcomes


shares = {}
for effect in [-0.15, 0.0, 0.15]:
    for alternative in ["greater", "less"]:
        outcomes = fire(effect, alternative)
        shares[effect, alternative] = np.mean([outcome.stopped for outcome in outcomes])
        print(f"effect {effect:+.2f}, alternative {alternative}: stopped {shares[effect, alternative]:.0%}, mean number of "
              f"questions {np.mean([outcome.n_pairs for outcome in outcomes]):.0f}")
        if effect < 0 and alternative == "greater":
            fired = [outcome for outcome in outcomes if outcome.stopped]
            assert all(outcome.ci[1] < 0 and outcome.n_pairs == N_QUESTIONS for outcome in fired)
assert shares[-0.15, "greater"] > 0.9 and shares[0.15, "less"] > 0.9
assert shares[0.0, "greater"] < 0.05 and shares[0.15, "greater"] > 0.9
PYTHON
