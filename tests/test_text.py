"""A text as a stream of ids: what stands between documents, and what counts as text."""

import json
from pathlib import Path

import pytest
from saved_tokenizers import save_llama2, save_llama3
from small_tokenizers import train_tokenizer

import data.text
from data.sources import DataConfig
from data.text import Encoded, open_text
from data.tokenizer import Tokenizer, open_tokenizer
from errors import UserError

EOS, BOS = 2, 1  # of Llama 2, and EOS of ours
LLAMA3_EOS = "<|end_of_text|>"


@pytest.fixture
def ours(tmp_path) -> Tokenizer:
    return open_tokenizer(train_tokenizer(tmp_path))


@pytest.fixture
def llama2(tmp_path) -> Tokenizer:
    save_llama2(tmp_path)
    return open_tokenizer(tmp_path)


@pytest.fixture
def llama3(tmp_path) -> Tokenizer:
    save_llama3(tmp_path)
    return open_tokenizer(tmp_path)


def encode(folder: Path, tokenizer: Tokenizer, *documents: str) -> Encoded:
    """The stream of these documents, which are lines of a .jsonl file."""
    file = folder / "documents.jsonl"
    lines = [json.dumps({"text": document}) for document in documents]
    file.write_text("\n".join(lines), encoding="utf-8")
    source = DataConfig(source="files", files=[str(file)])
    with open_text(source) as text:
        return text.encode(tokenizer)


def test_every_document_begins_with_eos(tmp_path, ours):
    encoded = encode(tmp_path, ours, "def f", "x")
    first = ours.encode("def f")
    second = ours.encode("x")
    assert encoded.ids.tolist() == [EOS, *first, EOS, *second]


def test_with_a_prefix_the_stream_begins_with_it_alone(tmp_path, llama2):
    encoded = encode(tmp_path, llama2, "def f", "x")
    first = llama2.encode("def f")
    second = llama2.encode("x")
    assert encoded.ids.tolist() == [BOS, *first, EOS, BOS, *second]


def test_what_stands_between_documents_is_no_text(tmp_path, llama2):
    encoded = encode(tmp_path, llama2, "def f", "x")
    between = encoded.ids[~encoded.is_text].tolist()
    assert between == [BOS, EOS, BOS]
    assert len(encoded.is_text) == len(encoded.ids)


def test_an_eos_that_a_text_spells_is_text(tmp_path, llama3):
    encoded = encode(tmp_path, llama3, f"a{LLAMA3_EOS}b")
    a, eos, b = encoded.ids[1:].tolist()
    assert eos == llama3.eos_id and (a, b) == (llama3.encode("a")[0], llama3.encode("b")[0])
    assert encoded.is_text.tolist() == [False, True, True, True]


def test_bytes_are_those_of_the_text_alone(tmp_path, ours):
    assert encode(tmp_path, ours, "né", "中").n_bytes == 3 + 3


def test_a_long_document_is_encoded_whole(tmp_path, llama2, monkeypatch):
    """Llama 2's tokenizer puts a space in front of every string that it encodes."""
    text = "x = 1\n" * 20_000  # more than a block of data/prepare.py
    monkeypatch.setattr(data.text, "BATCH", 1)
    assert encode(tmp_path, llama2, text).ids.tolist() == [BOS, *llama2.encode(text)]


def test_a_document_above_a_block_is_cut_after_a_line(tmp_path, llama2, monkeypatch):
    monkeypatch.setattr(data.text, "BLOCK", 10)
    first = llama2.encode("x = 1\n")
    second = llama2.encode("y = 22")
    assert encode(tmp_path, llama2, "x = 1\ny = 22").ids.tolist() == [BOS, *first, *second]


def test_the_text_can_be_encoded_again(tmp_path, ours):
    file = tmp_path / "a.txt"
    file.write_text("def f(x):\n", encoding="utf-8")
    with open_text(DataConfig(source="files", files=[str(file)])) as text:
        first = text.encode(ours)
        again = text.encode(ours)
    assert first.ids.tolist() == again.ids.tolist()


@pytest.mark.parametrize("content", ["", " \n\n\t\n"])
def test_a_file_without_text_is_refused(tmp_path, content):
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="no text in .*a.txt: every document is empty"), \
            open_text(DataConfig(source="files", files=[str(tmp_path / "a.txt")])):
        pass
