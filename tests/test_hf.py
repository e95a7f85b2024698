"""Hugging Face's folders in both directions, and config.json. The judge is transformers."""

import copy
import logging
import math
import os
import shutil

import msgspec
import pytest
import torch
import transformers
from safetensors.torch import load_file
from saved_models import (
    THEIR_SIZES,
    VOCAB,
    assert_equal,
    assert_refused,
    assert_same_logits,
    edit_json,
    edit_tensors,
    export_to,
    exported,
    greedy,
    load_model,
    logits,
    make_run,
    reexport,
    their_folder,
    untied,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.utils.logging import warning_once

from data.tokenizer import open_tokenizer
from files import read_json
from formats import hf
from gyre.load import load as load_trained
from gyre.memory import check_table
from gyre.rundir import RunDir
from gyre.yaml_files import read_config
from model.config import RopeScaling
from model.generation import generate
from model.rope import precompute_freqs_cis
from model.sampling import Sampling

# --- folders, out ---------------------------------------------------------------------------------

# Heads over key/value heads is 3 in builders' SIZES, unlike their number, so that no mix-up of
# the two can pass.
SHAPES = [
    {"n_heads": 4, "n_kv_heads": 1, "norm_eps": 3e-2, "theta": 500.0},
    {"rope_scaling": RopeScaling("yarn", 4.0, 16, beta_fast=4.0), "tie_embeddings": True},
    *(pytest.param(shape, marks=pytest.mark.slow) for shape in (
        {"rope_scaling": RopeScaling("llama3", 4.0, 16), "head_dim": 16, "n_kv_heads": 1},
        {"rope_scaling": RopeScaling("dynamic", 4.0, 16)}, {"partial": 0.75, "head_dim": 16},
        {"partial": 0.0, "rope_scaling": RopeScaling("ntk", 4.0, 16)}))]


def greedy_ids(model, ids):
    """What our `generate` continues these ids with."""
    return generate(model, [ids], Sampling(temperature=0), max_new_tokens=20, eos_ids=[2])[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transformers_computes_the_logits_of_our_model(shape, tmp_path):
    run, out = exported(tmp_path, **shape)
    theirs = AutoModelForCausalLM.from_pretrained(out)
    assert type(theirs) is transformers.LlamaForCausalLM
    assert theirs.dtype == torch.float32
    assert_same_logits(theirs, load_model(run))


# With its cache, transformers' dynamic scaling leaves keys as they were turned when they came;
# ours does not.
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if "dynamic" not in str(shape)],
                         ids=str)
def test_transformers_generates_in_a_batch_what_we_do(shape, tmp_path):
    run, out = exported(tmp_path, **shape)
    ours = load_model(run)
    tokenizer = open_tokenizer(run.path)
    prompts = ["def f(x):", "a"]
    batch = AutoTokenizer.from_pretrained(out)(prompts, padding=True, return_tensors="pt")
    theirs = AutoModelForCausalLM.from_pretrained(out)
    rows = theirs.generate(**batch, max_new_tokens=20, do_sample=False)
    for prompt, row in zip(prompts, rows.tolist(), strict=True):
        ids = tokenizer.encode(prompt)
        without_padding = [i for i in row if i not in (0, 2)]  # UNK, which pads, and EOS
        assert without_padding == ids + [i for i in greedy_ids(ours, ids) if i != 0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_export_is_imported_as_the_same_model(shape, tmp_path):
    run, out = exported(tmp_path, **shape)
    back = RunDir.open(export_to("run", out, tmp_path / "back"))
    assert_equal(back.checkpoints.load_weights(), run.checkpoints.load_weights())
    ours = logits(load_model(run))
    torch.testing.assert_close(logits(load_model(back)), ours, rtol=0, atol=1e-6)


def test_config_json_says_each_thing_for_both_versions(tmp_path):
    _, out = exported(tmp_path)
    config = read_json(out / "config.json")
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10000.0
    assert config["torch_dtype"] == config["dtype"] == "float32"


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_texts_begin_and_end_with_eos(file, tmp_path):
    """As documents do in training."""
    _, out = exported(tmp_path)
    stated = read_json(out / file)
    assert stated["bos_token_id"] == 2
    assert stated["eos_token_id"] == 2
    assert stated["pad_token_id"] == 0


def test_the_tokenizer_says_how_texts_begin_and_end(tmp_path):
    _, out = exported(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.bos_token_id == 2
    assert tokenizer.eos_token_id == 2
    assert tokenizer.pad_token_id == 0


def test_the_length_is_in_the_settings_of_the_tokenizer(tmp_path):
    _, out = exported(tmp_path)
    assert AutoTokenizer.from_pretrained(out).model_max_length == 64
    assert read_json(out / "config.json")["max_position_embeddings"] == 64


def test_transformers_begins_with_eos_without_a_prompt(tmp_path):
    run, out = exported(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(out)
    rows = theirs.generate(max_new_tokens=20, do_sample=False)
    assert rows[0].tolist() == [2, *greedy_ids(load_model(run), [2])]


def test_what_an_export_prints_counts_the_parameters(tmp_path, capsys):
    out = export_to("hf", make_run(tmp_path).path, tmp_path / "hf")
    theirs = AutoModelForCausalLM.from_pretrained(out)
    assert f": {theirs.num_parameters():,} parameters from" in capsys.readouterr().err


# A tokenizer of transformers 4 would give token_type_ids, which `generate` refuses.
INPUTS = ["input_ids", "attention_mask"]


def test_the_tokenizer_gives_what_the_model_takes(tmp_path):
    _, out = exported(tmp_path)
    assert read_json(out / "tokenizer_config.json")["model_input_names"] == INPUTS


def test_an_imported_tokenizer_gives_what_the_model_takes(tmp_path):
    folder = their_folder(tmp_path)
    edit_json(folder / "tokenizer_config.json", model_input_names=[*INPUTS, "token_type_ids"])
    _, out = reexport(folder, tmp_path)
    assert read_json(out / "tokenizer_config.json")["model_input_names"] == INPUTS


def test_settings_of_generation_go_through_a_run(tmp_path):
    _, out = exported(tmp_path)
    edit_json(out / "generation_config.json", temperature=0.5)
    stated = read_json(out / "generation_config.json")
    run = export_to("run", out, tmp_path / "imported")
    again = export_to("hf", run, tmp_path / "again")
    assert read_json(again / "generation_config.json") == stated


def test_config_json_goes_through_a_run(tmp_path):
    _, out = exported(tmp_path)
    run = export_to("run", out, tmp_path / "imported")
    again = export_to("hf", run, tmp_path / "again")
    assert read_json(again / "config.json") == read_json(out / "config.json")


@pytest.fixture
def float16_shards(tmp_path, monkeypatch):
    """(a run, a folder exported from it in float16, in shards of at most 50 kB)."""
    monkeypatch.setattr(hf, "SHARD", 50_000)
    return exported(tmp_path, "--dtype", "f16")


def test_no_shard_is_larger_than_its_limit(float16_shards):
    _, out = float16_shards
    sizes = [file.stat().st_size for file in out.glob("model-*.safetensors")]
    assert len(sizes) >= 4
    assert max(sizes) < 50_000 + 4096  # the header
    assert not (out / "model.safetensors").exists()


def test_the_index_names_the_shard_of_each_tensor(float16_shards):
    _, out = float16_shards
    index = read_json(out / "model.safetensors.index.json")
    shard_of = {}
    for shard in out.glob("*.safetensors"):
        shard_of |= dict.fromkeys(load_file(shard), shard.name)
    assert index["weight_map"] == shard_of
    assert index["metadata"]["total_size"] == 137_568


def test_shards_hold_weights_of_the_asked_dtype(float16_shards, tmp_path):
    run, out = float16_shards
    assert AutoModelForCausalLM.from_pretrained(out).dtype == torch.float16
    back = RunDir.open(export_to("run", out, tmp_path / "back"))
    rounded = {name: weight.half() for name, weight in run.checkpoints.load_weights().items()}
    assert_equal(back.checkpoints.load_weights(), rounded)


# --- folders, in ----------------------------------------------------------------------------------

BEFORE = {"factor": 4.0, "original_max_position_embeddings": 16}


THEIR_CHANGES = [
    {"dtype": torch.bfloat16, "shards": "50KB"},
    {"rope_parameters": {"rope_type": "llama3", **BEFORE, "rope_theta": 5e3,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    {"tie_word_embeddings": True, "num_key_value_heads": 1, "num_hidden_layers": 1},
    *(pytest.param(changes, marks=pytest.mark.slow) for changes in (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        {"kind": transformers.MistralConfig, "sliding_window": None, "head_dim": 12,
         "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"dtype": torch.float16, "vocab_size": VOCAB + 6}))]


@pytest.mark.parametrize("changes", THEIR_CHANGES, ids=str)
def test_we_compute_the_logits_of_their_model(changes, tmp_path):
    folder = their_folder(tmp_path, **changes)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    run = RunDir.open(export_to("run", folder, tmp_path / "ours"))
    length = 128 if "dynamic" in str(changes) else 64  # dynamic: twice the length before
    assert_same_logits(load_model(run), theirs, length)


@pytest.mark.parametrize("changes", THEIR_CHANGES, ids=str)
def test_their_weights_come_back_bit_by_bit(changes, tmp_path):
    folder = their_folder(tmp_path, **changes)
    weights = {}
    for file in folder.glob("*.safetensors"):
        weights |= load_file(file)
    _, again = reexport(folder, tmp_path)
    assert_equal(load_file(again / "model.safetensors"), weights)
    dtype = read_json(again / "config.json")["dtype"]
    assert getattr(torch, dtype) == weights["model.norm.weight"].dtype


def test_their_shards_are_several_files(tmp_path):
    folder = their_folder(tmp_path, shards="50KB")
    assert len([*folder.glob("*.safetensors")]) > 1


def test_a_stored_table_of_rotations_is_no_weight(tmp_path):
    """Old folders hold one."""
    folder = their_folder(tmp_path)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(folder / "model.safetensors", **{name: torch.ones(4)})
    export_to("run", folder, tmp_path / "ours")


def test_a_second_copy_of_a_tied_matrix_is_no_weight(tmp_path):
    folder = their_folder(tmp_path, tie_word_embeddings=True)
    file = folder / "model.safetensors"
    edit_tensors(file, **{"lm_head.weight": load_file(file)["model.embed_tokens.weight"]})
    run = RunDir.open(export_to("run", folder, tmp_path / "ours"))
    assert "output.weight" not in run.checkpoints.load_weights()


def test_a_params_json_beside_config_json_is_not_read(tmp_path):
    """Mistral's folders hold both."""
    folder = their_folder(tmp_path)
    (folder / "params.json").write_text("{}", encoding="utf-8")
    export_to("run", folder, tmp_path / "ours")


@pytest.mark.parametrize("rope, seq_len", [
    ({"rope_type": "default", "rope_theta": 1e4}, 64),
    ({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}, 64),
    ({"rope_type": "yarn", **BEFORE, "rope_theta": 1e4}, 16),
    ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8192,
      "rope_theta": 1e4}, 64)])
def test_training_rows_are_as_long_as_before_scaling(rope, seq_len, tmp_path):
    folder = their_folder(tmp_path, rope_parameters=rope)
    run = export_to("run", folder, tmp_path / "ours")
    assert read_config(run / "config.yaml").data.seq_len == seq_len


def test_an_imported_run_says_where_it_came_from(tmp_path):
    folder = their_folder(tmp_path)
    run = RunDir.open(export_to("run", folder, tmp_path / "ours"))
    assert run.manifest == {"imported": {"from": str(folder)}}


def test_a_chat_template_goes_through_a_run(tmp_path):
    folder = their_folder(tmp_path, "llama3")
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    _, out = reexport(folder, tmp_path)
    assert AutoTokenizer.from_pretrained(out).chat_template == "{{ messages }}"


def test_each_id_that_ends_texts_goes_through_a_run(tmp_path):
    """Here config.json names them. That a generation_config.json goes with a run is seen in
    test_gguf.py."""
    folder = their_folder(tmp_path, "llama3")
    free = greedy(folder)
    n = next(n for n in range(3, 20) if free[n] not in free[:n])
    ends = [7, free[n], open_tokenizer(folder).eos_id]
    edit_json(folder / "config.json", eos_token_id=ends)
    (folder / "generation_config.json").unlink()
    run, out = reexport(folder, tmp_path)
    assert read_json(out / "config.json")["eos_token_id"] == ends
    text = load_trained(run, device="cpu").generate("def f(x", max_new_tokens=20, temperature=0)
    assert text == open_tokenizer(run).decode(free[:n])
    assert greedy(folder) == greedy(out) == free[: n + 1]


Q_BIAS = "model.layers.1.self_attn.q_proj.bias"
DOWN = "model.layers.1.mlp.down_proj.weight"


def tensor(name: str, value: torch.Tensor | None):
    return lambda folder: edit_tensors(folder / "model.safetensors", **{name: value})


def field(file="config", **fields):
    return lambda folder: edit_json(folder / f"{file}.json", **fields)


@pytest.mark.parametrize("damage, words", [
    (lambda f: os.unlink(f / "model.safetensors"), ["model.safetensors is missing", "run code"]),
    (lambda f: os.truncate(f / "model.safetensors", 9999), ["model.safetensors", "cut short"]),
    (tensor(Q_BIAS, torch.ones(48)), ["model.safetensors", Q_BIAS]),
    (tensor(DOWN, None), ["model.safetensors", DOWN, "in none of"]),
    (tensor(DOWN, torch.ones(48, 79)), ["model.safetensors", DOWN, "(48, 79)", "(48, 80)"]),
    (tensor(DOWN, torch.ones(48, 80).to(torch.int8)), [DOWN, "is of none of the types F32"]),
    (tensor(DOWN, torch.full((48, 80), math.nan)), ["model.safetensors", "w2.weight", "nan"]),
    (field(tie_word_embeddings=True), ["lm_head.weight", "tie_word"]),
    (field(num_hidden_layers=10**9), ["config.json", "describes a larger model"]),
    (field(hidden_size="48"), ["config.json: Expected `int`, got `str`"]),
    (field("generation_config", eos_token_id=[2, None]), ["generation_config.json: eos_token_id"]),
    (field(eos_token_id=330), ["eos_token_id 330"]),
], ids=lambda x: x[-1] if isinstance(x, list) else "")
def test_damaged_folders_are_refused_and_leave_nothing(damage, words, tmp_path, capsys):
    folder = their_folder(tmp_path)
    damage(folder)
    assert_refused(capsys, "run", folder, tmp_path / "ours", str(folder), *words)


def test_positions_that_no_memory_holds_are_refused(tmp_path, capsys, monkeypatch):
    folder = their_folder(tmp_path)
    monkeypatch.setattr("os.sysconf", lambda name: 10)  # 10 pages of 10 bytes
    assert_refused(
        capsys, "run", folder, tmp_path / "ours", str(folder / "config.json"), "positions in")


def test_dynamic_scaling_needs_memory_for_the_trained_positions_only(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 100)  # 100 pages of 100 bytes
    scaling = RopeScaling("dynamic", 100.0, 16)
    check_table(untied(rope_scaling=scaling, max_positions=1600), "in a file", "mend it")


INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(tmp_path):
    """(a folder of theirs in shards, the name of the first tensor, the files of two shards). The
    first shard holds the tensor."""
    folder = their_folder(tmp_path, shards="100KB")
    first, second = sorted(folder.glob("model-*.safetensors"))[:2]
    return folder, next(iter(load_file(first))), first, second


def test_a_tensor_is_read_from_the_file_the_index_names(sharded, tmp_path):
    folder, name, first, second = sharded
    before = load_model(RunDir.open(export_to("run", folder, tmp_path / "before"))).state_dict()
    edit_tensors(second, **{name: torch.zeros_like(load_file(first)[name])})
    after = load_model(RunDir.open(export_to("run", folder, tmp_path / "after"))).state_dict()
    assert_equal(after, before)


def test_a_tensor_that_the_index_moves_is_read_there(sharded, tmp_path):
    folder, name, first, second = sharded
    before = load_model(RunDir.open(export_to("run", folder, tmp_path / "before"))).state_dict()
    edit_tensors(second, **{name: load_file(first)[name]})
    edit_tensors(first, **{name: torch.zeros_like(load_file(first)[name])})
    weight_map = read_json(folder / INDEX)["weight_map"]
    edit_json(folder / INDEX, weight_map=weight_map | {name: second.name})
    after = load_model(RunDir.open(export_to("run", folder, tmp_path / "after"))).state_dict()
    assert_equal(after, before)


def test_a_file_the_index_does_not_name_is_not_read(sharded, tmp_path):
    folder, *_ = sharded
    (folder / "model-99999-of-99999.safetensors").write_bytes(b"not even safetensors")
    export_to("run", folder, tmp_path / "ours")


def test_a_tensor_missing_from_its_named_file_is_refused(sharded, tmp_path, capsys):
    folder, name, first, second = sharded
    weight_map = read_json(folder / INDEX)["weight_map"]
    edit_json(folder / INDEX, weight_map=weight_map | {name: second.name})
    assert_refused(
        capsys, "run", folder, tmp_path / "ours",
        f"{name} is not in {second}, where {folder / INDEX} says it is: download both again")


def test_a_forgotten_tensor_in_two_files_is_refused(sharded, tmp_path, capsys):
    folder, name, first, second = sharded
    weight_map = read_json(folder / INDEX)["weight_map"]
    del weight_map[name]
    edit_json(folder / INDEX, weight_map=weight_map)
    edit_tensors(second, **{name: load_file(first)[name]})
    assert_refused(
        capsys, "run", folder, tmp_path / "ours", f"{name} is both in {first} and in {second}")


def test_a_weight_that_nobody_names_is_refused(sharded, tmp_path, capsys):
    folder, _, first, _ = sharded
    edit_tensors(first, **{Q_BIAS: torch.ones(48)})
    assert_refused(capsys, "run", folder, tmp_path / "ours", f"{first} holds {Q_BIAS}")


def test_no_file_outside_of_the_folder_is_read(sharded, tmp_path, capsys):
    folder, name, first, _ = sharded
    shutil.copy(first, tmp_path / "outside.safetensors")
    weight_map = read_json(folder / INDEX)["weight_map"]
    edit_json(folder / INDEX, weight_map=weight_map | {name: "../outside.safetensors"})
    assert_refused(
        capsys, "run", folder, tmp_path / "ours",
        f"{folder / 'outside.safetensors'} is missing, and {INDEX} names it: download it too")


def test_a_shard_that_is_missing_is_named(sharded, tmp_path, capsys):
    folder, _, _, second = sharded
    second.unlink()
    assert_refused(
        capsys, "run", folder, tmp_path / "ours",
        f"{second} is missing, and {INDEX} names it: download it too")


def test_an_index_without_a_weight_map_is_refused(sharded, tmp_path, capsys):
    folder, *_ = sharded
    edit_json(folder / INDEX, weight_map={})
    assert_refused(
        capsys, "run", folder, tmp_path / "ours", f"{INDEX} is damaged: it has no weight_map")


def test_shards_without_their_index_are_refused(sharded, tmp_path, capsys):
    folder, _, first, _ = sharded
    (folder / INDEX).unlink()
    assert_refused(
        capsys, "run", folder, tmp_path / "ours", f"{folder} has shards, such as {first.name}, "
        f"but no {INDEX}, which says which of them holds what: download it too")


def test_a_single_file_is_read_before_an_index(sharded, tmp_path, capsys):
    folder, *_ = sharded
    (folder / "model.safetensors").touch()
    assert_refused(
        capsys, "run", folder, tmp_path / "ours",
        f"{folder / 'model.safetensors'} is damaged or cut short")


def test_a_pointer_of_git_lfs_is_no_model(tmp_path, capsys):
    folder = their_folder(tmp_path)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 340032\n"
    (folder / "model.safetensors").write_text(pointer, encoding="utf-8")
    assert_refused(
        capsys, "run", folder, tmp_path / "ours",
        "model.safetensors is a pointer of Git LFS and not the file itself: run `git lfs pull`")


# --- config.json ----------------------------------------------------------------------------------

# As transformers 4 wrote them for real models, shortened to little more than what is read.
BASE = THEIR_SIZES | {"model_type": "llama", "hidden_act": "silu", "vocab_size": 97}
THETA, L = {"rope_theta": 5e5}, {"original_max_position_embeddings": 16}
LINEAR, YARN, RAMP = ({"rope_type": kind, "factor": 4.0} for kind in ("linear", "yarn", "llama3"))
RAMP |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 = RAMP | L


@pytest.mark.parametrize("rope", [
    {"rope_parameters": LINEAR, **THETA}, {"rope_scaling": LLAMA3, **L, **THETA},
    {"rope_scaling": YARN, "original_max_position_embeddings": 4096, **THETA},
    {"rope_scaling": YARN | {"original_max_position_embeddings": 131072, "beta_slow": 1e-4},
     "rope_theta": 1e4},
    {"rope_scaling": YARN | {"original_max_position_embeddings": 4}, **THETA},
    {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.3}, **THETA},
    {"rope_scaling": {}, "rope_parameters": LINEAR | THETA}], ids=str)
def test_rotations_are_read_where_transformers_reads_them(rope):
    """At a length and a width where each of the other readings turns otherwise. YaRN's ramp
    with the small beta_slow would end beyond pair head_dim - 1, where it is cut, and
    over 4 positions it would end before its beginning."""
    config = BASE | {"head_dim": 64, "max_position_embeddings": 4096} | rope
    model = hf.from_config(config)
    theirs = LlamaRotaryEmbedding(LlamaConfig.from_dict(copy.deepcopy(config)))
    assert model.rope_scaling is None or theirs.rope_type == model.rope_scaling.type
    assert model.max_positions == 4096 * (4 if theirs.rope_type == "linear" else 1)
    table = precompute_freqs_cis(64, 3, model.theta, model.partial, model.rope_scaling)
    torch.testing.assert_close(table[1].angle(), theirs.inv_freq, rtol=1e-5, atol=0)
    torch.testing.assert_close(table[1].abs(), torch.tensor(theirs.attention_scaling).expand(32))


@pytest.mark.parametrize("scaling, changes", [
    (None, {"partial": 0.25}),
    (RopeScaling("linear", 4.0, 16), {}), (RopeScaling("dynamic", 4.0, 16), {}),
    (RopeScaling("yarn", 4.0, 16, beta_fast=6.0, beta_slow=2.0, attention_factor=1.3), {}),
    (RopeScaling("llama3", 4.0, 16, low_freq_factor=1.5, high_freq_factor=3.0),
     {"max_positions": 50})], ids=str)
def test_a_configuration_comes_back_from_either_spelling(scaling, changes):
    ours = untied(rope_scaling=scaling, theta=5e5, norm_eps=3e-6, head_dim=12, **changes)
    both = hf.to_config(ours)
    v4 = {k: v for k, v in both.items() if k != "rope_parameters"}
    v5 = {k: v for k, v in both.items() if k not in ("rope_theta", "rope_scaling")}
    assert hf.from_config(both) == hf.from_config(v4) == hf.from_config(v5) == ours
    if scaling is not None:  # before transformers 4.43 it was called type
        old = {"type" if k == "rope_type" else k: v for k, v in v4["rope_scaling"].items()}
        assert hf.from_config(v4 | {"rope_scaling": old}) == ours


@pytest.mark.parametrize("scaling, stated", [
    (RopeScaling("linear", 4.0, 16), 64), (RopeScaling("dynamic", 4.0, 16), 16),
    (RopeScaling("yarn", 4.0, 16), 64), (RopeScaling("llama3", 4.0, 16), 64)], ids=str)
def test_the_length_is_that_after_scaling_except_for_dynamic(scaling, stated):
    config = hf.to_config(untied(rope_scaling=scaling, max_positions=64))
    assert config["max_position_embeddings"] == stated


def test_linear_scaling_keeps_a_length_of_its_own():
    ours = untied(rope_scaling=RopeScaling("linear", 4.0, 16), max_positions=50)
    config = hf.to_config(ours)
    assert config["max_position_embeddings"] == 50
    assert config["original_max_position_embeddings"] == 16
    assert hf.from_config(config) == ours


@pytest.mark.parametrize("table", [LINEAR, YARN])
def test_a_scaling_multiplies_a_length_that_stands_alone(table):
    """As in exports of older versions and in models of others."""
    model = hf.from_config(BASE | {"rope_scaling": table, "max_position_embeddings": 16})
    assert model.max_positions == 64
    assert model.rope_scaling == RopeScaling(table["rope_type"], 4.0, 16)


def test_a_scaling_that_was_read_with_defaults_is_written():
    """msgspec sets no attribute of a field that has its default."""
    fields = {"type": "yarn", "factor": 4.0, "original_positions": 16}
    scaling = msgspec.convert(fields, RopeScaling)
    table = hf.to_config(untied(rope_scaling=scaling))["rope_scaling"]
    assert table == {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                     "beta_fast": 32.0, "beta_slow": 1.0}


@pytest.fixture
def transformers_log(monkeypatch):
    """What transformers logs from here on, as a list of messages."""
    records = []
    logger = logging.getLogger("transformers")
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger.addHandler(handler)
    warning_once.cache_clear()
    yield records
    logger.removeHandler(handler)


@pytest.mark.parametrize("kind", [
    "linear", pytest.param("yarn", marks=pytest.mark.slow),
    pytest.param("llama3", marks=pytest.mark.slow)])
def test_transformers_does_not_warn_of_an_export(kind, tmp_path, transformers_log):
    """Also not when it generates up to the length that the scaling is meant for."""
    _, out = exported(tmp_path, rope_scaling=RopeScaling(kind, 4.0, 16))
    theirs = AutoModelForCausalLM.from_pretrained(out)
    theirs.generate(torch.full((1, 60), 5), min_length=64, max_length=64, do_sample=False)
    assert transformers_log == []


def test_transformers_warns_past_the_first_length_of_dynamic(tmp_path, transformers_log):
    """It has one field for that length and for the one up to which it does not warn."""
    _, out = exported(tmp_path, rope_scaling=RopeScaling("dynamic", 4.0, 16))
    theirs = AutoModelForCausalLM.from_pretrained(out)
    theirs.generate(torch.full((1, 60), 5), min_length=64, max_length=64, do_sample=False)
    assert ["maximum length (16)" in message for message in transformers_log] == [True]


@pytest.mark.parametrize("length, said", [(64, False), (50, True)])
def test_an_export_says_which_length_its_import_will_have(length, said, tmp_path, capsys):
    """YaRN's is exactly `factor` times as long: transformers 4.53 takes the ratio for it."""
    scaling = RopeScaling("yarn", 4.0, 16)
    run = make_run(tmp_path, max_positions=length, rope_scaling=scaling)
    export_to("hf", run.path, tmp_path / "hf")
    assert ("will have model.max_positions 64" in capsys.readouterr().err) is said


def test_absent_fields_have_defaults():
    absent = ("num_key_value_heads", "hidden_act", "tie_word_embeddings")
    old = {k: v for k, v in BASE.items() if k not in absent}
    assert hf.from_config(old) == untied(n_kv_heads=6)


def test_fields_that_nobody_reads_do_not_matter():
    more = {"use_cache": True, "pretraining_tp": 1, "attention_bias": False,
            "mlp_bias": None, "sliding_window": None, "transformers.js_config": {}}
    assert hf.from_config(BASE | more) == untied()


def test_mistral_without_a_window_is_llama():
    mistral = {"model_type": "mistral", "sliding_window": None}
    assert hf.from_config(BASE | mistral) == untied()


@pytest.mark.parametrize("change, words", [
    *(({name: 2}, f"{name} 2: we have no counterpart") for name in (
        "attention_bias", "mlp_bias", "hidden_act", "sliding_window", "quantization_config",
        "partial_rotary_factor", "embedding_multiplier", "attn_logit_softcapping", "auto_map")),
    ({"is_causal": False}, "is_causal False: we have no counterpart"),
    ({"attention_chunk_size": 4}, "attention_chunk_size 4: we have no counterpart"),
    *(({name: None}, f"what {name} is") for name in ("rms_norm_eps", "max_position_embeddings")),
    ({"model_type": "qwen3"}, "model_type 'qwen3'"),
    ({"tie_word_embeddings": "no"}, "`str` - at `[$].tie_word_embeddings`"),
    ({"model_type": "mistral"}, "mistral without sliding_window"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types .'sliding_attention'"),
    ({"num_key_value_heads": 4}, "num_attention_heads 6 .* num_key_value_heads 4"),
    ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "rope_type 'longrope'"),
    ({"rope_scaling": {"type": "yarn", **BEFORE, "truncate": None}}, "truncate of rope_type yarn"),
    ({"rope_scaling": LINEAR | {"dim": 8}}, "dim of rope_type linear"),
    ({"rope_scaling": LINEAR, "max_position_embeddings": 10**400}, "not 10000+[.][.][.]0+$"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary"),
    ({"rope_scaling": 5}, "rope_scaling is 5, where a table belongs"),
    ({"rope_parameters": [["rope_type", "default"]]}, "rope_parameters is .*, where a table"),
    ({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
     "'config.json': 500000.0, 'rope_parameters': 10000.0.: versions of transformers"),
    ({"rope_scaling": LINEAR | THETA}, "rope_theta is .*500000.*transformers' default.: 10000.0"),
    ({"rope_scaling": YARN, **L}, "original_max_position_embeddings is 16, beside a RoPE of 64"),
    ({"rope_scaling": YARN | {"original_max_position_embeddings": 0}},
     "^original_max_position_embeddings must be in"),
    ({"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"factor": 8.0}}, "different things"),
], ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_what_we_cannot_represent_is_refused_by_name(change, words):
    with pytest.raises(ValueError, match=words):
        hf.from_config(BASE | change)
