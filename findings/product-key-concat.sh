#!/usr/bin/env bash
# With `concat_values_and_combine`, a product key memory never learns its keys and its queries.
#
# Versions: product-key-memory 0.3.0, torch 2.13.0.
# Guess before the run: the option concatenates heads of smaller values, as multi-head attention
#     does; each head is still the mean of its values weighted by the softmax of their scores, so
#     that keys and queries have gradients. (That they have none was suspected after reading the
#     source.)
# Seen: the weights are computed and not used. Each head is the plain sum of its 8 values, so that
#     keys and queries have no gradient at all, and are bit for bit as they began after 300 steps of
#     training. Keys ten times as large change nothing, nor does `non_competitive_gates`. Without
#     the option all of that is as expected.
# For gyre: it has no such memory. There, leave the option out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile product-key-memory==0.3.0 \
    colt5-attention==0.11.2 local-attention==1.11.2 hyper-connections==0.4.11 einops==0.8.2 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from product_key_memory import PKM

DIM = 16
TOP = 8
N_STEPS = 300

torch.set_num_threads(1)


def make(concat, **options):
    torch.manual_seed(0)
    return PKM(dim=DIM, heads=2, dim_head=8, num_keys=16, topk=TOP,
               concat_values_and_combine=concat, **options)


def train(concat):
    """Train a memory on a fixed table; return how far its keys and query weights have moved."""
    memory = make(concat)
    start = [memory.keys.detach().clone(), memory.to_queries.weight.detach().clone()]
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(1, 64, DIM, generator=generator)
    targets = torch.randn(1, 64, DIM, generator=generator)
    optimizer = torch.optim.Adam(memory.parameters(), lr=1e-2)
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        loss = (memory(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
    moved = []
    for before, after in zip(start, [memory.keys, memory.to_queries.weight], strict=True):
        moved.append((after - before).abs().max().item())
    return moved, memory.keys.grad is None, loss.item()


def change(concat):
    """Return the relative change of the output if all keys are ten times as large."""
    memory = make(concat)
    inputs = torch.randn(1, 64, DIM, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = memory(inputs)
        memory.keys.mul_(10)
        after = memory(inputs)
    return ((after - before).norm() / before.norm()).item()


def gates(concat):
    """Return the largest difference that non-competitive gates make."""
    inputs = torch.randn(1, 64, DIM, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        difference = make(concat)(inputs) - make(concat, non_competitive_gates=True)(inputs)
    return difference.abs().max().item()


for concat in (False, True):
    moved, missing, loss = train(concat)
    scaled = change(concat)
    relu = gates(concat)
    print(f"concat_values_and_combine={concat}: keys moved by {moved[0]:.3f}, query weights by "
          f"{moved[1]:.3f}, no gradient: {missing}, loss {loss:.3f}; keys times 10 change the "
          f"output by {scaled:.0%}, other gates by up to {relu:.3f}")
    if concat:
        assert missing and moved == [0.0, 0.0] and scaled == 0 and relu == 0
    else:
        assert not missing and min(moved) > 0.1 and scaled > 0.5 and relu > 0.1
PYTHON
