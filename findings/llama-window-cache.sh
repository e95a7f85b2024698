#!/usr/bin/env bash
# A key that Llama never reads, sliding_window, cuts its cache and changes what it generates.
#
# Versions: transformers 5.24.0, torch 2.13.0.
# Guess before the run: LlamaConfig takes sliding_window as it takes any key, and as the model has
#     no such thing, logits and texts are those without it, with the cache and without. (That the
#     cache might read it was suspected after a look at another model.)
# Seen: the forward pass ignores it: with a window of 8, the first token still changes the logits of
#     the last one, and the logits are those without the key, to the bit. But with the
#     cache, a token sees the last 8 only: from the 9th on, its logits are others, and generate(),
#     which caches by default, gives another text, 1 of 20 tokens being the same.
#     attention_chunk_size does the same, and so with OLMo and GPT-NeoX. No warning.
# For gyre: its exports have no such key. Take it out of a config.json that was made from
#     Mistral's, or compare with use_cache=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile transformers==5.24.0 torch==2.13.0 numpy==2.4.6
HF_HUB_OFFLINE=1 "$folder/env/bin/python" - <<'PYTHON'
import torch
from transformers import AutoConfig, AutoModelForCausalLM

WINDOW = 8
LENGTH = 24
SIZES = {"vocab_size": 99, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 256, "bos_token_id": 1,
         "eos_token_id": None, "pad_token_id": 0}


def make(kind, **extra):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES, **extra)).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 4  # so that random weights attend to something
    return model


@torch.no_grad()
def measure(model, tokens):
    """Return logits in one pass, logits token by token with the cache, and two greedy texts."""
    whole = model(tokens, use_cache=False).logits[0]
    cache = None
    cached = []
    for i in range(LENGTH):
        out = model(tokens[:, i:i + 1], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        cached.append(out.logits[0, 0])
    texts = [model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=20,
                            do_sample=False, use_cache=use_cache)[0, LENGTH:]
             for use_cache in [True, False]]
    return whole, torch.stack(cached), texts


tokens = torch.randint(3, 99, (1, LENGTH), generator=torch.Generator().manual_seed(1))
other = tokens.clone()
other[0, 0] = (tokens[0, 0] + 1) % 96 + 3
for kind in ["llama", "olmo", "gpt_neox"]:
    reference = measure(make(kind), tokens)[0]
    for extra in [{}, {"sliding_window": WINDOW}, {"attention_chunk_size": WINDOW}]:
        model = make(kind, **extra)
        whole, cached, texts = measure(model, tokens)
        with torch.no_grad():
            reach = (model(other, use_cache=False).logits[0, -1] - whole[-1]).abs().max().item()
        off = ((whole - cached).abs().amax(-1) > 1e-3).nonzero().flatten().tolist()
        n_same = (texts[0] == texts[1]).sum().item()
        print(f"{kind}, {extra or 'no such key'}: one pass differs from that without the key by "
              f"{(whole - reference).abs().max():.0e}, the first token changes the last logits by "
              f"{reach:.3f}; with the cache, tokens {off[:1]} to {off[-1:]} are off by up to "
              f"{(whole - cached).abs().max():.2f}; {n_same} of 20 generated tokens are the same")
        assert torch.equal(whole, reference) and reach > 1e-4
        if extra:
            assert off[0] == WINDOW and off[-1] == LENGTH - 1 and n_same < 15
        else:
            assert not off and n_same == 20
PYTHON
