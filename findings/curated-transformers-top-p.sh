#!/usr/bin/env bash
# curated-transformers' top_p does nothing, and an EOS as the last allowed piece does not end a text.
#
# Versions: curated-transformers 2.0.1, torch 2.13.0.
# Guess before the run: with `top_p=0.05` and more for the most likely piece, that is the only one sampled; a text whose
#     EOS comes at `max_generated_pieces` ends there. (Both were suspected after reading the source.)
# Seen: 2,000 samples with `top_p` of 0.05, 0.5 and 1 are the same, all pieces among them; on logits of two
#     dimensions TopPTransform is right, on the three of the generator it changes nothing. Where EOS is the fifth
#     piece, a limit of 4 or 6 gives four pieces, and a limit of 5 gives five: one from behind EOS.
# Cause: `retain_indices[:, 0] = True` keeps the most likely piece of logits (batch, pieces); those of the generator
#     are (batch, 1, pieces), so that all are kept (curated_transformers/generation/logits.py). A text that
#     ends for both reasons has `True ^ True` (state.py), and goes on.
# For gyre: its samplers take (batch, vocabulary). There, take `top_k`, and a limit above the
#     longest text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 huggingface_hub==0.36.0 \
    tokenizers==0.23.3 curated-tokenizers==2.0.1 curated-transformers==2.0.1
export HOME="$folder" OMP_NUM_THREADS=1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from curated_transformers.generation import Generator, GreedyGeneratorConfig, SampleGeneratorConfig
from curated_transformers.generation.logits import TopPTransform
from curated_transformers.layers.attention import AttentionMask
from curated_transformers.models.llama import LlamaCausalLM, LlamaConfig

N_PIECES, N_SAMPLES = 16, 2000
logits = torch.tensor([[3.0, 2, 1, 0]])
flat, deep = TopPTransform(0.5)(logits).softmax(-1), TopPTransform(0.5)(logits[:, None]).softmax(-1)[:, 0]
rounded = [[round(p, 2) for p in values[0].tolist()] for values in [logits.softmax(-1), flat, deep]]
print(f"top_p=0.5 of {rounded[0]}: {rounded[1]}, and with a dimension of time {rounded[2]}")
assert (flat > 0).sum() == 1 and torch.equal(deep, logits.softmax(-1))

torch.manual_seed(2)
model = LlamaCausalLM(LlamaConfig(n_pieces=N_PIECES, hidden_width=32, intermediate_width=64, n_hidden_layers=1,
                                  n_query_heads=2, n_key_value_heads=2)).eval()
for parameter in model.parameters():
    if parameter.dim() == 2:
        torch.nn.init.normal_(parameter, std=0.3)


def generate(prompts, config):
    mask = AttentionMask(torch.ones_like(prompts, dtype=torch.bool))
    return [pieces for _, pieces in Generator(model).generate(ids=prompts, attention_mask=mask, config=config)]


PROMPTS = torch.tensor([[1, 2, 3]]).expand(N_SAMPLES, 3).contiguous()
counts = {}
for top_p in [1.0, 0.5, 0.05]:
    torch.manual_seed(0)
    samples = generate(PROMPTS, SampleGeneratorConfig(max_generated_pieces=1, top_p=top_p, eos_id=99))[0]
    counts[top_p] = samples.flatten().bincount(minlength=N_PIECES)
    print(f"top_p={top_p}: {(counts[top_p] > 0).sum()} of {N_PIECES} pieces were sampled, the most frequent one in "
          f"{counts[top_p].max() / N_SAMPLES:.0%}")
assert torch.equal(counts[1.0], counts[0.05]) and (counts[0.05] > 0).sum() == N_PIECES
assert counts[0.05].max() > 0.06 * N_SAMPLES

# a greedy text whose fifth piece is new: that is EOS
for _ in range(200):
    prompt = torch.randint(0, N_PIECES, (1, 3))
    text = torch.cat(generate(prompt, GreedyGeneratorConfig(max_generated_pieces=8, eos_id=99))).flatten().tolist()
    if text[4] not in [*text[:4], text[5]]:
        break
else:
    raise AssertionError("no such text")
for limit in [4, 5, 6]:
    config = GreedyGeneratorConfig(max_generated_pieces=limit, eos_id=text[4])
    found = torch.cat(generate(prompt, config)).flatten().tolist()
    print(f"the text {text} with EOS {text[4]} and a limit of {limit}: {found}")
    assert found == (text[:4] + text[5:6] if limit == 5 else text[:4])
PYTHON
