#!/usr/bin/env bash
# set_flush_denormal flushes a part of a tensor: the part that the calling thread computes.
#
# Version: torch 2.13.0, on x86.
# Guess before the run: set_flush_denormal(True) holds for the process. 1e-40 times one is zero in
#     the whole tensor.
# Seen: the flag is in a register of one CPU thread. With two threads the first half of the result
#     is zero and the second half is not. A gradient is the same. So the result depends on the
#     number of threads. The call returns True in any case. A thread that is made by a thread with
#     the flag inherits it: the whole tensor is zero if the call comes before the first large
#     operation.
# For gyre: it does not call set_flush_denormal. Call it first in a program, or not at all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
cat > "$folder/ask.py" <<'PYTHON'
import sys

import torch

SIZE = 2**22
torch.set_num_threads(1)  # so that no second thread is made here
tiny = torch.full((SIZE,), 1e-40)
leaf = torch.ones(SIZE, requires_grad=True)
torch.set_num_threads(2)
if sys.argv[1] == "after":
    torch.ones(SIZE).mul_(2)  # the second thread is made here
assert torch.set_flush_denormal(True)

product = tiny * 1.0
(leaf * 1e-20 * 1e-20).sum().backward()
shares = []
for name, tensor in {"product": product, "gradient": leaf.grad}.items():
    bits = tensor.view(torch.int32)  # `tensor == 0` would flush what it compares
    halves = [float((half == 0).double().mean()) for half in bits.split(SIZE // 2)]
    shares.append(halves)
    print(f"called {sys.argv[1]} the first large operation, {name}: "
          f"{halves[0]:.0%} of the first half is zero, {halves[1]:.0%} of the second")
expected = {"before": [1.0, 1.0], "after": [1.0, 0.0]}[sys.argv[1]]
assert shares == [expected, expected]
PYTHON
"$folder/env/bin/python" "$folder/ask.py" before
"$folder/env/bin/python" "$folder/ask.py" after
