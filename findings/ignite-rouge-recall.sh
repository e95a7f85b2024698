#!/usr/bin/env bash
# The F-measure of ignite's ROUGE is its recall, so that a longer summary is never worse.
#
# Versions: pytorch-ignite 0.5.5, torch 2.13.0.
# Guess before the run: by default, Rouge-F is the harmonic mean of precision and recall, as in
#     rouge-score: text that is added and does not match lowers it. (That it is not was suspected
#     after reading the source.)
# Seen: it is P * R / ((1 - alpha) * P + alpha * R) with alpha = 0, which is R, for ROUGE-L and all
#     ROUGE-N. The right sentence with 90 words of anything behind it has an F of 1, where F1 is
#     0.12, and a model that copies the whole source beats one that says one of two sentences. With
#     alpha = 0.5, F is F1.
# For gyre: it does not summarize. There, give `alpha=0.5`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch-ignite==0.5.5 torch==2.13.0 \
    numpy==2.4.6 rouge-score==0.1.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from ignite.metrics import Rouge, RougeL, RougeN
from rouge_score.rouge_scorer import RougeScorer

REFERENCE = "the cat sat on the mat"
scorer = RougeScorer(["rouge2", "rougeL"])


def compute(metric, candidate, reference):
    metric.update(([candidate.split()], [[reference.split()]]))
    return metric.compute()


for n_added in [0, 10, 90]:
    candidate = " ".join([REFERENCE] + [f"word{i}" for i in range(n_added)])
    expected = scorer.score(REFERENCE, candidate)
    for name, key, make in [("Rouge-2", "rouge2", lambda **k: RougeN(ngram=2, **k)),
                            ("Rouge-L", "rougeL", RougeL)]:
        by_default = compute(make(), candidate, REFERENCE)
        balanced = compute(make(alpha=0.5), candidate, REFERENCE)
        f1 = expected[key].fmeasure
        print(f"{n_added} words added: {name}-F {by_default[name + '-F']:.2f}, with alpha=0.5 "
              f"{balanced[name + '-F']:.2f}, rouge-score {f1:.2f}")
        assert by_default[name + "-F"] == by_default[name + "-R"] == 1
        assert by_default[name + "-P"] == expected[key].precision
        assert abs(balanced[name + "-F"] - f1) < 1e-9
assert f1 < 0.13

reference = "the cat sat on the mat . the dog ate the bone"
source = reference + " " + " ".join(f"word{i}" for i in range(200))
half = "the cat sat on the mat ."
for alpha in [None, 0.5]:
    options = {} if alpha is None else {"alpha": alpha}
    scores = [compute(Rouge(variants=["L"], **options), text, reference)["Rouge-L-F"]
              for text in [source, half]]
    print(f"alpha {alpha}: a copy of the source {scores[0]:.2f}, "
          f"one of two sentences {scores[1]:.2f}")
    assert (scores[0] > scores[1]) == (alpha is None)
PYTHON
