#!/usr/bin/env bash
# In pyvene, the noise has one size, whatever `noise_level` is.
#
# Versions: pyvene 0.1.8, transformers 5.24.0, torch 2.13.0.
# Guess before the run: `NoiseIntervention(noise_level=s)` adds normal noise with a standard
#     deviation of s, and none with 0, to the rows that are given. (That the argument is not read
#     was suspected after reading the source.)
# Seen: its key is misspelt where it is read: each level is the default 0.1346, so that a search for
#     the smallest noise that destroys an answer sees the same numbers for all levels. The noise
#     has four positions and one seed: all rows of a batch and all calls have the same, and other
#     numbers of positions are an error.
# For gyre: nobody intervenes on it. There, set the buffer `noise_level` after the model is made.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 \
    transformers==5.24.0 matplotlib==3.11.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pyvene==0.1.8
HF_HOME="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import pyvene
import torch
from transformers import GPT2Config, GPT2LMHeadModel

WIDTH, LENGTH, VOCABULARY, N_ROWS = 256, 4, 20, 3
torch.set_num_threads(1)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=1, n_head=2, n_positions=LENGTH, bos_token_id=0,
    eos_token_id=0)).eval()
model.transformer.ln_f = torch.nn.Identity()  # the output is that of the block
model.lm_head = torch.nn.Identity()
ids = torch.randint(VOCABULARY, (N_ROWS, LENGTH))


def measure_noise(level, set_by_hand=False):
    """Return what the intervention adds to the output of the block."""
    intervention = pyvene.NoiseIntervention(embed_dim=WIDTH, noise_level=level)
    if set_by_hand:
        intervention.noise_level.fill_(level)
    intervenable = pyvene.IntervenableModel(
        {"layer": 0, "component": "block_output", "intervention": intervention}, model)
    with torch.no_grad():
        before = model(ids).logits
        _, after = intervenable({"input_ids": ids},
                                unit_locations={"base": list(range(LENGTH))})
    return after.logits - before


print("standard deviation of the noise:")
for level in (0.0, 0.01, 0.1, 1.0, 10.0):
    noise, by_hand = measure_noise(level), measure_noise(level, set_by_hand=True)
    print(f"    noise_level={level}: {noise.std():.4f}, with the buffer set by hand "
          f"{by_hand.std():.4f}")
    assert 0.12 < noise.std() < 0.15
    assert abs(by_hand.std() - level) < 0.1 * level + 1e-6
    assert torch.allclose(noise[0], noise[1], atol=1e-5)  # the rows have the same noise
PYTHON
