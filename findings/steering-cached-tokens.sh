#!/usr/bin/env bash
# With the KV cache, a steering vector for "tokens from 6 on" steers no token that is generated.
#
# Versions: steering-vectors 0.12.2, transformers 4.57.6, torch 2.13.0.
# Guess before the run: `min_token_index` is a place in the text, so that all tokens from there on
#     are steered, also those that are generated, and the greedy text is the same with and without
#     the KV cache. (That it might not be was suspected after reading the source.)
# Seen: places are counted in what one forward pass gets, which is one token with the cache. With
#     `min_token_index=6` behind a prompt of 6 tokens, the text is the unsteered one; with 4, the
#     last two tokens of the prompt are steered and nothing after them; token_indices=[0] steers the
#     first token and each generated one. Without the cache, all is as the names say, and none of
#     the texts is the same. With all tokens steered, both are.
# For gyre: it steers no models. There, steer all tokens, or generate with `use_cache=False`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile steering-vectors==0.12.2 torch==2.13.0 \
    transformers==4.57.6 numpy==2.4.6 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from steering_vectors import SteeringVector
from transformers import LlamaConfig, LlamaForCausalLM

N_PROMPTS = 10
N_PROMPT_TOKENS = 6
torch.manual_seed(0)
torch.set_num_threads(1)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
    num_attention_heads=4, initializer_range=0.2, bos_token_id=None, eos_token_id=None,
    pad_token_id=0)).eval()
vector = SteeringVector({1: 3 * torch.randn(64)})
prompts = torch.randint(1, 100, (N_PROMPTS, N_PROMPT_TOKENS))


def generate(use_cache):
    texts = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=10,
                           do_sample=False, use_cache=use_cache)
    return texts[:, N_PROMPT_TOKENS:]


def count_same(texts, others):
    return int((texts == others).all(1).sum())


unsteered = generate(True)
assert count_same(unsteered, generate(False)) == N_PROMPTS
same = {}
for name, options in [("all tokens", {}), ("tokens from 6 on", {"min_token_index": 6}),
                      ("tokens from 4 on", {"min_token_index": 4}),
                      ("the first token", {"min_token_index": None, "token_indices": [0]})]:
    with vector.apply(model, **options):
        cached, uncached = generate(True), generate(False)
    same[name] = count_same(cached, uncached), count_same(cached, unsteered)
    print(f"{name} steered: with and without cache {same[name][0]} of {N_PROMPTS} texts are the "
          f"same; with cache {same[name][1]} are the unsteered text")
assert same["all tokens"] == (N_PROMPTS, 0)
assert same["tokens from 6 on"][1] == N_PROMPTS
assert all(same[name][0] <= 1 for name in same if name != "all tokens")
assert same["tokens from 4 on"][1] == same["the first token"][1] == 0

# With the cache, the hook sees one token at a time: only the prompt's pass has a token 4.
with vector.apply(model, min_token_index=4):
    cache = model(prompts, use_cache=True).past_key_values
ids = unsteered[:, :1]
plain = model(ids, past_key_values=cache, use_cache=True).logits
cache.crop(N_PROMPT_TOKENS)
with vector.apply(model, min_token_index=4):
    assert torch.equal(model(ids, past_key_values=cache, use_cache=True).logits, plain)
PYTHON
