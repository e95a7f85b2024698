#!/usr/bin/env bash
# Greedy text differs with and without the KV cache, for two scalings of RoPE.
#
# Versions: transformers 5.24.0, torch 2.13.0.
# Guess before the run: the cache saves time and changes nothing. With use_cache=False, greedy
#     tokens of a float32 model are the same.
# Seen: with rope_type "dynamic" and "longrope" they part soon after the original length. Both
#     choose frequencies by the current length, and the cache holds keys that were rotated with
#     the earlier ones. "default", "linear", "yarn" and "llama3" agree in all tokens. No warning.
# For gyre: model/generation.py does not cache keys where "dynamic" would change their rotation. A
#     comparison with transformers past the original length needs use_cache=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile transformers==5.24.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
ORIGINAL = 32  # positions that the model is said to be trained with
N_PROMPT = 28
N_NEW = 64
LONGER = {"factor": 4.0, "original_max_position_embeddings": ORIGINAL}
SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "yarn": LONGER,
    "llama3": {**LONGER, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "dynamic": {"factor": 4.0},
    "longrope": {**LONGER, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8},
}

same = {}
for rope_type, options in SCALINGS.items():
    length = ORIGINAL * 4 if "original_max_position_embeddings" in options else ORIGINAL
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=length,
        rope_parameters={"rope_type": rope_type, "rope_theta": 10_000.0, **options},
        initializer_range=0.2, bos_token_id=None, eos_token_id=None, pad_token_id=0)
    model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(1, 64, (1, N_PROMPT))
    texts = []
    for use_cache in [True, False]:
        tokens = model.generate(prompt, max_new_tokens=N_NEW, do_sample=False, use_cache=use_cache)
        texts.append(tokens[0, N_PROMPT:])
    equal = texts[0] == texts[1]
    same[rope_type] = int(equal.sum())
    print(f"{rope_type}: {same[rope_type]} of {N_NEW} greedy tokens are the same")
    if not equal.all():
        position = N_PROMPT + int(equal.int().argmin())
        print(f"    the first difference is at {position}, the original length is {ORIGINAL}")

assert [rope_type for rope_type, n in same.items() if n == N_NEW] == [
    "default", "linear", "yarn", "llama3"]
assert same["dynamic"] < N_NEW / 2 and same["longrope"] < N_NEW / 2
PYTHON
