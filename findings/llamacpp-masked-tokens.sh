#!/usr/bin/env bash
# With one banned token, llama.cpp's typical sampling keeps any tokens; with few allowed ones, Mirostat takes the likeliest.
#
# Versions: llama.cpp 0.5.0 (npm's @node-llama-cpp/linux-x64 3.22.1), called from Python by ctypes, without a model.
# Guess before the run: each sampler alone and in pairs computes its formula, with logits of -inf too, which stand for tokens
#     that a bias, a grammar or another sampler has ruled out. (Suspected from reading the source.)
# Seen: of 1,000 tokens, `typical` with p = 0.5 keeps the 69 whose surprise is next to the entropy. If the least likely token is
#     banned, it keeps 669, and 27 of the 69 are not among them. It is the same behind top-n-sigma, which the default order puts in
#     front of it, although top-k stands between. Mirostat with the default of 100 tokens for its estimate takes the likeliest token
#     in each of 200 steps, if 50 are allowed; Mirostat 2 takes 19 different ones. Without -inf, top-k, top-p, min-p, typical,
#     top-n-sigma, XTC, DRY, penalties and the dynamic temperature agreed with their formulas in 300 random cases each.
# Cause: the entropy adds p * log(p), which is NaN for p = 0, so all scores are NaN and the sort leaves them in some order.
#     Mirostat takes log(0 / 0), and the cast of a NaN to int makes k = 1 (src/llama-sampler.cpp, `llama_sampler_typical_apply`
#     and `llama_sampler_mirostat_apply`; dynamic temperature skips p = 0). No issue was found.
# For gyre: it has neither. There, put top-k in front of `typical`, without top-n-sigma, and take Mirostat 2.
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


def keep_typical(logits, share):
    """Return the ids that locally typical sampling keeps (Meister et al. 2022), in float64."""
    largest = max(logits)
    weights = [math.exp(x - largest) for x in logits]
    total = sum(weights)
    p = {i: w / total for i, w in enumerate(weights) if w > 0}
    entropy = -sum(x * math.log(x) for x in p.values())
    kept, mass = set(), 0.0
    for i in sorted(p, key=lambda i: abs(-math.log(p[i]) - entropy)):
        kept.add(i)
        mass += p[i]
        if mass > share:
            return kept
    return kept


random.seed(0)
logits = [random.gauss(0, 2) for _ in range(1000)]
banned = list(logits)
banned[logits.index(min(logits))] = -math.inf
typical = make_sampler("typical", ctypes.c_float(0.5), ctypes.c_size_t(1))

due = keep_typical(logits, 0.5)
kept, _ = sample(logits, typical)
print(f"typical, p = 0.5: keeps {len(kept)} of 1,000 tokens, due {len(due)}")
assert kept == due

due = keep_typical(banned, 0.5)
kept, _ = sample(banned, typical)
print(f"without the least likely token: keeps {len(kept)}, due {len(due)}; {len(kept & due)} are in both")
assert len(kept) > 2 * len(due) and not due <= kept

sigma = make_sampler("top_n_sigma", ctypes.c_float(1.5))
top_k = make_sampler("top_k", ctypes.c_int32(40))
left, _ = sample(logits, sigma)
due = keep_typical([x if i in left else -math.inf for i, x in enumerate(logits)], 0.5)
kept, _ = sample(logits, sigma, top_k, typical)
print(f"behind top-n-sigma, which leaves {len(left)}, and top-k of 40: keeps {len(kept)}, due {len(due)}; {len(kept & due)} are in both")
assert kept != due

due = keep_typical([x if x >= sorted(banned)[-40] else -math.inf for x in banned], 0.5)
kept, _ = sample(banned, top_k, typical)
print(f"behind top-k of 40: keeps {len(kept)}, due {len(due)}; {len(kept & due)} are in both")
assert kept == due

few = [x if i < 50 else -math.inf for i, x in enumerate(logits)]
seed, tau, eta = ctypes.c_uint32(1), ctypes.c_float(5), ctypes.c_float(0.1)
samplers = {
    "Mirostat": make_sampler("mirostat", ctypes.c_int32(1000), seed, tau, eta, ctypes.c_int32(100)),
    "Mirostat 2": make_sampler("mirostat_v2", seed, tau, eta),
}
n_different = {}
for name, sampler in samplers.items():
    drawn = [sample(few, sampler)[1] for _ in range(200)]
    n_different[name] = len(set(drawn))
    print(f"{name}, 50 tokens allowed: {n_different[name]} different ones in 200 steps; the first are {drawn[:5]}, the likeliest is {few.index(max(few))}")
assert n_different["Mirostat"] == 1 and n_different["Mirostat 2"] > 10
PYTHON
