"""GGUF files, written. The judge is the gguf package."""

import gguf
import pytest
import sentencepiece
import torch
from conftest import model_config
from failing import file_size_limit
from foreign import POSITIONS, VOCAB, export_to, make_run, refused
from foreign_tokenizers import TOKENIZERS, imported

from formats.gguf import rope_factors
from formats.names import tensor_names
from gyre.cli import load_file as load_config
from model.config import RopeScaling
from model.transformer import Transformer


def read_gguf(file):
    reader = gguf.GGUFReader(file)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    return fields, {t.name: t for t in reader.tensors}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_holds_every_tensor_and_field(dtype, tied, tmp_path):
    shape = {"dim": 64, "head_dim": 16, "n_heads": 4, "hidden_dim": 96}
    run = make_run(tmp_path, tie_embeddings=tied, theta=5e3, **shape)
    out = export_to("gguf", run.path, tmp_path / "out.gguf", "--dtype", dtype)
    fields, tensors = read_gguf(out)
    weights = run.load_weights()
    names = tensor_names(load_config(run.path / "config.yaml").model, "gguf")
    assert tensors.keys() == set(names.values())
    for name, w in weights.items():
        found = tensors[names[name]]
        kind = dtype if w.ndim > 1 else "f32"
        assert found.tensor_type.name == kind.upper()
        assert found.shape.tolist() == list(reversed(w.shape))
        values = torch.from_numpy(gguf.quants.dequantize(found.data, found.tensor_type).copy())
        if kind == "q8_0":  # 8 bits of the largest of a block of 32, whose scale is a float16
            step = w.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True) / 127
            error = (values - w).unflatten(-1, (-1, 32)).abs()
            assert (error <= 0.51 * step + 127 * step / 2**11).all()
            assert error.max() > 0
        else:
            exact = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]
            assert torch.equal(values, w.to(exact).float())

    reference = sentencepiece.SentencePieceProcessor(str(run.path / "tokenizer.model"))
    scores = fields.pop("tokenizer.ggml.scores")
    assert scores == pytest.approx([reference.get_score(i) for i in range(VOCAB)])
    assert fields == {
        "general.architecture": "llama",
        "general.name": "ours",
        "general.file_type": {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}[dtype],
        "general.quantization_version": 2,
        "llama.vocab_size": VOCAB,
        "llama.context_length": POSITIONS,
        "llama.embedding_length": 64,
        "llama.block_count": 3,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
        "llama.rope.dimension_count": 16,
        "llama.rope.freq_base": pytest.approx(5e3),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [reference.id_to_piece(i) for i in range(VOCAB)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }


@pytest.mark.parametrize("scaling, expected", [
    (RopeScaling("linear", 4.0, 16),
     {"type": "linear", "factor": 4.0, "original_context_length": 16}),
    (RopeScaling("yarn", 4.0, 16, beta_fast=6.0),
     {"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_beta_fast": 6.0,
      "yarn_beta_slow": 1.0}),
    (RopeScaling("llama3", 4.0, 16), {}),
    (RopeScaling("ntk", 4.0, 16), {}),
])
def test_a_gguf_holds_the_scaling(scaling, expected, tmp_path):
    run = make_run(tmp_path, rope_scaling=scaling)
    fields, tensors = read_gguf(export_to("gguf", run.path, tmp_path / "out.gguf"))
    start = "llama.rope.scaling."
    assert {k[len(start) :]: v for k, v in fields.items() if k.startswith(start)} == expected
    base = 1e4 * 4 ** (8 / 6) if scaling.type == "ntk" else 1e4
    assert fields["llama.rope.freq_base"] == pytest.approx(base)
    assert ("rope_freqs.weight" in tensors) == (scaling.type == "llama3")
    if scaling.type == "llama3":
        factors = torch.from_numpy(tensors["rope_freqs.weight"].data.copy())
        model = load_config(run.path / "config.yaml").model
        assert torch.equal(factors, rope_factors(model))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_a_disk_that_fills_up_on_any_page_is_noticed(dtype, tmp_path, capsys):
    run = make_run(tmp_path, dim=64, head_dim=16, n_heads=4, hidden_dim=96).path
    size = export_to("gguf", run, tmp_path / "whole", "--dtype", dtype).stat().st_size
    for room in [0, 5000, size // 2, size - 3000, size - 40, size - 1]:
        with file_size_limit(room):
            refused(capsys, "gguf", run, tmp_path / "out", str(tmp_path / "out"),
                    options=["--dtype", dtype])
    with file_size_limit(size):
        assert export_to("gguf", run, tmp_path / "out", "--dtype", dtype).stat().st_size == size


def test_the_factors_are_the_scaling():
    scalings = None, RopeScaling("llama3", 4.0, 64)
    plain, scaled = (model_config(head_dim=16, rope_scaling=scaling) for scaling in scalings)
    angles = [Transformer(c).position.freqs_cis[1].angle() for c in (plain, scaled)]
    factors = rope_factors(scaled)
    assert 1 == factors[0] < factors[2] < factors[-1] == 4
    torch.testing.assert_close(angles[0] / factors, angles[1], rtol=1e-6, atol=0)
    assert rope_factors(plain) is None


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_an_imported_sentencepiece_file_goes_with_its_padding(kind, tmp_path, capsys):
    """A tokenizer.json alone is refused."""
    run, out = imported(tmp_path, kind)[0].path, tmp_path / "out.gguf"
    if kind == "llama3":
        refused(capsys, "gguf", run, out, "tokenizer.json", "convert_hf_to_gguf")
        return
    fields, _ = read_gguf(export_to("gguf", run, out))
    assert fields["tokenizer.ggml.add_space_prefix"] and fields["tokenizer.ggml.add_bos_token"]
    assert fields["tokenizer.ggml.tokens"][VOCAB:] == [f"[PAD{i}]" for i in range(VOCAB, VOCAB + 6)]
    assert fields["tokenizer.ggml.token_type"][VOCAB:] == [5] * 6
