#!/usr/bin/env bash
# torcheval's binned AUROC of many classes gives a model without information 0.76.
#
# Versions: torcheval 0.0.7, torch 2.13.0, scikit-learn 1.9.1.
# Guess before the run: MulticlassBinnedAUROC is the one-versus-rest AUROC of each class, up to its
#     thresholds: with 1000 of them it agrees with scikit-learn within 0.01, and with average=None
#     it has a value for each class.
# Seen: it adds over the classes instead of the samples. What it returns is the AUROC of the classes
#     within each sample: with average=None, 2000 values for 2000 samples of 20 classes. A model
#     that gives each sample the frequencies of the classes has 0.76 instead of 0.49, and one that
#     finds every class but shifts the scores of a class has 0.33 instead of 1. BinaryBinnedAUROC
#     and MulticlassAUROC are right.
# For gyre: it measures no AUROC. There, take MulticlassAUROC.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torcheval==0.0.7 torch==2.13.0 \
    scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from sklearn.metrics import roc_auc_score
from torcheval.metrics import BinaryBinnedAUROC, MulticlassAUROC, MulticlassBinnedAUROC

N = 2000
N_CLASSES = 20
N_THRESHOLDS = 1000

generator = torch.Generator().manual_seed(0)
frequencies = 1 / torch.arange(1, N_CLASSES + 1)
frequencies /= frequencies.sum()
targets = torch.multinomial(frequencies, N, replacement=True, generator=generator)
one_hot = torch.nn.functional.one_hot(targets, N_CLASSES)
noise = torch.rand(N, N_CLASSES, generator=generator)


def measure(name, scores):
    """Return the binned AUROC, the one of all thresholds, and scikit-learn's."""
    binned = MulticlassBinnedAUROC(num_classes=N_CLASSES, threshold=N_THRESHOLDS)
    exact = MulticlassAUROC(num_classes=N_CLASSES)
    for metric in [binned, exact]:
        metric.update(scores, targets)
    binned, exact = binned.compute()[0].item(), exact.compute().item()
    reference = sum(roc_auc_score(one_hot[:, i], scores[:, i]) for i in range(N_CLASSES))
    reference /= N_CLASSES
    print(f"{name}: binned {binned:.3f}, exact {exact:.3f}, scikit-learn {reference:.3f}")
    assert abs(exact - reference) < 1e-3
    return binned, reference


binned, reference = measure("frequencies of the classes", frequencies + 1e-4 * noise)
assert binned > 0.75 and 0.45 < reference < 0.55
shifts = torch.linspace(0, 0.8, N_CLASSES)
binned, reference = measure("classes with shifted scores", 0.1 * one_hot + 0.05 * noise + shifts)
assert binned < 0.4 and reference > 0.999

scores = torch.softmax(2 * one_hot + 2 * noise, 1)
per_class = MulticlassBinnedAUROC(num_classes=N_CLASSES, average=None)
per_class.update(scores, targets)
print(f"with average=None: {len(per_class.compute()[0])} values")
assert len(per_class.compute()[0]) == N
binary = BinaryBinnedAUROC(threshold=N_THRESHOLDS)
binary.update(scores[:, 0], one_hot[:, 0])
difference = abs(binary.compute()[0].item() - roc_auc_score(one_hot[:, 0], scores[:, 0]))
print(f"two labels: off by {difference:.4f}")
assert difference < 0.01
PYTHON
