#!/usr/bin/env bash
# logits-processor-zoo enforces phrases and choices in greedy text only, not with sampling.
#
# Versions: logits-processor-zoo 0.2.1, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0,
#     numpy 2.4.6.
# Guess before the run: with `do_sample=True` too, an answer of MultipleChoiceLogitsProcessor is one
#     of the choices, and ForceLastPhraseLogitsProcessor "forces LLMs to use the given phrase before
#     they finalize their answers". (That they might not was suspected after reading the source.)
# Seen: tokens that are not allowed get the smallest logit instead of minus infinity, and the phrase
#     waits until EOS is the most likely token. Where probabilities fall as 1 / rank, as those of
#     words do, an enforced token has a probability of a half for any size of the vocabulary, and
#     four choices 0.85 together; at a temperature of 2, 0.1. An EOS that is drawn without being the
#     most likely token ends its text without the phrase: here all texts do. Greedy text is right.
# For gyre: it has no such processors. There, use them without sampling, or with `top_k=1`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 transformers==5.24.0 \
    tokenizers==0.23.3 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps logits-processor-zoo==0.2.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from logits_processor_zoo.transformers import (ForceLastPhraseLogitsProcessor,
                                               MultipleChoiceLogitsProcessor)
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging
from transformers.generation import LogitsProcessor

logging.set_verbosity_error()
VOCABULARY, ROWS, EOS = 2000, 400, 2
words = ["<s>", "the", "</s>", *"1234", ".", "thank", "you"]
words += [f"w{i}" for i in range(VOCABULARY - len(words))]
words = {word: index for index, word in enumerate(words)}
backend = Tokenizer(models.WordLevel(words, unk_token="the"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=VOCABULARY, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    num_attention_heads=1, bos_token_id=0, eos_token_id=EOS, pad_token_id=EOS)).eval()


class Fixed(LogitsProcessor):
    """The same logits for each token."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, input_ids, scores):
        return self.logits.expand_as(scores).clone()


def generate(logits, processor, n_tokens, **options):
    torch.manual_seed(0)
    prompts = torch.zeros(ROWS, 1, dtype=torch.long)
    output = model.generate(prompts, attention_mask=torch.ones_like(prompts), use_cache=False,
                            logits_processor=[Fixed(logits), processor], max_new_tokens=n_tokens,
                            **options)
    return output[:, 1:]


SAMPLE = {"do_sample": True, "top_k": 0, "top_p": 1.0}
ranks = torch.arange(VOCABULARY, dtype=torch.float32)
ranks[0] = VOCABULARY  # "the" and EOS come first, BOS last
zipf = -ranks.log()[None]
for name, choices, options, low, high in [
        ("greedy", "1234", {"do_sample": False}, 1, 1),
        ("temperature 1", "1", {**SAMPLE, "temperature": 1.0}, 0.4, 0.6),
        ("temperature 1", "1234", {**SAMPLE, "temperature": 1.0}, 0.7, 0.95),
        ("temperature 2", "1234", {**SAMPLE, "temperature": 2.0}, 0, 0.15)]:
    processor = MultipleChoiceLogitsProcessor(tokenizer, choices=list(choices))
    answers = generate(zipf, processor, 1, **options)
    ids = [words[choice] for choice in choices]
    share = torch.isin(answers, torch.tensor(ids)).double().mean()
    print(f"choices {', '.join(choices)}, {name}: {share:.0%} of {ROWS} answers are a choice")
    assert low <= share <= high
    if options["do_sample"]:
        scores = processor(torch.zeros(1, 1, dtype=torch.long), zipf.clone())
        chance = (scores / options["temperature"]).softmax(-1)[0, ids].sum()
        print(f"    by the processed logits, the probability is {chance:.2f}")
        assert abs(share - chance) < 0.1

phrase = torch.tensor([words["thank"], words["you"], EOS])
eos_first = zipf.clone()
eos_first[0, words["the"]] = -1  # less likely than EOS, so that a greedy text ends
for name, logits, options in [("greedy", eos_first, {"do_sample": False}),
                              ("sampled", zipf, {**SAMPLE, "temperature": 1.0})]:
    processor = ForceLastPhraseLogitsProcessor("thank you", tokenizer, batch_size=ROWS)
    texts = generate(logits, processor, 200, **options)
    ends = [(row == EOS).nonzero()[0].item() for row in texts]
    n_phrase = sum(torch.equal(row[max(0, end - 2):end + 1], phrase)
                   for row, end in zip(texts, ends))
    print(f"{name}: {len(ends)} texts end, {n_phrase} of them with the phrase")
    assert n_phrase == (ROWS if name == "greedy" else 0)
PYTHON
