#!/usr/bin/env bash
# lighteval's F1 of three classes is a mean of accuracies, and rewards a model that guesses.
#
# Versions: lighteval 0.13.0, sacrebleu 2.6.0, nltk 3.9.1, numpy 2.4.6, torch 2.13.0.
# Guess before the run: `multi_f1_numeric` is the F1 of CommitmentBank, the mean over the three
#     classes of the F1 of each: 1/3 for a model that guesses, and 0.17 for one that always says the
#     same. (That it might not be was suspected after reading the source.)
# Seen: of each class against the others, the micro-averaged F1 is taken, which counts the other
#     classes as hits too: it is the accuracy of this decision. The mean over the classes is 1/3 +
#     2/3 of the accuracy: 0.56 for guesses and for a constant answer, and 0.80 for a model that is
#     right in 70 % of the cases. A model that never finds the rarest class, one in 20, has 0.96
#     where the F1 is 0.65.
# For gyre: it has no such task. There, take scikit-learn's `f1_score(average="macro")`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile lighteval==0.13.0 sacrebleu==2.6.0 \
    torch==2.13.0 numpy==2.4.6
HF_HOME="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from lighteval.metrics.metrics import Metrics
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc
from sklearn.metrics import f1_score

N_DOCUMENTS = 3000
METRIC = Metrics.multi_f1_numeric.value


def measure(golds, answers):
    """Return lighteval's mf1 and the mean of the F1 scores of the classes."""
    items = []
    for gold, answer in zip(golds, answers):
        doc = Doc(query="", choices=["yes", "no", "maybe"], gold_index=int(gold))
        logprobs = [-0.1 if choice == answer else -3.0 for choice in range(3)]
        response = ModelResponse(logprobs=logprobs)
        items.append(METRIC.compute_sample(doc=doc, model_response=response)["mf1"])
    return METRIC.corpus_level_fn.compute_corpus(items), f1_score(golds, answers, average="macro")


generator = np.random.default_rng(0)
golds = generator.integers(0, 3, N_DOCUMENTS)
guesses = generator.integers(0, 3, N_DOCUMENTS)
good = np.where(generator.random(N_DOCUMENTS) < 0.55, golds, guesses)
uneven = generator.choice(3, N_DOCUMENTS, p=[0.475, 0.475, 0.05])
cases = {"guesses": (golds, guesses, 0.56, 0.33), "constant": (golds, 0 * golds, 0.56, 0.17),
         "70 % right": (golds, good, 0.80, 0.70),
         "never the rare class": (uneven, np.where(uneven == 2, 0, uneven), 0.97, 0.65)}
for name, (truth, answers, wanted, due) in cases.items():
    seen, f1 = measure(truth, answers)
    accuracy = np.mean(truth == answers)
    print(f"{name}: mf1 {seen:.3f}, mean F1 of the classes {f1:.3f}, accuracy {accuracy:.3f}")
    assert abs(seen - wanted) < 0.02 and abs(f1 - due) < 0.02
    assert abs(seen - (1 + 2 * accuracy) / 3) < 1e-9
PYTHON
