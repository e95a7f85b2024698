#!/usr/bin/env bash
# statannotations corrects for many comparisons at 0.05 whatever `alpha` is: stars for adjusted p-values above it.
#
# Versions: statannotations 0.7.2, seaborn 0.13.2, matplotlib 3.10.8, pandas 2.3.3, scipy 1.17.1,
#     statsmodels 0.15.0, numpy 2.4.6.
# Guess before the run: with `configure(alpha=0.01, comparisons_correction="holm")`, pairs whose adjusted
#     p-value is above 0.01 are not significant and marked "(ns)", as at 0.05. (Suspected after reading the
#     source.)
# Seen: of the p-values 0.004, 0.006 and 0.03, Holm's method adjusts all to 0.012 or more. At alpha = 0.01,
#     the first two are significant, with two stars and without "(ns)", where none is. At 0.1, 0.045 twice
#     and 0.09 are all "(ns)" as at 0.05, though Benjamini and Hochberg's method rejects all. With a
#     `ComparisonsCorrection` that has the alpha itself, all is right.
# Cause: a method that is given by name becomes a ComparisonsCorrection with its default alpha of 0.05
#     (statannotations/stats/ComparisonsCorrection.py), and `alpha` of the Annotator goes to the tests only
#     (statannotations/Annotator.py).
# For gyre: its plots have intervals. There, give ComparisonsCorrection("holm", alpha=0.01).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile statannotations==0.7.2 seaborn==0.13.2 matplotlib==3.10.8 \
    pandas==2.3.3 scipy==1.17.1 statsmodels==0.15.0 numpy==2.4.6
MPLBACKEND=Agg MPLCONFIGDIR="$folder/matplotlib" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from statannotations.Annotator import Annotator
from statannotations.stats.ComparisonsCorrection import ComparisonsCorrection
from statsmodels.stats.multitest import multipletests

data = pd.DataFrame({"group": np.repeat(list("abcd"), 5), "value": np.arange(20.0)})
pairs = [("a", "b"), ("a", "c"), ("a", "d")]


def annotate(p_values, alpha, correction):
    """Return whether each pair is significant, and the text over it."""
    figure, axes = plt.subplots()
    sns.boxplot(data=data, x="group", y="value", ax=axes)
    annotator = Annotator(axes, pairs, data=data, x="group", y="value")
    annotator.configure(alpha=alpha, comparisons_correction=correction, verbose=0)
    annotator.set_pvalues(p_values)
    annotator.annotate()
    plt.close(figure)
    return [bool(entry.data.is_significant) for entry in annotator.annotations], [entry.text for entry in
                                                                                  annotator.annotations]


for p_values, alpha, name, method in [([0.004, 0.006, 0.03], 0.05, "holm", "holm"),
                                      ([0.004, 0.006, 0.03], 0.01, "holm", "holm"),
                                      ([0.045, 0.045, 0.09], 0.1, "BH", "fdr_bh")]:
    due, adjusted = multipletests(p_values, alpha=alpha, method=method)[:2]
    found, texts = annotate(p_values, alpha, name)
    given, texts_given = annotate(p_values, alpha, ComparisonsCorrection(name, alpha=alpha))
    print(f"{name} at {alpha}: p {p_values}, adjusted {adjusted.round(4).tolist()}: significant {found}, {texts}; due "
          f"{due.tolist()}; with the alpha in the correction {given}, {texts_given}")
    assert given == due.tolist()
    assert (found == due.tolist()) == (alpha == 0.05)
    if alpha == 0.01:
        assert found[:2] == [True, True] and texts[:2] == ["**", "**"] and not any(due)
        assert texts_given[:2] == ["** (ns)", "** (ns)"]
    if alpha == 0.1:
        assert not any(found) and all(due) and all("ns" in text for text in texts)
PYTHON
