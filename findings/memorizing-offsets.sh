#!/usr/bin/env bash
# A memory of nearest neighbours that has been full once answers with the values of other keys.
#
# Versions: memorizing-transformers-pytorch 0.4.1, faiss-cpu 1.15.1, torch 2.13.0.
# Guess before the run: searching with a key that is in the memory finds that key and its value,
#     after it has been full and begun anew as well, and in rows that an addition to other rows has
#     left alone. (That it does not was suspected after reading the source.)
# Seen: the index begins at 0 again and the store goes on where it was, so that no key finds its own
#     value any more: after the memory has been full once if chunks do not divide `max_memories`,
#     as 512 tokens do not with the default of 250,000, and otherwise after it has been full twice.
#     An addition `at_batch_indices([0])` moves the offsets of all rows: what is added to row 1
#     later is not found, and zeros come back unmasked.
# For gyre: it has no such memory. There, call `clear()` before it is full, and add to all rows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps memorizing-transformers-pytorch==0.4.1
"$folder/env/bin/pip" install --quiet --no-compile faiss-cpu==1.15.1 einops==0.8.2 \
    einops-exts==0.0.4 joblib==1.6.0 filelock==4.2.11 packaging==26.4 torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" - <<'PYTHON'
import torch
from memorizing_transformers_pytorch import KNNMemory

DIM = 32
CHUNK = 30

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)


def chunk(n_rows):
    """Return unit keys with values that are the negated keys, (rows, tokens, 2, dim)."""
    keys = torch.randn(n_rows, CHUNK, DIM, generator=generator)
    keys = torch.nn.functional.normalize(keys, dim=-1)
    return torch.stack([keys, -keys], dim=2)


def found(memory, added):
    """Return for each row the share of added keys that are found with their value, and the mask."""
    pairs, mask = memory.search(added[:, :, 0], topk=1)
    right = torch.isclose(pairs[:, :, 0], added, atol=1e-6).all(dim=(-1, -2))
    return right.float().mean(dim=1).tolist(), mask.float().mean().item()


def fill(max_memories, n_chunks, clear_after=100):
    """Return the shares of the last chunk that are found and unmasked, after each addition."""
    memory = KNNMemory(dim=DIM, max_memories=max_memories, num_indices=1, multiprocessing=False)
    shares = []
    masks = []
    for i in range(n_chunks):
        if i % clear_after == clear_after - 1:
            memory.clear()
        added = chunk(1)
        memory.add(added)
        share, mask = found(memory, added)
        shares.append(share[0])
        masks.append(mask)
    return shares, masks


for max_memories in (90, 100):
    shares, masks = fill(max_memories, 12)
    print(f"max_memories={max_memories}, chunks of {CHUNK}: found {shares}, unmasked {masks}")
    n_right = 3 if max_memories == 100 else 7
    for i, (share, mask) in enumerate(zip(shares, masks, strict=True)):
        assert mask == (i % 4 != 3)  # the memory is empty after it has been full
        assert share == (mask if i < n_right else 0)
shares, _ = fill(100, 12, clear_after=3)
print(f"cleared in time: found {shares}")
assert min(shares) == 1

for scoped in (False, True):
    memory = KNNMemory(dim=DIM, max_memories=1000, num_indices=2, multiprocessing=False)
    if scoped:
        with memory.at_batch_indices([0]):
            memory.add(chunk(1))
    added = chunk(2)
    memory.add(added)
    share, mask = found(memory, added)
    pairs, _ = memory.search(added[:, :, 0], topk=1)
    size = pairs[1].abs().max().item()
    print(f"row 0 alone first: {scoped}; found in rows 0 and 1: {share}, unmasked {mask:.0%}, "
          f"largest element for row 1 {size:.2f}")
    assert mask == 1
    assert share == ([1.0, 0.0] if scoped else [1.0, 1.0])
    assert (size == 0) == scoped
PYTHON
