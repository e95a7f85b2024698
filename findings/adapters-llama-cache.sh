#!/usr/bin/env bash
# After `adapters.init`, a Llama or Mistral generates each token from the last one alone.
#
# Versions: adapters 1.3.0, transformers 4.57.6, which it requires, torch 2.13.0.
# Guess before the run: a model to which adapters are added generates the same text with and without a
#     cache; without an active adapter, it is the text of the plain model. (Written for a comparison of
#     adapters, in which the difference was seen.)
# Seen: attention layers of adapters read `past_key_value`, and transformers gives them `past_key_values`:
#     the cache stays empty, in silence. A step has the logits of its token alone, at position 0, bit for
#     bit, whatever the prompt is. Without any adapter, all of 8 greedy texts differ from those of the
#     plain model, which has their first token. Without a cache, as in training, all is right; GPT-2 is
#     right, too. (An issue of adapters, number 824, has the new name as an error of BERT models.)
# For gyre: its exports can be read by adapters. There, generate with `use_cache=False`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile adapters==1.3.0 transformers==4.57.6 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import adapters
import torch
from transformers import (
    GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM)

torch.set_num_threads(1)
sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
ends = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
models = {
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**sizes, **ends)),
    "Mistral": lambda: MistralForCausalLM(MistralConfig(**sizes, **ends)),
    "GPT-2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4,
                                                n_positions=128, **ends)),
}
torch.manual_seed(0)
prompts = torch.randint(2, 64, (8, 10))


def generate(model, cached):
    """Return 20 greedy tokens for each prompt."""
    return model.generate(prompts, max_new_tokens=20, do_sample=False, use_cache=cached)[:, 10:]


def step(model, prompt, token):
    """Return the logits of a token behind a prompt in the cache."""
    with torch.no_grad():
        cache = model(prompt, use_cache=True).past_key_values
        return model(token, past_key_values=cache, use_cache=True).logits


for name, make in models.items():
    torch.manual_seed(0)
    model = make().eval()
    plain = generate(model, True)
    assert (plain == generate(model, False)).all()
    adapters.init(model)
    assert (plain == generate(model, False)).all()
    cached = generate(model, True)
    different = (plain != cached).any(1).sum().item()
    first = (plain[:, 0] == cached[:, 0]).all().item()
    token, other = prompts[:, :1], (prompts[:, 5:] + 7) % 64
    same = torch.equal(step(model, prompts, token), step(model, other, token))
    with torch.no_grad():
        alone = torch.equal(step(model, prompts, token), model(token).logits)
    print(f"{name}: {different} of 8 cached texts differ, equal in their first token: {first}; a step "
          f"has equal logits behind other prompts: {same}, those of its token alone: {alone}")
    assert first
    assert (different, same, alone) == ((0, False, False) if name == "GPT-2" else (8, True, True))
PYTHON
