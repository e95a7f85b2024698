"""Learn the pieces of a tokenizer from a text: sentencepiece BPE with byte fallback.

Every text fits a vocabulary of 260 pieces, and a larger one if it has enough different pieces. If a
text has more characters than there is room for, the rarest ones get no piece of their own, and are
spelt as bytes.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from errors import UserError
from files import first_line

SPACE = "\u2581"  # sentencepiece's mark for a space; in a text it can only be spelt in bytes
SMALLEST_VOCABULARY = 260  # unk, bos, eos, the 256 bytes and the space
SAMPLE = 20_000_000  # characters to train on: more costs time and changes few pieces
SENTENCE = 4_000  # characters of one training sentence; a sample takes or leaves a whole one

# Where not all characters fit, these many of the pieces are characters, and the rest are merges of
# them. On 1 MB of Chinese, 0.7 to 0.8 gave the shortest texts for 1024 and 2048 pieces.
CHARACTER_SHARE = 0.75

# sentencepiece skips a sentence that holds U+2585, its mark for an unknown character, takes U+2581
# for a space, and makes no piece of NUL. They stay in the text and are encoded as bytes; only
# training does not see them.
UNTRAINABLE = str.maketrans({"\0": " ", SPACE: " ", "\u2585": " "})


class VocabularyTooLargeError(Exception):
    """A text from which no more than `most` pieces can be learned."""

    def __init__(self, most: int):
        super().__init__(most)
        self.most = most


class TooManyCharactersError(Exception):
    """A text with more characters than the vocabulary has room for."""


def learn_pieces(texts: Iterable[str], vocab_size: int) -> bytes:
    """Return a sentencepiece file of `vocab_size` pieces; equal texts give equal files.

    Raises VocabularyTooLargeError if the text is too small for so many.
    """
    sentences = sample_sentences(texts)
    try:
        return train(sentences, vocab_size)
    except TooManyCharactersError:
        return learn_frequent(sentences, vocab_size)


def learn_frequent(sentences: Sequence[str], vocab_size: int) -> bytes:
    """Return a sentencepiece file in which only the most frequent characters have a piece."""
    counts = Counter(character for sentence in sentences for character in sentence)
    del counts[" "]  # always has a piece
    # By frequency, and characters of equal frequency by their numbers, so that equal texts give
    # equal files.
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    kept = int(CHARACTER_SHARE * (vocab_size - SMALLEST_VOCABULARY))
    n_possible = SMALLEST_VOCABULARY  # pieces that the previous attempt could have made
    while True:
        parts = split_at_others(sentences, [" ", *ranked[:kept]])
        try:
            return train(parts, vocab_size, character_coverage=1.0)
        except VocabularyTooLargeError as error:
            if kept >= len(ranked):
                raise
            # Too few pairs repeat to make so many pieces. Keep a character for each missing one.
            n_possible = error.most
            kept += vocab_size - n_possible
        except TooManyCharactersError:
            # sentencepiece counts the line end as a character as soon as a kept one follows it.
            # Then this attempt has one character more than it has room for, and the attempt before
            # it was the best one.
            raise VocabularyTooLargeError(n_possible) from None


def split_at_others(sentences: Iterable[str], characters: Iterable[str]) -> list[str]:
    """Return the parts of sentences between characters that are not among these.

    So no pair is counted that has another character in between.
    """
    others = re.compile(f"[^{re.escape(''.join(characters))}]+")
    parts = []
    for sentence in sentences:
        parts += others.split(sentence)
    return parts


def train(sentences: Sequence[str], vocab_size: int, **options: Any) -> bytes:
    """Return what sentencepiece learns. Raises the errors above instead of sentencepiece's.

    An option that is given is written into the file, also if its value is the default. So those
    that have the default are left out: studies compare the file's hash with that in their plan.
    """
    # sentencepiece strips line ends, and refuses a text of which nothing is left.
    sentences = [sentence for sentence in sentences if sentence.strip("\r\n")]
    if not sentences:
        sentences = [" "]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=model,
            model_type="bpe", vocab_size=vocab_size, byte_fallback=True,
            normalization_rule_name="identity", add_dummy_prefix=False,
            remove_extra_whitespaces=False, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
            allow_whitespace_only_pieces=True,  # indentation is one piece
            required_chars=SPACE,  # else a text without spaces has no piece for them
            max_sentence_length=8 * SENTENCE,  # in bytes; longer ones would be dropped
            num_threads=2,  # written into the file: the machine's own number would change it
            minloglevel=3,
            **options,
        )
    except (RuntimeError, ValueError) as error:
        message = first_line(error)
        allowed = re.search(r"Please set it to a value <= (\d+)", message)
        if allowed:
            raise VocabularyTooLargeError(int(allowed[1])) from error
        if "smaller than required_chars" in message:
            raise TooManyCharactersError from error
        raise UserError(f"sentencepiece cannot learn {vocab_size} pieces from this text "
                        f"({message}): choose another --data.vocab_size") from error
    return model.getvalue()


def cut_sentences(texts: Iterable[str]) -> Iterator[str]:
    """Yield the text in parts of at most `SENTENCE` characters."""
    for text in texts:
        for start in range(0, len(text), SENTENCE):
            yield text[start : start + SENTENCE]


def sample_sentences(texts: Iterable[str]) -> list[str]:
    """Return every 2^k-th sentence of the text, with the smallest k that keeps it within `SAMPLE`.

    One pass and bounded memory, evenly over the whole text, and no random numbers.
    """
    kept: list[str] = []
    size = 0
    stride = 1
    for number, sentence in enumerate(cut_sentences(texts)):
        if number % stride:
            continue
        kept.append(sentence.translate(UNTRAINABLE))
        size += len(sentence)
        if size > SAMPLE:
            kept = kept[::2]
            size = sum(map(len, kept))
            stride *= 2
    return kept
