#!/usr/bin/env bash
# A unigram model of tokenizers spells the most frequent words, unless another word contains them.
#
# Versions: tokenizers 0.23.3, sentencepiece 0.2.3.
# Guess before the run: a word that occurs a thousand times becomes a piece, as in sentencepiece, if
#     there is room in the vocabulary; the longest piece has as many characters as
#     `max_piece_length` allows. (Not suspected: the longest pieces of a first run had 6 of 16.)
# Seen: training begins with the substrings that repeat in the list of different words, and only
#     takes away from them. So what no other word has cannot be a piece, however often it occurs,
#     and counts of substrings are those in that list, while characters have their true counts. The
#     words of "government of the people", a thousand times each, are spelt; with one sentence more,
#     of "governments peoples offf thee", they are whole. With words as frequent as 1 / rank,
#     sentencepiece gets to 1.00 pieces per word with more text, and tokenizers from 2.3 to 2.6,
#     with room for 100 pieces more: the 20 most frequent words have 51.
# For gyre: it trains by sentencepiece. There, do so too, and convert the model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile --no-deps tokenizers==0.23.3 sentencepiece==0.2.3
env/bin/python -W ignore - <<'PYTHON'
import io
import random
from collections import Counter

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SIZE = 300


def train_tokenizers(texts):
    """Return a function that encodes, and the pieces."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=SIZE, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>"))
    return lambda text: tokenizer.encode(text).tokens, set(tokenizer.get_vocab()) - {"<unk>"}


def train_sentencepiece(texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=SIZE, model_type="unigram",
        hard_vocab_limit=False, character_coverage=1.0, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = {processor.id_to_piece(index) for index in range(3, processor.vocab_size())}
    return lambda text: processor.encode(text, out_type=str), pieces


def find_repeats(words):
    """Return the substrings that occur twice in the list of different words, as in "▁word"."""
    counts = Counter()
    for word in set(words):
        word = "▁" + word
        counts.update(word[start:end] for start in range(len(word))
                      for end in range(start + 2, len(word) + 1))
    return {part for part, count in counts.items() if count > 1}


phrase = "government of the people"
random.seed(0)
texts = [" ".join(random.choices(phrase.split(), k=40)) for _ in range(100)]
texts += ["abc bcd cde dea eab"] * 5
before = train_tokenizers(texts)[0](phrase)
after = train_tokenizers(texts + ["governments peoples offf thee"])[0](phrase)
due = train_sentencepiece(texts)[0](phrase)
print(f"the words of {phrase!r}, a thousand times each: {' '.join(before)}; with one sentence "
      f"more: {' '.join(after)}; sentencepiece: {' '.join(due)}")
assert len(before) > 20 and len(after) <= 6 and len(due) <= 6

syllables = ["".join(random.choices("bcdfghklmnprst") + random.choices("aeiou")) for _ in range(40)]
stems = ["".join(random.choices(syllables, k=3)) for _ in range(80)]
endings = ["", "s", "ed", "ing", "er", "ness", "ly"]
words = sorted({stem + ending for stem in stems for ending in random.sample(endings, 3)})
random.shuffle(words)
weights = [1 / (rank + 1) for rank in range(len(words))]
print(f"{len(words)} words, as frequent as 1 / rank, room for {SIZE} pieces:")
for n_words in [1000, 10_000, 100_000]:
    texts = [" ".join(random.choices(words, weights, k=30)) for _ in range(n_words // 30)]
    counts = Counter(word for text in texts for word in text.split())
    rates = []
    for name, train in [("tokenizers", train_tokenizers), ("sentencepiece", train_sentencepiece)]:
        encode, pieces = train(texts)
        rate = sum(count * len(encode(word)) for word, count in counts.items()) / counts.total()
        frequent = sum(len(encode(word)) for word, _ in counts.most_common(20))
        outside = {piece for piece in pieces if len(piece) > 1} - find_repeats(counts)
        rates.append((rate, frequent))
        print(f"    {n_words} words, {name}: {len(pieces)} pieces, {rate:.2f} per word, {frequent} "
              f"for the 20 most frequent words; {len(outside)} pieces are not in two words")
        assert (not outside) == (name == "tokenizers")
        assert len(pieces) < SIZE - 10
assert rates[0][0] > 2.2 and rates[1][0] < 1.1 and rates[0][1] > 45 and rates[1][1] == 20
PYTHON
