#!/usr/bin/env bash
# Speculative decoding of several prompts gives other greedy texts than the model does.
#
# Versions: speculative-decoding 0.2.0 (lucidrains), torch 2.13.0.
# Guess before the run: speculative decoding does not change what the large model says: at
#     temperature 0, each row of a batch has the greedy text of its prompt alone. (That a batch
#     might not was suspected after reading the source.)
# Seen: alone, each of eight prompts has the greedy text, token by token. In a batch of the eight,
#     all of one length, seven have another one, which leaves it a few tokens on. Rows that accept
#     fewer tokens are shifted to the right, and what lies to their left is garbage; the
#     decoder is told where a row begins, makes a mask of it, and gives it to no layer. In a batch
#     of copies of one prompt, all accept alike, and all are right. No warning.
# For gyre: it decodes without a draft. There, decode prompts one at a time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile speculative-decoding==0.2.0 torch==2.13.0 \
    einops==0.8.2 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from speculative_decoding.speculative_decoding import Decoder, base_decoding, speculative_decoding

N_TOKENS = 64
N_PROMPTS = 8
LENGTH = 40

torch.manual_seed(0)
large = Decoder(num_tokens=N_TOKENS, dim=64, depth=3, heads=4, dim_head=16)
small = Decoder(num_tokens=N_TOKENS, dim=32, depth=1, heads=2, dim_head=16)
for model in [large, small]:
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 2.5  # so that random weights give texts of some variety
prompts = torch.randint(N_TOKENS, (N_PROMPTS, 6))


def speculate(prompts):
    return speculative_decoding(large, small, prompts, LENGTH, temperature=0.0)[0]


def compare(name, texts, greedy):
    """Print and return how many rows are the greedy texts."""
    n_right = (texts == greedy).all(dim=1).sum().item()
    first = [(row != right).int().argmax().item() for row, right in zip(texts, greedy)
             if not row.equal(right)]
    print(f"{name}: {n_right} of {len(texts)} rows are the greedy text; the others leave it at "
          f"tokens {first}")
    return n_right


greedy = base_decoding(large, prompts, LENGTH, temperature=0.0)
alone = torch.cat([base_decoding(large, prompt[None], LENGTH, temperature=0.0)
                   for prompt in prompts])
assert compare("no draft, one at a time", alone, greedy) == N_PROMPTS
alone = torch.cat([speculate(prompt[None]) for prompt in prompts])
assert compare("draft, one at a time", alone, greedy) == N_PROMPTS
copies = prompts[:1].expand(N_PROMPTS, -1)
assert compare("draft, copies of one prompt", speculate(copies),
               greedy[:1].expand(N_PROMPTS, -1)) == N_PROMPTS
assert compare("draft, a batch", speculate(prompts), greedy) <= 2
PYTHON
