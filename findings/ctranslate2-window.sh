#!/usr/bin/env bash
# CTranslate2 misreads a prompt that is longer than Mistral's window.
#
# Versions: ctranslate2 4.8.5, beside transformers 5.24.0 and torch 2.13.0.
# Guess before the run: a Mistral with a sliding window is converted with the window, so greedy text
#     and logits are those of transformers, behind the window as well.
# Seen: so it is for prompts of up to one token more than the window, and the text may then grow far
#     beyond it. From two tokens more on, the logits of the first new token are off. Of ten prompts
#     of twice the window, six have another text, and all of ten that are four times as long. No
#     warning. Scoring such a prompt raises an error, so the scores do not show it.
#     (The prompt is read in pieces as long as the window; what is wrong comes with the second.)
# For gyre: its models have no window. For others, compare the two with a prompt longer than theirs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile ctranslate2==4.8.5 transformers==5.24.0 torch==2.13.0 \
    numpy==2.4.6
HF_HUB_OFFLINE=1 env/bin/python - <<'PYTHON'
import ctranslate2
import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

torch.set_num_threads(1)
WINDOW = 8
N_NEW = 20
WORDS = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(37))]
config = MistralConfig(
    vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    sliding_window=WINDOW, bos_token_id=1, eos_token_id=2)
torch.manual_seed(0)
model = MistralForCausalLM(config).eval()
for parameter in model.parameters():
    if parameter.ndim == 2:
        parameter.data *= 4  # so that random weights attend to something
model.save_pretrained("mistral")
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>",
                        eos_token="</s>").save_pretrained("mistral")
ctranslate2.converters.TransformersConverter("mistral").convert("converted")
generator = ctranslate2.Generator("converted", intra_threads=1)


@torch.no_grad()
def compare(length):
    """Return the largest error of the first new token's logits, and how many texts are equal."""
    errors, n_equal = [], 0
    for seed in range(10):
        ids = np.random.default_rng(seed).integers(3, len(WORDS), length).tolist()
        prompt = torch.tensor([ids])
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                              max_new_tokens=N_NEW, eos_token_id=None, pad_token_id=0)[0, length:]
        result = generator.generate_batch(
            [[WORDS[i] for i in ids]], max_length=N_NEW, end_token=[],
            include_prompt_in_result=False, return_logits_vocab=True)[0]
        errors.append(np.abs(np.array(result.logits[0][0]) - model(prompt).logits[0, -1].numpy()))
        n_equal += result.sequences_ids[0] == text.tolist()
    return np.max(errors), n_equal


for length in [4, WINDOW, WINDOW + 1, WINDOW + 2, 2 * WINDOW, 4 * WINDOW]:
    error, n_equal = compare(length)
    print(f"window {WINDOW}, prompts of {length} tokens: the first new token's logits are off by "
          f"up to {error:.0e}, and {n_equal} of 10 texts are those of transformers")
    if length <= WINDOW + 1:
        assert error < 1e-4 and n_equal == 10
    else:
        assert error > 0.05 and (n_equal < 8 or length < 2 * WINDOW)
try:
    generator.score_batch([WORDS[3:3 + 2 * WINDOW]])
    raise SystemExit("scoring a prompt longer than the window works now")
except ValueError as error:
    print(f"score_batch: {error}")
PYTHON
