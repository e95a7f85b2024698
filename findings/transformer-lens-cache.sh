#!/usr/bin/env bash
# transformer-lens writes other text with its KV cache, since one minor release of transformers.
#
# Versions: transformer-lens 4.3.0 with transformers 5.24.0, torch 2.13.0.
# Guess before the run: transformer-lens does not exclude transformers 5.24.0, so both work
#     together. Greedy tokens with its cache and without it are those of the model itself.
# Seen: logits and greedy tokens without the cache are right. With the cache, which is the
#     default, they are wrong from the second token. transformers 5.24.0 warns that
#     `past_key_values` of forward is now `cache`; nothing fails. With 5.23.0 all tokens are
#     right.
# For gyre: outside/transformer-lens.sh pins both. A single forward pass, from which activations
#     are read, is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile transformer-lens==4.3.0 transformers==5.24.0 torch==2.13.0
cat > ask.py <<'PYTHON'
import sys
from importlib.metadata import version

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformer_lens.model_bridge import TransformerBridge
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

N_NEW = 32
torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                     initializer_range=0.2, bos_token_id=0, eos_token_id=1, pad_token_id=0)
model = LlamaForCausalLM(config).eval()
model.save_pretrained("model")
vocabulary = {f"word{number}": number for number in range(64)}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="word0"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="word0", eos_token="word1",
                        pad_token="word0", unk_token="word0").save_pretrained("model")
bridge = TransformerBridge.boot_transformers("model", device="cpu", dtype=torch.float32)

prompt = torch.randint(2, 64, (1, 12))
with torch.no_grad():
    difference = (bridge(prompt) - model(prompt).logits).abs().max().item()
expected = model.generate(prompt, max_new_tokens=N_NEW, do_sample=False, eos_token_id=None)
same = {}
for use_cache in [True, False]:
    tokens = bridge.generate(prompt, max_new_tokens=N_NEW, do_sample=False, stop_at_eos=False,
                             use_past_kv_cache=use_cache, return_type="tokens", verbose=False)
    same[use_cache] = int((tokens == expected)[0, 12:].sum())
print(f"transformer-lens {version('transformer-lens')}, transformers {version('transformers')}: "
      f"logits differ by {difference:.0e}; greedy tokens that are right: {same[True]} of {N_NEW} "
      f"with the cache, {same[False]} without")

assert difference < 1e-4
assert same[False] == N_NEW
if sys.argv[1] == "wrong":
    assert same[True] < N_NEW / 2
else:
    assert same[True] == N_NEW
PYTHON
export HF_HUB_OFFLINE=1
env/bin/python ask.py wrong
env/bin/pip install --quiet --no-compile transformers==5.23.0
env/bin/python ask.py right
