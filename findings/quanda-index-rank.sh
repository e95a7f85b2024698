#!/usr/bin/env bash
# quanda ranks self-influences by a sum of influence and index, so that late samples come first.
#
# Versions: quanda 0.5.0, torch 2.13.0.
# Guess before the run: MislabelingDetectionMetric ranks training samples by self-influence, and its
#     score is the area under the curve of what is found; it depends neither on a factor in all
#     influences nor on where in the dataset the mislabeled samples are. (The latter was suspected
#     to be wrong after reading the source.)
# Seen: 1e-4 times the index is added to each influence before it is ranked, to make the order of
#     equal ones stable, so that later samples come first if influences are small. Of 5000 samples,
#     the last has 0.5 added. With TracIn (learning rate 0.01, influences up to 0.15), the score is
#     0.243 if the first 500 samples are mislabeled, and 0.950 if the last are; by the definition,
#     it is 0.950 for both. With representer points it is 0.050 and 0.950, where 0.111 and 0.089 are
#     right. If mislabeled samples have 0.01, and all others 0, it is 0.052 and 0.950.
# For gyre: it has no such metric. There, rank by torch.argsort(influences, descending=True).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 lightning==2.6.6 \
    datasets==5.2.0 transformers==5.24.0 pyarrow==24.0.0 matplotlib==3.11.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps quanda==0.5.0 captum==0.8.0
export HF_HOME="$folder/hf" HF_HUB_OFFLINE=1
cd "$folder"
env/bin/python -W ignore - 2> errors <<'PYTHON' || { cat errors; exit 1; }
import importlib.util
import os
import sys
import types

import torch
from torch.utils.data import TensorDataset

# The packages import all modules, and thereby libraries that aren't needed here.
root = importlib.util.find_spec("quanda").submodule_search_locations[0]
for name in ["quanda", "quanda.explainers", "quanda.explainers.wrappers", "quanda.metrics",
             "quanda.metrics.downstream_eval"]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(root, *name.split(".")[1:])]
from quanda.explainers.wrappers.captum_influence import CaptumTracInCPFast
from quanda.explainers.wrappers.representer_points import RepresenterPoints
from quanda.metrics.downstream_eval.mislabeling_detection import MislabelingDetectionMetric

N_SAMPLES = 5000
N_WRONG = 500
WIDTH = 16
N_CLASSES = 5
torch.set_num_threads(1)


def area(influences, wrong):
    # by the definition: samples in the order of their influence
    order = torch.argsort(influences, descending=True)
    found = torch.isin(order, wrong).double().cumsum(dim=0) / len(wrong)
    return (torch.trapezoid(found) / len(influences)).item()


def load(model, path):
    model.load_state_dict(torch.load(path))
    return 0.01  # the learning rate, by which TracIn multiplies


for place in ["first", "last"]:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    means = 2 * torch.randn(N_CLASSES, WIDTH, generator=generator)
    true_labels = torch.randint(N_CLASSES, [N_SAMPLES], generator=generator)
    inputs = means[true_labels] + torch.randn(N_SAMPLES, WIDTH, generator=generator)
    wrong = torch.arange(N_WRONG)
    if place == "last":
        wrong += N_SAMPLES - N_WRONG
    labels = true_labels.clone()
    shifts = torch.randint(1, N_CLASSES, [N_WRONG], generator=generator)
    labels[wrong] = (labels[wrong] + shifts) % N_CLASSES
    dataset = TensorDataset(inputs, labels)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.Tanh(),
                                torch.nn.Linear(8, N_CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    model.eval()
    path = f"{place}.pt"
    torch.save(model.state_dict(), path)
    explainers = {
        "TracIn": CaptumTracInCPFast(
            model=model, final_fc_layer=model[2], train_dataset=dataset, checkpoints=[path],
            checkpoints_load_func=load, batch_size=500),
        "representer points": RepresenterPoints(
            model=model, train_dataset=dataset, model_id=place, features_layer="1",
            classifier_layer="2", cache_dir=place, batch_size=500, show_progress=False),
    }
    for name, explainer in explainers.items():
        influences = explainer.self_influence().detach()
        metric = MislabelingDetectionMetric(
            model=model, train_dataset=dataset, mislabeling_indices=wrong.tolist(),
            precomputed_self_influence=influences)
        score = metric.compute()["score"]
        exact = area(influences, wrong)
        print(f"{place} samples mislabeled, {name}: influences {influences.min():.2g} to "
              f"{influences.max():.2g}, score {score:.3f}, by the definition {exact:.3f}")
        if name == "TracIn":
            assert exact > 0.94 and (score < 0.4 if place == "first" else score > 0.94)
        else:
            assert exact < 0.3 and (score < 0.06 if place == "first" else score > 0.94)
    ideal = torch.zeros(N_SAMPLES)
    ideal[wrong] = 0.01
    metric = MislabelingDetectionMetric(
        model=model, train_dataset=dataset, mislabeling_indices=wrong.tolist(),
        precomputed_self_influence=ideal)
    score = metric.compute()["score"]
    print(f"{place} samples mislabeled, influences 0.01 for these and 0 for others: {score:.3f}")
    assert abs(area(ideal, wrong) - 0.95) < 0.01
    assert score < 0.06 if place == "first" else score > 0.94
PYTHON
