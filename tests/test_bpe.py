"""Pieces are learned from any text, and the number asked for is the number that comes out."""

import random

import pytest
from sentencepiece import SentencePieceProcessor
from small_tokenizers import TEXT

from data import bpe
from data.bpe import VocabularyTooLargeError, learn_pieces, sample_sentences


def open_pieces(content):
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(content)
    return processor


def learned(processor):
    """The pieces behind the control ids and the bytes."""
    return [processor.id_to_piece(i) for i in range(259, processor.vocab_size())]


def chinese(n_characters, n_different=2600):
    """Characters that are as uneven as those of a real text: the n-th as frequent as 1/n."""
    signs = [chr(0x4E00 + i) for i in range(n_different)]
    weights = [1 / (i + 1) for i in range(n_different)]
    return "".join(random.Random(0).choices(signs, weights, k=n_characters))


def test_equal_texts_give_equal_files():
    first = learn_pieces([TEXT, 9 * "    "], 320)
    assert first == learn_pieces(iter([TEXT, 9 * "    "]), 320)


def test_other_texts_give_other_files():
    assert learn_pieces([TEXT], 320) != learn_pieces([TEXT + " zebra zebra"], 320)


def test_training_samples_a_long_text_evenly(monkeypatch):
    monkeypatch.setattr(bpe, "SENTENCE", 10)
    monkeypatch.setattr(bpe, "SAMPLE", 1_000)
    texts = (f"{i:010d}{i + 1:010d}" for i in range(0, 5_000, 2))  # of two sentences each
    sample = sample_sentences(texts)
    assert 500 <= sum(map(len, sample)) <= 1_000
    assert [int(text) for text in sample] == list(range(0, 5_000, 64))


@pytest.mark.parametrize("text", [
    "The old cat sat on the mat.\n" * 40, chinese(2000), "x", "", "\n\n\n", "\0", "\u2581\u2585",
    "\r\n \t", "\U0001f600" * 9])
def test_260_pieces_are_one_id_a_byte_for_every_text(text):
    processor = open_pieces(learn_pieces([text], 260))
    assert learned(processor) == ["\u2581"]
    assert len(processor.encode("caf\u00e9")) == 5


@pytest.mark.parametrize("vocab_size", [
    261, 300, *(pytest.param(size, marks=pytest.mark.slow) for size in (264, 1024))])
def test_of_too_many_characters_the_frequent_ones_have_pieces(vocab_size):
    text = chinese(100_000)
    processor = open_pieces(learn_pieces([text], vocab_size))
    assert processor.vocab_size() == vocab_size
    assert processor.decode(processor.encode(text)) == text
    assert "\u4e00" in learned(processor)  # the most frequent


def test_three_quarters_of_the_free_pieces_are_characters():
    processor = open_pieces(learn_pieces([chinese(100_000)], 1024))
    assert sum(len(piece) == 1 for piece in learned(processor)) == 574  # 0.75 * 764, and the space


def test_a_pair_across_a_rare_character_is_no_pair():
    text = "ab" + "".join(f"a{chr(0x4E00 + i)}c" for i in range(400)) + "abab" * 9
    processor = open_pieces(learn_pieces([text], 264))
    assert "ac" not in learned(processor)


@pytest.mark.parametrize("text, vocab_size, most", [
    ("hello world", 5000, 285), ("x", 262, 261), ("", 261, 260), ("\n", 300, 260),
    ("a\nb", 262, 260)])
def test_too_large_a_vocabulary_says_how_many_pieces_there_are(text, vocab_size, most):
    with pytest.raises(VocabularyTooLargeError) as caught:
        learn_pieces([text], vocab_size)
    assert caught.value.most == most
    assert open_pieces(learn_pieces([text], most)).vocab_size() == most
