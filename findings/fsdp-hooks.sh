#!/usr/bin/env bash
# A hook on a parameter that fully_shard has sharded never runs.
#
# Version: torch 2.13.0.
# Guess before the run: register_hook on a sharded parameter is called once in a backward pass,
#     with the gradient's shard, and its result replaces it.
# Seen: it is never called, whether registered before fully_shard or after. Registering succeeds.
#     The gradient arrives as if there were no hook. register_post_accumulate_grad_hook is called.
#     The same model in DistributedDataParallel calls the hook.
# For gyre: gyre/sharding.py must change gradients after backward or in that other hook.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
cat > "$folder/ask.py" <<'PYTHON'
import copy
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
torch.manual_seed(0)
plain = torch.nn.Linear(4, 3)
x = torch.randn(2, 4)


def backward(prepare):
    """Return the norm of the weight's gradient and how often each of three hooks was called."""
    model = copy.deepcopy(plain)
    calls = {"registered before": 0, "registered after": 0, "after accumulation": 0}

    def halve(name):
        def hook(gradient):
            calls[name] += 1
            return gradient / 2
        return hook

    def count(parameter):
        calls["after accumulation"] += 1

    model.weight.register_hook(halve("registered before"))
    prepared = prepare(model)
    model.weight.register_hook(halve("registered after"))
    model.weight.register_post_accumulate_grad_hook(count)
    prepared(x).sum().backward()
    return model.weight.grad.norm().item(), calls


whole, _ = backward(lambda model: torch.nn.Sequential(model))
results = {}
for name, prepare in [("DistributedDataParallel", DistributedDataParallel),
                      ("fully_shard", lambda model: fully_shard(model, mesh=mesh))]:
    norm, calls = backward(prepare)
    results[name] = (round(norm / whole, 3), calls)
    print(f"{name}: {calls}, gradient {norm / whole:.2f} times that in one process")
dist.destroy_process_group()

assert results["DistributedDataParallel"] == (1, {"registered before": 1, "registered after": 1,
                                                  "after accumulation": 1})
assert results["fully_shard"] == (4, {"registered before": 0, "registered after": 0,
                                      "after accumulation": 1})
PYTHON
"$folder/env/bin/python" "$folder/ask.py" "$folder/store"
