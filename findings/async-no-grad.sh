#!/usr/bin/env bash
# @torch.no_grad() does nothing on an async function.
#
# Version: torch 2.13.0.
# Guess, written down after a first look: the decorator knows generators, so it knows `async def`
#     too: gradients are off inside, or decorating raises.
# Seen: gradients are on inside a coroutine and an asynchronous generator. The decorator turns
#     them off only while the coroutine object is made. A plain generator is handled: off inside
#     it, on between its values. inference_mode is the same. No warning. A `with` block inside
#     works, but if it awaits, gradients are off in the other tasks as well.
# For gyre: its decorated functions are plain ones. A server around gyre needs a `with` block
#     around the call that computes, with no await inside.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import asyncio

import torch

seen = {}
weight = torch.ones(1, requires_grad=True)


@torch.no_grad()
def plain():
    return (2 * weight).requires_grad


@torch.no_grad()
def generator():
    yield (2 * weight).requires_grad


@torch.no_grad()
async def coroutine():
    return (2 * weight).requires_grad


@torch.no_grad()
async def async_generator():
    yield (2 * weight).requires_grad


@torch.inference_mode()
async def inference_coroutine():
    return (2 * weight).requires_grad


@torch.no_grad()
async def coroutine_with_block():
    with torch.no_grad():
        return (2 * weight).requires_grad


async def wait_in_block(started):
    with torch.no_grad():
        started.set()
        await asyncio.sleep(0.01)


async def ask_beside_block():
    started = asyncio.Event()
    task = asyncio.create_task(wait_in_block(started))
    await started.wait()
    requires_grad = (2 * weight).requires_grad
    await task
    return requires_grad


async def ask():
    seen["coroutine"] = await coroutine()
    async for value in async_generator():
        seen["async generator"] = value
    seen["coroutine, inference_mode"] = await inference_coroutine()
    seen["coroutine, `with` inside"] = await coroutine_with_block()
    seen["task beside a `with` that awaits"] = await ask_beside_block()


seen["function"] = plain()
seen["generator"] = next(generator())
asyncio.run(ask())
for name, requires_grad in seen.items():
    print(f"{name}: the result requires a gradient: {requires_grad}")

assert seen == {"function": False, "generator": False, "coroutine": True, "async generator": True,
                "coroutine, inference_mode": True, "coroutine, `with` inside": False,
                "task beside a `with` that awaits": False}
PYTHON
