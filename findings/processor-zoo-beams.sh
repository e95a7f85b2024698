#!/usr/bin/env bash
# With beams, logits-processor-zoo takes each new token for the start of a new text.
#
# Versions: logits-processor-zoo 0.2.1, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0,
#     numpy 2.4.6.
# Guess before the run: GenLengthLogitsProcessor raises the logit of EOS by boost_factor * (n / 10)
#     ** p behind n new tokens, with beams as in greedy text, so that texts end. (That beams might
#     disturb it was suspected after reading the source.)
# Seen: the processor compares the text with that of the call before, and begins anew if it is not
#     the same with one token more. Beams are reordered from step to step, so that it nearly always
#     does: n is 0 in most calls. Greedy texts end behind 20 tokens, and those of 4 beams at
#     `max_new_tokens`; with the same boost by the true count, they end as the greedy ones do. The
#     other processors of the package count from the same place. No warning.
# For gyre: it has no such processors. There, use them without beams.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 transformers==5.24.0 \
    tokenizers==0.23.3 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps logits-processor-zoo==0.2.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from logits_processor_zoo.transformers import GenLengthLogitsProcessor
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging
from transformers.generation import LogitsProcessor

logging.set_verbosity_error()
EOS, BOOST, POWER, N_NEW, PROMPTS = 1, 1.0, 2, 100, 8
words = ["<s>", "</s>", ".", *(f"w{i}" for i in range(61))]
backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
    num_attention_heads=2, bos_token_id=0, eos_token_id=EOS, pad_token_id=EOS)).eval()
with torch.no_grad():
    model.lm_head.weight *= 20


class Recorded(GenLengthLogitsProcessor):
    """Note how many new tokens each call counts."""

    counts = []

    def _process(self, input_ids, scores):
        self.counts.append(input_ids.shape[1] - self.prompt_token_ids.shape[1])
        return super()._process(input_ids, scores)


class TrueCount(LogitsProcessor):
    """The same boost, by the length of the prompt."""

    def __init__(self, n_prompt):
        self.n_prompt = n_prompt

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, EOS] += BOOST * ((input_ids.shape[1] - self.n_prompt) / 10) ** POWER
        return scores


def count_new(processor, prompt, n_beams):
    """Return the length of a text, EOS included."""
    output = model.generate(prompt, attention_mask=torch.ones_like(prompt), num_beams=n_beams,
                            do_sample=False, max_new_tokens=N_NEW, logits_processor=[processor])
    return output.shape[1] - prompt.shape[1]


prompts = [torch.randint(2, len(words), (1, 5)) for _ in range(PROMPTS)]
lengths = {}
for n_beams in [1, 4]:
    Recorded.counts = []
    zoo = [count_new(Recorded(tokenizer, boost_factor=BOOST, p=POWER), prompt, n_beams)
           for prompt in prompts]
    true = [count_new(TrueCount(5), prompt, n_beams) for prompt in prompts]
    zeros = np.mean(np.equal(Recorded.counts, 0))
    lengths[n_beams] = zoo, true
    print(f"{n_beams} beam{'s' if n_beams > 1 else ''}: texts have {zoo} tokens, and {true} with "
          f"the true count; the processor counts 0 new tokens in {zeros:.0%} of the calls")
    assert zeros > 0.8 if n_beams > 1 else zeros < 0.1
assert lengths[1][0] == lengths[1][1] and max(lengths[1][0]) < 50
assert max(lengths[4][1]) < 50
assert sum(length == N_NEW for length in lengths[4][0]) >= PROMPTS - 1
PYTHON
