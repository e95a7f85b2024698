#!/usr/bin/env bash
# Compiled for AVX2, sums with int8 weights take several times as long as with float32 weights.
#
# Versions: torch 2.13.0, a C++ compiler; an x86 processor with AVX2, which is also what
#     ATEN_CPU_CAPABILITY=avx2 makes of one with AVX-512.
# Guess before the run: int8 weights have a quarter of the bytes, and AVX2 converts eight of them by
#     one instruction, so sums with them are at least as fast as with float32 weights.
# Seen: they take five to ten times as long; with AVX-512 they are faster than with float32. A load
#     of as many int8 numbers as a vector has float32 numbers is a load of a part of a vector. It
#     fills an array on the stack with ones, copies the numbers over them, and reads the array,
#     which the processor cannot forward from two kinds of stores. The same bytes viewed as float32,
#     turned into integers by `view` in the compiled code, and cut by shifts, are as fast as float32
#     numbers.
# For gyre: with AVX2, its compiled decoding reads int8 weights in this way.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6
export ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=1 TORCHINDUCTOR_CACHE_DIR=$folder/cache
env/bin/python - <<'PYTHON'
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)


@torch.compile(dynamic=False)
def multiply(x, weight):
    return (x * weight).sum(-1)


@torch.compile(dynamic=False)
def multiply_words(x, words):
    integers = words.view(torch.int32)
    parts = [((integers << 24 - 8 * byte) >> 24) * x[byte] for byte in range(4)]
    return ((parts[0] + parts[1]) + (parts[2] + parts[3])).sum(-1)


def measure(function, x, weight):
    """Return the shortest time of 100 calls, in microseconds of this thread."""
    function(x, weight)
    times = []
    for _ in range(100):
        started = time.thread_time()
        function(x, weight)
        times.append(time.thread_time() - started)
    return min(times) * 1e6


x = torch.randn(512)
weight = torch.randint(-127, 128, (1024, 512), dtype=torch.int8)
x_by_byte = x.view(128, 4).T.contiguous()
words = weight.view(torch.float32)
expected = weight.float() @ x
for found in multiply(x, weight), multiply_words(x_by_byte, words):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)
in_float32 = measure(multiply, x, weight.float())
in_int8 = measure(multiply, x, weight)
in_words = measure(multiply_words, x_by_byte, words)
print(f"{torch.backends.cpu.get_cpu_capability()}: float32 {in_float32:.0f} us, int8 {in_int8:.0f}, "
      f"int8 viewed as float32 {in_words:.0f}")
assert in_int8 > 3 * in_float32
assert in_words < 1.5 * in_float32
PYTHON
