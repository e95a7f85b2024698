#!/usr/bin/env bash
# ChunkPress rates each chunk by queries that are rotated to the end of the text.
#
# Versions: kvpress 0.5.5, transformers 5.2.0, torch 2.13.0.
# Guess before the run: each chunk is compressed independently, as its docstring says: the tokens of the
#     first chunk that stay are those that stay if nothing follows, because a causal model computes the
#     same keys. (That TOVA's queries have other positions was suspected after reading the source.)
# Seen: with KnormPress and ExpectedAttentionPress they are. With TOVAPress and SnapKVPress they are
#     not: of a chunk of 128 tokens, half stay, and only 55 % of those that TOVA keeps are the ones it
#     keeps alone, where chance would give 50 %. The queries are those of the end of the chunk, but they
#     get the rotary angles of the end of the whole text, while the keys have those of the chunk. So a
#     query looks for neighbours at the distance of the end of the text. Only the last chunk is right.
# For gyre: it does not compress its cache. There, take KnormPress in chunks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile kvpress==0.5.5 transformers==5.2.0 torch==2.13.0 \
    accelerate==1.15.0 cachetools==5.5.2 datasets==5.2.0 fire==0.6.0 numpy==2.4.6 pandas==2.3.3 \
    peft==0.21.2 requests==2.34.2 tokenizers==0.22.2
cd "$folder"
env/bin/python - <<'PYTHON'
import torch
from kvpress import ChunkPress, ExpectedAttentionPress, KnormPress, SnapKVPress, TOVAPress
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

VOCABULARY = 97
CHUNK = 128
N_CHUNKS = 8
N_KEPT = CHUNK // 2
LAYER = 1

torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96,
                     num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     max_position_embeddings=4096)
model = LlamaForCausalLM(config).eval()
for parameter in model.parameters():
    if parameter.dim() == 2:
        torch.nn.init.normal_(parameter, std=0.15)
text = torch.randint(VOCABULARY, (1, N_CHUNKS * CHUNK))


@torch.no_grad()
def kept(press, ids):
    """Return the positions of the first chunk that stay, one set per key head."""
    full = DynamicCache()
    model(ids, past_key_values=full)
    cache = DynamicCache()
    with ChunkPress(press=press, chunk_length=CHUNK)(model):
        model(ids, past_key_values=cache)
    sets = []
    for values, left in zip(full.layers[LAYER].values[0], cache.layers[LAYER].values[0]):
        equal = (left[:, None] == values[None]).all(-1)
        assert (equal.sum(1) == 1).all()
        positions = equal.int().argmax(1).tolist()
        sets.append({position for position in positions if position < CHUNK})
    return sets


def agreement(press):
    """Return which share of the first chunk's kept tokens is kept without a continuation."""
    alone = kept(press, text[:, :CHUNK])
    followed = kept(press, text)
    for one, other in zip(alone, followed):
        assert len(one) == len(other) == N_KEPT
    shares = [len(one & other) / N_KEPT for one, other in zip(alone, followed)]
    share = sum(shares) / len(shares)
    print(f"{type(press).__name__}: {share:.0%} of the tokens of the first chunk that stay alone "
          f"stay in a text of {N_CHUNKS} chunks")
    return share


assert agreement(KnormPress(0.5)) == 1
assert agreement(ExpectedAttentionPress(0.5)) > 0.95
assert agreement(TOVAPress(0.5)) < 0.65
assert agreement(SnapKVPress(0.5, window_size=16)) < 0.8
PYTHON
