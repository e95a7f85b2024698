"""Texts that are cut into units have the ids of texts that are not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saved_tokenizers import save_llama2, save_llama3
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore
from small_tokenizers import ODD_TEXTS, TEXT, learned_sentencepiece, learned_tokenizer

from data import units
from data.bpe import learn_pieces
from data.tokenizer import Tokenizer, open_tokenizer
from data.units import UnitEncoder, choose_encoding, classify_characters

MIXED = (TEXT + "Кот сидел на окне. naïve cafés “quoted.”\n中文文字，中文。\n    नमस्ते नमस्ते\n"
         "    x_1 = [0.25, 1_000]\r\n\t\treturn self.x_1\n— e\u0301e\u0301te\u0301\n         a\n")


@pytest.fixture(scope="module", params=["code", "mixed"])
def tokenizer(request, tmp_path_factory):
    """Tokenizers of 330 and 480 pieces."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    content = learned_tokenizer()
    if request.param == "mixed":
        content = learn_pieces([MIXED] * 9, 480)
    path.write_bytes(content)
    return Tokenizer(path)


def encode_units(tokenizer, texts):
    classes = classify_characters(tokenizer.path.read_bytes())
    encoder = UnitEncoder(tokenizer, classes)
    return [ids.tolist() for ids in encoder.encode_batch(texts)]


NASTY = [" ", "  ", "       ", "\u2581", "\t", "\n", "\r\n", "\0", "a", "e", "ret", "urn", "x", "1",
         ".", "_", "(", ")", "é", "e\u0301", "\u0301", "中", "文", "，", "Кот", "н", "”", "—", "न",
         "म", "स्ते", "🙂", "\u200d", "\u00a0", "\u3000", "\u2585", "<s>", "</s>", "<0x0A>", "<unk>",
         "\U0010ffff"]
nasty_text = st.lists(st.sampled_from(NASTY), max_size=40).map("".join)


@pytest.mark.slow
@given(texts=st.lists(nasty_text | st.text(), max_size=4))
@settings(max_examples=500, deadline=None)
def test_ids_of_units_are_those_of_the_text(tokenizer, texts):
    assert encode_units(tokenizer, texts) == tokenizer.encode_batch(texts)


def test_ids_of_odd_texts_are_those_of_the_text(tokenizer):
    texts = [*ODD_TEXTS, MIXED, "".join(NASTY)]
    assert encode_units(tokenizer, texts) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("text", ["a\x7f\x80 b", "a\u07ff\u0800 b", "a\uffff\U00010000 b"])
def test_ids_hold_at_first_and_last_characters_of_utf8_widths(tokenizer, text):
    # Twice: a wrong width shifts what comes after.
    assert encode_units(tokenizer, [text, text]) == tokenizer.encode_batch([text, text])


def test_remembered_ids_are_those_of_the_text(tokenizer):
    encoder = UnitEncoder(tokenizer, classify_characters(tokenizer.path.read_bytes()))
    first = [ids.tolist() for ids in encoder.encode_batch([MIXED])]
    n_known = len(encoder.known)
    again = [ids.tolist() for ids in encoder.encode_batch([MIXED])]
    assert first == again == tokenizer.encode_batch([MIXED])
    assert len(encoder.known) == n_known


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""], ["", "a", "", " ", ""]])
def test_empty_texts_have_no_ids(tokenizer, texts):
    assert encode_units(tokenizer, texts) == tokenizer.encode_batch(texts)


def test_units_are_words_numbers_and_unknown_characters(tmp_path):
    """Pieces of MIXED join digits."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(learn_pieces([MIXED] * 9, 480))
    encoder = UnitEncoder(Tokenizer(path), classify_characters(path.read_bytes()))
    encoder.encode_batch(["return  return(x) 10 龍龍馬"])
    assert sorted(encoder.known) == [b"  return", b" 10", " 龍".encode(), b"(", b")", b"return",
                                     b"x", "馬".encode(), "龍".encode()]


def test_the_dictionary_keeps_to_its_ceiling(tokenizer, monkeypatch):
    monkeypatch.setattr(units, "MAX_UNITS", 5)
    encoder = UnitEncoder(tokenizer, classify_characters(tokenizer.path.read_bytes()))
    sizes = []
    for line in MIXED.splitlines(keepends=True):
        assert encoder.encode_batch([line])[0].tolist() == tokenizer.encode(line)
        sizes.append(len(encoder.known))
    assert max(sizes) == 5


def test_a_full_dictionary_learns_again(tokenizer, monkeypatch):
    monkeypatch.setattr(units, "MAX_UNITS", 2)
    encoder = UnitEncoder(tokenizer, classify_characters(tokenizer.path.read_bytes()))
    for text in ("x", " x", "  x"):
        encoder.encode_batch([text])
    assert list(encoder.known) == [b"  x"]


def test_texts_of_new_words_are_encoded_as_they_are(tokenizer, monkeypatch):
    monkeypatch.setattr(units, "MANY", 2)
    encoder = UnitEncoder(tokenizer, classify_characters(tokenizer.path.read_bytes()))
    text = "aa ab ba bb"
    assert encoder.encode_batch([text, ""])[0].tolist() == tokenizer.encode(text)
    assert encoder.known == {}


def test_texts_of_few_new_words_are_learned(tokenizer, monkeypatch):
    monkeypatch.setattr(units, "MANY", 2)
    encoder = UnitEncoder(tokenizer, classify_characters(tokenizer.path.read_bytes()))
    # 3 of 22 units are new: more than MANY, but less than MOST_NEW of them.
    encoder.encode_batch(["return" + " return" * 20 + " x"])
    assert sorted(encoder.known) == [b" return", b" x", b"return"]


def test_long_units_are_not_remembered(tokenizer):
    encoder = UnitEncoder(tokenizer, classify_characters(tokenizer.path.read_bytes()))
    encoder.encode_batch(["e" * 33, "e" * 32])
    assert list(encoder.known) == [b"e" * 32]


def test_more_components_than_classes_give_the_same_ids(tokenizer, monkeypatch):
    monkeypatch.setattr(units, "LAST_CLASS", units.FIRST_COMPONENT)
    assert encode_units(tokenizer, [MIXED]) == tokenizer.encode_batch([MIXED])


def test_components_past_the_last_class_share_it():
    proto = ModelProto.FromString(learned_tokenizer())
    for first in range(0x4E00, 0x4E00 + 600, 2):  # 300 pairs, each a component
        proto.pieces.add(piece=chr(first) + chr(first + 1), score=-1e6)
    classes = classify_characters(proto.SerializeToString())[0x4E00 : 0x4E00 + 600]
    assert (classes[::2] == classes[1::2]).all()
    assert set(classes[-80:].tolist()) == {255}


# Which texts are cut into units


def test_a_large_text_is_cut(tokenizer):
    encode = choose_encoding(tokenizer, 1 << 22)
    assert isinstance(encode.__self__, UnitEncoder)


def test_a_small_text_is_not_cut(tokenizer):
    assert choose_encoding(tokenizer, (1 << 22) - 1) == tokenizer.encode_batch


@pytest.mark.parametrize("save", [save_llama2, save_llama3])
def test_a_text_of_an_imported_tokenizer_is_not_cut(tmp_path, save):
    save(tmp_path)
    tokenizer = open_tokenizer(tmp_path)
    assert choose_encoding(tokenizer, 1 << 22) == tokenizer.encode_batch


def test_a_text_is_not_cut_without_pyarrow(tokenizer, monkeypatch):
    monkeypatch.setattr(units, "is_installed", lambda package: package != "pyarrow")
    assert choose_encoding(tokenizer, 1 << 22) == tokenizer.encode_batch


PLAIN = {"add_dummy_prefix": False}


@pytest.mark.parametrize("options", [
    {"model_type": "unigram", "vocab_size": 290}, {"add_dummy_prefix": True},
    {"normalization_rule_name": "nmt_nfkc"}, {"remove_extra_whitespaces": True},
    {"user_defined_symbols": "<end>"}, {"byte_fallback": False, "vocab_size": 60},
    {"treat_whitespace_as_suffix": True}, {"split_by_whitespace": False}],
    ids=lambda options: next(iter(options)))
def test_a_tokenizer_that_does_more_than_merge_is_not_cut(options):
    assert classify_characters(learned_sentencepiece(**(PLAIN | options))) is None


def test_a_tokenizer_that_only_merges_is_cut():
    assert classify_characters(learned_sentencepiece(**PLAIN)) is not None


def mark_unused(proto):
    proto.pieces[-1].type = ModelProto.SentencePiece.UNUSED


def remove_a_byte(proto):
    del proto.pieces[3]


def leave_out_byte_fallback(proto):
    proto.trainer_spec.byte_fallback = False


def keep_spaces(proto):
    proto.normalizer_spec.escape_whitespaces = False


@pytest.mark.parametrize("change", [
    mark_unused, remove_a_byte, leave_out_byte_fallback, keep_spaces])
def test_a_changed_file_is_not_cut(change):
    proto = ModelProto.FromString(learned_tokenizer())
    change(proto)
    assert classify_characters(proto.SerializeToString()) is None
