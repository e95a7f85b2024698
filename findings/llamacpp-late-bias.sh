#!/usr/bin/env bash
# Behind top-k, llama.cpp's logit bias leaves an order that is no longer true: min-p drops the likeliest token.
#
# Version: llama.cpp 0.5.0 (npm's @node-llama-cpp/linux-x64 3.22.1), called from Python by ctypes, without a model.
# Guess before the run: in a chain of samplers, each works on the logits that the one before has left, so min-p of 0.5 behind a bias
#     keeps the tokens of at least half the largest probability, whatever stands in front of the bias. (Suspected from reading the source.)
# Seen: of tokens with the logits 4, 3, 2 and 1.5, a bias of 5 makes the last one the likeliest, with 89 %. Min-p of 0.5, which is to
#     keep it alone, keeps the first alone, with 7 %. Top-p of 0.5 keeps all four, and top-k of 1 the first. If the bias stands in front
#     of the first top-k, all three are right; behind top-k, so are typical sampling and greedy.
#     A bias of 1e9, which is to force a token, does so with top-k of 100, but with top-k of 200 that token is never kept.
# Cause: the bias does not take back the mark that the tokens are sorted, as penalties and DRY do (src/llama-sampler.cpp,
#     `llama_sampler_logit_bias_apply`). For more than 128 tokens, top-k sorts by buckets, and the cast of a large logit to an
#     int overflows, so that it falls into the lowest one (`llama_token_data_array_partial_sort`). No issue was found.
# For gyre: it has no biases. There, put the bias first, as the command line does, and force a token by 100.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME="$folder"
cd "$folder"
npm install --silent --no-fund --no-audit @node-llama-cpp/linux-x64@3.22.1
python3 - <<'PYTHON'
import ctypes
import math
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



class Bias(ctypes.Structure):
    _fields_ = [("token", ctypes.c_int32), ("bias", ctypes.c_float)]


def make_bias(n, token, bias):
    init = llama.llama_sampler_init_logit_bias
    init.restype = ctypes.c_void_p
    return ctypes.c_void_p(init(n, 1, (Bias * 1)(Bias(token, bias))))


def keep(logits, *samplers):
    """Return the ids that are left."""
    tokens = (Token * len(logits))(*(Token(i, x, 0) for i, x in enumerate(logits)))
    candidates = Candidates(tokens, len(logits), -1, False)
    for sampler in samplers:
        llama.llama_sampler_apply(sampler, ctypes.byref(candidates))
    if candidates.selected >= 0:
        return {candidates.data[candidates.selected].id}
    return {candidates.data[i].id for i in range(candidates.size)}


logits = [4.0, 3.0, 2.0, 1.5, 0.0, 0.0, 0.0, 0.0]
bias = make_bias(8, 3, 5.0)
biased = [x + 5.0 * (i == 3) for i, x in enumerate(logits[:4])]
p = [math.exp(x) / sum(map(math.exp, biased)) for x in biased]
print("probabilities of the first four, with the bias:", [round(x, 2) for x in p])
one = ctypes.c_size_t(1)
cutters = {
    "min-p 0.5": make_sampler("min_p", ctypes.c_float(0.5), one),
    "top-p 0.5": make_sampler("top_p", ctypes.c_float(0.5), one),
    "top-k 1": make_sampler("top_k", ctypes.c_int32(1)),
    "typical 0.5": make_sampler("typical", ctypes.c_float(0.5), one),
    "greedy": make_sampler("greedy"),
}
four = make_sampler("top_k", ctypes.c_int32(4))
seen = {}
for name, cutter in cutters.items():
    first, behind = keep(logits, bias, four, cutter), keep(logits, four, bias, cutter)
    print(f"{name}: keeps {first} with the bias in front of top-k, {behind} behind it")
    assert first == {3}
    seen[name] = behind
assert seen == {"min-p 0.5": {0}, "top-p 0.5": {0, 1, 2, 3}, "top-k 1": {0}, "typical 0.5": {3}, "greedy": {3}}

logits = [math.sin(i) for i in range(1000)]
for k in (100, 200):
    for size in (100.0, 1e9):
        kept = keep(logits, make_bias(1000, 7, size), make_sampler("top_k", ctypes.c_int32(k)))
        print(f"top-k of {k}, a bias of {size:g}: the token is {'kept' if 7 in kept else 'lost'}")
        assert len(kept) == k and (7 in kept) == (k == 100 or size == 100.0)
PYTHON
