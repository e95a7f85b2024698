#!/usr/bin/env bash
# In ExecuTorch, the remainder of negative integers has the sign of the dividend: -1 % 5 is -1.
#
# Versions: executorch 1.5.1, torch 2.13.0, torchao 0.18.0.
# Guess before the run: an exported program computes what torch computes: `%` and `torch.remainder`
#     have the sign of the divisor, for integers as for floats. (None was suspected: it came out of
#     a comparison of some 200 operators.)
# Seen: for integers of each width it is the remainder of C, which is `torch.fmod`: (i - 3) % 8, as
#     a ring buffer counts back, is -3 for i=0, where 5 is due; compared with the places 0 to 7, it
#     is none of them, and what is read is 0. Floats are right, and so is division that rounds down.
#     Nothing is said.
# For gyre: it does not export to ExecuTorch. There, write `x - n * (x // n)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
# The other dependencies are for other devices.
"$folder/env/bin/pip" install --quiet --no-compile --no-deps executorch==1.5.1 torchao==0.18.0
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 \
    flatbuffers==25.12.19 ruamel.yaml==0.19.1 pyyaml==6.0.3 tabulate==0.10.0 pandas==3.0.1
"$folder/env/bin/python" -W ignore - 2> "$folder/log" <<'PYTHON'
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch.export import export


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def run(function, *inputs):
    """Return the output of a program with one function."""
    program = to_edge_transform_and_lower(export(Call(function), inputs)).to_executorch()
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    return method.execute(list(inputs))[0]


def floor_remainder(x, n):
    """Return the number with the sign of n that differs from x by a multiple of n."""
    return [a - b * (a // b) for a, b in zip(x.tolist(), n.tolist())]


x = torch.tensor([7, -7, 5, -5, 0, 3, -1, -8])
n = torch.tensor([2, 2, -3, -3, 4, -2, 5, 4])
five = torch.full_like(x, 5)
for dtype in [torch.int64, torch.int32, torch.int8, torch.float32]:
    a, b = x.to(dtype), n.to(dtype)
    for name, function, inputs, divisor in [
            ("x % n", torch.remainder, (a, b), n), ("x % 5", lambda x: x % 5, (a,), five)]:
        eager, by_program = function(*inputs), run(function, *inputs)
        print(f"{name}, {dtype}: {eager.int().tolist()} by torch, {by_program.int().tolist()} "
              "by the program")
        assert eager.tolist() == floor_remainder(x, divisor)
        due = torch.fmod(a, divisor.to(dtype)) if dtype != torch.float32 else eager
        assert torch.equal(by_program, due)
        assert torch.equal(by_program, eager) == (dtype == torch.float32)

floors = run(lambda x, n: torch.div(x, n, rounding_mode="floor"), x, n)
assert torch.equal(floors, torch.div(x, n, rounding_mode="floor"))


def read_back(buffer, i):
    """Return the row of a ring buffer three places before i, by its one-hot index."""
    place = (i - 3) % 8
    return ((torch.arange(8) == place[:, None]).float() @ buffer[:8])


buffer, i = torch.arange(16.0).reshape(16, 1), torch.tensor([0, 2, 4])
eager, by_program = read_back(buffer, i), run(read_back, buffer, i)
print(f"rows of a ring buffer: {eager.ravel().tolist()} by torch, {by_program.ravel().tolist()} "
      "by the program")
assert eager.ravel().tolist() == [5, 7, 1] and by_program.ravel().tolist() == [0, 0, 1]
PYTHON
