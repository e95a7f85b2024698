"""Hugging Face's folders in both directions, and config.json. The judge is transformers."""

import copy
import math
import os
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file
from saved_models import (
    POSITIONS,
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
    reexport,
    their_folder,
    untied,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from data.tokenizer import open_tokenizer
from files import read_json
from formats import hf
from gyre.load import load as load_trained
from gyre.options import read_config
from gyre.rundir import RunDir
from model.config import RopeScaling
from model.generation import generate
from model.rope import precompute_freqs_cis
from model.sampling import Sampling

# --- folders, out ---------------------------------------------------------------------------------

# Heads over key/value heads is 3 in conftest's SIZES, unlike their number, so that no mix-up of
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
def test_transformers_computes_what_we_do_and_gives_it_back(shape, tmp_path):
    run, out = exported(tmp_path, **shape)
    ours, theirs = load_model(run), AutoModelForCausalLM.from_pretrained(out)
    assert theirs.dtype == torch.float32 and type(theirs) is transformers.LlamaForCausalLM
    assert_same_logits(theirs, ours)
    if "dynamic" not in str(shape):
        # With its cache, dynamic scaling leaves keys as they were turned when they came; ours not.
        prompts = {text: open_tokenizer(run.path).encode(text) for text in ("def f(x):", "a")}
        batch = AutoTokenizer.from_pretrained(out)([*prompts], padding=True, return_tensors="pt")
        rows = theirs.generate(**batch, max_new_tokens=20, do_sample=False)
        for ids, row in zip(prompts.values(), rows.tolist(), strict=True):
            again = [i for i in row if i not in (0, 2)]  # padding, EOS
            assert again == ids + [i for i in greedy_ids(ours, ids) if i != 0]
    back = RunDir.open(export_to("run", out, tmp_path / "back"))
    assert_equal(back.checkpoints.load_weights(), run.checkpoints.load_weights())
    torch.testing.assert_close(logits(load_model(back)), logits(ours), rtol=0, atol=1e-6)


def test_the_folder_says_what_it_is(tmp_path, capsys):
    """Texts begin with EOS, as documents did in training, without a prompt too. What is printed
    counts the parameters."""
    run, out = exported(tmp_path)
    config = read_json(out / "config.json")
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10000.0
    assert config["torch_dtype"] == config["dtype"] == "float32"
    ids = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 0}
    assert read_json(out / "generation_config.json") == ids == {k: config[k] for k in ids}
    theirs, auto = (kind.from_pretrained(out) for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert auto.bos_token_id == auto.eos_token_id == 2 and auto.pad_token_id == 0
    assert auto.model_max_length == config["max_position_embeddings"] == 64
    text = theirs.generate(max_new_tokens=20, do_sample=False)
    assert text[0].tolist() == [2, *greedy_ids(load_model(run), [2])]
    # Without it, a tokenizer of transformers 4 gives token_type_ids, which its model refuses.
    names = ["input_ids", "attention_mask"]
    assert read_json(out / "tokenizer_config.json")["model_input_names"] == names
    edit_json(out / "tokenizer_config.json", model_input_names=[*names, "token_type_ids"])
    edit_json(out / "generation_config.json", temperature=0.5)
    again = export_to("hf", export_to("run", out, tmp_path / "imported"), tmp_path / "again")
    assert read_json(again / "tokenizer_config.json")["model_input_names"] == names
    assert read_json(again / "generation_config.json") == ids | {"temperature": 0.5}
    assert read_json(again / "config.json") == config
    assert capsys.readouterr().err.count(f" {theirs.num_parameters():,} parameters from") == 3


def test_shards_of_the_type_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(hf, "SHARD", 50_000)
    run, out = exported(tmp_path, "--dtype", "f16")
    files = sorted(out.glob("*.safetensors"))
    assert len(files) >= 4 and not (out / "model.safetensors").exists()
    assert all(f.stat().st_size < 50_000 + 4096 for f in files)
    index = read_json(out / "model.safetensors.index.json")
    weights = {name: w.half() for name, w in run.checkpoints.load_weights().items()}
    assert index["metadata"]["total_size"] == sum(w.nbytes for w in weights.values())
    assert index["weight_map"] == {k: f.name for f in files for k in load_file(f)}
    assert AutoModelForCausalLM.from_pretrained(out).dtype == torch.float16
    back = RunDir.open(export_to("run", out, tmp_path / "back"))
    assert_equal(back.checkpoints.load_weights(), weights)


# --- folders, in ----------------------------------------------------------------------------------

BEFORE = {"factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize("changes", [
    {"dtype": torch.bfloat16, "shards": "50KB"},
    {"rope_parameters": {"rope_type": "llama3", **BEFORE, "rope_theta": 5e3,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    {"tie_word_embeddings": True, "num_key_value_heads": 1, "num_hidden_layers": 1},
    *(pytest.param(changes, marks=pytest.mark.slow) for changes in (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        {"kind": transformers.MistralConfig, "sliding_window": None, "head_dim": 12,
         "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"dtype": torch.float16, "vocab_size": VOCAB + 6}))], ids=str)
def test_a_model_of_theirs_is_ours_and_theirs_again(changes, tmp_path):
    """The table of rotations that old folders hold is not a weight, nor is the second copy of a
    tied matrix. Rows of training are as long as the model's were, before any scaling. Mistral's
    folders hold a params.json too."""
    folder = their_folder(tmp_path, **changes)
    (folder / "params.json").write_text("{}", encoding="utf-8")
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) == 1 or "shards" in changes
    before = {k: t for file in files for k, t in load_file(file).items()}
    unread = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    if "tie_word_embeddings" in changes:
        unread["lm_head.weight"] = before["model.embed_tokens.weight"]
    edit_tensors(files[0], **unread)
    run = RunDir.open(export_to("run", folder, tmp_path / "ours"))
    length = POSITIONS * 2 if "dynamic" in str(changes) else POSITIONS
    assert_same_logits(load_model(run), theirs, length)
    original = changes.get("rope_parameters", {}).get("original_max_position_embeddings", 64)
    assert read_config(run.path / "config.yaml").data.seq_len == original
    assert run.manifest == {"imported": {"from": str(folder)}}
    again = export_to("hf", run.path, tmp_path / "again")
    assert_equal(before, load_file(again / "model.safetensors"))
    dtype = read_json(again / "config.json")["dtype"]
    assert getattr(torch, dtype) == before["model.norm.weight"].dtype


def test_what_asks_for_texts_and_ends_them_goes_through_a_run(tmp_path):
    """A template, and several ids, of which each ends a text; here config.json says so. That a
    generation_config.json goes with a run is seen in test_gguf.py."""
    folder, template = their_folder(tmp_path, "llama3"), "{{ messages }}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    free = greedy(folder)
    n = next(n for n in range(3, 20) if free[n] not in free[:n])
    ends = [7, free[n], open_tokenizer(folder).eos_id]
    edit_json(folder / "config.json", eos_token_id=ends)
    (folder / "generation_config.json").unlink()
    run, out = reexport(folder, tmp_path)
    text = load_trained(run, device="cpu").generate("def f(x", max_new_tokens=20, temperature=0)
    assert text == open_tokenizer(run).decode(free[:n])
    assert greedy(folder) == greedy(out) == free[: n + 1]
    assert read_json(out / "config.json")["eos_token_id"] == ends
    assert AutoTokenizer.from_pretrained(out).chat_template == template


Q_BIAS = "model.layers.1.self_attn.q_proj.bias"
DOWN = "model.layers.2.mlp.down_proj.weight"


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
    {"rope_parameters": LINEAR, **THETA, **L}, {"rope_scaling": LLAMA3, **L, **THETA},
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


@pytest.mark.parametrize("length, said", [(64, False), (50, True)])
def test_an_export_says_which_length_an_import_of_it_will_have(length, said, tmp_path, capsys):
    """YaRN's is exactly `factor` times as long: transformers 4.53 takes the ratio for it."""
    exported(tmp_path, max_positions=length, rope_scaling=RopeScaling("yarn", 4.0, 16))
    assert ("will have model.max_positions 64" in capsys.readouterr().err) is said


def test_absent_fields_have_defaults_and_fields_that_nobody_reads_do_not_matter():
    absent = ("num_key_value_heads", "hidden_act", "tie_word_embeddings")
    old = {k: v for k, v in BASE.items() if k not in absent}
    assert hf.from_config(old) == untied(n_kv_heads=6)
    more = {"use_cache": True, "pretraining_tp": 1, "attention_bias": False,
            "mlp_bias": None, "sliding_window": None, "transformers.js_config": {}}
    mistral = {"model_type": "mistral", "sliding_window": None}
    assert hf.from_config(BASE | more) == hf.from_config(BASE | mistral) == untied()


@pytest.mark.parametrize("change, words", [
    *(({name: 2}, f"{name} 2: we have no counterpart") for name in (
        "attention_bias", "mlp_bias", "hidden_act", "sliding_window", "quantization_config",
        "partial_rotary_factor", "embedding_multiplier", "attn_logit_softcapping", "auto_map")),
    *(({name: None}, f"what {name} is") for name in ("rms_norm_eps", "max_position_embeddings")),
    ({"model_type": "qwen3"}, "model_type 'qwen3'"),
    ({"model_type": "mistral"}, "mistral without sliding_window"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types .'sliding_attention'"),
    ({"num_key_value_heads": 4}, "num_attention_heads 6 .* num_key_value_heads 4"),
    ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "rope_type 'longrope'"),
    ({"rope_scaling": {"type": "yarn", **BEFORE, "truncate": None}}, "truncate of rope_type yarn"),
    ({"rope_scaling": LINEAR, "max_position_embeddings": 10**400}, "not 10000+[.][.][.]0+$"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary"),
    ({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
     "'config.json': 500000.0, 'rope_parameters': 10000.0.: versions of transformers"),
    ({"rope_scaling": YARN, **L}, "original_max_position_embeddings is 16, beside a RoPE of 64"),
    ({"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"factor": 8.0}}, "different things"),
], ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_what_we_cannot_represent_is_refused_by_name(change, words):
    with pytest.raises(ValueError, match=words):
        hf.from_config(BASE | change)
