#!/usr/bin/env bash
# reliabilipy gives unrelated answers a reliability of 0.6: it takes the absolute value of correlations.
#
# Versions: reliabilipy 0.0.36, factor_analyzer 0.5.1, scikit-learn 1.5.2, numpy 1.26.4, scipy 1.12.0,
#     pandas 2.3.3.
# Guess before the run: Cronbach's alpha of 20 unrelated items is near 0, as often below as above it; items
#     asked the other way round lower it. (That it is not was suspected after reading the
#     source.)
# Seen: all coefficients are computed from the absolute values of the correlations, which are 0.08 on
#     average for 100 people without any relation. Alpha is 0.64 there, where the formula gives 0.00,
#     omega 0.66 and lambda 2 0.64; with 50 people 0.72, with 1,000 people 0.34. Items asked the other
#     way round change nothing. A matrix that is given as `correlations_matrix` is taken as it is.
# For gyre: it has no questionnaires. There, give the matrix of correlations.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scikit-learn==1.5.2 numpy==1.26.4 scipy==1.12.0 \
    pandas==2.3.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps reliabilipy==0.0.36 \
    factor_analyzer==0.5.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from reliabilipy import reliability_analysis

ITEMS = 20
generator = np.random.default_rng(0)


def analyse(**data):
    """Return the fitted analysis."""
    analysis = reliability_analysis(n_factors_f=3, **data)
    analysis.fit()
    return analysis


def alpha(correlations):
    """Return Cronbach's standardized alpha by its formula."""
    return ITEMS / (ITEMS - 1) * (1 - ITEMS / correlations.sum())


for n in [50, 100, 1000]:
    rows = []
    for _ in range(20):
        answers = generator.normal(size=(n, ITEMS))
        correlations = np.corrcoef(answers.T)
        result = analyse(raw_dataset=answers, is_corr_matrix=False)
        assert abs(result.alpha_cronbach - alpha(np.abs(correlations))) < 1e-6
        rows.append([result.alpha_cronbach, alpha(correlations), result.omega_total, result.lambda2])
    seen, due, omega, second = np.mean(rows, axis=0)
    print(f"20 unrelated items, {n} people: alpha {seen:.2f}, due {due:.2f}; omega {omega:.2f}, "
          f"lambda 2 {second:.2f}")
    assert seen > {50: 0.65, 100: 0.55, 1000: 0.25}[n] and abs(due) < 0.15 and omega > seen - 0.05

common = generator.normal(size=(300, 1))
answers = common + 2 * generator.normal(size=(300, ITEMS))
reverse = answers * np.where(np.arange(ITEMS) < 10, -1, 1)
for name, table in [("items that share a fifth of their variance", answers),
                    ("the same, ten of them the other way round", reverse)]:
    correlations = np.corrcoef(table.T)
    seen = analyse(raw_dataset=table, is_corr_matrix=False).alpha_cronbach
    given = analyse(correlations_matrix=correlations, is_corr_matrix=True).alpha_cronbach
    due = alpha(correlations)
    print(f"{name}: alpha {seen:.2f}, from the matrix {given:.2f}, due {due:.2f}")
    assert seen > 0.75 and abs(given - due) < 1e-6 and (due > 0.75) == (table is answers)
PYTHON
