#!/usr/bin/env bash
# An infini-transformer that generates from a prompt of several segments reads the last one only.
#
# Versions: infini-transformer-pytorch 0.2.1, torch 2.13.0.
# Guess before the run: a prompt is read segment by segment, as the wrapper's loss reads a text, so
#     that the text depends on each token of the prompt, through the memory of the segments before
#     the last one. (That it might not was suspected after reading the source.)
# Seen: generate() begins with the segment in which the prompt ends, with an empty memory: if the
#     full segments before it are replaced by random tokens, not one of 20 greedy texts changes, in
#     the 40 tokens of three more segments, and the first logits are those of the end of the prompt
#     alone. Read as the loss reads it, segment by segment, half of the next tokens are others.
# For gyre: its models have no memories. There, feed the prompt by hand and keep `past_memories`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 infini-transformer-pytorch==0.2.1 \
    einops==0.8.2 rotary-embedding-torch==0.9.1 tqdm==4.70.1 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON' 2>&1
import os

os.environ["TQDM_DISABLE"] = "1"
import torch
from infini_transformer_pytorch import InfiniTransformer, InfiniTransformerWrapper

N_TOKENS = 50
SEGMENT = 16
N_PROMPTS = 20
torch.manual_seed(0)
torch.set_num_threads(1)
model = InfiniTransformer(num_tokens=N_TOKENS, dim=64, depth=2, dim_head=16, heads=4).eval()
for name, parameter in model.named_parameters():
    if name.endswith("head_gates"):  # half of each output from the memory
        parameter.data.zero_()
    elif name.endswith("to_out.weight"):  # larger than new ones, so that it counts for the logits
        parameter.data.mul_(10)
wrapper = InfiniTransformerWrapper(model, segment_length=SEGMENT)


def greedy(prompt, n_new):
    return wrapper.generate(prompt=prompt, seq_len=prompt.shape[1] + n_new, temperature=0.0)


@torch.no_grad()
def next_token(prompt):
    """Return the most likely next token, reading the prompt as the wrapper's loss does."""
    memories = None
    for segment in prompt.split(SEGMENT, dim=1):
        logits, _, memories = model(segment, past_memories=memories, return_new_memories=True)
    return logits[:, -1].argmax(-1, keepdim=True)


for length in [20, 40, 72]:
    full = length // SEGMENT * SEGMENT
    prompt = torch.randint(N_TOKENS, (N_PROMPTS, length))
    other = prompt.clone()
    other[:, :full] = torch.randint(N_TOKENS, (N_PROMPTS, full))
    text, text_of_other, text_of_end = (greedy(p, 40) for p in [prompt, other, prompt[:, full:]])
    same = int((text == text_of_other).all(1).sum())
    n_first = int((text[:, 0] == text_of_end[:, 0]).sum())
    n_loss = int((text[:, 0] == next_token(prompt)[:, 0]).sum())
    n_depend = int((next_token(prompt) != next_token(other)).sum())
    print(f"prompts of {length} tokens, the first {full} replaced: {same} of {N_PROMPTS} texts are "
          f"the same; first token as from the last {length - full} tokens alone in {n_first}, as "
          f"by the loss in {n_loss}; by the loss, {n_depend} next tokens depend on the others")
    assert same == N_PROMPTS and n_first == N_PROMPTS
    assert n_loss < 0.7 * N_PROMPTS and n_depend > 0.3 * N_PROMPTS

short = torch.randint(N_TOKENS, (N_PROMPTS, SEGMENT - 2))
changed = short.clone()
changed[:, :4] = torch.randint(N_TOKENS, (N_PROMPTS, 4))
n_same = int((greedy(short, 40) == greedy(changed, 40)).all(1).sum())
print(f"prompts of {SEGMENT - 2} tokens, the first 4 replaced: {n_same} texts are the same")
assert n_same < N_PROMPTS / 4
PYTHON
