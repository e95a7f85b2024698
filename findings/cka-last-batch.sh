#!/usr/bin/env bash
# ckatorch's similarity of two models is that of the last batch: the other batches are overwritten.
#
# Versions: ckatorch 1.0.3, torch 2.13.0, numpy 2.4.6.
# Guess before the run: `CKA(...)(loader)` is the minibatch CKA over the whole loader, as its
#     docstring says: each batch counts by its texts. (That it might not was suspected after
#     reading the source.)
# Seen: each batch is written over the one before, so that the matrix is the mean over the epochs
#     of what the last batch has. That is also the shortest, since a loader with drop_last is
#     refused. With 258 texts in batches of 64, two texts decide: two embeddings that agree for all
#     tokens but those of the last two texts have a similarity of 0.39, and two that agree for
#     nothing else have 1. Without shuffling, ten epochs are the same number ten times. With the
#     data in one batch, the package gives the right value.
# For gyre: it does not compare layers. There, give all the data as one batch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ckatorch==1.0.3 torch==2.13.0 numpy==2.4.6 \
    seaborn==0.13.2 matplotlib==3.11.2
TQDM_DISABLE=1 "$folder/env/bin/python" - <<'PYTHON'
import warnings

import torch
from ckatorch import CKA
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")  # of two models of one name, and of a loader without shuffling
N_TOKENS = 120
N_COMMON = 100  # The other tokens are in the last two texts only.


class Model(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.embedding = torch.nn.Embedding.from_pretrained(weight)

    def forward(self, ids):
        return self.embedding(ids)


def covariance(x, y):
    """Return the unbiased HSIC of two (n, d) tensors."""
    n = len(x)
    k = (x @ x.T).fill_diagonal_(0)
    l = (y @ y.T).fill_diagonal_(0)
    return ((k * l).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2))
            - 2 * (k @ l).sum() / (n - 2)) / (n * (n - 3))


def similarity(first, second, texts):
    """Return the CKA of two models over all texts, without the package."""
    pairs = [(first(text).double(), second(text).double()) for text in texts]
    both = sum(covariance(x, y) for x, y in pairs)
    return both / (sum(covariance(x, x) for x, _ in pairs)
                   * sum(covariance(y, y) for _, y in pairs)).sqrt()


def measure(first, second, texts, batch_size, epochs=1):
    loader = DataLoader(TensorDataset(texts), batch_size=batch_size)
    return CKA(first, second, ["embedding"])(loader, epochs=epochs).item()


torch.manual_seed(0)
weight = torch.randn(N_TOKENS, 16)
other = torch.randn(N_TOKENS, 16)
common = torch.arange(N_TOKENS)[:, None] < N_COMMON
texts = torch.cat([torch.randint(N_COMMON, (256, 20)),
                   torch.randint(N_COMMON, N_TOKENS, (2, 20))])
first = Model(weight)
for name, second in [("all but the last two texts", Model(torch.where(common, weight, other))),
                     ("the last two texts only", Model(torch.where(common, other, weight)))]:
    right = similarity(first, second, texts).item()
    last = similarity(first, second, texts[-2:]).item()
    seen = measure(first, second, texts, 64)
    whole = measure(first, second, texts, len(texts))
    print(f"models that agree on {name}: {right:.3f} over all texts, {last:.3f} over the last two; "
          f"ckatorch: {seen:.3f} in batches of 64, {whole:.3f} in one batch")
    assert abs(seen - last) < 1e-5 and abs(seen - right) > 0.5
    assert abs(whole - right) < 1e-5
    assert abs(measure(first, second, texts, 64, epochs=10) - last) < 1e-5
PYTHON
