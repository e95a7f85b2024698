#!/usr/bin/env bash
# lighteval's `drop` and `copyright` report the best text of the evaluation, not the mean.
#
# Versions: lighteval 0.13.0, sacrebleu 2.6.0, nltk 3.9.1, numpy 2.4.6, torch 2.13.0.
# Guess before the run: an evaluation's exact match and F1 of `drop`, and the lengths and
#     similarities of `copyright`, are means over the documents, as those of other metrics are: one
#     right answer of 100 is an exact match of 0.01. (That they are not was suspected after reading
#     the source.)
# Seen: one right answer of 100 gives an exact match and an F1 of 1.0, so that a model that is right
#     once ties with one that is always right. `copyright` gives the longest prefix, the largest
#     similarity and the smallest edit distance of all documents: a model that recites one of 100
#     has a similarity of 1. The standard error, bootstrapped from the maximum, comes out as about
#     0.015, which looks like that of a mean.
# For gyre: it has no such tasks. There, take the mean of the documents' scores from the details.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile lighteval==0.13.0 sacrebleu==2.6.0 \
    torch==2.13.0 numpy==2.4.6
HF_HOME="$folder" LIGHTEVAL_DISABLE_TQDM=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
import types

from lighteval.logging.info_loggers import MetricsLogger
from lighteval.metrics.metrics import Metrics
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc

N_DOCUMENTS = 100


def evaluate(name, n_right):
    """Return the scores of an evaluation with this many right answers."""
    metric = Metrics[name].value
    task = types.SimpleNamespace(aggregation=metric.get_corpus_aggregations)
    logger = MetricsLogger()
    for i in range(N_DOCUMENTS):
        gold = f"the answer to number {i} is {i * i} apples"
        answer = gold if i < n_right else "nothing"
        doc = Doc(query="How many?", choices=[gold], gold_index=0,
                  specific={"golds_no_preprocessing": [gold]})
        response = ModelResponse(text=[answer])
        logger.log("task|0", metric.compute_sample(doc=doc, model_response=response))
    logger.aggregate({"task|0": task}, bootstrap_iters=1000)
    return logger.metric_aggregated["task|0"]


for name in ["drop", "copyright"]:
    for n_right in [0, 1, 100]:
        scores = evaluate(name, n_right)
        text = ", ".join(f"{key} {value:.3f}" for key, value in scores.items())
        print(f"{name}, {n_right} of {N_DOCUMENTS} right: {text}")
        if name == "drop":
            assert scores["em"] == scores["f1"] == (0 if n_right == 0 else 1)
        elif n_right > 0:
            assert scores["edit_similarity"] == 1 and scores["edit_distance"] == 0
PYTHON
