"""Meta's folders and params.json, read."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from disk_faults import TouchWhenRead
from saved_models import (
    META_PARAMS,
    assert_equal,
    assert_refused,
    edit_json,
    export_to,
    load_model,
    logits,
    make_run,
    meta_folder,
    untied,
)

from data.tokenizer import open_tokenizer
from formats import meta, names
from gyre.rundir import RunDir
from model.config import RopeScaling


@pytest.mark.parametrize(("parts", "columns", "tied"), [
    (2, True, False), (2, False, True),
    *(pytest.param(n, False, False, marks=pytest.mark.slow) for n in (1, 2))])
def test_folders_are_read_however_they_were_cut(parts, columns, tied, tmp_path):
    """Tied: a model whose matrix is written twice stays tied."""
    run = make_run(tmp_path, dtype=torch.bfloat16, tie_embeddings=tied)
    folder = meta_folder(tmp_path / "meta", run, parts, columns)
    for file in folder.glob("*.pth") if tied else ():
        cut = torch.load(file)
        torch.save(cut | {"output.weight": cut["tok_embeddings.weight"]}, file)
    new = RunDir.open(export_to("run", folder, tmp_path / "new"))
    assert_equal(new.checkpoints.load_weights(), run.checkpoints.load_weights())
    assert torch.equal(logits(load_model(new)), logits(load_model(run)))
    assert open_tokenizer(new.path).prefix_ids == [1]  # Llama begins every text with BOS


@pytest.mark.parametrize("content, words", [
    ({"a": torch.ones(3)}, "is it a LLaMA?"),
    ({"a": torch.tensor(1.0)}, "is not a table of vectors and matrices"),
    ([torch.ones(3)], "is not a table of vectors and matrices"),
    (TouchWhenRead(Path("ran")), "could run code (UnpicklingError)")])
def test_other_pickles_are_refused_unexecuted(content, words, tmp_path, capsys, monkeypatch):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), 1, False)
    torch.save(content, folder / "consolidated.00.pth")
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, "run", folder, tmp_path / "new", str(folder), words)
    assert not Path("ran").exists()


@pytest.fixture
def two_parts(tmp_path):
    """(a folder of Meta's, its two files)."""
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), parts=2, columns=False)
    return folder, folder / "consolidated.00.pth", folder / "consolidated.01.pth"


def test_a_missing_last_part_is_noticed(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    second.unlink()
    assert_refused(capsys, "run", folder, tmp_path / "new", str(first),
                   "they belong to different models, or a part is missing")


def test_a_missing_first_part_is_named(two_parts, tmp_path, capsys):
    folder, first, _ = two_parts
    first.unlink()
    assert_refused(capsys, "run", folder, tmp_path / "new", "consolidated.00.pth is missing")


def test_a_folder_without_parts_asks_for_the_first(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    first.unlink()
    second.unlink()
    assert_refused(capsys, "run", folder, tmp_path / "new", "consolidated.00.pth is missing")


def test_a_part_that_was_cut_short_is_named(two_parts, tmp_path, capsys):
    folder, _, second = two_parts
    os.truncate(second, 5000)
    assert_refused(capsys, "run", folder, tmp_path / "new", str(second), "damaged")


def test_parts_that_differ_in_a_whole_weight_are_refused(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    weights = torch.load(first)
    torch.save(weights | {"norm.weight": weights["norm.weight"] + 1}, second)
    assert_refused(capsys, "run", folder, tmp_path / "new",
                   f"norm.weight in {second} and in {first} are not parts of one model")


def test_parts_of_different_dtypes_are_refused(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    weights = torch.load(second)
    torch.save(weights | {"output.weight": weights["output.weight"].half()}, second)
    assert_refused(capsys, "run", folder, tmp_path / "new",
                   f"output.weight in {second} and in {first} are not parts of one model")


def test_a_weight_that_one_part_lacks_is_named(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    weights = torch.load(second)
    del weights["layers.1.ffn_norm.weight"]
    torch.save(weights, second)
    assert_refused(capsys, "run", folder, tmp_path / "new",
                   f"{second} and {first} do not both hold layers.1.ffn_norm.weight")


def test_a_weight_that_one_part_adds_is_named(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    torch.save(torch.load(second) | {"more": torch.ones(3)}, second)
    assert_refused(capsys, "run", folder, tmp_path / "new",
                   f"{second} and {first} do not both hold more")


def test_equal_parts_are_refused(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    torch.save(torch.load(first), second)
    assert_refused(capsys, "run", folder, tmp_path / "new",
                   f"{second} and {first} hold the same part")


def test_a_copied_part_says_what_it_was_saved_as(two_parts, tmp_path, capsys):
    folder, first, second = two_parts
    shutil.copy(first, second)
    assert_refused(capsys, "run", folder, tmp_path / "new",
                   f"{second} was saved as consolidated.00.pth")


def test_a_vocabulary_other_than_the_embeddings_is_refused(two_parts, tmp_path, capsys):
    folder, *_ = two_parts
    edit_json(folder / "params.json", vocab_size=5)
    assert_refused(capsys, "run", folder, tmp_path / "new",
                   "params.json: vocab_size is 5, and there are 330 embeddings")


def test_frequencies_of_another_theta_are_refused(two_parts, tmp_path, capsys):
    folder, first, _ = two_parts
    edit_json(folder / "params.json", rope_theta=5e5)
    assert_refused(capsys, "run", folder, tmp_path / "new", "params.json", str(first),
                   "rope.freqs", "500000")


@pytest.mark.parametrize("parts", [1, 2])
def test_a_folder_without_its_tokenizer_says_where_meta_keeps_it(parts, tmp_path, capsys):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), parts, False)
    (folder / "tokenizer.model").rename(tmp_path / "tokenizer.model")
    assert_refused(
        capsys, "run", folder, tmp_path / "new", f"{folder / 'tokenizer.model'} is missing; "
        "Meta's download keeps it one folder up: copy it in")


@pytest.mark.parametrize("content, words", [
    (b"<!DOCTYPE html><html>403", "is no zip archive, as torch.save writes since PyTorch 1.6, but "
     "begins with b'<!DOCTYP': download it again, or load and save it with torch"),
    (b"\x80\x02\x8a\nl\xfc\x9cF", "is no zip archive, as torch.save writes since PyTorch 1.6, but "
     "begins with b'\\x80\\x02\\x8a\\nl\\xfc\\x9cF': download"),
    (b"", "is no zip archive, as torch.save writes since PyTorch 1.6, but begins with b'': "),
    (b"PK\x03\x04" + bytes(999), "is damaged or cut short: download it again"),
    (b"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS and not the file "
     "itself: run `git lfs pull`")], ids=["html", "legacy", "empty", "cut", "pointer"])
def test_a_pth_that_is_no_zip_says_what_it_is(content, words, tmp_path, capsys):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), 1, False)
    (folder / "consolidated.00.pth").write_bytes(content)
    assert_refused(capsys, "run", folder, tmp_path / "new", f"consolidated.00.pth {words}")


def test_a_pth_of_an_older_torch_is_refused(tmp_path, capsys):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), 1, False)
    file = folder / "consolidated.00.pth"
    torch.save(torch.load(file), file, _use_new_zipfile_serialization=False)
    assert_refused(capsys, "run", folder, tmp_path / "new", "consolidated.00.pth is no zip archive")


# --- params.json ----------------------------------------------------------------------------------


def read_model(**changes):
    return meta.to_model(META_PARAMS | changes, names.tensor_shapes(untied()))


def test_fields_that_change_no_model_are_not_read():
    assert read_model(
        vocab_size=-1, multiple_of=256, max_seq_len=2048, use_biases=False, ffn_dim_multiplier=1.3,
        max_batch_size=32, hidden_dim=80, head_dim=8, sliding_window=None,
        attention_chunk_size=-1,
    ) == untied(max_positions=4096)


@pytest.mark.parametrize("theta", [None, 10000.0])
def test_positions_of_llama_2_reach_4096(theta):
    assert read_model(rope_theta=theta) == untied(max_positions=4096, theta=10000.0)


def test_positions_of_llama_3_reach_8192():
    assert read_model(rope_theta=5e5) == untied(max_positions=8192, theta=5e5)


def test_scaled_positions_of_llama_3_reach_131072():
    scaled = {"rope_theta": 5e5, "use_scaled_rope": True, "rope_scaling_factor": 8}
    assert read_model(**scaled) == untied(
        max_positions=131072, theta=5e5, rope_scaling=RopeScaling("llama3", 8, 8192))


def test_the_high_frequency_factor_is_read():
    scaled = {"rope_theta": 5e5, "use_scaled_rope": True, "rope_scaling_factor": 8}
    assert read_model(**scaled, rope_high_freq_factor=3.0).rope_scaling.high_freq_factor == 3.0


@pytest.mark.parametrize("change, words", [
    ({"use_scaled_rope": True}, "without rope_scaling_factor"), ({"n_heads": None}, "n_heads"),
    ({"use_qk_norm": True}, "use_qk_norm .*: we have no counterpart")])
def test_parameters_that_are_not_ours(change, words):
    with pytest.raises(ValueError, match=words):
        read_model(**({"rope_theta": 5e5} | change))
