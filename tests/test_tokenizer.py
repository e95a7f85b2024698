"""Every string comes back, and the file is a plain sentencepiece one."""

from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore
from small_tokenizers import ODD_TEXTS, TEXT, train_sentencepiece

from data.bpe import learn_pieces
from data.tokenizer import Tokenizer, open_tokenizer
from errors import UserError


def train(texts, vocab_size, folder):
    """A tokenizer that has learned from these texts."""
    path = folder / "tokenizer.model"
    path.write_bytes(learn_pieces(texts, vocab_size))
    return Tokenizer(path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train([TEXT, 9 * "    "], 320, tmp_path_factory.mktemp("tokenizer"))


any_text = st.text() | st.lists(st.sampled_from([*ODD_TEXTS, *TEXT.split()])).map("".join)


@pytest.mark.slow
@given(text=any_text)
@settings(max_examples=300, deadline=None)
def test_every_string_survives(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert {tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}.isdisjoint(ids)
    assert b"".join(tokenizer.bytes[i] for i in ids) == text.encode()


def test_ids_are_those_of_llama_2(tokenizer):
    # Documents begin with EOS.
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 2, 2)
    assert [tokenizer.piece(i) for i in range(259)] == 3 * [b""] + [bytes([i]) for i in range(256)]
    assert tokenizer.vocab_size == 320
    assert len(tokenizer.encode("    ")) == 1  # indentation is one piece


def test_the_file_holds_no_option_with_its_default(tokenizer):
    """It would change the hash by which studies of old versions know their tokenizer."""
    learned = ModelProto.FromString(tokenizer.path.read_bytes())
    options = [field.name for field, _ in learned.trainer_spec.ListFields()]
    assert options == ["model_type", "vocab_size", "num_threads", "max_sentence_length",
                       "allow_whitespace_only_pieces", "byte_fallback", "required_chars", "unk_id",
                       "bos_id", "eos_id", "pad_id"]


def test_the_file_loads_elsewhere(tokenizer):
    plain = SentencePieceProcessor(model_file=str(tokenizer.path))
    for text in [TEXT, "    if x:\n        return 1\n", "na\u00efve \u4e2d"]:
        assert plain.encode(text) == tokenizer.encode(text)
        assert plain.decode(tokenizer.encode(text)) == text
    assert (plain.unk_id(), plain.bos_id(), plain.eos_id(), plain.pad_id()) == (0, 1, 2, -1)


@pytest.mark.parametrize("text, vocab_size", [
    (TEXT, 320), ("acgtacca" * 100, 264), ("中文" * 4000, 264), ("a\u2585\0\u2581b" * 100, 264)])
def test_odd_strings_survive(text, vocab_size, tmp_path):
    """Also with the tokenizer of a text without spaces, or of one line. And a batch is its rows."""
    tokenizer = train([text], vocab_size, tmp_path)
    for odd, ids in zip(ODD_TEXTS, tokenizer.encode_batch(ODD_TEXTS), strict=True):
        assert tokenizer.encode(odd) == ids and tokenizer.decode(ids) == odd


def test_half_a_surrogate_pair_is_refused(tokenizer):
    with pytest.raises(UserError, match="surrogate"):
        tokenizer.encode_prompt("a\ud83d")


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n")  # as Llama 3's begins
    with pytest.raises(UserError, match="tokenizer.model is no tokenizer for us"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_signal_while_it_is_opened_is_no_damage(tokenizer, monkeypatch, stop):
    """export.py makes a SystemExit of SIGTERM."""
    monkeypatch.setattr("data.tokenizer.fallback_bytes", Mock(side_effect=stop))
    with pytest.raises(stop):
        open_tokenizer(tokenizer.path)


def test_a_truncated_file_is_refused_wherever_it_is_cut(tokenizer, tmp_path):
    """Also before its last field: sentencepiece loads what is left, and would add a space."""
    content = tokenizer.path.read_bytes()
    messages = []
    for end in [*range(0, len(content), 997), *range(len(content) - 40, len(content))]:
        (tmp_path / "tokenizer.model").write_bytes(content[:end])
        with pytest.raises(UserError) as info:
            open_tokenizer(tmp_path)
        messages.append(str(info.value))
    assert sum(CHANGES in message for message in messages) == 1  # before its last field


CHANGES = "does not give text back unchanged"


@pytest.mark.parametrize("options, words", [
    ({"normalization_rule_name": "nmt_nfkc"}, CHANGES), ({"eos_id": -1}, "what ends a text"),
    ({"eos_id": -1, "user_defined_symbols": "<end>"}, "no eos_token that is a special token")])
def test_a_sentencepiece_file_of_no_use_is_refused(tmp_path, options, words):
    train_sentencepiece(tmp_path, **options)
    if "special" in words:
        (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>"}', encoding="utf-8")
    with pytest.raises(UserError, match=words):
        open_tokenizer(tmp_path)
