#!/usr/bin/env bash
# distil-trainer's ranking loss compares cosines of positives with dot products of negatives: short vectors win.
#
# Versions: distil-trainer 0.1.27, torch 2.13.0.
# Guess before the run: with `in_batch_negatives=False` the loss is 0 only where each negative is less similar than the
#     positive by the margin, whatever the lengths are, and an encoder that is trained with it tells classes apart as
#     well as one with cosines on both sides. (That the negatives aren't normalized was read in the source before.)
# Seen: for vectors of length 0.1, the loss is 0 if each negative is the query itself; for vectors of length 10 it is 9.6,
#     and 0.001 for length 1, for the same directions. In training, the vectors become short, the loss 0.000, and all
#     inputs alike: cosines of 0.93 within a class and 0.90 between classes, and 3 or 4 of 10 nearest neighbours of the
#     class, where cosines on both sides have 0.78, -0.03 and 9 of 10.
# Cause: `F.cosine_similarity` for the positives, `torch.bmm` without `F.normalize` for `negative_embeddings`
#     (distil_trainer/distillation/losses.py, `ranking_loss`, which `RankingDistillationStrategy` calls). With
#     negatives of the batch, both sides are normalized.
# For gyre: it trains no embeddings. There, give normalized embeddings, or `in_batch_negatives=True`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps distil-trainer==0.1.27
export OMP_NUM_THREADS=1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

# the module alone: to import the package, sentence-transformers and others are needed
site = next(Path(path) for path in sys.path if Path(path, "distil_trainer").is_dir())
spec = importlib.util.spec_from_file_location("losses", site / "distil_trainer/distillation/losses.py")
losses = importlib.util.module_from_spec(spec)
spec.loader.exec_module(losses)

N_CLASSES, N_NEGATIVES, MARGIN = 20, 4, 0.5


def compute_loss(queries, positives, negatives):
    return losses.DistillationLosses.ranking_loss(queries, positives, negatives, margin=MARGIN, in_batch_negatives=False)


def compute_cosine_loss(queries, positives, negatives):
    due = F.cosine_similarity(queries, positives, dim=-1)[:, None]
    return F.relu(MARGIN - due + F.cosine_similarity(queries[:, None], negatives, dim=-1)).mean()


torch.manual_seed(0)
queries = F.normalize(torch.randn(64, 16), dim=-1)
negatives = F.normalize(torch.randn(64, N_NEGATIVES, 16), dim=-1)
alike = compute_loss(0.1 * queries, 0.1 * queries, 0.1 * queries[:, None]).item()
by_length = {length: compute_loss(length * queries, length * queries, length * negatives).item() for length in [0.1, 1, 10]}
print(f"each negative is the query, of length 0.1: loss {alike:.3f}, due {MARGIN}")
print("random negatives, losses by length:", {length: round(loss, 3) for length, loss in by_length.items()})
assert alike == 0 and by_length[0.1] == 0 and by_length[1] < 0.01 and by_length[10] > 5


def train(loss_function, seed):
    """Return the last loss, mean cosines within and between classes, and the share of neighbours of the same class."""
    torch.manual_seed(seed)
    centers = torch.randn(N_CLASSES, 32)
    network = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)

    def encode(classes):
        return network(centers[classes] + 1.5 * torch.randn(*classes.shape, 32))

    for _ in range(1000):
        classes = torch.randint(0, N_CLASSES, (128,))
        others = (classes[:, None] + torch.randint(1, N_CLASSES, (128, N_NEGATIVES))) % N_CLASSES
        loss = loss_function(encode(classes), encode(classes), encode(others))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        classes = torch.arange(N_CLASSES).repeat(50)
        cosines = F.normalize(encode(classes), dim=-1) @ F.normalize(encode(classes), dim=-1).T
    same = classes[:, None] == classes
    found = (classes[cosines.argmax(1)] == classes).float().mean()
    return torch.stack([loss.detach(), cosines[same].mean(), cosines[~same].mean(), found])


for name, loss_function in {"the package": compute_loss, "cosines on both sides": compute_cosine_loss}.items():
    loss, within, between, share = torch.stack([train(loss_function, seed) for seed in range(3)]).mean(0).tolist()
    print(f"{name}: loss {loss:.3f}, cosines {within:.2f} within and {between:.2f} between classes, {share:.0%} found")
    if loss_function is compute_loss:
        assert loss < 1e-3 and between > 0.8 and share < 0.5
    else:
        assert between < 0.1 and share > 0.85
PYTHON
