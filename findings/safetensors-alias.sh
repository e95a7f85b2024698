#!/usr/bin/env bash
# Weights of load_file change when their file is written to, page by page.
#
# Versions: safetensors 0.8.0, torch 2.13.0.
# Guess before the run: load_file reads a file into memory. What is written to the file afterwards
#     does not reach the tensors.
# Seen: the tensors are a private mapping of the file. Other values written into the file appear
#     in them. A page that the program has changed itself no longer follows, so half of a tensor
#     is old and half is new. backend="pread" reads into memory, and so does safetensors.numpy.
# For gyre: gyre/checkpoint.py reads with "pread", and files.py renames whole files into place.
#     formats/tensors.py maps somebody else's file, which must not be rewritten in place
#     meanwhile.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile safetensors==0.8.0 torch==2.13.0 numpy==2.4.6
env/bin/python - <<'PYTHON'
import mmap
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file as load_numpy
from safetensors.torch import load_file, save, save_file

PER_PAGE = mmap.PAGESIZE // 4  # float32 values in a page of memory
FILE = Path("weights.safetensors")


def overwrite_file(value):
    """Write other values over those in the file, which keeps its size and its inode."""
    content = save({"w": torch.full((8 * PER_PAGE,), float(value))})
    with FILE.open("r+b") as file:
        file.write(content)


def load(function, **options):
    save_file({"w": torch.zeros(8 * PER_PAGE)}, FILE)
    return function(FILE, **options)["w"]


def values(tensor):
    return np.unique(np.asarray(tensor)).tolist()


seen = {}
weights = load(load_file)
overwrite_file(1)
seen["load_file"] = values(weights)

weights = load(load_file)
weights[4 * PER_PAGE] += 0  # a page in the middle is written to
overwrite_file(1)
seen["load_file, and one element changed"] = values(weights)
n_old = int((weights == 0).sum())

weights = load(load_file, backend="pread")
overwrite_file(1)
seen["load_file, backend='pread'"] = values(weights)

weights = load(load_numpy)
overwrite_file(1)
seen["safetensors.numpy.load_file"] = values(weights)

for name, found in seen.items():
    print(f"{name}: 0 was loaded, 1 was written to the file, the tensor has {found}")
print(f"with one element changed, {n_old} elements are old; a page has {PER_PAGE}")

assert seen == {"load_file": [1], "load_file, and one element changed": [0, 1],
                "load_file, backend='pread'": [0], "safetensors.numpy.load_file": [0]}
assert n_old == PER_PAGE
PYTHON
