#!/usr/bin/env bash
# diversity gives texts without a common word the highest homogenization score, 1.
#
# Versions: diversity 0.3.1, rouge-score 0.1.2, nltk 3.9.2.
# Guess before the run: `homogenization_score` is the mean ROUGE-L of all pairs of texts, as in the
#     paper it names: 1 for equal texts, and 0 for texts without a common word. (That it might not
#     be was suspected after reading the source.)
# Seen: a sum of 0 is taken for the sign of equal texts, and replaced by the number of texts. So
#     texts without a common word have 1, as equal ones have, whose sum is never 0. One word that
#     two of 100 texts share brings the score from 1 to 0. All other scores are right.
# For gyre: it measures no diversity of samples. There, take a score of 1 for 0 if no word repeats.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile rouge-score==0.1.2 nltk==3.9.2 numpy==2.4.6 \
    tqdm==4.67.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps diversity==0.3.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import itertools
import sys
import types

import nltk

nltk.download = lambda *arguments, **options: True


class Unused(types.ModuleType):
    """A package that diversity imports for other scores, and that is not installed here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name in ("sentence_transformers", "spacy", "evaluate", "openai", "yaml", "pydantic", "sklearn",
             "sklearn.metrics", "sklearn.metrics.pairwise"):
    sys.modules[name] = Unused(name)

from diversity import homogenization_score  # noqa: E402


def compute_rouge_l(first, second):
    """Return the F1 of the longest common subsequence of words."""
    a, b = first.split(), second.split()
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, j in itertools.product(range(len(a)), range(len(b))):
        longer = max(table[i][j + 1], table[i + 1][j])
        table[i + 1][j + 1] = table[i][j] + 1 if a[i] == b[j] else longer
    return 2 * table[-1][-1] / (len(a) + len(b))


def compute_score(texts):
    pairs = list(itertools.permutations(texts, 2))
    return sum(compute_rouge_l(first, second) for first, second in pairs) / len(pairs)


apart = [f"w{3 * i} w{3 * i + 1} w{3 * i + 2}" for i in range(100)]
CASES = {
    "100 texts without a common word": (apart, 1.0),
    "one word in two of them": (["w300 w0 w301", *apart[:99]], 0.0),
    "one word in all": ([f"w0 {text}" for text in apart], 0.25),
    "100 equal texts": ([apart[0]] * 100, 1.0),
}
for name, (texts, expected) in CASES.items():
    score, due = homogenization_score(texts, verbose=False), compute_score(texts)
    print(f"{name}: {score}, where {due:.4f} is due")
    assert score == expected
    assert abs(score - due) < 0.0006 or (due == 0 and score == 1)
PYTHON
