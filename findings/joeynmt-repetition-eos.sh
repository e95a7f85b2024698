#!/usr/bin/env bash
# JoeyNMT's repetition penalty also penalizes the end of the text, which it says it leaves out.
#
# Versions: joeynmt 2.3.0, torch 2.13.0.
# Guess before the run: penalize_repetition() leaves the scores of `exclude_tokens` as they are, so that
#     a translation with `repetition_penalty` ends where it is most likely to end. (That excluded tokens
#     are penalized was suspected after reading the source.)
# Seen: excluded tokens are penalized like all others. The scores from before, which are put back for
#     them, are the same tensor as those that were changed. Every source ends in EOS, and the penalty
#     counts the tokens of the source too: with a penalty of 2, an EOS of probability 0.6 counts as one
#     of 0.36, and loses against any other of 0.37 or more. A model that translates eight tokens by
#     eight, and then says EOS with 0.6, ends after 8 tokens without the penalty, and with it never
#     before `max_output_length`. Copied before, the scores give the text of 8 tokens.
# For gyre: its penalty counts the prompt, and it generates from one text. There, leave the penalty out,
#     or give `no_repeat_ngram_size`, which leaves the same tokens out as it says.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 pyyaml==6.0.4 \
    matplotlib==3.11.2 tensorboard==2.21.0 importlib-metadata==10.2.0 packaging==26.4 \
    sentencepiece==0.2.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps joeynmt==2.3.0 subword-nmt==0.3.8
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import joeynmt.search
import torch
from joeynmt.search import penalize_repetition, transformer_greedy

UNK, PAD, BOS, EOS = range(4)
SPECIALS = [UNK, PAD, BOS, EOS]
VOCABULARY = 40
LENGTH = 8
MAX_LENGTH = 20
PENALTY = 2.0

torch.set_num_threads(1)
torch.manual_seed(0)


class Translator:
    """A model that translates token 4 + i by 14 + i, and then ends with a probability of 0.6."""

    unk_index, pad_index, bos_index, eos_index, sep_index = UNK, PAD, BOS, EOS, None
    specials = SPECIALS
    lang_tags = []

    def __call__(self, trg_input, **options):
        probabilities = torch.full((*trg_input.shape, VOCABULARY), 1e-4)
        for position in range(trg_input.shape[1]):
            if position < LENGTH:
                probabilities[:, position, 14 + position] = 0.9
            else:
                probabilities[:, position, EOS] = 0.6
                probabilities[:, position, 14 + position] = 0.39
        return probabilities.log(), None, None, None


def translate(penalty):
    """Return the greedy translation of a source of eight tokens and EOS."""
    source = torch.tensor([[4 + i for i in range(LENGTH)] + [EOS]])
    tokens, _, _ = transformer_greedy(
        src_mask=torch.ones(1, 1, LENGTH + 1, dtype=torch.bool), max_output_length=MAX_LENGTH,
        model=Translator(), encoder_output=torch.zeros(1, LENGTH + 1, 4), encoder_hidden=None,
        repetition_penalty=penalty, encoder_input=source)
    return tokens[0].tolist()


def penalize_copy(tokens, scores, penalty, exclude_tokens):
    """Penalize all tokens but the excluded ones."""
    penalized = penalize_repetition(tokens, scores.clone(), penalty)
    penalized[:, exclude_tokens] = scores[:, exclude_tokens]
    return penalized


scores = torch.randn(1, 8).log_softmax(-1)
seen = torch.tensor([[EOS, 5, 6]])
given = penalize_repetition(seen, scores.clone(), PENALTY, exclude_tokens=SPECIALS)
ratio = (given / scores)[0]
print("scores, divided by those before:", ratio.tolist(), "with EOS excluded, which is", EOS)
assert ratio[EOS] == ratio[5] == PENALTY and ratio[4] == ratio[7] == 1

without = translate(-1.0)
penalized = translate(PENALTY)
joeynmt.search.penalize_repetition = penalize_copy
repaired = translate(PENALTY)
for name, text in [("no penalty", without), ("penalty", penalized), ("penalty, copied", repaired)]:
    print(f"{name:16s} {len(text)} tokens, EOS {'at the end' if text[-1] == EOS else 'nowhere'}")
assert without == repaired == [14 + i for i in range(LENGTH)] + [EOS]
assert len(penalized) == MAX_LENGTH and EOS not in penalized
PYTHON
