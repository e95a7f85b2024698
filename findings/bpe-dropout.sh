#!/usr/bin/env bash
# BPE dropout of 0.1 is twice as strong in sentencepiece as in the paper, and weaker in tokenizers.
#
# Versions: sentencepiece 0.2.3, tokenizers 0.23.3.
# Guess before the run: with one vocabulary and one dropout, both cut words into as many pieces as
#     the paper's algorithm does (Provilkov et al. 2020, arXiv:1910.13267), within noise.
# Seen: the paper asks anew for each possible merge at each step. In sentencepiece, a merge that
#     was dropped once does not come back, unless a merge beside it makes a new pair: 0.1 adds more
#     than twice the pieces, as many as 0.2 in the paper. In tokenizers, merges that are out of
#     date bring the dropped ones back too: 0.1 adds less than two thirds. Without dropout, all
#     three agree on every word.
# For gyre: it encodes without dropout. Who trains with it compares pieces per word, not the rate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sentencepiece==0.2.3 tokenizers==0.23.3
"$folder/env/bin/python" - <<'PYTHON'
import io
import random
from pydoc_data.topics import topics

import sentencepiece
from tokenizers import Tokenizer, models

N_REPEATS = 20
rng = random.Random(0)
words = [word for text in topics.values() for word in text.split()
         if word.isascii() and word.isalpha()]
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(words), model_writer=model, model_type="bpe", vocab_size=1500,
    add_dummy_prefix=False, normalization_rule_name="identity", num_threads=1, minloglevel=2)
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
vocabulary = {processor.id_to_piece(i): i for i in range(len(processor))}
learned = [piece for piece in vocabulary if len(piece) > 1 and not piece.startswith("<")]
rank = {piece: -processor.get_score(vocabulary[piece]) for piece in learned}
# Like sentencepiece, the other two may merge any two pieces whose sum is a piece.
merges = [(piece[:cut], piece[cut:]) for piece in sorted(learned, key=rank.get)
          for cut in range(1, len(piece))
          if piece[:cut] in vocabulary and piece[cut:] in vocabulary]


def paper(word, dropout):
    """Return the pieces by the algorithm of the paper."""
    pieces = list(word)
    while True:
        pairs = [left + right for left, right in zip(pieces, pieces[1:])]
        kept = [(rank[pair], at) for at, pair in enumerate(pairs)
                if pair in rank and rng.random() >= dropout]
        if not kept:
            return pieces
        at = min(kept)[1]
        pieces[at:at + 2] = [pairs[at]]


def rust(word, dropout):
    tokenizer.model.dropout = dropout if dropout > 0 else None
    return tokenizer.encode(word).tokens


def cpp(word, dropout):
    return processor.encode(word, out_type=str, enable_sampling=dropout > 0, alpha=dropout)


tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
spelled = {word for word in words if 6 <= len(word) <= 10 and set(word) <= vocabulary.keys()}
sample = rng.sample(sorted(spelled), 300)
for word in sample:
    assert paper(word, 0) == rust(word, 0) == cpp(word, 0)
added = {}
for dropout in [0.1, 0.2, 0.3]:
    for encode in [paper, rust, cpp]:
        n_more = sum(len(encode(word, dropout)) - len(encode(word, 0)) for word in sample
                     for _ in range(N_REPEATS))
        added[encode, dropout] = n_more / N_REPEATS / len(sample)
    print(f"dropout {dropout}: pieces added to a word: paper {added[paper, dropout]:.2f}, "
          f"tokenizers {added[rust, dropout]:.2f}, sentencepiece {added[cpp, dropout]:.2f}")

assert added[cpp, 0.1] > 1.9 * added[paper, 0.1]
assert added[rust, 0.1] < 0.75 * added[paper, 0.1]
assert abs(added[cpp, 0.1] - added[paper, 0.2]) < 0.1
PYTHON
