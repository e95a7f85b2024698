#!/usr/bin/env bash
# With its KV cache disabled for a while, a torchtune model sees the future.
#
# Versions: torchtune 0.6.1, torch 2.13.0.
# Guess before the run: `disable_kv_cache` makes forward passes what they are without a cache. The
#     attention says that it is causal if no mask is given, so that the logits of a position do not
#     depend on later tokens. (The condition on the cache was seen in the source before.)
# Seen: they do. Without a mask, attention is causal only if the model has no cache, not even a
#     disabled one: inside `disable_kv_cache`, every token attends to all tokens. A small model that is
#     trained there on random tokens ends with a loss of 0.001, because it sees the token that it is to
#     predict, and the same model without a cache with 2.09, which is what random tokens allow. With the
#     cache enabled, a missing mask is an error; with the cache disabled, nothing is said.
# For gyre: its forward pass is causal with and without a cache. There, give a mask inside the block.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 torchao==0.16.0 torchdata==0.11.0 \
    numpy==2.4.6 omegaconf==2.4.0 tiktoken==0.14.0 sentencepiece==0.2.3 blobfile==3.3.0 \
    datasets==5.2.0 huggingface_hub==2.4.0 safetensors==0.8.0 tokenizers==0.23.3 psutil==7.2.2 \
    pillow==13.0.0 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchtune==0.6.1
cd "$folder"
env/bin/python - <<'PYTHON'
import math

import torch
from torch.nn import functional as F
from torchtune.models.llama3 import llama3
from torchtune.modules import disable_kv_cache

VOCABULARY = 8
LENGTH = 16
ROWS = 32

torch.set_num_threads(1)


def make_model(with_cache):
    torch.manual_seed(0)
    model = llama3(vocab_size=VOCABULARY, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=64,
                   max_seq_len=32)
    if with_cache:
        model.setup_caches(batch_size=ROWS, dtype=torch.float32, decoder_max_seq_len=32)
    return model


def reach(model):
    """Return how far the last token changes the logits of the positions before it."""
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % VOCABULARY
    with torch.no_grad():
        return (model(ids) - model(other))[:, :-1].abs().max().item()


def learn(model):
    """Return the loss in nats after a training on tokens drawn at random."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(300):
        ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
        logits = model(ids)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


plain = make_model(with_cache=False)
plain_reach = reach(plain)
plain_loss = learn(plain)
cached = make_model(with_cache=True)
try:
    cached(torch.zeros(ROWS, LENGTH, dtype=torch.long))
    raise SystemExit("a cache without a mask is no error any more")
except ValueError as error:
    print(f"with the cache enabled and no mask: {str(error)[:60]}...")
with disable_kv_cache(cached):
    cached_reach = reach(cached)
    cached_loss = learn(cached)
print(f"reach of a later token: {plain_reach:.3f} without a cache, {cached_reach:.3f} with a "
      f"disabled one")
print(f"loss on random tokens: {plain_loss:.3f} and {cached_loss:.3f}, at best "
      f"{math.log(VOCABULARY):.3f}")
assert plain_reach == 0 and cached_reach > 0.01
assert plain_loss > 2 and cached_loss < 0.5
PYTHON
