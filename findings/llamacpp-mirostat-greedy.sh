#!/usr/bin/env bash
# llama.cpp's Mirostat is greedy for ever after some 300 tokens, if its target is above what the model gives.
#
# Version: llama.cpp 0.5.0 (npm's @node-llama-cpp/linux-x64 3.22.1, x86-64), called from Python by ctypes, without a model.
# Guess before the run: Mirostat keeps the mean surprise at its target; where the distributions have less, it cuts nothing, and is
#     sampling without a limit. So does Mirostat 2.
# Seen: for distributions over 4,000 tokens with 1.6 bits each, as good models have, with the default target of 5 bits, 68 % of the
#     first 100 tokens are the likeliest, 99 % of the third hundred, and all of the three that follow. With Mirostat 2 it is 58 to
#     73 % throughout. Where the target could be kept, it is not: with 3 bits for a distribution of 6.9, the mean surprise is 4.2.
# Cause: as long as surprise is below the target, mu grows with each token, and k with the power of two of it. Once k is too large for
#     an int, the cast gives the smallest int on x86, and k = 1; a greedy token has no surprise, and mu grows on. The surprise is
#     taken after the cut, from what is left, where the authors' code takes the model's (src/llama-sampler.cpp,
#     `llama_sampler_mirostat_apply`). No issue was found.
# For gyre: it has no Mirostat. There, take `mirostat_v2`, or a target below the model's bits per token.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME="$folder"
cd "$folder"
npm install --silent --no-fund --no-audit @node-llama-cpp/linux-x64@3.22.1
python3 - <<'PYTHON'
import ctypes
import math
import random
from pathlib import Path

libraries = Path("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64").resolve()
ctypes.CDLL(str(libraries / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(str(libraries / "libggml.v0.5.0.so"), mode=ctypes.RTLD_GLOBAL)
llama = ctypes.CDLL(str(libraries / "libllama.v0.5.0.so"))


class Token(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float)]


class Candidates(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(Token)), ("size", ctypes.c_size_t), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool)]


def make_sampler(name, *arguments):
    init = getattr(llama, f"llama_sampler_init_{name}")
    init.restype = ctypes.c_void_p
    init.argtypes = [type(argument) for argument in arguments]
    return ctypes.c_void_p(init(*arguments))


llama.llama_sampler_apply.argtypes = [ctypes.c_void_p, ctypes.POINTER(Candidates)]


def sample(logits, *samplers):
    """Return the ids that samplers leave, and the one that the last has drawn."""
    tokens = (Token * len(logits))(*(Token(i, x, 0) for i, x in enumerate(logits)))
    candidates = Candidates(tokens, len(logits), -1, False)
    for sampler in samplers:
        llama.llama_sampler_apply(sampler, ctypes.byref(candidates))
    left = [candidates.data[i] for i in range(candidates.size)]
    drawn = left[candidates.selected].id if candidates.selected >= 0 else None
    return {token.id for token in left if token.logit > -math.inf}, drawn



def surprise(logits, i):
    """Return the bits of one token by the model's probabilities."""
    largest = max(logits)
    return math.log2(sum(math.exp(x - largest) for x in logits)) - (logits[i] - largest) / math.log(2)


def make_mirostats(n, tau):
    seed, eta = ctypes.c_uint32(1), ctypes.c_float(0.1)
    return {
        "Mirostat": make_sampler("mirostat", ctypes.c_int32(n), seed, ctypes.c_float(tau), eta, ctypes.c_int32(100)),
        "Mirostat 2": make_sampler("mirostat_v2", seed, ctypes.c_float(tau), eta),
    }


random.seed(0)
N, STEPS = 4000, 600
samplers = make_mirostats(N, 5)
likeliest = {name: [] for name in samplers}
bits = []
for _ in range(STEPS):
    logits = [random.gauss(-2.5 * math.log(i + 1), 1) for i in range(N)]
    best = logits.index(max(logits))
    likeliest_bits = surprise(logits, best)
    p = [math.exp(x - logits[best]) * 2**-likeliest_bits for x in logits]
    bits.append(-sum(x * math.log2(x) for x in p))
    for name, sampler in samplers.items():
        likeliest[name].append(sample(logits, sampler)[1] == best)
print(f"distributions of {sum(bits) / STEPS:.2f} bits, target 5")
for name, hits in likeliest.items():
    shares = [sum(hits[i:i + 100]) for i in range(0, STEPS, 100)]
    print(f"{name}: percent of likeliest tokens among each 100: {shares}")
    assert shares[0] < 85
    assert (shares[3:] == [100] * 3) == (name == "Mirostat") and (name == "Mirostat" or max(shares) < 90)

logits = [random.gauss(0, 3) for _ in range(5000)]
surprises = [surprise(logits, i) for i in range(5000)]
print(f"one distribution of {sum(x * 2**-x for x in surprises):.2f} bits, target 3")
for name, sampler in make_mirostats(5000, 3).items():
    drawn = [surprises[sample(logits, sampler)[1]] for _ in range(600)][100:]
    print(f"{name}: mean surprise {sum(drawn) / len(drawn):.2f} bits by these probabilities")
    assert sum(drawn) / len(drawn) > 3.8
PYTHON
