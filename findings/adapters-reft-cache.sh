#!/usr/bin/env bash
# With a cache, ReFT in adapters changes each new token as if it were the first and the last of the text.
#
# Versions: adapters 1.3.0, transformers 4.57.6, torch 2.13.0.
# Guess before the run: an adapter by ReFT changes the first and the last three tokens of the prompt, and
#     a text is the same with and without a cache, as with LoRA. (That it is not was suspected after
#     reading the source.)
# Seen: positions are counted in each call. In a step with a cache, the new token is the first of the
#     call, and is changed as a token of the prefix, also with `suffix_positions=0`, where without a cache
#     it never is: of 20 greedy texts of GPT-2, most differ. With a cache, what a token of the answer has
#     in generation is not what it has in training.
# For gyre: it has no adapters. There, generate with `use_cache=False`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile adapters==1.3.0 transformers==4.57.6 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import adapters
import torch
from adapters import LoRAConfig, LoReftConfig
from transformers import GPT2Config, GPT2LMHeadModel

TEXTS, LENGTH = 20, 10
torch.set_num_threads(1)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128,
                                   bos_token_id=1, eos_token_id=None, pad_token_id=0)).eval()
adapters.init(model)
prompts = torch.randint(2, 64, (TEXTS, LENGTH))
configurations = {
    "LoRA": LoRAConfig(init_weights="bert"),
    "LoReFT, first 3": LoReftConfig(suffix_positions=0),
    "LoReFT, first and last 3": LoReftConfig(),
}
for name, configuration in configurations.items():
    model.add_adapter(name, config=configuration)
    model.set_active_adapters(name)
    model.eval()
    texts = [model.generate(prompts, max_new_tokens=20, do_sample=False, use_cache=cached)
             for cached in (False, True)]
    different = (texts[0] != texts[1]).any(1).sum().item()
    with torch.no_grad():
        whole = model(prompts).logits[:, -1]
        cache = model(prompts[:, :-1], use_cache=True).past_key_values
        last = model(prompts[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    error = ((last - whole).norm() / whole.norm()).item()
    print(f"{name}: {different} of {TEXTS} greedy texts differ with a cache; the logits of the last "
          f"token by {100 * error:.4f} %")
    if name == "LoRA":
        assert different == 0 and error < 1e-5
    else:
        assert different > 5 and error > 0.2
    model.set_active_adapters(None)
PYTHON
