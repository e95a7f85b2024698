#!/usr/bin/env bash
# minicons gives words the scores of their neighbours if the first word of a continuation has other
# pieces with a space before it.
#
# Versions: minicons 0.3.39, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0.
# Guess before the run: conditional_word_score_tokenized() gives each word of the continuation the
#     sum of the log-probabilities of its pieces. (That the pieces might be counted wrongly was
#     suspected after reading the source.)
# Seen: the pieces of the first word are counted without the space that the separator puts before
#     it. "giraffes" is two pieces, " giraffes" is one, so the first word has the sum of two words,
#     each word after it has the score of the next one, and the last word has no piece: its score
#     is 0, a probability of 1. There is no warning. If the first word has as many pieces with a
#     space as without, all scores are right.
# For gyre: it scores no words. There, sum the scores of compute_stats() by the offsets of the
#     words.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile minicons==0.3.39 transformers==5.24.0 \
    tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from minicons.scorer import IncrementalLMScorer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

TEXT = [
    "The keeper of the zoo saw that giraffes were near the old gate and that zebras ate grass.",
    "Giraffes eat leaves. Zebras eat grass. The old keeper saw the zebras and the giraffes.",
    "In the morning the keeper saw a bird near the gate, and a zebra behind the house.",
] * 3
PREFIX = "In the morning the keeper saw that"
END = "<|endoftext|>"
torch.set_num_threads(1)
torch.manual_seed(0)

pieces = Tokenizer(models.BPE())
pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
pieces.decoder = decoders.ByteLevel()
pieces.train_from_iterator(TEXT, trainers.BpeTrainer(
    vocab_size=380, special_tokens=[END], show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token=END, eos_token=END,
                                    pad_token=END)
config = GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=2, n_head=2,
                    initializer_range=0.3, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).eval()
scorer = IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)


def reference(words):
    """Return the sum of the log-probabilities of the pieces of each word, by their offsets."""
    encoded = tokenizer(" ".join([PREFIX, *words]), return_offsets_mapping=True)
    ids = encoded["input_ids"]
    with torch.no_grad():
        logs = model(torch.tensor([[0, *ids]])).logits[0].log_softmax(-1)
    scores, start = [], len(PREFIX)
    for word in words:
        end = start + 1 + len(word)
        scores.append(sum(logs[place, token].item() for place, token in enumerate(ids)
                          if start <= encoded["offset_mapping"][place][0] < end))
        start = end
    return scores


errors = {}
for stimulus in ["a bird ate the old grass", "giraffes ate the old grass"]:
    words = stimulus.split()
    first = words[0]
    spaced = tokenizer.tokenize(" " + first)
    print(f"{first!r} is {tokenizer.tokenize(first)}, with a space {spaced}")
    given = scorer.conditional_word_score_tokenized([PREFIX], [stimulus], str.split,
                                                    bos_token=True)[0]
    due = reference(words)
    assert [word for word, _ in given] == words
    for (word, score), right in zip(given, due):
        print(f"    {word:8s} minicons {score:8.3f}, due {right:8.3f}")
    errors[first] = [abs(score - right) for (_, score), right in zip(given, due)]

assert max(errors["a"]) < 1e-4
shifted = [due[0] + due[1], *due[2:], 0.0]
assert all(abs(score - other) < 1e-4 for (_, score), other in zip(given, shifted))
assert min(errors["giraffes"]) > 0.05 and given[-1][1] == 0
PYTHON
