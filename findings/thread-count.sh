#!/usr/bin/env bash
# set_num_threads counts for the thread that calls it and for threads that have not used torch yet.
#
# Version: torch 2.13.0.
# Guess before the run: torch.set_num_threads is a setting of the process. A call in any thread
#     counts for all.
# Seen: a thread that has used torch before keeps the number that it had. A call in such a thread
#     does not change the main thread, but it changes every thread that is new to torch. So
#     threads of one process compute with different numbers.
# For gyre: model/kernels.py and gyre/compute.py set the number in the thread that then computes,
#     which is right. A number set while a Dask worker starts need not reach the thread that
#     computes its tasks: set it in the task.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
from concurrent.futures import ThreadPoolExecutor

import torch


def ask(pool, function, *arguments):
    return pool.submit(function, *arguments).result()


torch.set_num_threads(2)
torch.get_num_threads()  # this counts as use: without it, main would get 3 below
old = ThreadPoolExecutor(max_workers=1)
seen = {"a pool that starts at 2": ask(old, torch.get_num_threads)}
torch.set_num_threads(1)
seen["this pool, after main has set 1"] = ask(old, torch.get_num_threads)
new = ThreadPoolExecutor(max_workers=1)
seen["a pool that starts then"] = ask(new, torch.get_num_threads)
ask(old, torch.set_num_threads, 3)
seen["main, after the first pool has set 3"] = torch.get_num_threads()
seen["the second pool"] = ask(new, torch.get_num_threads)
newest = ThreadPoolExecutor(max_workers=1)
seen["a pool that starts then, too"] = ask(newest, torch.get_num_threads)
for name, number in seen.items():
    print(f"{name}: {number} threads")
assert list(seen.values()) == [2, 2, 1, 1, 1, 3]
PYTHON
