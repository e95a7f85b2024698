"""Prepared data is true, split without leaks, made once, and never half there."""

import hashlib
import json
import random
import signal
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import start
from failing import cut, file_size_limit, flip_a_bit

from data import dataset as dataset_module
from data import prepare as prepare_module
from data import sources
from data.dataset import Unusable, find_prepared
from data.prepare import prepare
from data.sources import DataConfig
from errors import UserError

VOCAB = 300


def words(seed, count=120):
    """Text in which nothing repeats exactly, with characters of one to four bytes."""
    pick = random.Random(seed)
    some = ["alpha", "beta", "gamma", "delta", "café", "中文", "\U0001f600", "naïve"]
    return " ".join(pick.choice(some) + str(pick.randrange(100)) for _ in range(count)) + "\r\n"


DOCUMENTS = [words(seed) for seed in range(60)]


@pytest.fixture
def corpus(tmp_path):
    """DOCUMENTS as one .jsonl."""
    return jsonl(tmp_path / "corpus.jsonl", DOCUMENTS)


def jsonl(path, documents):
    rows = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    path.write_text(rows, encoding="utf-8")
    return path


def config(path, **options):
    folder = Path(path).parent / "prepared"
    options = {"vocab_size": VOCAB, "prepared": str(folder)} | options
    return DataConfig(source="files", files=[str(path)], **options)


def ids(prepared, split):
    path = prepared.folder / f"{split}.bin"
    return np.fromfile(path, dtype=prepared.manifest["dtype"]).tolist()


def documents(prepared, split):
    """The ids of every document of a split, without the eos in front of it."""
    stream = np.array(ids(prepared, split))
    starts = np.flatnonzero(stream == prepared.tokenizer.eos_id)
    return [part[1:].tolist() for part in np.split(stream, starts)[1:]]


def texts(prepared, split):
    return [prepared.tokenizer.decode(document) for document in documents(prepared, split)]


def text_file(tmp_path, text, name="text.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


# What is written


def test_every_document_is_on_one_side_behind_its_own_eos(corpus):
    prepared = prepare(config(corpus))
    train, val = texts(prepared, "train"), texts(prepared, "val")
    assert sorted(train + val) == sorted(DOCUMENTS)
    assert not set(train) & set(val) and train and val
    assert [d for d in DOCUMENTS if d in train] == train  # in the order of the source
    for split in ("train", "val"):
        stream = ids(prepared, split)
        assert stream[0] == prepared.tokenizer.eos_id != stream[-1]


def test_the_manifest_counts_truly(corpus):
    def count(documents):
        text = "".join(documents)
        size = len(text.encode())
        assert size > len(text)
        return {"documents": len(documents), "bytes": size, "characters": len(text)}

    prepared = prepare(config(corpus))
    manifest = prepared.manifest
    for split in ("train", "val"):
        side, stream = texts(prepared, split), ids(prepared, split)
        assert manifest[split] == count(side) | {"tokens": len(stream), "eos": len(side)}
        assert stream.count(prepared.tokenizer.eos_id) == len(side)
    digest = hashlib.sha256("".join(DOCUMENTS).encode()).hexdigest()
    assert manifest["text"] == count(DOCUMENTS) | {"sha256": digest}
    assert manifest["vocab_size"] == prepared.tokenizer.vocab_size == VOCAB
    assert manifest["files"]["tokenizer.model"]["sha256"] == prepared.tokenizer.sha256
    names = ["manifest.json", "tokenizer.model", "train.bin", "val.bin"]
    assert sorted(path.name for path in prepared.folder.iterdir()) == names


@pytest.mark.parametrize("vocab_size, dtype", [(65536, "uint16"), (65537, "uint32")])
def test_the_width_of_an_id_follows_the_vocabulary(corpus, monkeypatch, vocab_size, dtype):
    train = prepare_module.Tokenizer.train

    def train_and_pretend(*arguments):
        tokenizer = train(*arguments)
        tokenizer.vocab_size = vocab_size
        return tokenizer

    monkeypatch.setattr(prepare_module.Tokenizer, "train", train_and_pretend)
    prepared = prepare(config(corpus))
    assert prepared.manifest["dtype"] == dtype
    size = prepared.manifest["val"]["tokens"] * np.dtype(dtype).itemsize
    assert (prepared.folder / "val.bin").stat().st_size == size
    assert sorted(texts(prepared, "train") + texts(prepared, "val")) == sorted(DOCUMENTS)


# The split


@pytest.mark.parametrize("val_fraction", [0.1, 0.25])
def test_a_single_text_gives_its_last_part_by_characters(tmp_path, val_fraction, monkeypatch):
    monkeypatch.setattr(prepare_module, "BLOCK", 97)  # characters are cut in two, and lines
    text = words(1, 3000)
    path = text_file(tmp_path, text)
    prepared = prepare(config(path, val_fraction=val_fraction))
    end = int(len(text) * (1 - val_fraction))
    assert texts(prepared, "train") == [text[:end]]
    assert texts(prepared, "val") == [text[end:]]
    assert prepared.manifest["text"]["documents"] == 1


def test_the_share_held_out_follows_val_fraction(tmp_path):
    path = jsonl(tmp_path / "many.jsonl", [words(seed, 5) for seed in range(1000)])
    split = [prepare(config(path, val_fraction=share)).manifest for share in (0.1, 0.5)]
    counts = [manifest["val"]["documents"] for manifest in split]
    assert 70 < counts[0] < 130 and 440 < counts[1] < 560


def test_a_document_stays_on_its_side_whatever_is_added(corpus, tmp_path):
    more = jsonl(tmp_path / "more.jsonl", [words(99), *DOCUMENTS, DOCUMENTS[0]])
    before, after = prepare(config(corpus)), prepare(config(more))
    assert set(texts(before, "val")) <= set(texts(after, "val"))
    assert set(texts(before, "train")) <= set(texts(after, "train"))
    assert not set(texts(after, "val")) & set(texts(after, "train"))  # the doubled one as well


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("val_fraction", [0.001, 0.999])
def test_few_documents_leave_no_side_empty(tmp_path, count, val_fraction):
    for seed in range(count):
        text_file(tmp_path, words(seed, 400), f"{seed}.txt")
    prepared = prepare(config(tmp_path / "*.txt", val_fraction=val_fraction))
    small = "val" if val_fraction < 0.5 else "train"
    assert prepared.manifest[small]["documents"] == 1
    assert prepared.manifest["text"]["documents"] == count


@pytest.mark.parametrize("large, warned", [(9000, True), (400, False)])
def test_a_document_that_leaves_little_to_train_on_is_said(tmp_path, capfd, large, warned):
    """Of these two, the first is held out."""
    texts = sorted((words(1, 400), words(2, 400)),
                   key=lambda text: hashlib.sha256(text.encode()).digest())
    while large > 400:
        texts[0] = words(large, large)
        if hashlib.sha256(texts[0].encode()).digest() < hashlib.sha256(texts[1].encode()).digest():
            break
        large += 1
    for number, text in enumerate(texts):
        text_file(tmp_path, text, f"{number}.txt")
    for asked in (0.2, 0.5):
        prepare(config(tmp_path / "*.txt", val_fraction=asked))
        said = f"held out, and not {asked:.1%} (data.val_fraction): 2 documents are too few"
        assert (said in capfd.readouterr().err) == warned


def test_the_tokenizer_never_sees_the_validation_text(tmp_path):
    """A character that only validation has gets no piece; one of the training text does."""
    path = text_file(tmp_path, words(1, 900) + "\u0416" * 500 + words(2, 900) + "\u0429" * 150)
    tokenizer = prepare(config(path)).tokenizer
    seen, unseen = "\u0416".encode(), "\u0429".encode()
    assert any(seen in piece for piece in tokenizer.bytes)
    assert not any(unseen in piece for piece in tokenizer.bytes)


@pytest.mark.parametrize("documents, message", [
    (["same"] * 3, "all 3 documents are equal"), (["x"], "1 characters cannot be split"),
])
def test_what_cannot_be_split_is_refused(tmp_path, documents, message):
    path = jsonl(tmp_path / "a.jsonl", documents)
    with pytest.raises(UserError, match=message):
        prepare(config(path))
    assert visible(tmp_path / "prepared") == []


@pytest.mark.parametrize("text, owner, limit, size", [
    (words(1, 3000), sources, "PIECE", 101),
    # Cut where it changes no token: after a line.
    ("".join(f"line {i * i} of the text\n" for i in range(500)), prepare_module, "BLOCK", 200),
], ids=["pieces of the source", "blocks"])
def test_ids_do_not_depend_on_how_a_long_text_is_cut(
    tmp_path, monkeypatch, text, owner, limit, size
):
    path = text_file(tmp_path, text)
    first = prepare(config(path))
    monkeypatch.setattr(owner, limit, size)
    other = prepare(config(path, prepared=str(tmp_path / "other")))
    assert first.manifest["files"] == other.manifest["files"]


# Made once


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_it_is_made_once_and_again_when_settings_or_text_change(corpus, tmp_path, monkeypatch):
    first = prepare(config(corpus))
    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "_build", None)
        again = prepare(config(corpus, seq_len=32))  # no setting of what is prepared
    assert again.folder == first.folder and again.manifest == first.manifest
    elsewhere = prepare(config(corpus, prepared=str(tmp_path / "other")))
    assert elsewhere.manifest == first.manifest  # and so the same bytes
    others = [prepare(config(corpus, vocab_size=VOCAB + 1)),
              prepare(config(corpus, val_fraction=0.2))]
    jsonl(corpus, DOCUMENTS[1:])
    others.append(prepare(config(corpus)))
    assert len({first.folder, *(other.folder for other in others)}) == 4
    assert others[-1].manifest["text"]["documents"] == 59


def edit(path):
    """The one number whose change nothing else would show: it scales every bits per byte."""
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["val"]["bytes"] += 1
    path.write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("name, damage", [
    *((name, flip_a_bit) for name in ("train.bin", "val.bin", "tokenizer.model")),
    *((name, cut) for name in ("val.bin", "manifest.json")),
    *((name, Path.unlink) for name in ("train.bin", "tokenizer.model", "manifest.json")),
    ("manifest.json", edit),
    ("manifest.json", lambda path: path.write_text("[]", encoding="utf-8")),
])
def test_damage_is_found_said_and_repaired(corpus, capsys, name, damage):
    first = prepare(config(corpus))
    assert "once for this text" in capsys.readouterr().err
    damage(first.folder / name)
    assert prepare(config(corpus)).manifest == first.manifest
    notice = capsys.readouterr().err.splitlines()
    assert len(notice) == 1 and name in notice[0] and str(first.folder) in notice[0]
    assert find_prepared(config(corpus)).manifest == first.manifest
    assert capsys.readouterr().err == ""


def test_a_very_large_file_is_checked_by_size_alone(corpus, monkeypatch, capsys):
    first = prepare(config(corpus))
    monkeypatch.setattr(dataset_module, "HASHED", 100)
    capsys.readouterr()
    flip_a_bit(first.folder / "train.bin")
    prepare(config(corpus))
    assert capsys.readouterr().err == ""
    cut(first.folder / "train.bin")
    prepare(config(corpus))
    assert "train.bin" in capsys.readouterr().err


# Never half there


def preparing(path, code=""):
    """A process that prepares the text in `path`, after `code`."""
    script = f"""
import os, signal, sys
from data import prepare as module
from data.sources import DataConfig
{code}
config = DataConfig(source='files', files=[sys.argv[1]], vocab_size={VOCAB}, prepared=sys.argv[2])
print(module.prepare(config).folder)
"""
    return start(script, path, path.parent / "prepared")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["module.Tokenizer.train", "os.replace"])  # all but the name
def test_a_killed_process_leaves_nothing_that_counts(corpus, where):
    process = preparing(corpus, f"{where} = lambda *a: os.kill(os.getpid(), signal.SIGKILL)")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    folder = corpus.parent / "prepared"
    assert visible(folder) == [] and list(folder.glob(".*.tmp"))
    prepared = prepare(config(corpus))
    assert visible(folder) == [prepared.folder.name]


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_disk_that_is_full_by_less_than_a_page_is_noticed(corpus, monkeypatch, split):
    """What is still in a buffer when its file is closed is refused then, and not before."""
    write = prepare_module._write

    def on_a_full_disk(blocks, path, **options):
        with file_size_limit(40 if path.stem == split else 1 << 30):
            return write(blocks, path, **options)

    few = jsonl(corpus, DOCUMENTS[:4])
    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "_write", on_a_full_disk)
        with pytest.raises(UserError, match="cannot prepare .*make room"):
            prepare(config(few))
    assert not [*(few.parent / "prepared").iterdir()]


def test_a_folder_from_a_disk_that_was_full_is_made_again(corpus, monkeypatch, capsys):
    """As older versions have left it: the manifest is true to files that are too short."""
    write = prepare_module._write

    def cut_short(blocks, path, **options):
        found = write(blocks, path, **options)
        cut(path)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "_write", cut_short)
        patch.setattr(prepare_module, "open_prepared", Mock(side_effect=Unusable("")))
        with pytest.raises(Unusable):
            prepare(config(corpus))
    capsys.readouterr()
    prepared = prepare(config(corpus))
    assert "train.bin was cut short by a full disk" in capsys.readouterr().err
    assert len(ids(prepared, "val")) == prepared.manifest["val"]["tokens"]


@pytest.mark.slow
def test_two_processes_at_once_make_one_folder(corpus):
    slow = "train = module.Tokenizer.train; import time\n"
    slow += "module.Tokenizer.train = lambda *a: (print('built'), time.sleep(1), train(*a))[2]"
    processes = [preparing(corpus, slow) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    (folder,) = {output.split()[-1] for output, _ in outputs}
    assert sum(output.count("built") for output, _ in outputs) == 1
    assert visible(corpus.parent / "prepared") == [Path(folder).name]
