#!/usr/bin/env bash
# transformers separates packed documents by their positions, but only with use_cache=False.
#
# Versions: transformers 5.24.0, torch 2.13.0.
# Guess before the run: a row of two documents whose position_ids start again gets the logits that
#     each document gets alone: transformers finds the documents in the positions, as padding-free
#     batches need. (That the cache might matter was suspected beforehand.)
# Seen: it does so with use_cache=False. The default is use_cache=True, and then the second document
#     attends to the first: the logits are far off, with eager attention and with sdpa, in eval
#     mode and in training mode. No warning.
# For gyre: whoever scores or trains an export on packed rows passes use_cache=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile transformers==5.24.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

N_FIRST = 8
N_SECOND = 12
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    initializer_range=0.2, bos_token_id=None, eos_token_id=None, pad_token_id=0)
model = LlamaForCausalLM(config)
tokens = torch.randint(1, 64, (1, N_FIRST + N_SECOND))
positions = torch.cat([torch.arange(N_FIRST), torch.arange(N_SECOND)])[None]

differences = {True: [], False: []}
for attention in ["eager", "sdpa"]:
    model.set_attn_implementation(attention)
    for training in [False, True]:
        model.train(training)
        with torch.no_grad():
            alone = [model(part).logits for part in tokens.split([N_FIRST, N_SECOND], dim=1)]
            for use_cache, options in {True: {}, False: {"use_cache": False}}.items():
                packed = model(tokens, position_ids=positions, **options).logits
                difference = (packed - torch.cat(alone, dim=1)).abs().max().item()
                differences[use_cache].append(difference)
                print(f"{attention}, training {training}, use_cache {use_cache}: "
                      f"packed and alone differ by {difference:.0e}")

assert max(differences[False]) < 1e-4
assert min(differences[True]) > 1
PYTHON
