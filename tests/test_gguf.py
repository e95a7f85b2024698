"""GGUF files, written. The judge is the gguf package."""

import gguf
import pytest
import sentencepiece
import torch
from conftest import model_config
from disk_faults import file_size_limit
from noise import save_weights
from saved_models import (
    POSITIONS,
    VOCAB,
    assert_refused,
    edit_json,
    export_to,
    make_run,
    read_gguf,
    their_folder,
)
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from files import read_json
from formats import hf
from formats.names import tensor_names
from gyre.options import read_config
from model.config import RopeScaling
from model.rope import precompute_freqs_cis


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q8_0"])
def test_a_gguf_holds_every_tensor_and_field(dtype, tmp_path):
    shape = {"dim": 64, "head_dim": 32, "n_heads": 4, "hidden_dim": 96, "norm_eps": 3e-6}
    own = torch.bfloat16 if dtype == "bf16" else torch.float32  # the default
    run = make_run(tmp_path, tie_embeddings=dtype == "f16", theta=5e3, dtype=own, **shape)
    weights = run.checkpoints.load_weights()
    if dtype == "f32":  # of weights of several types, the default is the one that holds all
        weights["tok_embeddings.weight"] = weights["tok_embeddings.weight"].bfloat16()
    if dtype == "q8_0":  # which reaches 127 times as far as the float16 of its scales
        weights["output.weight"][0, 0] = 8e6
    save_weights(run, "best", weights)
    options = [] if dtype in ("f32", "bf16") else ["--dtype", dtype]
    fields, tensors = read_gguf(run.path, tmp_path / "out.gguf", *options)
    names = tensor_names(read_config(run.path / "config.yaml").model, "gguf")
    assert tensors.keys() == set(names.values())
    for name, w in weights.items():
        tensor = tensors[names[name]]
        kind = dtype if w.ndim > 1 else "f32"
        assert tensor.tensor_type.name == kind.upper()
        assert tensor.shape.tolist() == list(reversed(w.shape))
        values = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        if kind == "q8_0":  # 8 bits of the largest of a block of 32, whose scale is a float16
            step = w.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True) / 127
            error = (values - w).unflatten(-1, (-1, 32)).abs()
            assert (error <= 0.51 * step + 127 * step / 2**11).all()
        else:
            exact = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]
            assert torch.equal(values, w.to(exact).float())

    reference = sentencepiece.SentencePieceProcessor(str(run.path / "tokenizer.model"))
    assert fields == {
        "general.architecture": "llama", "general.name": "ours", "general.quantization_version": 2,
        "general.file_type": {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}[dtype],
        "llama.vocab_size": VOCAB, "llama.context_length": POSITIONS,
        "llama.embedding_length": 64, "llama.feed_forward_length": 96, "llama.block_count": 3,
        **{f"llama.attention.{name}": value for name, value in (
            ("head_count", 4), ("head_count_kv", 2), ("key_length", 32), ("value_length", 32),
            ("layer_norm_rms_epsilon", pytest.approx(3e-6)))},
        "llama.rope.dimension_count": 32, "llama.rope.freq_base": pytest.approx(5e3),
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [reference.id_to_piece(i) for i in range(VOCAB)],
        "tokenizer.ggml.scores": [reference.get_score(i) for i in range(VOCAB)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259),
        **{f"tokenizer.ggml.{name}_token_id": value for name, value in (
            ("bos", 2), ("eos", 2), ("unknown", 0), ("padding", 0))},
        **{f"tokenizer.ggml.{name}": False for name in (
            "add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces")}}


def test_what_ends_texts_and_asks_for_them_is_in_the_file(tmp_path, capsys):
    """A file with a template wins over those in the settings."""
    folder = their_folder(tmp_path)
    templates = [{"name": "tool_use", "template": "{{ t }}"},
                 {"name": "default", "template": "{{ a }}"}]
    edit_json(folder / "tokenizer_config.json", add_bos_token=True, chat_template=templates)
    edit_json(folder / "generation_config.json", eos_token_id=[1, 2, 301])
    for name in "ab":
        run = export_to("run", folder, tmp_path / name)
        fields, _ = read_gguf(run, tmp_path / f"{name}.gguf")
        ends = [fields[f"tokenizer.ggml.{name}_token_id"] for name in ("eos", "eot", "eom")]
        assert ends == [2, 1, 301] and fields["tokenizer.chat_template"] == f"{{{{ {name} }}}}"
        (folder / "chat_template.jinja").write_text("{{ b }}", encoding="utf-8")
    edit_json(folder / "generation_config.json", eos_token_id=[1, 2, 301, 302])
    run = export_to("run", folder, tmp_path / "c")
    assert_refused(
        capsys, "gguf", run, tmp_path / "c.gguf", "generation_config.json", "three fields")


def llama_cpp_rotations(fields, tensors, head_dim):
    """(frequencies, magnitude) with which llama.cpp's `llama` architecture turns, from the fields
    that it reads: no `yarn_beta_*` is among them, and it has 32 and 1 instead. (llama-model.cpp,
    llama-context.cpp, and rope_yarn of ggml-cpu/ops.cpp)"""
    theirs = {k.removeprefix("llama.rope."): v for k, v in fields.items()}
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    frequencies = theirs["freq_base"] ** (-2 * pairs / head_dim)
    if "rope_freqs.weight" in tensors:
        frequencies /= torch.from_numpy(tensors["rope_freqs.weight"].data.copy())
    assert theirs.get("scaling.type", "linear") == "linear"  # it would slow by another ramp
    return frequencies / theirs.get("scaling.factor", 1), theirs.get("scaling.attn_factor", 1)


@pytest.mark.parametrize("kind, betas", [
    ("linear", {}), ("ntk", {}), ("llama3", {}), ("yarn", {}),
    ("yarn", {"beta_fast": 80.0, "beta_slow": 3.0, "attention_factor": 1.3})])
def test_llama_cpp_turns_as_transformers_does(kind, betas, tmp_path):
    scaling = RopeScaling(kind, 4.0, 512, **betas)
    shape = {"head_dim": 64, "theta": 5e3, "max_positions": 2048, "rope_scaling": scaling}
    fields, tensors = read_gguf(make_run(tmp_path, **shape).path, tmp_path / "out.gguf")
    assert fields["llama.context_length"] == 2048
    assert fields.get("llama.rope.scaling.original_context_length") == {"linear": 512}.get(kind)
    frequencies, magnitude = llama_cpp_rotations(fields, tensors, 64)
    rotary = LlamaRotaryEmbedding(LlamaConfig(**hf.to_config(model_config(**shape))))
    torch.testing.assert_close(frequencies.float(), rotary.inv_freq, rtol=1e-5, atol=0)
    assert magnitude == pytest.approx(rotary.attention_scaling, rel=1e-6)
    own = precompute_freqs_cis(64, 2, 5e3, 1.0, scaling)[1].angle()
    torch.testing.assert_close(frequencies.float(), own, rtol=1e-5, atol=0)


def test_a_disk_that_fills_up_on_the_last_page_is_noticed(tmp_path, capsys):
    run = make_run(tmp_path).path
    size = export_to("gguf", run, tmp_path / "whole").stat().st_size
    with file_size_limit(size - 1):
        assert_refused(capsys, "gguf", run, tmp_path / "out", str(tmp_path / "out"))
    with file_size_limit(size):
        assert export_to("gguf", run, tmp_path / "out").stat().st_size == size


def test_an_imported_tokenizer_goes_with_its_padding(tmp_path):
    """As a sentencepiece file; that of one is in test_tokenizers.py. Its ids may have a hole. Also
    out of a folder whose name is not UTF-8."""
    folder = their_folder(tmp_path, "llama2-of-4")
    model = read_json(folder / "tokenizer.json")["model"]
    model["vocab"]["ż"] = VOCAB + 1
    edit_json(folder / "tokenizer.json", model=model)
    run = export_to("run", folder, tmp_path / "ours").rename(tmp_path / "ours\udcff")  # the byte FF
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    assert fields["general.name"] == "ours?"
    keys = ("add_space_prefix", "add_bos_token", "bos_token_id", "eos_token_id", "padding_token_id")
    assert [fields.get(f"tokenizer.ggml.{name}") for name in keys] == [True, True, 1, 2, None]
    padding = [f"[PAD{i}]" for i in range(VOCAB + 2, VOCAB + 6)]
    assert fields["tokenizer.ggml.tokens"][VOCAB:] == [f"[PAD{VOCAB}]", "ż", *padding]
    assert fields["tokenizer.ggml.token_type"][VOCAB:] == [5, 1, 5, 5, 5, 5]
