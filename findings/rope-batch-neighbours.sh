#!/usr/bin/env bash
# A text by continuous batching depends on how long the other texts of the batch are.
#
# Versions: transformers 5.24.0, torch 2.13.0.
# Guess before the run: generate_batch gives each of several requests the text and the
#     log-probabilities that it has alone, for every scaling of RoPE: keys are in pages of their
#     own, and no request sees another.
# Seen: with "default", "linear", "yarn" and "llama3" that is so. With "dynamic" and "longrope" it
#     is not: 20 texts that end before the original length, where these scalings have the
#     frequencies of training, change when a text that is longer is in the same batch, and the
#     log-probabilities of their first tokens change by up to 0.8 and 0.9. `dynamic_rope_update`
#     (modeling_rope_utils.py) takes one maximum of all position ids, and a batch is one row of the
#     tokens of all requests. Nothing is said.
# For gyre: each row has the frequencies of its own length. With transformers, serve models of these two scalings
#     one request at a time, or requests that are all below or all above the original length.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile transformers==5.24.0 torch==2.13.0 \
    numpy==2.4.6 accelerate==1.15.0
cd "$folder"
env/bin/python - <<'PYTHON'
import warnings

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation import ContinuousBatchingConfig
from transformers.utils import logging

warnings.simplefilter("ignore")
logging.set_verbosity_error()
ORIGINAL = 32  # positions that the model is said to be trained with
N_NEW = 12
LONGER = {"factor": 4.0, "original_max_position_embeddings": ORIGINAL}
SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "yarn": LONGER,
    "llama3": {**LONGER, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "dynamic": {"factor": 4.0},
    "longrope": {**LONGER, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8},
}
generator = torch.Generator().manual_seed(1)
SHORT = torch.randint(1, 64, (20, 8), generator=generator).tolist()  # they end with 20 tokens
LONG = torch.randint(1, 64, (60,), generator=generator).tolist()
GENERATION = GenerationConfig(
    max_new_tokens=N_NEW, do_sample=False, eos_token_id=-1, pad_token_id=0)
BATCHING = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=512, return_logprobs=True)


def draw(model, prompts):
    """The new tokens of each prompt and their log-probabilities, in the order of the prompts."""
    results = model.generate_batch(
        prompts, generation_config=GENERATION, continuous_batching_config=BATCHING,
        progress_bar=False)
    ordered = sorted(results.values(), key=lambda result: int(result.request_id.split("_")[-1]))
    return [(result.generated_tokens, result.logprobs) for result in ordered]


changed = {}
for rope_type, options in SCALINGS.items():
    length = ORIGINAL * 4 if "original_max_position_embeddings" in options else ORIGINAL
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=length,
        rope_parameters={"rope_type": rope_type, "rope_theta": 10_000.0, **options},
        initializer_range=0.4, bos_token_id=None, eos_token_id=None, pad_token_id=0)
    model = LlamaForCausalLM(config).eval()
    model.set_attn_implementation("eager")
    alone = []
    for prompt in SHORT:
        inputs = torch.tensor([prompt])
        tokens = model.generate(inputs, attention_mask=torch.ones_like(inputs),
                                max_new_tokens=N_NEW, do_sample=False)
        alone.append(tokens[0, len(prompt):].tolist())
    among_short = draw(model, SHORT)
    beside_long = draw(model, [*SHORT, LONG])[:len(SHORT)]
    assert [tokens for tokens, _ in among_short] == alone, rope_type
    changed[rope_type] = sum(
        before != after for (before, _), (after, _) in zip(among_short, beside_long))
    first = max(abs(before[0] - after[0])
                for (_, before), (_, after) in zip(among_short, beside_long))
    print(f"{rope_type}: {changed[rope_type]} of {len(SHORT)} short texts are others beside a long "
          f"one; the first log-probability changes by up to {first:.4f}")

assert changed["default"] == changed["linear"] == changed["yarn"] == changed["llama3"] == 0
assert changed["dynamic"] > 10 and changed["longrope"] > 10
PYTHON
