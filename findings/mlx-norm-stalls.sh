#!/usr/bin/env bash
# mlx's gradient norm of many bfloat16 tensors stops growing: 16 for a thousand tensors of norm 1.
#
# Version: mlx 0.32.4 (CPU).
# Guess before the run: clip_grad_norm's norm is right within 1 % for bfloat16 gradients, since sums
#     accumulate in float32. (That the sum over tensors might not was suspected.)
# Seen: within a tensor they do. The squares of the tensors are then added one after the other as
#     bfloat16 scalars, and 256 + 1 is 256 there. float16 is cast to float32 first, bfloat16 is
#     not. A LLaMA of 32 layers has 291 tensors, one of 80 layers 723. The order counts, too: small
#     tensors after a large one are lost, before it they are not.
# For gyre: gyre clips by torch's clip_grad_norm_. In mlx with bfloat16 weights, cast the gradients
#     to float32 before clipping; else it clips less than asked for.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile "mlx[cpu]==0.32.4"
"$folder/env/bin/python" - <<'PYTHON'
import math

import mlx.core as mx
from mlx.optimizers import clip_grad_norm

mx.set_default_device(mx.cpu)
ONE = [0.25] * 16  # its norm is 1
norms = {}
for dtype in [mx.float32, mx.float16, mx.bfloat16]:
    for n_tensors in [100, 291, 723]:
        gradients = [mx.array(ONE, dtype=dtype) for _ in range(n_tensors)]
        clipped, norm = clip_grad_norm(gradients, max_norm=1.0)
        norms[dtype, n_tensors] = norm.item()
        clipped_norm = math.sqrt(sum(mx.sum(g.astype(mx.float32) ** 2).item() for g in clipped))
        print(f"{n_tensors} tensors of norm 1 in {dtype}: norm {norm.item():.2f}, right is "
              f"{math.sqrt(n_tensors):.2f}; after clipping to 1 it is {clipped_norm:.2f}")

large = mx.array([30.0], dtype=mx.bfloat16)
small = [mx.array(ONE, dtype=mx.bfloat16) for _ in range(300)]
last = clip_grad_norm([*small, large], 1.0)[1].item()
first = clip_grad_norm([large, *small], 1.0)[1].item()
print(f"one tensor of norm 30 and 300 of norm 1, right is {math.sqrt(1200):.2f}: {first:.2f} with "
      f"the large one first, {last:.2f} with it last")

for n_tensors in [100, 291, 723]:
    for dtype in [mx.float32, mx.float16]:
        assert math.isclose(norms[dtype, n_tensors], math.sqrt(n_tensors), rel_tol=1e-3)
assert norms[mx.bfloat16, 291] == norms[mx.bfloat16, 723] == 16
assert first < last
PYTHON
