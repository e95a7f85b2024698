"""GGUF files, read. The gguf package writes them, or export.py does."""

import gguf
import numpy as np
import pytest
import torch
from builders import error_lines, exit_code, quick_for, randn
from saved_models import (
    assert_equal,
    assert_refused,
    assert_same_logits,
    copy_made,
    edit_gguf,
    export_to,
    load_model,
    make_run,
)

import evaluate
import generate
from files import read_json
from gyre.rundir import RunDir
from model.config import RopeScaling

# Rows of 64 and 256 can be packed.
SHAPE = {"dim": 64, "head_dim": 32, "n_heads": 4, "n_kv_heads": 1, "hidden_dim": 256}


def make_gguf(tmp_path, *options, **model):
    """(a run with random weights, the GGUF that it is exported to)."""
    copy_made(export_gguf, tmp_path, *options, **model)
    return RunDir.open(tmp_path / "ours"), tmp_path / "file.gguf"


def export_gguf(folder, *options, **model):
    """A run in `ours`, and what is exported from it in file.gguf."""
    run = make_run(folder, **model)
    export_to("gguf", run.path, folder / "file.gguf", *options)


def import_gguf(file):
    """The run that a GGUF is imported into."""
    return RunDir.open(export_to("run", file, file.with_name("back")))


def imported_model(file):
    """The configuration of the model that a GGUF is imported into."""
    return load_model(import_gguf(file)).config


@pytest.mark.parametrize("tied", [False, True])
def test_float32_comes_back_bit_by_bit(tied, tmp_path):
    run, file = make_gguf(tmp_path, tie_embeddings=tied)
    back = import_gguf(file)
    assert_equal(back.checkpoints.load_weights(), run.checkpoints.load_weights())
    assert load_model(back).config == load_model(run).config


@pytest.mark.parametrize("dtype, kind", [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_half_types_are_kept(dtype, kind, tmp_path):
    run, file = make_gguf(tmp_path, "--dtype", dtype)
    weights = run.checkpoints.load_weights()
    rounded = {name: w if w.ndim == 1 else w.to(kind) for name, w in weights.items()}
    assert_equal(import_gguf(file).checkpoints.load_weights(), rounded)


# The largest error of a value, in units of the largest in its row.
@pytest.mark.parametrize("kind, error", [
    ("Q4_0", 1 / 7), ("Q8_0", 1 / 225), *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ("Q4_1", 1 / 14), ("Q5_0", 1 / 15), ("Q5_1", 1 / 30), ("MXFP4", 1 / 3), ("TQ2_0", 1 / 2)])])
def test_quantised_types_are_read(kind, error, tmp_path):
    run, file = make_gguf(tmp_path, **SHAPE)
    weight = run.checkpoints.load_weights()["layers.1.feed_forward.w2.weight"]
    packed = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType[kind])
    edit_gguf(file, {}, {"blk.1.ffn_down.weight": (packed, kind)})
    back = import_gguf(file).checkpoints.load_weights()["layers.1.feed_forward.w2.weight"]
    assert back.dtype == torch.float32
    largest = weight.abs().amax(dim=1, keepdim=True)
    assert ((back - weight).abs() <= 1.01 * error * largest).all()


def test_a_block_of_q4_k_has_its_values(tmp_path):
    """Of 256: a scale of 0.5 and a lower bound of 0.25, both times 6 bits for each 32 values, which
    have 4 bits each."""
    _, file = make_gguf(tmp_path, **SHAPE)
    halves = np.array([0.5, 0.25], np.float16).view(np.uint8)
    scales = [1, 1, 1, 1, 2, 2, 2, 2, 0x31, 0x31, 0x31, 0x31]
    block = np.array([*halves, *scales, *[0x95] * 128], np.uint8)
    packed = np.tile(block, (64, 1))
    edit_gguf(file, {}, {"blk.0.ffn_down.weight": (packed, "Q4_K")})
    back = import_gguf(file).checkpoints.load_weights()["layers.0.feed_forward.w2.weight"]
    # The first 128: 0.5 * 5 - 0.25 * 2, and 9 for 5. The others have a lower bound of 3.
    assert back[7, ::32].tolist() == [2.0, 4.0, 2.0, 4.0, 1.75, 3.75, 1.75, 3.75]
    assert back[:, :32].unique().tolist() == [2.0]


# We name no type: what the package knows is read.
@pytest.mark.parametrize("kind", quick_for(["Q6_K", "IQ4_NL"], [
    "Q2_K", "Q3_K", "Q5_K", "Q6_K", "TQ1_0", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
    "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS"]))
def test_types_that_the_package_only_reads_are_read(kind, tmp_path):
    """Any bytes are weights."""
    _, file = make_gguf(tmp_path, **SHAPE)
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    packed = np.full((64, 256 // block * size), 0x11, np.uint8)
    edit_gguf(file, {}, {"blk.1.ffn_down.weight": (packed, kind)})
    weights = import_gguf(file).checkpoints.load_weights()
    assert weights["layers.1.feed_forward.w2.weight"].shape == (64, 256)


# --- positions ------------------------------------------------------------------------------------

ORIGINAL = "llama.rope.scaling.original_context_length"


@pytest.mark.parametrize("scaling", [
    RopeScaling("linear", 4.0, 16), RopeScaling("llama3", 4.0, 16), RopeScaling("yarn", 4.0, 16),
    RopeScaling("yarn", 4.0, 16, attention_factor=1.3)])
def test_a_scaling_comes_back(scaling, tmp_path):
    run, file = make_gguf(tmp_path, head_dim=32, rope_scaling=scaling)
    back = import_gguf(file)
    assert load_model(back).config.rope_scaling == scaling
    assert_same_logits(load_model(back), load_model(run))


@pytest.mark.parametrize("scaling", [
    RopeScaling("yarn", 2.0, 16), RopeScaling("yarn", 8.0, 16, attention_factor=1.3),
    RopeScaling("llama3", 4.0, 5)])
def test_a_scaling_comes_back_whatever_the_context_is(scaling, tmp_path):
    """The context of 64 is not the length that a scaling of 16 by 2 or 8 reaches. Within 5 tokens
    no pair turns once, so that all are slowed alike."""
    run, file = make_gguf(tmp_path, head_dim=32, rope_scaling=scaling)
    back = load_model(import_gguf(file))
    assert back.config.rope_scaling == scaling
    assert back.config.max_positions == 64
    assert_same_logits(back, load_model(run))


def test_an_older_export_of_yarn_comes_back(tmp_path):
    """It did not state the original length, which follows from the context."""
    scaling = RopeScaling("yarn", 4.0, 16)
    _, file = make_gguf(tmp_path, head_dim=32, rope_scaling=scaling)
    edit_gguf(file, {ORIGINAL: None})
    assert imported_model(file).rope_scaling == scaling


def test_ntk_comes_back_as_a_larger_base(tmp_path):
    run, file = make_gguf(tmp_path, rope_scaling=RopeScaling("ntk", 4.0, 16))
    back = import_gguf(file)
    assert load_model(back).config.theta == pytest.approx(63496.04, rel=1e-6)  # 4^(8/6) * 1e4
    assert_same_logits(load_model(back), load_model(run))


def test_the_factors_of_llama_3_1_are_recognised(tmp_path):
    """rope_freqs.weight of Llama 3.1, of which the file says nothing else."""
    scaling = RopeScaling("llama3", 8.0, 8192)
    _, file = make_gguf(tmp_path, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=128, theta=5e5,
                        rope_scaling=scaling, max_positions=16384)
    edit_gguf(file, {ORIGINAL: None})
    assert gguf.GGUFReader(file).fields["llama.context_length"].contents() == 16384
    assert imported_model(file).rope_scaling == scaling


BOUNDS = {"low_freq_factor": 2.0, "high_freq_factor": 6.0}


def test_other_bounds_of_llama3_come_back(tmp_path):
    scaling = RopeScaling("llama3", 4.0, 64, **BOUNDS)
    run, file = make_gguf(tmp_path, head_dim=32, rope_scaling=scaling, max_positions=256)
    back = import_gguf(file)
    assert load_model(back).config.rope_scaling == scaling
    assert_same_logits(load_model(back), load_model(run))


def test_one_pair_between_the_bounds_of_llama3_tells_the_upper_one(tmp_path):
    scaling = RopeScaling("llama3", 4.0, 16, high_freq_factor=8.0)
    _, file = make_gguf(tmp_path, head_dim=8, rope_scaling=scaling)
    assert imported_model(file).rope_scaling == scaling


def test_without_a_length_the_lower_bound_of_llama3_is_1(tmp_path):
    """A length of 64 with bounds of 2 and 6 rotates like half of each."""
    _, file = make_gguf(tmp_path, head_dim=32, max_positions=256,
                        rope_scaling=RopeScaling("llama3", 4.0, 64, **BOUNDS))
    edit_gguf(file, {ORIGINAL: None})
    assert imported_model(file).rope_scaling == RopeScaling("llama3", 4.0, 32, high_freq_factor=3.0)


def test_a_context_beside_factors_may_be_shorter_than_the_scaling(tmp_path):
    """The file states one length, which is that after scaling. The scaling reaches to 64."""
    _, file = make_gguf(tmp_path, head_dim=32, rope_scaling=RopeScaling("llama3", 4.0, 16),
                        max_positions=48)
    assert imported_model(file).max_positions == 48


def test_factors_of_one_are_no_scaling(tmp_path):
    _, file = make_gguf(tmp_path)
    edit_gguf(file, {}, {"rope_freqs.weight": (np.ones(4, np.float32), "F32")})
    assert imported_model(file).rope_scaling is None


def test_other_factors_are_refused(tmp_path, capsys):
    _, file = make_gguf(tmp_path)
    factors = np.array([1, 2, 1.5, 4], np.float32)
    edit_gguf(file, {}, {"rope_freqs.weight": (factors, "F32")})
    assert_refused(capsys, "run", file, tmp_path / "back", str(file), "rope_freqs.weight is "
                   "neither llama3's nor YaRN's")


def test_a_factor_beside_factors_is_named_as_in_the_file(tmp_path, capsys):
    _, file = make_gguf(tmp_path)
    factors = np.full(4, 2, np.float32)
    edit_gguf(file, {"llama.rope.scaling.factor": 4.0}, {"rope_freqs.weight": (factors, "F32")})
    assert_refused(capsys, "run", file, tmp_path / "back",
                   "rope_freqs.weight beside a rope.scaling.factor of 4")


@pytest.mark.parametrize("fields, scaling, positions", [
    ({"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}, RopeScaling("linear", 2.0, 64),
     128),
    ({"rope.scale_linear": 2.0}, RopeScaling("linear", 2.0, 64), 128),
    ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
      "rope.scaling.original_context_length": 16}, RopeScaling("yarn", 4.0, 16), 64),
    ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.attn_factor": 0.5,
      "rope.scaling.original_context_length": 16},
     RopeScaling("yarn", 4.0, 16, attention_factor=0.5693147180559945), 64),
    ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None, 64)])
def test_scalings_are_read_as_by_llama_cpp(fields, scaling, positions, tmp_path):
    _, file = make_gguf(tmp_path)
    edit_gguf(file, {f"llama.{name}": value for name, value in fields.items()})
    model = imported_model(file)
    assert model.rope_scaling == scaling
    assert model.max_positions == positions


def test_fields_that_have_defaults_may_be_missing(tmp_path):
    run, file = make_gguf(tmp_path)
    edit_gguf(file, dict.fromkeys([
        "llama.vocab_size", "llama.attention.key_length", "llama.attention.value_length",
        "llama.rope.dimension_count", "llama.rope.freq_base"]))
    assert imported_model(file) == load_model(run).config


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("fields, words", [
    ({"general.architecture": "qwen2"}, "general.architecture is 'qwen2': we have llama"),
    ({"llama.expert_count": 8}, "llama.expert_count 8: we have no counterpart"),
    ({"llama.attention.causal": False}, "llama.attention.causal False: we have no counterpart"),
    ({"llama.attention.sliding_window": 32}, "llama.attention.sliding_window 32"),
    ({"llama.rope.dimension_count": 4}, "rope.dimension_count 4 is not the width of a head, 8"),
    ({"llama.attention.value_length": 4}, "attention.value_length 4 is not the width of a head, 8"),
    ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0},
     "rope.scaling.type 'longrope'"),
    ({"llama.rope.scaling.attn_factor": 1.5}, "rope.scaling.attn_factor 1.5 without YaRN"),
    ({"llama.rope.scaling.yarn_beta_fast": 64.0}, "llama.rope.scaling.yarn_beta_fast 64.0"),
    ({"llama.embedding_length": None}, "it does not say what embedding_length is"),
    ({"llama.block_count": "three"}, "block_count"),
    ({"llama.attention.head_count": [6, 6, 6]}, "attention.head_count"),
    ({"llama.attention.head_count_kv": 4}, "attention.head_count 6 is not divisible by"),
    ({"llama.embedding_length": 6 * 2**20}, "larger model than the tensors"),
    ({"llama.context_length": 2**31 - 1}, "2147483647 positions"),
    ({"llama.feed_forward_length": 96}, "blk.0.ffn_gate.weight"),
    ({"llama.rope.freq_base": 0.0}, "rope.freq_base"),
    ({"split.count": 3}, "is one of 3 parts of a model: join them"),
    ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model is 'bert': we have llama"),
    ({"tokenizer.ggml.model": "gpt2"}, "tokenizer.ggml.pre is 'default', and we know"),
    ({"tokenizer.ggml.add_eos_token": True}, "add_eos_token would end every prompt"),
    ({"tokenizer.ggml.eos_token_id": 330}, "the tokenizer has no token 330, which eos is to be"),
    ({"tokenizer.ggml.eos_token_id": 70}, "file.gguf: tokenizer_config.json is missing, or has no "
     "eos_token that is a special token"),
    ({"tokenizer.ggml.token_type": None}, "330 tokens and 0 types"),
    ({"tokenizer.ggml.scores": None}, "330 tokens and 0 scores"),
    ({"tokenizer.ggml.tokens": None}, "0 tokens and 330 types")])
def test_fields_without_a_counterpart_are_refused(fields, words, tmp_path, capsys):
    _, file = make_gguf(tmp_path)
    edit_gguf(file, fields)
    assert_refused(capsys, "run", file, tmp_path / "back", str(file), words)


@pytest.mark.parametrize("name, tensor, words", [
    ("blk.1.attn_q.bias", (np.ones(48, np.float32), "F32"),
     "holds blk.1.attn_q.bias, which our LLaMA does not have"),
    ("blk.1.attn_q.weight", None, "blk.1.attn_q.weight is in none of"),
    ("token_embd.weight", None, "token_embd.weight is in none of"),
    ("blk.1.attn_k.weight", (np.ones((48, 24), np.float32), "F32"),
     "blk.1.attn_k.weight in {file} has shape (48, 24)"),
    ("blk.1.attn_q.weight", (np.ones((48, 48), np.int8), "I8"),
     "blk.1.attn_q.weight in {file} is of type I8, which the gguf package does not dequantise"),
    ("output_norm.weight", (np.full(48, np.nan, np.float32), "F32"), "norm.weight of {file} holds"),
])
def test_tensors_without_a_counterpart_are_refused(name, tensor, words, tmp_path, capsys):
    _, file = make_gguf(tmp_path)
    edit_gguf(file, {}, {name: tensor})
    assert_refused(capsys, "run", file, tmp_path / "back", words.format(file=file))


@pytest.mark.parametrize("kept", [0, 3, 40, 4000, -1000])
def test_a_file_that_is_cut_short_is_refused(kept, tmp_path, capsys):
    _, file = make_gguf(tmp_path)
    file.write_bytes(file.read_bytes()[:kept])
    assert_refused(capsys, "run", file, tmp_path / "back", f"{file} is no GGUF, or is damaged")


def test_a_pointer_of_git_lfs_is_named(tmp_path, capsys):
    file = tmp_path / "file.gguf"
    file.write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    assert_refused(capsys, "run", file, tmp_path / "back", f"{file} is a pointer of Git LFS")


# --- used where it lies ---------------------------------------------------------------------------


def test_a_gguf_generates_what_its_run_does(tmp_path, capsys):
    run, file = make_gguf(tmp_path)
    texts = []
    for source in (run.path, file):
        assert exit_code(generate.main, "--run", source, "--prompt", "def f", "--temperature", "0",
                         "--max-new-tokens", "20") == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert len(texts[0]) > len("def f\n")


def test_a_gguf_is_evaluated_beside_its_run(tmp_path):
    _, file = make_gguf(tmp_path)
    run = import_gguf(file)
    text = tmp_path / "text.txt"
    text.write_text("def f(x):\n    return x\n" * 9, encoding="utf-8")
    argv = [run.path, file, "--data.files", text, "--json", tmp_path / "out.json"]
    assert exit_code(evaluate.main, *argv) == 0
    first, second = read_json(tmp_path / "out.json")["runs"]
    assert first["loss"] == second["loss"]


def test_a_gguf_without_a_text_is_not_evaluated(tmp_path, capsys):
    _, file = make_gguf(tmp_path)
    (line,) = error_lines(capsys, evaluate.main, file)
    assert f"{file} is no run, and has no validation text of its own" in line


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    _, file = make_gguf(tmp_path)
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    assert exit_code(generate.main, "--run", file, "--prompt", "a", "--max-new-tokens", "1") == 0
    assert list(spare.iterdir()) == []


def test_a_bias_of_rows_does_not_pass_for_a_matrix(tmp_path, capsys):
    """One-dimensional data of the right number of values."""
    _, file = make_gguf(tmp_path)
    flat = randn(48 * 80).numpy()
    edit_gguf(file, {}, {"blk.0.ffn_down.weight": (flat, "F32")})
    assert_refused(capsys, "run", file, tmp_path / "back", "has shape (3840,)")
