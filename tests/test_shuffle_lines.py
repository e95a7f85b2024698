"""The texts of the studies lines-apart and lines-near: the same lines in another order."""

import itertools
import json
import os
from unittest.mock import Mock

import pytest

from data.dataset import prepare
from data.sources import DataConfig
from errors import UserError
from tools import shuffle_lines
from tools.shuffle_lines import main, read_documents

N_DOCUMENTS = 40
N_LINES = 12


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Documents of 12 lines, each of which says its document and its number."""
    folder = tmp_path_factory.mktemp("lines")
    texts = ["".join(f"line {number} of {document}\n" for number in range(N_LINES))
             for document in range(N_DOCUMENTS)]
    file = folder / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    config = DataConfig(files=[str(file)], vocab_size=260, val_fraction=0.2,
                        prepared=str(folder / "prepared"))
    return prepare(config).folder


def shuffled(prepared, tmp_path, block):
    """The lines of the written text, each as (number, document)."""
    out = tmp_path / "out.txt"
    main(block, prepared, out)
    lines = out.read_text(encoding="utf-8").splitlines()
    return [(int(line.split()[1]), int(line.split()[3])) for line in lines]


@pytest.mark.parametrize("block", ["all", "4"])
def test_the_lines_stay_the_same(prepared, tmp_path, block):
    lines = shuffled(prepared, tmp_path, block)
    assert sorted(lines) == [*itertools.product(range(N_LINES), range(N_DOCUMENTS))]


@pytest.mark.parametrize("block", ["all", "4"])
def test_the_end_is_what_was_held_out(prepared, tmp_path, capsys, block):
    lines = shuffled(prepared, tmp_path, block)
    held_out = {text.split()[3] for text in read_documents(prepared, "val")}
    end = lines[-N_LINES * len(held_out) :]
    assert {str(document) for _, document in end} == held_out
    text = (tmp_path / "out.txt").read_text(encoding="utf-8")
    share = float(capsys.readouterr().out.split()[-1])
    n_characters = sum(len(f"line {number} of {document}\n") for number, document in end)
    assert share == n_characters / len(text)


def test_a_number_mixes_so_many_neighbouring_lines(prepared, tmp_path):
    lines = shuffled(prepared, tmp_path, "4")
    for start in range(0, len(lines), 4):
        numbers, documents = zip(*lines[start : start + 4], strict=True)
        first = start % N_LINES
        assert sorted(numbers) == [first, first + 1, first + 2, first + 3]
        assert len(set(documents)) == 1
    assert lines != sorted(lines, key=lambda line: (line[1], line[0]))


def test_all_lines_of_a_split_are_mixed(prepared, tmp_path):
    lines = shuffled(prepared, tmp_path, "all")
    assert len({document for _, document in lines[:20]}) > 8


def test_the_order_is_the_same_each_time(prepared, tmp_path):
    assert shuffled(prepared, tmp_path, "all") == shuffled(prepared, tmp_path, "all")


@pytest.mark.parametrize("block", ["0", "-4", "some"])
def test_other_numbers_of_lines_are_refused(prepared, tmp_path, block):
    with pytest.raises(UserError, match=f"must be a number or all, not {block}"):
        main(block, prepared, tmp_path / "out.txt")


@pytest.mark.parametrize("block, folder", [("0", ""), ("all", "nowhere")])
def test_what_is_refused_leaves_the_file_as_it_was(prepared, tmp_path, block, folder):
    out = tmp_path / "out.txt"
    out.write_text("kept", encoding="utf-8")
    with pytest.raises((UserError, FileNotFoundError)):
        main(block, prepared / folder, out)
    assert out.read_text(encoding="utf-8") == "kept"


def test_a_text_that_is_not_finished_is_not_written(prepared, tmp_path, monkeypatch):
    read = Mock(side_effect=[read_documents(prepared, "train"), KeyboardInterrupt])
    monkeypatch.setattr(shuffle_lines, "read_documents", read)
    with pytest.raises(KeyboardInterrupt):
        main("all", prepared, tmp_path / "out.txt")
    assert not any(tmp_path.iterdir())


def test_a_pipe_is_refused_before_any_work(prepared, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="OUT .*pipe is a device or a pipe"):
        main("all", prepared / "nowhere", tmp_path / "pipe")
