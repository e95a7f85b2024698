"""Prepared data is true, split without leaks, made once, and never half there."""

import gzip
import io
import json
import os
import random
import re
import shutil
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from builders import parse_config, quick_for, require_program
from disk_faults import cut, file_size_limit, flip_a_bit

import files
from data import dataset as dataset_module
from data import prepare as prepare_module
from data import units
from data.dataset import Prepared, find_or_prepare, label_text, locate, open_prepared, prepare
from data.prepare import (
    copy_parts,
    draw_documents,
    find_copies,
    hold_out_end,
    read_blocks,
    split_text,
    suitable_val_fraction,
    suitable_vocabulary,
)
from data.search import LeftOut
from data.sources import SOURCES, DataConfig, Files, Source, StandardLibrary
from errors import UserError

VOCAB, BOS, EOS = 300, 1, 2


def words(seed, n_words=120):
    """Text that equals that of no other seed, with characters of one to four bytes."""
    pick = random.Random(seed)
    some = ["alpha", "beta", "gamma", "delta", "café", "中文", "\U0001f600", "naïve"]
    return " ".join(pick.choice(some) + str(pick.randrange(100)) for _ in range(n_words)) + "\n\r\n"


DOCUMENTS = [words(seed) for seed in range(60)]


def jsonl(path, documents):
    rows = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    path.write_text(rows, encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path):
    """DOCUMENTS as one .jsonl."""
    return jsonl(tmp_path / "corpus.jsonl", DOCUMENTS)


def config(path, **options):
    options = {"vocab_size": VOCAB, "prepared": str(path.parent / "prepared")} | options
    return DataConfig(source="files", files=[str(path)], **options)


def prepare_documents(folder, documents, **options):
    return prepare(config(jsonl(folder / "a.jsonl", documents), **options))


def read_ids(prepared, split):
    return prepared.dataset(split, seq_len=1).read(slice(None))


def texts(prepared, split):
    """The documents of a split, each of which has its own EOS in front."""
    ids = read_ids(prepared, split)
    eos = prepared.tokenizer.eos_id
    assert ids[0] == eos != ids[-1]
    parts = np.split(ids, np.flatnonzero(ids == eos))[1:]
    return [prepared.tokenizer.decode(part[1:].tolist()) for part in parts]


# What is written


def test_every_document_is_in_one_split_in_order(corpus, monkeypatch):
    monkeypatch.setattr(prepare_module, "BATCH", 1000)
    prepared = prepare(config(corpus))
    train = texts(prepared, "train")
    val = texts(prepared, "val")
    assert train == [text for text in DOCUMENTS if text not in val]
    assert val == [text for text in DOCUMENTS if text not in train]
    assert 0 < len(val) < len(train)


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_manifest_counts_what_is_in_a_split(corpus, split):
    prepared = prepare(config(corpus))
    documents = texts(prepared, split)
    assert prepared.manifest[split] == {
        "documents": len(documents),
        "bytes": len("".join(documents).encode()),
        "tokens": len(read_ids(prepared, split)),
    }


def test_the_manifest_counts_the_bytes_of_a_split(tmp_path):
    """The bits per byte are over these. A tenth of 1000 characters is held out, and é takes two."""
    path = jsonl(tmp_path / "a.jsonl", ["café " * 200])
    prepared = prepare(config(path, val_fraction=0.1), fit_vocabulary=True)
    assert prepared.manifest["train"]["bytes"] == 1080
    assert prepared.manifest["val"]["bytes"] == 120


def test_the_manifest_counts_and_hashes_the_text(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["café " * 200, "中" * 300])
    assert prepare(config(path), fit_vocabulary=True).manifest["text"] == {
        "sha256": "4e7d49a23fb79c9a9fcb90967c31f6e45b791f9524abe5f6d0d1a408e0a70325",
        "documents": 2,
        "bytes": 2100,
        "characters": 1300,
    }


def test_the_manifest_lists_the_files(corpus):
    prepared = prepare(config(corpus))
    assert list(prepared.manifest["files"]) == ["tokenizer.model", "train.bin", "val.bin"]
    assert {path.name for path in prepared.folder.iterdir()} == {
        "manifest.json", "tokenizer.model", "train.bin", "val.bin"}


def test_a_large_text_has_the_ids_of_a_small_one(corpus, monkeypatch):
    """A large one is cut into units, and encoded in several groups."""
    small = prepare(config(corpus))
    groups = []
    encode_batch = units.UnitEncoder.encode_batch

    def encode_group(self, group):
        groups.append(group)
        return encode_batch(self, group)

    monkeypatch.setattr(units, "LARGE", 0)
    monkeypatch.setattr(prepare_module, "BATCH", 1000)
    monkeypatch.setattr(units.UnitEncoder, "encode_batch", encode_group)
    large = prepare(config(corpus, prepared=str(corpus.parent / "large")))
    assert len(groups) > 1
    for split in ("train", "val"):
        assert read_ids(large, split).tolist() == read_ids(small, split).tolist()


@pytest.fixture
def pretend(monkeypatch):
    """Let the trained tokenizer have other attributes: `pretend(vocab_size=65537)`."""
    train_tokenizer = prepare_module.train_tokenizer

    def pretend(**attributes):
        def train(*arguments):
            tokenizer = train_tokenizer(*arguments)
            vars(tokenizer).update(attributes)
            return tokenizer

        monkeypatch.setattr(prepare_module, "train_tokenizer", train)

    return pretend


@pytest.mark.parametrize("vocab_size, dtype", [(65536, "uint16"), (65537, "uint32")])
def test_ids_take_16_bits_while_they_fit(corpus, pretend, vocab_size, dtype):
    plain = read_ids(prepare(config(corpus)), "val")
    pretend(vocab_size=vocab_size)
    prepared = prepare(config(corpus, prepared=str(corpus.parent / "pretended")))
    assert prepared.manifest["dtype"] == dtype
    assert prepared.dataset("val", seq_len=1).vocab_size == vocab_size
    assert read_ids(prepared, "val").tolist() == plain.tolist()


@pytest.mark.parametrize("split", ["train", "val"])
def test_bos_follows_eos_where_texts_begin_with_it(corpus, pretend, split):
    pretend(prefix_ids=[BOS])
    ids = read_ids(prepare(config(corpus)), split)
    assert (np.flatnonzero(ids == BOS) == np.flatnonzero(ids == EOS) + 1).all()
    assert BOS in ids


COPIED = ["".join(words(n, 1 + n % 9) for n in range(40)), words(1, 300), "中" * 100, "x\ny"]


@pytest.fixture
def copied():
    """(a file of the texts COPIED, their spans, counts)."""
    file = io.BytesIO()
    documents = [[text[:50], "", text[50:]] for text in COPIED]  # each in three pieces
    part = [[], *documents, ["", ""]]  # the first and the last one are empty
    counts, spans, _, _ = copy_parts([part], file)
    return file, spans, counts


def blocks_by_document(file, spans):
    """The blocks of each document, of at most 97 bytes."""
    documents = []
    for first, block in read_blocks(file, spans, "", 97):
        if first:
            documents.append([])
        documents[-1].append(block)
    return documents


def test_a_copy_is_the_text_without_empty_documents(copied):
    file, spans, counts = copied
    assert file.getvalue().decode() == "".join(COPIED)
    assert len(spans) == counts["documents"] == 4
    assert counts["bytes"] == len(file.getvalue())
    assert counts["characters"] == len("".join(COPIED))


def test_a_part_left_out_within_a_document_changes_no_later_hash():
    def cut_short():
        yield "half a document"
        raise LeftOut("the other half is not UTF-8")

    _, _, hashes, _ = copy_parts([[cut_short()], [["kept"]]], io.BytesIO())
    assert [f"{number:016x}" for number in hashes] == ["79f076abdd19a752"]  # as sha256sum has it


def test_a_part_left_out_after_a_document_moves_no_later_span():
    def broken_off():
        yield ["a whole document"]
        raise LeftOut("the next one is not UTF-8")

    _, spans, _, _ = copy_parts([broken_off(), [["kept"]]], io.BytesIO())
    assert spans.tolist() == [[0, 4]]


@pytest.mark.parametrize("kept", [[0, 1, 2, 3], [2, 3], [0], []])
def test_blocks_give_back_the_text_of_their_documents(copied, kept):
    file, spans, _ = copied
    documents = blocks_by_document(file, spans[kept])
    assert ["".join(blocks) for blocks in documents] == [COPIED[i] for i in kept]


def test_blocks_are_no_longer_than_their_limit(copied):
    file, spans, _ = copied
    sizes = [len(block.encode()) for _, block in read_blocks(file, spans, "", 97)]
    assert min(sizes) > 0
    assert max(sizes) <= 97


def test_blocks_end_after_lines_where_they_can(copied):
    """And else as late as they can, but not inside a character."""
    file, spans, _ = copied
    for blocks in blocks_by_document(file, spans):
        for block in blocks[:-1]:
            if "\n" in block:
                assert block.endswith("\n")
            else:
                assert len(block.encode()) > 93


def test_a_document_within_a_block_is_not_cut(copied):
    file, spans, _ = copied
    assert [*read_blocks(file, spans[3:], "", 97)] == [(True, "x\ny")]


# The split


# Of 1200 characters, which have one to four bytes.
SINGLE = words(1, 300)[:1200]


@pytest.mark.parametrize("second, train, val", [
    (False, SINGLE[:900], SINGLE[900:]), (True, SINGLE[:675], SINGLE[675:900])])
def test_a_single_text_gives_its_last_part_by_characters(
        tmp_path, monkeypatch, second, train, val):
    monkeypatch.setattr(prepare_module, "BLOCK", 97)  # cuts characters in two, and lines
    prepared = prepare_documents(tmp_path, [SINGLE], val_fraction=0.25, second_val=second)
    assert texts(prepared, "train") == [train]
    assert texts(prepared, "val") == [val]


@pytest.mark.parametrize("n_bytes, usual, share", [
    (600, 0.01, 0.1), (40_000, 0.01, 0.1), (63_000, 0.01, 0.063), (63_000, 0.3, 0.3),
    (400_000, 0.01, 0.01), (49_000_000, 0.01, 0.01), (98_000, 0.04, 0.041), (102_000, 0.04, 0.04)])
def test_a_short_text_holds_out_four_kilobytes_or_a_tenth(n_bytes, usual, share):
    assert suitable_val_fraction(usual, n_bytes) == share


@pytest.mark.parametrize("n_bytes, usual, share", [
    (200_000_000, 0.04, 0.0025), (5_000_000, 0.1, 0.1), (5_300_000, 0.1, 0.094)])
def test_a_long_text_holds_out_half_a_megabyte(n_bytes, usual, share):
    assert suitable_val_fraction(usual, n_bytes) == share


@pytest.mark.parametrize("n_bytes, n_pieces", [
    (1, 260), (1900, 260), (3000, 320), (30_000, 704), (400_000, 1536), (10_000_000, 4096)])
def test_a_larger_text_suits_more_pieces_and_none_below_260(n_bytes, n_pieces):
    """33 * n_bytes**0.3, rounded down to a multiple of 64: a fit by hand (docs/speed.md)."""
    assert suitable_vocabulary(n_bytes) == n_pieces


def test_a_share_that_is_fitted_is_held_out_and_recorded(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("0123456789" * 3000, encoding="utf-8")
    made = config(path, val_fraction=0.01)
    prepared = find_or_prepare(made, fit_vocabulary=True, fit_val_fraction=True)
    assert prepared.manifest["val_fraction"] == 0.1
    assert prepared.manifest["val"]["bytes"] == 3000
    again = find_or_prepare(made, fit_vocabulary=True, fit_val_fraction=True)
    assert again.folder == prepared.folder


@pytest.mark.parametrize("size, is_found", [(41_000, True), (30_000, False)])
def test_what_was_prepared_is_found_if_its_share_suits(tmp_path, size, is_found):
    """What was prepared holds out 0.098, which is right for 41,000 bytes: 4,000 of them. Of 30,000
    bytes, a tenth would be held out."""
    path = tmp_path / "a.txt"
    path.write_text("0123456789" * (size // 10), encoding="utf-8")
    made = config(path, val_fraction=0.098)
    before = find_or_prepare(made, fit_vocabulary=True)
    after = find_or_prepare(made, fit_vocabulary=True, fit_val_fraction=True)
    assert (after.folder == before.folder) is is_found


@pytest.mark.parametrize("n, val_fraction, least, most", [
    (1000, 0.1, 72, 128), (1000, 0.5, 453, 547), (60, 0.001, 1, 1), (60, 0.95, 52, 60)])
def test_the_share_held_out_follows_val_fraction(tmp_path, n, val_fraction, least, most):
    """Within three standard deviations of a binomial distribution. Of 60 documents, 0.001 is less
    than one: the end of the last one is held out."""
    documents = [words(seed, 5) for seed in range(n)]
    prepared = prepare_documents(tmp_path, documents, val_fraction=val_fraction)
    assert least <= prepared.manifest["val"]["documents"] <= most


@pytest.mark.parametrize("val_fraction, held_out", [
    (0.01, [True, False, False]), (0.4, [True, False, False]), (0.99, [True, True, False])])
def test_each_split_gets_the_document_nearest_to_the_limit(val_fraction, held_out):
    """The hashes of three documents are 0.25, 0.5 and 0.75 of the largest one."""
    hashes = np.array([1 << 62, 2 << 62, 3 << 62], dtype=np.uint64)
    assert draw_documents(hashes, val_fraction).tolist() == held_out


def test_a_document_stays_in_its_split_whatever_is_added(tmp_path):
    """Where documents are many."""
    documents = [words(seed, 5) for seed in range(500)]
    some = jsonl(tmp_path / "some.jsonl", documents)
    more = jsonl(tmp_path / "more.jsonl", [words(999, 5), *documents, *documents])
    for second in (False, True):
        before, after = (prepare(config(path, second_val=second)) for path in (some, more))
        assert {*texts(before, "val")} <= {*texts(after, "val")}
        assert {*texts(before, "train")} <= {*texts(after, "train")}
        assert not {*texts(after, "val")} & {*texts(after, "train")}  # copies are in the same split


def test_a_second_validation_split_is_drawn_from_the_training_documents(corpus):
    first = prepare(config(corpus))
    second = prepare(config(corpus, second_val=True))
    train = texts(second, "train")
    val = texts(second, "val")
    assert sorted(train + val) == sorted(texts(first, "train"))
    assert 1 < len(val) < 12


def test_a_second_validation_split_is_the_end_of_what_two_documents_leave(tmp_path):
    """The first one is the last 10 of 100 characters, and the second one 9 of those that are left,
    where whole documents would be half of the text."""
    path = jsonl(tmp_path / "a.jsonl", ["a" * 50, "b" * 50])
    second = prepare(config(path, second_val=True, val_fraction=0.1), fit_vocabulary=True)
    assert texts(second, "train") == ["a" * 50, "b" * 31]
    assert texts(second, "val") == ["b" * 9]


def test_a_second_validation_split_is_the_end_of_the_one_document_that_is_left(tmp_path):
    """The first one is one of two documents: half of the text, for the 0.4 that are asked for."""
    path = jsonl(tmp_path / "a.jsonl", ["a" * 50, "b" * 50])
    first = prepare(config(path, val_fraction=0.4), fit_vocabulary=True)
    second = prepare(config(path, second_val=True, val_fraction=0.4), fit_vocabulary=True)
    assert texts(first, "train") == ["b" * 50]
    assert texts(second, "train") == ["b" * 30]
    assert texts(second, "val") == ["b" * 20]


def test_the_tokenizer_never_sees_the_validation_text(tmp_path):
    """A character that only validation has gets no piece; one of the training text does."""
    text = words(1, 900) + "\u0416" * 500 + words(2, 900) + "\u0429" * 150
    pieces = b"\n".join(prepare_documents(tmp_path, [text]).tokenizer.bytes.values())
    assert "\u0416".encode() in pieces and "\u0429".encode() not in pieces


@pytest.mark.parametrize("documents, message", [
    ([""], "no text"),
    (["x"], "no tokenizer of 265 pieces: this text allows at most 260; no row of data.seq_len "
            "256 tokens, because with 260 pieces the training split has 0. Choose "
            "smaller numbers, such as --data.vocab_size 260$")])
def test_a_text_too_short_for_its_pieces_and_rows_is_refused(tmp_path, documents, message):
    with pytest.raises(UserError, match=message):
        prepare_documents(tmp_path, documents, vocab_size=265)


def test_a_text_too_short_for_a_second_split_is_refused(tmp_path):
    with pytest.raises(UserError, match="no text is left for a second validation split"):
        prepare_documents(tmp_path, ["x"], second_val=True)


def test_two_splits_of_half_the_text_are_refused_unread(tmp_path):
    with pytest.raises(UserError, match="holds out data.val_fraction 0.5 twice: choose one below"):
        prepare_documents(tmp_path, DOCUMENTS, second_val=True, val_fraction=0.5)


def test_a_note_on_the_second_split_says_of_what_it_is(tmp_path, capsys):
    prepare_documents(tmp_path, [words(1, 500), words(2, 500)], second_val=True)
    said = capsys.readouterr().err
    assert ("note: the first validation split, which is left out, gets the end of the text, 10.0% "
            "of it" in said)
    assert ("note: validation gets the end of what the first validation split leaves, 10.0% of it"
            in said)


@pytest.fixture(scope="module", params=[0.1, 0.45])
def both_splits(tmp_path_factory, request):
    """Many documents, prepared without and with a second validation split."""
    documents = [words(seed, 5) for seed in range(500)]
    path = jsonl(tmp_path_factory.mktemp("both") / "a.jsonl", documents)
    first = prepare(config(path, val_fraction=request.param))
    second = prepare(config(path, val_fraction=request.param, second_val=True))
    return first, second


def test_both_validation_splits_of_many_documents_are_about_as_large(both_splits):
    first, second = (prepared.manifest["val"]["documents"] for prepared in both_splits)
    assert second == pytest.approx(first, rel=0.3)


def test_both_validation_splits_of_many_documents_are_disjoint(both_splits):
    first, second = (texts(prepared, "val") for prepared in both_splits)
    assert {*first}.isdisjoint(second)


BOOK = "".join(words(seed) for seed in range(40))


@pytest.mark.parametrize("documents", [
    [BOOK, words(80, 30)], [words(80, 30), BOOK], [BOOK, BOOK + "end"], [words(80), words(81)],
    [words(seed, 10) for seed in range(12)], [BOOK, *(words(seed, 2) for seed in range(300))],
    [*(words(seed, 2) for seed in range(300)), BOOK], [BOOK[:9000], BOOK[9000:], words(80)]],
    ids=["book and note", "note and book", "two books", "two notes", "notes", "book and lines",
         "lines and book", "three"])
@pytest.mark.parametrize("title", quick_for(["a"], ["a", "b", "c"]))  # which changes the hashes
def test_few_documents_give_validation_about_its_share(tmp_path, documents, title):
    """Hashes alone hold out anything from 1 % to 99 %."""
    counts = prepare_documents(tmp_path, [title + text for text in documents]).manifest
    assert 0.05 <= counts["val"]["bytes"] / counts["text"]["bytes"] <= 0.2


def cut_documents(documents, split_by, *options):
    """The texts of both splits that `split_text` or `hold_out_end` gives.

    options: the arguments of that function after the hashes
    """
    file = io.BytesIO()
    _, spans, hashes, _ = copy_parts([[[text] for text in documents]], file)
    split = split_by(file, spans, hashes, *options)

    def read(part):
        return [file.getvalue()[start:end].decode() for start, end in part]

    return [read(split.train), read(split.val)]


def source_of(n_files, has_blank_lines=True, **options):
    """A source as it is when it has read so many files."""
    source = Files(DataConfig(files=["x"], **options))
    source.n_files = n_files
    source.has_blank_lines = has_blank_lines
    return source


TWO_TEXTS = ["café " * 60, "b" * 300]  # of 360 bytes, 54.5 % of all, and of 300


def test_few_documents_give_their_end():
    train, val = cut_documents(TWO_TEXTS, split_text, source_of(1), 0.25)
    assert train == ["café " * 60, "b" * 135]  # of 660 bytes, 165 are held out
    assert val == ["b" * 165]


def test_a_note_says_that_few_documents_give_their_end(capsys):
    cut_documents(TWO_TEXTS, split_text, source_of(1), 0.25)
    assert capsys.readouterr().err == (
        "note: validation gets the end of the text, 25.0% of it: whole documents drawn at random "
        "would be 54.5%\n")


def test_the_note_on_the_end_of_several_files_advises_a_separator(capsys):
    cut_documents(TWO_TEXTS, split_text, source_of(2), 0.25)
    assert capsys.readouterr().err.endswith(
        "would be 54.5%. So it is from the last files only, of 2. To validate on parts of all, "
        "divide plain text into documents: --data.separator $'\\n\\n' does so at blank lines\n")


@pytest.mark.parametrize("hashes, parts, copies", [
    ([1, 2, 3], [0, 1, 2], []), ([1, 2, 1], [0, 0, 0], []), ([1, 2, 1], [0, 0, 1], [1]),
    ([1, 1, 2], [0, 1, 1], [0]), ([1, 2, 1, 2], [0, 0, 1, 1], [1]), ([1, 1, 1], [0, 2, 5], [2, 5]),
    ([1, 2, 2, 3], [0, 0, 1, 1], []),  # each has a document of its own
    ([1, 2, 3, 1, 2, 3], [0, 1, 2, 3, 3, 3], [0, 1, 2]),
    ([1, 2, 2, 3, 3, 1], [0, 0, 1, 1, 2, 2], [2]),  # without it, every document remains
    ([1, 1, 2, 1], [0, 0, 1, 1], [0])])
def test_parts_without_a_document_of_their_own_are_found(hashes, parts, copies):
    assert find_copies(np.array(hashes, dtype=np.uint64), np.array(parts)) == copies


def test_files_without_text_of_their_own_are_noted(tmp_path, capsys):
    """As Notion's export of a table, of which one file has more columns or rows."""
    rows = [f"Task {number},Write to Ann about it." for number in range(9)]
    shown = "\n".join(["Name,text", *rows])
    every = "\n".join(["Name,text,Done", *(f"{row},Yes" for row in rows), "Old,Forget it.,No"])
    for name, content in {"a/Tasks 1f2e.csv": shown, "a/Tasks 1f2e_all.csv": every,
                          "b.txt": words(1), "c/b (copy).txt": words(1)}.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    data = prepare(config(tmp_path / "in"), fit_vocabulary=True)
    note = ("note: 2 files have only text that others have too, which is trained more than once: "
            f"{tmp_path}/in/a/Tasks 1f2e.csv (see {tmp_path}/in/a/Tasks 1f2e_all.csv), "
            f"{tmp_path}/in/c/b (copy).txt (see {tmp_path}/in/b.txt); to train it once, move such "
            "files elsewhere")
    assert note in capsys.readouterr().err.splitlines()
    assert note in data.notes  # for later trainings


def test_lines_of_an_old_mac_are_noted(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\r".join(words(seed).strip().encode() for seed in range(9)))
    prepare(config(path), fit_vocabulary=True)
    assert "note: lines of this text end in \\r, as on old Macs, " in capsys.readouterr().err


def test_a_small_copy_is_not_noted(tmp_path, capsys):
    """Such as a licence in each folder of source code."""
    for name, content in {"a.txt": words(1) * 99, "b.txt": words(2), "c.txt": words(2)}.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    prepare(config(tmp_path / "in"), fit_vocabulary=True)
    assert "more than once" not in capsys.readouterr().err


def test_without_blank_lines_they_are_not_advised_as_separators(capsys):
    source = source_of(2, has_blank_lines=False)
    cut_documents(TWO_TEXTS, split_text, source, 0.25)
    assert capsys.readouterr().err.endswith("So it is from the last files only, of 2\n")


@pytest.mark.parametrize("text, found", [("a\n\nb", True), ("a\nb\n", False)])
def test_blank_lines_are_found_while_reading(tmp_path, text, found):
    (tmp_path / "a.txt").write_text("one line", encoding="utf-8")
    (tmp_path / "b.txt").write_text(text, encoding="utf-8")
    source = Files(DataConfig(files=[str(tmp_path)]))
    copy_parts(source.parts(), io.BytesIO())
    assert source.has_blank_lines is found


def test_the_note_on_the_end_advises_no_second_separator(capsys):
    source = source_of(2, separator="\n\n")
    cut_documents(TWO_TEXTS, split_text, source, 0.25)
    assert capsys.readouterr().err.endswith(
        "54.5%. So it is from the last files only, of 2\n")


def test_files_that_are_left_out_are_not_counted_in_the_advice(tmp_path):
    """One is not UTF-8, and one has no text in its column."""
    jsonl(tmp_path / "a.jsonl", [words(1), words(2)])
    (tmp_path / "b.txt").write_bytes(b"\xff" * 30)
    (tmp_path / "c.csv").write_text("id,name\n1,a\n", encoding="utf-8")
    source = Files(DataConfig(files=[str(tmp_path)]))
    copy_parts(source.parts(), io.BytesIO())
    assert source.advise_split() == ""


@pytest.mark.parametrize("documents, train, val", [
    (["a" * 10, "b" * 10, "c" * 2], ["a" * 10, "b" * 6], ["b" * 4, "c" * 2]),
    (["a" * 10, "b" * 5, "c" * 5], ["a" * 10, "b" * 5], ["c" * 5]), (["ééé é"], ["ééé"], [" é"]),
    (["0123456789"] * 3, ["0123456"] * 3, ["789"] * 3),
    (["0123456789", "abcdefghij", "0123456789"], ["0123456789", "ab", "0123456789"], ["cdefghij"]),
    (["01234", "01234", "abcdefghij"], ["01234", "01234", "abcde"], ["fghij"])])
def test_the_end_is_cut_through_one_document_and_its_copies(documents, train, val):
    """Copies count where the first one is, so that nothing is in both splits."""
    assert cut_documents(documents, hold_out_end, 0.25) == [train, val]


def test_the_end_of_the_standard_library_is_never_held_out():
    """Its committed studies keep their split. Each split gets a document here, although 0.01 is
    less than one: the text "a" is for validation, because its hash is the lower one."""
    source = StandardLibrary(DataConfig())
    documents = ["a" * 50, "b" * 50]
    assert cut_documents(documents, split_text, source, 0.01) == [["b" * 50], ["a" * 50]]


@pytest.mark.parametrize("documents", [[BOOK, words(80)], [words(80), words(81), words(82)]])
def test_both_ends_held_out_of_few_documents_are_disjoint(tmp_path, documents):
    first, second = (prepare_documents(tmp_path, documents, second_val=it) for it in (False, True))
    parts = (*texts(second, "train"), *texts(second, "val"), *texts(first, "val"))
    assert sorted("".join(parts)) == sorted("".join(documents))
    assert "".join(texts(first, "train")).startswith("".join(texts(second, "train")))
    for prepared in (first, second):
        assert prepared.manifest["val"]["bytes"] > 0.05 * len("".join(documents))


def test_stories_between_separators_are_documents(tmp_path):
    """As TinyStories writes them. EOS comes before each."""
    stories = [words(seed, 9).strip() for seed in range(500)]
    path = tmp_path / "stories.txt"
    path.write_text("\n<|endoftext|>\n".join(stories) + "\n<|endoftext|>\n", encoding="utf-8")
    prepared = prepare(config(path, separator="<|endoftext|>"))
    val = texts(prepared, "val")
    assert sorted(texts(prepared, "train") + val) == sorted(stories)
    assert 25 <= len(val) <= 75


@pytest.mark.parametrize("pieces", [[], [""], ["", ""], [" ", "\r\n\t"]])
def test_documents_without_text_are_refused_and_nothing_else_is_said(capsys, pieces):
    """Such as those of a standard library that has empty modules only."""
    with pytest.raises(UserError, match="no text in a book: every document is empty"):
        copy_parts([[pieces, pieces]], io.BytesIO(), "preparing", "a book")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name, content", [("a.txt", ""), ("a.csv", "text,label\n")])
def test_a_text_without_documents_is_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"no text in {path}: every document is empty"):
        prepare(config(path))


def test_notes_on_a_text_are_said_when_it_is_prepared(tmp_path, capsys):
    """Each on a line of its own, by the process that prepares, and not again by those that find
    what it prepared."""
    path = jsonl(tmp_path / "a.jsonl", [*DOCUMENTS, ""])
    folder = prepare(config(path)).folder
    assert capsys.readouterr().err == (
        f"preparing {folder} once\nnote: 1 of 61 rows have no text in column text\n")
    prepare(config(path))
    find_or_prepare(config(path))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lines, noted", [
    ("a line\r\n" * 300, True), ("one line\r\n" * 149 + "a line\n" * 151, False),
    ("a line\n" * 300, False), ("no line", False)])
def test_lines_that_end_as_on_windows_are_noted(tmp_path, capsys, lines, noted):
    (tmp_path / "book.txt").write_text(words(1, 400) + "\n" + lines, encoding="utf-8", newline="")
    prepare(config(tmp_path / "book.txt"))
    assert (r"note: lines of this text end in \r\n" in capsys.readouterr().err) is noted


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_the_advice_on_line_ends_rewrites_them(tmp_path, capsys, name, end):
    if name == "a.jsonl":
        require_program("jq")
    text = f"{words(1, 400)}{end}" + f"a line{end}" * 300
    content = json.dumps({"text": text}) + "\n" if name == "a.jsonl" else text
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    prepare(config(tmp_path / name))
    (command,) = re.findall(r"model writes: (.*) makes \\n of it", capsys.readouterr().err)
    command = command.replace("FILE", name).replace("NEW", f"new-{name}")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    prepare(config(tmp_path / f"new-{name}"))
    assert "lines of this text" not in capsys.readouterr().err


WINDOWS_LINES = words(1, 400) + "a line\r\n" * 300


def test_packed_lines_are_rewritten_unpacked(tmp_path, capsys):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(WINDOWS_LINES.encode()))
    prepare(config(tmp_path / "a.txt.gz"))
    assert r"the model writes: in the unpacked file, tr -d '\r' <" in capsys.readouterr().err


@pytest.mark.parametrize("name, content", [
    ("b.jsonl", b'{"title": 5}\n'), ("b.txt.gz", gzip.compress(b"broken")[:-9])])
def test_files_that_are_left_out_do_not_decide_the_advice(tmp_path, capsys, name, content):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text(WINDOWS_LINES, encoding="utf-8", newline="")
    (folder / name).write_bytes(content)
    prepare(config(folder))
    assert r"the model writes: tr -d '\r' <" in capsys.readouterr().err


def test_no_command_rewrites_the_lines_of_a_parquet_file(tmp_path, capsys):
    table = pyarrow.table({"text": [WINDOWS_LINES]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    prepare(config(tmp_path / "a.parquet"))
    assert "so will those that the model writes\n" in capsys.readouterr().err


def test_notes_on_a_text_are_found_with_what_was_prepared(tmp_path):
    """One of the two documents has 49.9 % of the bytes, which is too much to hold out."""
    path = jsonl(tmp_path / "a.jsonl", [words(80), words(81), ""])
    made = prepare(config(path))
    found = find_or_prepare(config(path))
    assert (made.is_new, found.is_new) == (True, False)
    assert found.notes == [
        "note: 1 of 3 rows have no text in column text",
        "note: validation gets the end of the text, 10.0% of it: whole documents drawn at random "
        "would be 49.9%"]


def test_the_files_of_a_folder_are_listed_as_they_are_now(tmp_path):
    """Also those that came after it was prepared, and are not read."""
    folder = tmp_path / "notes"
    folder.mkdir()
    jsonl(folder / "a.jsonl", [words(80), words(81)])
    (folder / "b.txt").write_bytes(b"caf\xe9")
    prepare(config(folder))
    (folder / "c.pdf").write_bytes(b"%PDF")
    found = find_or_prepare(config(folder))
    assert not found.is_new
    listing, not_utf8, *_ = found.notes
    assert listing == f"note: {folder}: 1 file of 3 is read (left out: 1 .pdf)"
    assert not_utf8.startswith("note: 1 file is not UTF-8")


def test_a_folder_may_change_while_it_is_read(tmp_path, capsys):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"text {name} ", encoding="utf-8")
    (tmp_path / "z.txt").write_bytes(b"caf\xe9")
    parts = []
    source = Files(DataConfig(files=[str(tmp_path)]))
    for part in source.parts():
        with suppress(LeftOut):
            parts.append("".join(piece for document in part for piece in document))
        (tmp_path / "a.txt").unlink(missing_ok=True)
    assert parts == ["text a ", "text b ", "text c "]
    assert f"note: {tmp_path}: 3 files of 4 are read\n" in capsys.readouterr().err


def test_a_file_that_is_now_named_itself_is_not_listed_with_its_folder(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    path = jsonl(folder / "a.jsonl", [words(80), words(81)])
    prepare(config(folder))
    found = find_or_prepare(replace(config(folder), files=[str(path)]))
    assert not found.is_new
    assert not any("read" in note for note in found.notes)


def test_what_an_earlier_version_prepared_has_no_notes(tmp_path):
    assert Prepared(tmp_path, {}).notes == []


@pytest.mark.parametrize("name, content", [
    ("a.txt", "a text".encode("utf-16")), ("a.txt", b""), ("a.csv", b"id,name\n1,a\n"),
    ("a.jsonl", b'{"messages": [{"role": "user", "content": "a"}]}\n')])
def test_nothing_is_said_of_a_text_that_is_refused(tmp_path, capsys, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError):
        prepare(config(path))
    assert capsys.readouterr().err == ""


# Made once


def forbid(monkeypatch, module, name):
    """Let the test fail if it calls this function from now on."""
    error = AssertionError(f"{name} must not be called")
    monkeypatch.setattr(module, name, mock.Mock(side_effect=error))


@pytest.mark.parametrize("options, name", [
    ({"source": "url", "url": "http://a.b/c.txt"}, "c-9c5802c9974a"),
    ({"source": "hub", "hub": "a/b", "second_val": True}, "b-403a1f6357ef")])
def test_folders_from_before_an_option_are_still_found(options, name):
    """Names that revision 2ea7a68 gave them."""
    assert locate(DataConfig(**options))[0].name == name


@pytest.mark.parametrize("name, label", [
    ("рассказ.txt", "рассказ"), ("हिन्दी की.txt", "हिन्दी-की"), ("三体 (1).txt", "三体-1"),
    ("my_notes.txt", "my-notes"), ("cafe\u0301.txt", "caf\u00e9"), ("\U0001f600.txt", "files"),
    ("src/**/*.txt", "src"),
    ("a/f[1].txt", "a"), ("rows.jsonl.gz", "rows"), ("log.ZST", "log"), ("v1.2.txt", "v1.2")])
def test_a_label_has_the_letters_of_any_script(name, label):
    assert label_text(DataConfig(files=[name])) == label


@pytest.mark.parametrize("name, label", [
    (".", "chapters"), ("./", "chapters"), ("..", "my-book"), ("../notes.txt", "notes"),
    ("*.txt", "chapters")])
def test_a_folder_named_by_dots_has_its_own_name(tmp_path, monkeypatch, name, label):
    (tmp_path / "my book/chapters").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "my book/chapters")
    assert label_text(DataConfig(files=[name])) == label


def test_a_text_under_an_earlier_label_is_found(tmp_path, monkeypatch):
    """Such as files-KEY, which each name without a Latin letter had."""
    first = prepare(config(jsonl(tmp_path / "рассказ.jsonl", DOCUMENTS)))
    key = first.folder.name.removeprefix("рассказ-")
    first.folder.rename(first.folder.with_name(f"files-{key}"))
    forbid(monkeypatch, dataset_module, "prepare_text")
    assert prepare(config(tmp_path / "рассказ.jsonl")).folder.name == f"files-{key}"


def test_files_named_in_two_ways_are_prepared_once(corpus, monkeypatch):
    first = prepare(config(corpus))
    monkeypatch.chdir(corpus.parent)
    forbid(monkeypatch, dataset_module, "prepare_text")
    again = DataConfig(files=["*.jsonl"], vocab_size=VOCAB, prepared="prepared")
    assert prepare(again).folder.samefile(first.folder)


def test_every_option_of_a_fetched_text_decides_its_folder():
    """Else the text of another revision would be taken for it."""
    plain = DataConfig(source="hub", hub="a/b")
    options = {*SOURCES["hub"].options, *SOURCES["url"].options}
    configs = [plain, *(replace(plain, **{option: "other"}) for option in options)]
    keys = {locate(each)[0].name[-12:] for each in configs}
    assert len(keys) == len(configs)


def test_files_without_a_fingerprint_decide_the_folder(monkeypatch):
    """As those of a user's own source, which has none."""
    class Poems(Source):
        options = ("files",)

    monkeypatch.setitem(SOURCES, "poems", Poems)
    first, second = (DataConfig(source="poems", files=[name]) for name in ("a", "b"))
    assert locate(first)[0] != locate(second)[0]


def test_it_is_made_once(corpus, monkeypatch):
    first = prepare(config(corpus))
    forbid(monkeypatch, dataset_module, "prepare_text")
    assert prepare(config(corpus)) == first


def test_the_length_of_rows_decides_nothing(corpus):
    assert locate(config(corpus, seq_len=32)) == locate(config(corpus, seq_len=64))


def test_equal_settings_give_equal_bytes_elsewhere(corpus, tmp_path):
    first = prepare(config(corpus))
    elsewhere = prepare(config(corpus, prepared=str(tmp_path / "other")))
    assert elsewhere.folder != first.folder
    assert elsewhere.manifest == first.manifest


@pytest.mark.parametrize("options", [{"vocab_size": VOCAB + 1}, {"val_fraction": 0.2}], ids=str)
def test_other_settings_give_another_folder(corpus, options):
    assert prepare(config(corpus, **options)).folder != prepare(config(corpus)).folder


def test_a_folder_of_other_settings_is_made_again(corpus):
    first = prepare(config(corpus))
    larger = config(corpus, vocab_size=VOCAB + 1)
    shutil.copytree(first.folder, locate(larger)[0])
    assert prepare(larger).tokenizer.vocab_size == VOCAB + 1


def test_another_text_gives_another_folder(corpus):
    first = prepare(config(corpus))
    jsonl(corpus, DOCUMENTS[1:])
    assert prepare(config(corpus)).folder != first.folder


def test_a_run_finds_its_data_when_the_text_has_changed(corpus):
    first = prepare(config(corpus))
    jsonl(corpus, DOCUMENTS[1:])
    assert not locate(config(corpus))[0].exists()
    assert find_or_prepare(config(corpus), first.manifest["settings"]) == first


@pytest.mark.parametrize("name, reason", [
    ("b.txt", "b.txt cannot be read: .* is not UTF-8"),
    ("c.csv", "c.csv cannot be read: it has no text in a column 'text'"),
    ("d.jsonl", "d.jsonl cannot be read: line 1 is no JSON object"),
])
def test_a_file_that_a_folder_left_out_is_refused_once_named(tmp_path, name, reason):
    folder = tmp_path / "folder"
    folder.mkdir()
    jsonl(folder / "a.jsonl", DOCUMENTS)
    (folder / "b.txt").write_bytes(b"\xff" * 30)
    (folder / "c.csv").write_text("id,name\n1,a\n", encoding="utf-8")
    (folder / "d.jsonl").write_text('{"text": "half', encoding="utf-8")
    of_folder = config(folder)
    find_or_prepare(of_folder)
    with pytest.raises(UserError, match=reason):
        find_or_prepare(replace(of_folder, files=[str(folder), str(folder / name)]))


def test_a_folder_that_has_left_files_out_is_prepared_once(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    jsonl(folder / "a.jsonl", DOCUMENTS)
    (folder / "b.txt").write_bytes(b"\xff" * 30)
    (folder / "c.csv").write_text("id,name\n1,a\n", encoding="utf-8")
    assert find_or_prepare(config(folder)).is_new
    assert not find_or_prepare(config(folder)).is_new


@pytest.fixture
def given(corpus, tmp_path):
    """A folder with a tokenizer, and with another file that belongs to it."""
    first = prepare(config(corpus, prepared=str(tmp_path / "first")))
    folder = tmp_path / "given"
    folder.mkdir()
    shutil.copy(first.folder / "tokenizer.model", folder)
    (folder / "generation_config.json").write_text("{}", encoding="utf-8")
    return folder


def test_a_given_tokenizer_is_copied_with_its_files(corpus, given):
    prepared = prepare(config(corpus, tokenizer=str(given)))
    names = {file.name for file in prepared.tokenizer_files}
    assert names == {"tokenizer.model", "generation_config.json"}


@pytest.mark.parametrize("name", ["tokenizer.model", "generation_config.json"])
def test_each_file_of_a_given_tokenizer_decides_the_folder(corpus, given, name):
    first = locate(config(corpus, tokenizer=str(given)))[0]
    flip_a_bit(given / name)
    assert locate(config(corpus, tokenizer=str(given)))[0] != first
    assert locate(config(corpus))[0] != first


def test_a_given_tokenizer_of_another_size_is_refused(corpus, given):
    with pytest.raises(UserError, match="vocab_size 301 is not .*, 300$"):
        prepare(config(corpus, vocab_size=301, tokenizer=str(given)))


def test_a_given_tokenizer_that_is_a_file_is_refused(corpus, given):
    file = given / "tokenizer.model"
    with pytest.raises(UserError, match="data.tokenizer .*tokenizer.model is no folder with a tok"):
        prepare(config(corpus, tokenizer=str(file)))


def test_the_advice_where_a_tokenizer_is_gone_trains_one(corpus):
    """A study that stands beside another inherits a tokenizer, and cannot leave it out."""
    with pytest.raises(UserError) as refusal:
        prepare(config(corpus, tokenizer="gone"))
    advice = re.search("train one with (--data.tokenizer .*)$", str(refusal.value))[1]
    draft = parse_config("--data.tokenizer", "gone", *advice.split())
    assert prepare(config(corpus, tokenizer=draft.data.tokenizer)).is_new


def edit(path):
    """The one number whose change nothing else would show: it scales every bits per byte."""
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["val"]["bytes"] += 1
    path.write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("name, damage", [("train.bin", flip_a_bit), ("val.bin", os.unlink),
                                          ("manifest.json", cut), ("manifest.json", edit)])
def test_damage_is_found_and_repaired(corpus, capsys, name, damage):
    first = prepare(config(corpus))
    assert capsys.readouterr().err.endswith("once\n")
    damage(first.folder / name)
    assert prepare(config(corpus)) == first
    (notice,) = capsys.readouterr().err.splitlines()
    assert name in notice and str(first.folder) in notice
    assert open_prepared(*locate(config(corpus))) == first  # it checks every hash


def test_a_very_large_file_is_checked_by_size_alone(corpus, monkeypatch):
    first = prepare(config(corpus))
    monkeypatch.setattr(dataset_module, "MAX_HASHED_BYTES", 100)
    flip_a_bit(first.folder / "train.bin")
    assert open_prepared(*locate(config(corpus))) == first
    cut(first.folder / "train.bin")
    with pytest.raises(UserError, match="^train.bin was changed$"):
        open_prepared(*locate(config(corpus)))


# Never half there


def test_a_second_process_waits_for_the_first(corpus, tmp_path, monkeypatch):
    made = prepare(config(corpus, prepared=str(tmp_path / "elsewhere")))
    folder, _ = locate(config(corpus))
    first = ExitStack()
    first.enter_context(files.locked(folder, ""))

    def finish(message):
        assert message == f"waiting for another process: {folder}"
        shutil.copytree(made.folder, folder)
        first.close()

    monkeypatch.setattr(files, "say", finish)  # of the process without the lock
    forbid(monkeypatch, dataset_module, "prepare_text")
    assert prepare(config(corpus)).manifest == made.manifest


def test_a_disk_without_room_for_a_buffer_is_noticed(corpus, monkeypatch):
    """What is still in a buffer when its file is closed is refused then, and not before."""
    jsonl(corpus, DOCUMENTS[:4])  # so few that all ids fit into the buffer
    write_ids = prepare_module.write_ids

    def write_few_bytes(*options):
        with file_size_limit(40):
            return write_ids(*options)

    monkeypatch.setattr(prepare_module, "write_ids", write_few_bytes)
    with pytest.raises(UserError, match="cannot write .*make room"):
        prepare(config(corpus))
    assert not [*(corpus.parent / "prepared").iterdir()]
