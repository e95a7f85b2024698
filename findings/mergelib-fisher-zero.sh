#!/usr/bin/env bash
# mergelib's Fisher merging returns the first model, whatever the second one is.
#
# Versions: mergelib 0.0.1a0, transformers 4.57.6, torch 2.13.0.
# Guess before the run: each merged weight is the mean of the models' weights, weighed by the
#     squares of their gradients; other coefficients give other models, and the best of them is
#     returned. (That gradients are never computed was suspected after reading the source.)
# Seen: the forward pass runs under no_grad, so that the backward pass reaches no weight: all Fisher
#     matrices are 0, and nothing fails. Only those of the first model are raised to 1e-6, so each
#     coefficient gives the first model again, and the coefficients (0, 1) NaN in all weights. All
#     have one accuracy, where the second model has 1; the "best" is the first model, or that of NaN
#     if class 0 happens to be right more often. Of a BERT classifier nothing would be merged in any
#     case: the part that is taken for its body is the dropout.
# For gyre: it merges nothing. There, take mergekit, or average the weights.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mergelib==0.0.1a0 transformers==4.57.6 \
    evaluate==0.4.6 datasets==4.4.1 torch==2.13.0 numpy==2.4.6
export HF_HOME="$folder/hf" HF_HUB_OFFLINE=1
cd "$folder"  # mergelib imports `evaluate`, a name of gyre's too
env/bin/python -W ignore - 2> /dev/null <<'PYTHON'
import torch
from mergelib import merge
from mergelib.engine.fisher import compute_fisher_matrices, fisher_merge
from mergelib.utils import clone, get_mergeable_variables
from transformers import (BertConfig, BertForSequenceClassification, RobertaConfig,
                          RobertaForSequenceClassification)

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 32, "max_position_embeddings": 20, "num_labels": 2,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
torch.set_num_threads(1)


class Accuracy:
    """A metric with the two methods of `evaluate` that are used. Keeps all scores."""

    def __init__(self):
        self.scores = []
        self.equal = []

    def add_batch(self, predictions, references):
        self.equal += (predictions == references).tolist()

    def compute(self):
        self.scores.append(sum(self.equal) / len(self.equal))
        self.equal = []
        return {"accuracy": self.scores[-1]}


def classifier(seed):
    torch.manual_seed(seed)
    return RobertaForSequenceClassification(RobertaConfig(**SIZES)).eval()


def distance(model, other):
    pairs = zip(get_mergeable_variables(model), get_mergeable_variables(other))
    return max((a - b).abs().max().item() for a, b in pairs)


first, second = classifier(0), classifier(1)
generator = torch.Generator().manual_seed(0)
batches = [{"input_ids": torch.randint(3, 50, (4, 8), generator=generator),
            "labels": torch.randint(0, 2, (4,), generator=generator)} for _ in range(4)]

# the diagonal Fisher matrix by hand: squared gradients, weighed by the predicted probabilities
expected = [torch.zeros_like(weight) for weight in get_mergeable_variables(first)]
for batch in batches:
    for row in batch["input_ids"]:
        log_probabilities = first(row[None]).logits.log_softmax(-1)[0]
        for log_probability in log_probabilities:
            gradients = torch.autograd.grad(log_probability, get_mergeable_variables(first),
                                            retain_graph=True, allow_unused=True)
            for total, gradient in zip(expected, gradients):
                if gradient is not None:
                    total += log_probability.exp().detach() * gradient.square()
seen = compute_fisher_matrices(first, batches)
print(f"largest element of the Fisher matrix: {max(x.max().item() for x in seen)} of mergelib, "
      f"{max(x.max().item() for x in expected) / 16:.3g} by hand")
assert all((matrix == 0).all() for matrix in seen)
assert max(x.max().item() for x in expected) > 1e-3

matrices = [compute_fisher_matrices(model, batches) for model in [first, second]]
for coefficients in [(0.75, 0.25), (0.25, 0.75), (0.0, 1.0)]:
    merged = clone(first)
    fisher_merge([get_mergeable_variables(first), get_mergeable_variables(second)],
                 get_mergeable_variables(merged), coefficients, matrices)
    is_nan = all(weight.isnan().all() for weight in get_mergeable_variables(merged))
    print(f"coefficients {coefficients}: weights are up to {distance(merged, first):.2g} from the "
          f"first model's, {distance(merged, second):.2g} from the second's"
          f"{'; all are NaN' if is_nan else ''}")
    if coefficients[0]:
        assert distance(merged, first) < 1e-6 and distance(merged, second) > 0.01
    else:
        assert is_nan

for batch in batches:  # now the second model is right, and the first one is not
    batch["labels"] = second(batch["input_ids"]).logits.argmax(-1)
metric = Accuracy()
merged, best, coefficients = merge([first, second], batches, metric)
print(f"merge() tried {len(metric.scores)} coefficients; accuracies of all but the last one: "
      f"{set(metric.scores[:-1])}; best: {coefficients}, {distance(merged, first):.2g} from the "
      "first model")
assert len(metric.scores) == 51 and len(set(metric.scores[:-1])) == 1 and metric.scores[0] < 1
assert tuple(coefficients) == (1.0, 0.0) and distance(merged, first) < 1e-6 \
    or tuple(coefficients) == (0.0, 1.0) and distance(merged, first) != distance(merged, first)

n_merged = len(get_mergeable_variables(BertForSequenceClassification(BertConfig(**SIZES))))
print(f"of a BERT classifier, {n_merged} weights are merged")
assert n_merged == 0
PYTHON
