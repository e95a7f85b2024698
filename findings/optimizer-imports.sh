#!/usr/bin/env bash
# The first optimizer imports the compiler, and a gradient that is given imports sympy.
#
# Versions: torch 2.13.0.
# Guess: `import torch` has all that an eager training uses. (The effect had been met before, with
#     AdamW in gyre; the script was written to see it without gyre.)
# Seen: SGD, like every torch.optim.Optimizer, imports torch._dynamo when it is made, with some 800
#     modules: a second and 70 MiB, though nothing is compiled. `backward()` of a scalar imports
#     nothing; `backward(gradient)`, and `grad` with `grad_outputs`, import sympy, with 500 modules.
# For gyre: its optimizers are of no such class, and it gives no gradients, so that a training starts
#     in 2.2 instead of 4.0 s. A script that only needs SGD can update its weights itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
cat > "$folder/imports.py" <<'PYTHON'
import sys
import time

import torch

weight = torch.ones(3, requires_grad=True)
ACTIONS = {
    "backward()": lambda: weight.sum().backward(),
    "backward(gradient)": lambda: (2 * weight).backward(torch.ones(3)),
    "SGD": lambda: torch.optim.SGD([weight], lr=0.1),
}
before = {*sys.modules}
start = time.perf_counter()
ACTIONS[sys.argv[1]]()
seconds = time.perf_counter() - start
new = {*sys.modules} - before
packages = [name for name in ("sympy", "torch._dynamo") if name in new]
print(f"{sys.argv[1]}: {len(new)} modules, among them {packages}", flush=True)
print(f"    {seconds:.2f} s", file=sys.stderr)
PYTHON
seen=$(for action in "backward()" "backward(gradient)" SGD; do
    "$folder/env/bin/python" "$folder/imports.py" "$action"
done)
echo "$seen"
grep -q "^backward(): 0 modules, among them \[\]$" <<< "$seen"
grep -q "^backward(gradient): [3-9][0-9][0-9] modules, among them \['sympy'\]$" <<< "$seen"
grep -Eq "^SGD: [0-9]{3,4} modules, among them \['sympy', 'torch._dynamo'\]$" <<< "$seen"
