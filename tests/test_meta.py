"""Meta's folders and params.json, read."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from failing import Touch
from foreign import assert_equal, edit, export_to, load, logits, make_run, refused, untied

from data.tokenizer import open_tokenizer
from formats import meta, names
from gyre.rundir import RunDir
from model.config import RopeScaling
from model.rope import rope_frequencies

PARAMS = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "norm_eps": 1e-5}


def meta_folder(folder: Path, run: RunDir, parts: int, columns: bool) -> Path:
    """As model parallelism over `parts` processes leaves it behind."""
    folder.mkdir()
    for n in range(parts):
        cut = {"rope.freqs": rope_frequencies(8).bfloat16()}  # as Llama 2's are
        for name, w in run.checkpoints.load_weights().items():
            across = name.endswith(("wo.weight", "w2.weight")) or (columns and "tok_emb" in name)
            cut[name] = w if w.ndim == 1 else w.chunk(parts, dim=int(across))[n].clone()
        torch.save(cut, folder / f"consolidated.{n:02}.pth")
    edit(folder / "params.json", **PARAMS, vocab_size=-1, multiple_of=16)
    shutil.copy(run.path / "tokenizer.model", folder)
    return folder


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
    assert torch.equal(logits(load(new)), logits(load(run)))
    assert open_tokenizer(new.path).prefix_ids == [1]  # Llama begins every text with BOS


@pytest.mark.parametrize("content, words", [
    ({"a": torch.ones(3)}, "is it a LLaMA?"),
    ({"a": torch.tensor(1.0)}, "is not a table of vectors and matrices"),
    ([torch.ones(3)], "is not a table of vectors and matrices"),
    (Touch(Path("ran")), "could run code (UnpicklingError)")])
def test_other_pickles_are_refused_unexecuted(content, words, tmp_path, capsys, monkeypatch):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), 1, False)
    torch.save(content, folder / "consolidated.00.pth")
    monkeypatch.chdir(tmp_path)
    refused(capsys, "run", folder, tmp_path / "new", str(folder), words)
    assert not Path("ran").exists()


def test_folders_that_do_not_fit_are_refused(tmp_path, capsys):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), 2, False)
    first, second = (folder / f"consolidated.{n:02}.pth" for n in range(2))
    says, whole = partial(refused, capsys, "run", folder, tmp_path / "new"), second.read_bytes()
    second.unlink()
    says(str(first), "they belong to different models, or a part is missing")
    first.rename(folder / "kept")
    says("consolidated.00.pth is missing")
    second.write_bytes(whole)
    says("consolidated.00.pth is missing")
    (folder / "kept").rename(first)
    os.truncate(second, 5000)
    says(str(second), "damaged")
    weights = torch.load(first)
    torch.save(weights | {"norm.weight": weights["norm.weight"] + 1}, second)
    says(str(second), str(first), "norm.weight")
    torch.save({k: v for k, v in weights.items() if k != "layers.1.ffn_norm.weight"}, second)
    says(str(second), "layers.1.ffn_norm.weight")
    torch.save(weights | {"more": torch.ones(3)}, second)
    says(f"{second} and {first} do not both hold more")
    torch.save(weights, second)
    says(str(second), str(first), "hold the same part")
    shutil.copy(first, second)
    says(f"{second} was saved as consolidated.00.pth")
    second.write_bytes(whole)
    edit(folder / "params.json", vocab_size=5)
    says("params.json: vocab_size is 5, and there are 330 embeddings")
    edit(folder / "params.json", vocab_size=330, rope_theta=5e5)
    says("params.json", str(first), "rope.freqs", "500000")


@pytest.mark.parametrize("parts", [1, 2])
def test_a_folder_without_its_tokenizer_says_where_meta_keeps_it(parts, tmp_path, capsys):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), parts, False)
    (folder / "tokenizer.model").rename(tmp_path / "tokenizer.model")
    refused(capsys, "run", folder, tmp_path / "new", f"{folder / 'tokenizer.model'} is missing; "
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
    refused(capsys, "run", folder, tmp_path / "new", f"consolidated.00.pth {words}")


def test_a_pth_of_an_older_torch_is_refused(tmp_path, capsys):
    folder = meta_folder(tmp_path / "meta", make_run(tmp_path), 1, False)
    file = folder / "consolidated.00.pth"
    torch.save(torch.load(file), file, _use_new_zipfile_serialization=False)
    refused(capsys, "run", folder, tmp_path / "new", "consolidated.00.pth is no zip archive")


# --- params.json ----------------------------------------------------------------------------------


def read_model(**changes):
    return meta.to_model(PARAMS | changes, names.tensor_shapes(untied()))


def test_parameters():
    unread = {"vocab_size": -1, "multiple_of": 256, "max_seq_len": 2048, "use_biases": False,
              "ffn_dim_multiplier": 1.3, "max_batch_size": 32, "hidden_dim": 80, "head_dim": 8}
    assert read_model(**unread, sliding_window=None, rope_theta=None) == untied(max_positions=4096)
    assert read_model(rope_theta=5e5) == untied(max_positions=8192, theta=5e5)
    scaling = RopeScaling("llama3", 8, 8192)
    scaled = unread | {"rope_theta": 5e5, "use_scaled_rope": True, "rope_scaling_factor": 8}
    assert read_model(**scaled) == untied(max_positions=131072, theta=5e5, rope_scaling=scaling)
    assert read_model(**scaled, rope_high_freq_factor=3.0).rope_scaling.high_freq_factor == 3.0


@pytest.mark.parametrize("change, words", [
    ({"use_scaled_rope": True}, "without rope_scaling_factor"), ({"n_heads": None}, "n_heads"),
    ({"use_qk_norm": True}, "use_qk_norm .*: we have no counterpart")])
def test_parameters_that_are_not_ours(change, words):
    with pytest.raises(ValueError, match=words):
        read_model(**({"rope_theta": 5e5} | change))
