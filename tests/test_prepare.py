"""Prepared data is true, split without leaks, made once, and never half there."""

import hashlib
import io
import json
import os
import random
import shutil
from contextlib import ExitStack

import numpy as np
import pytest
from disk_faults import cut, file_size_limit, flip_a_bit

import files
from data import dataset as dataset_module
from data import prepare as prepare_module
from data.dataset import find_prepared, locate
from data.prepare import copy_text, hold_out_end, prepare, read_blocks, split_text
from data.sources import SOURCES, DataConfig
from errors import UserError

VOCAB, BOS, EOS = 300, 1, 2


def words(seed, n_words=120):
    """Text in which nothing repeats exactly, with characters of one to four bytes."""
    pick = random.Random(seed)
    some = ["alpha", "beta", "gamma", "delta", "café", "中文", "\U0001f600", "naïve"]
    return " ".join(pick.choice(some) + str(pick.randrange(100)) for _ in range(n_words)) + "\r\n"


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
    ids, eos = read_ids(prepared, split), prepared.tokenizer.eos_id
    assert ids[0] == eos != ids[-1]
    parts = np.split(ids, np.flatnonzero(ids == eos))[1:]
    return [prepared.tokenizer.decode(part[1:].tolist()) for part in parts]


def count_text(documents):
    text = "".join(documents)
    return {"documents": len(documents), "bytes": len(text.encode()), "characters": len(text),
            "sha256": hashlib.sha256(text.encode()).hexdigest()}


# What is written


@pytest.mark.parametrize("vocab_size, dtype", [(65536, "uint16"), (65537, "uint32")])
def test_every_document_is_in_one_split_and_counted(corpus, monkeypatch, vocab_size, dtype):
    """Also with a vocabulary that does not fit into 16 bits. Where texts begin with BOS, EOS comes
    before it."""
    train_tokenizer = prepare_module.train_tokenizer

    def pretend(*arguments):
        tokenizer = train_tokenizer(*arguments)
        tokenizer.vocab_size, tokenizer.prefix_ids = vocab_size, [BOS]
        return tokenizer

    monkeypatch.setattr(prepare_module, "train_tokenizer", pretend)
    monkeypatch.setattr(prepare_module, "BATCH", 7)
    prepared = prepare(config(corpus))
    manifest, written = prepared.manifest, []
    for split in ("train", "val"):
        found, ids = texts(prepared, split), read_ids(prepared, split)
        assert (np.flatnonzero(ids == BOS) == np.flatnonzero(ids == EOS) + 1).all()
        assert found == [text for text in DOCUMENTS if text in found]  # in order
        counts = count_text(found) | {"tokens": len(ids)}
        assert manifest[split] == {name: counts[name] for name in ("documents", "bytes", "tokens")}
        written += found
    assert sorted(written) == sorted(DOCUMENTS) and manifest["text"] == count_text(DOCUMENTS)
    assert (prepared.dataset("val", seq_len=1).vocab_size, manifest["dtype"]) == (vocab_size, dtype)
    names = ["tokenizer.model", "train.bin", "val.bin"]
    assert list(manifest["files"]) == names
    assert {path.name for path in prepared.folder.iterdir()} == {*names, "manifest.json"}


def test_blocks_give_back_the_text_and_end_after_lines(monkeypatch):
    """Every block ends after a line if it can, and none ends inside a character."""
    monkeypatch.setattr(prepare_module, "BLOCK", 97)
    parts = ["".join(words(n, 1 + n % 9) for n in range(40)), words(1, 300), "中" * 100, "x\ny"]
    file, pieces = io.BytesIO(), [[part[:50], "", part[50:]] for part in parts]
    counts, spans, _ = copy_text([[], *pieces, ["", ""]], file)  # empty documents are none
    assert counts == count_text(parts) and file.getvalue().decode() == "".join(parts)
    for kept in ([0, 1, 2, 3], [2, 3], [0], []):
        documents = []
        for first, block in read_blocks(file, spans[kept], ""):
            documents += [[]] if first else []
            documents[-1].append(block)
        assert ["".join(blocks) for blocks in documents] == [parts[i] for i in kept]
        assert 3 not in kept or len(documents[-1]) == 1  # it is short: no reason to cut
        for blocks in documents:
            assert all(0 < len(block.encode()) <= 97 for block in blocks)
            for block in blocks[:-1]:
                assert block.endswith("\n") or "\n" not in block and len(block.encode()) > 93


# The split


@pytest.mark.parametrize("second", [False, True])
def test_a_single_text_gives_its_last_part_by_characters(tmp_path, monkeypatch, second):
    monkeypatch.setattr(prepare_module, "BLOCK", 97)  # cuts characters in two, and lines
    text = words(1, 3000)
    prepared = prepare_documents(tmp_path, [text], val_fraction=0.25, second_val=second)
    end = int(len(text) * 0.75)
    text, end = (text[:end], int(end * 0.75)) if second else (text, end)
    assert texts(prepared, "train") + texts(prepared, "val") == [text[:end], text[end:]]


@pytest.mark.parametrize("n, val_fraction, least, most", [
    (1000, 0.1, 71, 129), (1000, 0.5, 441, 559), (60, 0.001, 1, 1), (60, 0.95, 50, 60)])
def test_the_share_held_out_follows_val_fraction(tmp_path, n, val_fraction, least, most):
    """And no split is empty."""
    documents = [words(seed, 5) for seed in range(n)]
    prepared = prepare_documents(tmp_path, documents, val_fraction=val_fraction)
    assert least <= prepared.manifest["val"]["documents"] <= most


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


@pytest.mark.parametrize("documents", [DOCUMENTS, DOCUMENTS[:2]])
def test_a_second_validation_split_is_cut_from_the_training_text(tmp_path, documents):
    """And the first one is in neither part; one document that is left gives its end."""
    first, second = (prepare_documents(tmp_path, documents, second_val=it) for it in (False, True))
    train, val = (texts(second, split) for split in ("train", "val"))
    assert sorted("".join(train + val)) == sorted("".join(texts(first, "train")))
    assert len(documents) == 2 or 1 < len(val) < 12 and {*train, *val} == {*texts(first, "train")}


def test_the_tokenizer_never_sees_the_validation_text(tmp_path):
    """A character that only validation has gets no piece; one of the training text does."""
    text = words(1, 900) + "\u0416" * 500 + words(2, 900) + "\u0429" * 150
    pieces = b"\n".join(prepare_documents(tmp_path, [text]).tokenizer.bytes.values())
    assert "\u0416".encode() in pieces and "\u0429".encode() not in pieces


@pytest.mark.parametrize("documents, message", [
    ([""], "no text"),
    (["x"], "no tokenizer of 265 pieces: this text allows at most 260; no row of 256 tokens: it "
            "has 0 for training. Choose smaller numbers, or let auto choose them")])
def test_a_text_that_cannot_be_split_is_refused(tmp_path, documents, message):
    with pytest.raises(UserError, match=message):
        prepare_documents(tmp_path, documents, vocab_size=265).dataset("val", seq_len=60)


def test_a_text_too_short_for_a_second_split_is_refused(tmp_path):
    with pytest.raises(UserError, match="no text is left for a second validation split"):
        prepare_documents(tmp_path, ["x"], second_val=True)


BOOK = "".join(words(seed) for seed in range(40))


@pytest.mark.parametrize("documents", [
    [BOOK, words(80, 30)], [words(80, 30), BOOK], [BOOK, BOOK + "end"], [words(80), words(81)],
    [words(seed, 10) for seed in range(12)], [BOOK, *(words(seed, 2) for seed in range(300))],
    [*(words(seed, 2) for seed in range(300)), BOOK], [BOOK[:9000], BOOK[9000:], words(80)]],
    ids=["book and note", "note and book", "two books", "two notes", "notes", "book and lines",
         "lines and book", "three"])
@pytest.mark.parametrize("title", ["a", "b", "c"])  # which changes the hashes
def test_few_documents_give_validation_about_its_share(tmp_path, documents, title):
    """Hashes alone hold out anything from 1 % to 99 %."""
    counts = prepare_documents(tmp_path, [title + text for text in documents]).manifest
    assert 0.05 <= counts["val"]["bytes"] / counts["text"]["bytes"] <= 0.2


def cut_documents(documents, split, *options):
    """The texts of both splits that a function which splits gives."""
    file = io.BytesIO()
    _, spans, hashes = copy_text([[text] for text in documents], file)
    parts = split(file, spans, hashes, *options)[:2]
    return [[file.getvalue()[start:end].decode() for start, end in part] for part in parts]


def test_few_documents_give_their_end_in_one_note(capsys):
    options = DataConfig(source="files", files=["x"], val_fraction=0.25)
    train, val = cut_documents(["café " * 60, "b" * 300], split_text, options)
    assert train == ["café " * 60, "b" * 135]  # of 660 bytes, 165 are held out
    assert val == ["b" * 165]
    assert capsys.readouterr().err == (
        "note: whole documents would give validation 54.5% of the text, not 25.0%: the end of the "
        "text is held out instead\n")


@pytest.mark.parametrize("documents, train, val", [
    (["a" * 10, "b" * 10, "c" * 2], ["a" * 10, "b" * 6], ["b" * 4, "c" * 2]),
    (["a" * 10, "b" * 5, "c" * 5], ["a" * 10, "b" * 5], ["c" * 5]), (["ééé é"], ["ééé"], [" é"]),
    (["0123456789"] * 3, ["0123456"] * 3, ["789"] * 3),
    (["0123456789", "abcdefghij", "0123456789"], ["0123456789", "ab", "0123456789"], ["cdefghij"])])
def test_the_end_is_cut_through_one_document_and_its_copies(documents, train, val):
    """Copies count where the first one is, so that nothing is in both splits."""
    assert cut_documents(documents, hold_out_end, 0.25) == [train, val]


def test_the_end_of_the_standard_library_is_never_held_out():
    """Its committed studies keep their split."""
    options = DataConfig(source="stdlib", val_fraction=0.01)
    documents = ["a" * 50, "b" * 50]
    assert cut_documents(documents, split_text, options) == [["b" * 50], ["a" * 50]]


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
    train, val = texts(prepared, "train"), texts(prepared, "val")
    assert sorted(train + val) == sorted(stories) and 25 <= len(val) <= 75


def test_notes_on_a_text_are_said_when_it_is_prepared(tmp_path, capsys):
    """Each on a line of its own; by the one process that prepares, and not by those that wait."""
    path = jsonl(tmp_path / "a.jsonl", [*DOCUMENTS, ""])
    folder = prepare(config(path)).folder
    assert capsys.readouterr().err == (
        f"preparing {folder} once\nnote: 1 of 61 rows have no text in column text (they have no "
        "other columns)\n")
    assert find_prepared(config(path)) and prepare(config(path))
    assert capsys.readouterr().err == ""


# Made once


@pytest.mark.parametrize("options, name", [
    ({"source": "url", "url": "http://a.b/c.txt"}, "c-9c5802c9974a"),
    ({"source": "hub", "hub": "a/b", "second_val": True}, "b-403a1f6357ef")])
def test_folders_from_before_an_option_are_still_found(options, name):
    """Names that revision 2ea7a68 gave them."""
    assert locate(DataConfig(**options))[0].name == name


def test_every_option_of_a_text_that_has_to_be_fetched_decides_its_folder():
    """Else the text of another revision would be taken for it. The option `source` already has
    the value "hub", so the folders are as many as the options."""
    options = {"source", *SOURCES["hub"].options, *SOURCES["url"].options}
    configs = [DataConfig(**{"source": "hub", "hub": "a/b", option: "hub"}) for option in options]
    assert len({locate(each)[0].name[-12:] for each in configs}) == len(options)


def test_it_is_made_once_and_again_when_settings_or_text_change(corpus, tmp_path, monkeypatch):
    first = prepare(config(corpus))
    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "write_files", None)
        assert prepare(config(corpus, seq_len=32)) == first  # which decides nothing here
    elsewhere = prepare(config(corpus, prepared=str(tmp_path / "other")))
    assert elsewhere.manifest == first.manifest  # and so the same bytes
    larger, tokenizer = {"vocab_size": VOCAB + 1}, {"tokenizer": str(first.folder)}
    shutil.copytree(first.folder, locate(config(corpus, **larger))[0])  # it is of other settings
    made = [first, *(prepare(config(corpus, **options))
                     for options in (larger, {"val_fraction": 0.2}, tokenizer))]
    shutil.copytree(first.folder, changed := tmp_path / "changed")
    changed.joinpath("generation_config.json").write_text("{}", encoding="utf-8")
    copied = prepare(config(corpus, tokenizer=str(changed)))
    assert {f.name for f in copied.tokenizer_files} == {"tokenizer.model", "generation_config.json"}
    flip_a_bit(changed / "tokenizer.model")
    other = locate(config(corpus, tokenizer=str(changed)))[0]
    assert len({copied.folder, other, made[-1].folder}) == 3
    assert made[1].tokenizer.vocab_size == VOCAB + 1
    jsonl(corpus, DOCUMENTS[1:])
    assert find_prepared(config(corpus), first.manifest["settings"]) == first  # what a run knows
    made.append(prepare(config(corpus)))
    assert len({prepared.folder for prepared in made}) == 5
    with pytest.raises(UserError, match=f"vocab_size {VOCAB + 1} is not .*, {VOCAB}$"):
        prepare(config(corpus, **larger, **tokenizer))
    with pytest.raises(UserError, match="data.tokenizer .*config.json is no folder with a tok"):
        prepare(config(corpus, tokenizer=str(changed / "generation_config.json")))


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
    assert prepare(config(corpus)).manifest == first.manifest
    (notice,) = capsys.readouterr().err.splitlines()
    assert name in notice and str(first.folder) in notice


def test_a_very_large_file_is_checked_by_size_alone(corpus, monkeypatch):
    first = prepare(config(corpus))
    monkeypatch.setattr(dataset_module, "HASHED", 100)
    flip_a_bit(first.folder / "train.bin")
    assert find_prepared(config(corpus)) == first
    cut(first.folder / "train.bin")
    assert find_prepared(config(corpus)) is None


# Never half there


def test_a_second_process_waits_and_takes_what_the_first_has_made(corpus, tmp_path, monkeypatch):
    made = prepare(config(corpus, prepared=str(tmp_path / "elsewhere")))
    folder, first = locate(config(corpus))[0], ExitStack()
    first.enter_context(files.locked(folder, ""))

    def finish(message):
        assert message == f"waiting for another process: {folder}"
        shutil.copytree(made.folder, folder)
        first.close()

    monkeypatch.setattr(files, "say", finish)  # of the process without the lock
    monkeypatch.setattr(prepare_module, "write_files", None)
    assert prepare(config(corpus)).manifest == made.manifest


def test_a_disk_that_is_full_by_less_than_a_page_is_noticed(corpus, monkeypatch):
    """What is still in a buffer when its file is closed is refused then, and not before."""
    jsonl(corpus, DOCUMENTS[:4])
    monkeypatch.setattr(prepare_module, "write_ids", file_size_limit(40)(prepare_module.write_ids))
    with pytest.raises(UserError, match="cannot write .*make room"):
        prepare(config(corpus))
    assert not [*(corpus.parent / "prepared").iterdir()]
