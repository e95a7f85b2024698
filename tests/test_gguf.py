"""GGUF files, written. The judge is the gguf package."""

from functools import cache

import gguf
import pytest
import sentencepiece
import torch
from builders import model_config
from disk_faults import file_size_limit
from random_runs import save_weights
from saved_models import (
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
from formats.folders import read_license
from formats.gguf import write_weights
from formats.names import tensor_names
from gyre.yaml_files import read_config
from model.config import RopeScaling
from model.rope import precompute_freqs_cis

SHAPE = {"dim": 64, "head_dim": 32, "n_heads": 4, "n_kv_heads": 1, "hidden_dim": 96,
         "norm_eps": 3e-6, "theta": 5e3}


def dequantized(tensor):
    """The values of a tensor of a GGUF, in float32."""
    return torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())


@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_has_every_weight_in_its_shape(tied, tmp_path):
    run = make_run(tmp_path, tie_embeddings=tied, **SHAPE)
    _, tensors = read_gguf(run.path, tmp_path / "out.gguf")
    names = tensor_names(read_config(run.path / "config.yaml").model, "gguf")
    # GGUF gives the fastest dimension first.
    shapes = {names[name]: list(reversed(weight.shape))
              for name, weight in run.checkpoints.load_weights().items()}
    assert {name: tensor.shape.tolist() for name, tensor in tensors.items()} == shapes


@pytest.fixture(scope="module")
def exported_as(tmp_path_factory):
    """Gives (a run, the fields and the tensors of the GGUF that it is exported to in a dtype)."""
    @cache
    def exported_as(dtype):
        folder = tmp_path_factory.mktemp(dtype)
        run = make_run(folder, **SHAPE)
        return run, *read_gguf(run.path, folder / "out.gguf", "--dtype", dtype)

    return exported_as


@pytest.mark.parametrize("dtype, exact", [
    ("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_matrices_have_the_asked_type_and_vectors_float32(dtype, exact, exported_as):
    run, _, tensors = exported_as(dtype)
    names = tensor_names(read_config(run.path / "config.yaml").model, "gguf")
    for name, weight in run.checkpoints.load_weights().items():
        tensor = tensors[names[name]]
        kind = torch.float32 if weight.ndim == 1 else exact
        assert tensor.tensor_type.name == ("F32" if weight.ndim == 1 else dtype.upper())
        assert torch.equal(dequantized(tensor), weight.to(kind).float())


def test_q8_0_is_within_half_a_step(tmp_path):
    """A block of 32 numbers has a scale, its largest value divided by 127, in float16. Each number
    is a multiple of it in 8 bits, so that even 8e6 fits, for which float16 itself is too small."""
    run = make_run(tmp_path, **SHAPE)
    weights = run.checkpoints.load_weights()
    weights["output.weight"][0, 0] = 8e6
    save_weights(run, "best", weights)
    _, tensors = read_gguf(run.path, tmp_path / "out.gguf", "--dtype", "q8_0")
    weight = weights["output.weight"]
    assert tensors["output.weight"].tensor_type.name == "Q8_0"
    assert tensors["output_norm.weight"].tensor_type.name == "F32"
    values = dequantized(tensors["output.weight"])
    largest = weight.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True)
    error = (values - weight).unflatten(-1, (-1, 32)).abs()
    assert (error <= 0.51 / 127 * largest + largest / 2**11).all()


def test_the_default_type_is_that_of_the_run(tmp_path):
    run = make_run(tmp_path, dtype=torch.bfloat16)
    _, tensors = read_gguf(run.path, tmp_path / "out.gguf")
    assert tensors["token_embd.weight"].tensor_type.name == "BF16"


def test_the_default_type_of_mixed_weights_is_float32(tmp_path):
    run = make_run(tmp_path)
    weights = run.checkpoints.load_weights()
    weights["tok_embeddings.weight"] = weights["tok_embeddings.weight"].bfloat16()
    save_weights(run, "best", weights)
    _, tensors = read_gguf(run.path, tmp_path / "out.gguf")
    assert tensors["token_embd.weight"].tensor_type.name == "F32"


@pytest.mark.parametrize("dtype, number", [("f32", 0), ("f16", 1), ("bf16", 32), ("q8_0", 7)])
def test_the_file_says_its_type(dtype, number, exported_as):
    _, fields, _ = exported_as(dtype)
    assert fields["general.file_type"] == number
    assert fields["general.quantization_version"] == 2


def test_the_file_describes_its_model(tmp_path):
    run = make_run(tmp_path, **SHAPE)
    fields, _ = read_gguf(run.path, tmp_path / "out.gguf")
    described = {key: value for key, value in fields.items() if not key.startswith("tokenizer.")}
    assert described == {
        "general.architecture": "llama",
        "general.name": "ours",
        "general.basename": "ours",
        "general.size_label": "120K",
        "general.tags": ["text-generation"],
        "general.file_type": 0,
        "general.quantization_version": 2,
        "llama.vocab_size": 330,
        "llama.context_length": 64,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 96,
        "llama.block_count": 2,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 1,
        "llama.attention.key_length": 32,
        "llama.attention.value_length": 32,
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(3e-6),
        "llama.rope.dimension_count": 32,
        "llama.rope.freq_base": pytest.approx(5e3),
    }


def test_the_base_name_of_a_model_ends_before_its_size(tmp_path):
    run = make_run(tmp_path, "Small-1.5M-Chat")
    fields, _ = read_gguf(run.path, tmp_path / "out.gguf")
    assert fields["general.name"] == "Small-1.5M-Chat"
    assert fields["general.basename"] == "Small"


def card_fields(tmp_path, card):
    """The fields of a GGUF of a run imported from a folder with this README.md."""
    folder = their_folder(tmp_path)
    (folder / "README.md").write_text(card, encoding="utf-8")
    run = export_to("run", folder, tmp_path / "ours")
    return read_gguf(run, tmp_path / "out.gguf")[0]


def test_the_license_of_an_imported_model_is_in_the_file(tmp_path):
    card = "---\nlicense: apache-2.0\ntags:\n- x\n---\n# A model\n"
    assert card_fields(tmp_path, card)["general.license"] == "apache-2.0"


def test_a_card_without_a_license_adds_none(tmp_path):
    assert "general.license" not in card_fields(tmp_path, "# A model\n")


@pytest.mark.parametrize("card", [
    "# A model\n", "---\nlicense: [a\n---\n", "---\n- a\n---\n", "---\nlicense: [a, b]\n---\n"])
def test_a_card_may_state_no_license(card, tmp_path):
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert read_license(tmp_path) is None


def test_the_file_holds_our_tokenizer(tmp_path):
    run = make_run(tmp_path)
    fields, _ = read_gguf(run.path, tmp_path / "out.gguf")
    prefix = "tokenizer.ggml."
    described = {key.removeprefix(prefix): value for key, value in fields.items()
                 if key.startswith(prefix)}
    reference = sentencepiece.SentencePieceProcessor(str(run.path / "tokenizer.model"))
    assert described == {
        "model": "llama",
        "pre": "default",
        "tokens": [reference.id_to_piece(i) for i in range(330)],
        "scores": [reference.get_score(i) for i in range(330)],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * 71,
        "bos_token_id": 2,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "padding_token_id": 0,
        "add_bos_token": False,
        "add_eos_token": False,
        "add_space_prefix": False,
        "remove_extra_whitespaces": False,
    }


# Of several templates, as the settings may have them.
TEMPLATES = [{"name": "tool_use", "template": "{{ t }}"},
             {"name": "default", "template": "{{ a }}"}]


def test_the_default_template_is_in_the_file(tmp_path):
    folder = their_folder(tmp_path)
    edit_json(folder / "tokenizer_config.json", add_bos_token=True, chat_template=TEMPLATES)
    run = export_to("run", folder, tmp_path / "ours")
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    assert fields["tokenizer.chat_template"] == "{{ a }}"


def test_a_file_with_a_template_wins_over_the_settings(tmp_path):
    folder = their_folder(tmp_path)
    edit_json(folder / "tokenizer_config.json", add_bos_token=True, chat_template=TEMPLATES)
    (folder / "chat_template.jinja").write_text("{{ b }}", encoding="utf-8")
    run = export_to("run", folder, tmp_path / "ours")
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    assert fields["tokenizer.chat_template"] == "{{ b }}"


def test_three_ids_that_end_texts_are_in_the_file(tmp_path):
    folder = their_folder(tmp_path)
    edit_json(folder / "generation_config.json", eos_token_id=[1, 2, 301])
    run = export_to("run", folder, tmp_path / "ours")
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    assert fields["tokenizer.ggml.eos_token_id"] == 2  # the tokenizer's own
    assert fields["tokenizer.ggml.eot_token_id"] == 1
    assert fields["tokenizer.ggml.eom_token_id"] == 301


def test_a_fourth_id_that_ends_texts_is_refused(tmp_path, capsys):
    folder = their_folder(tmp_path)
    edit_json(folder / "generation_config.json", eos_token_id=[1, 2, 301, 302])
    run = export_to("run", folder, tmp_path / "ours")
    assert_refused(capsys, "gguf", run, tmp_path / "out.gguf", "generation_config.json",
                   "three fields")


def llama_cpp_rotations(fields, tensors, head_dim):
    """The frequencies and the magnitude of the rotations of llama.cpp's `llama` architecture.

    They are computed from the fields that it reads. It does not read `yarn_beta_*`, and takes 32
    and 1 instead. (llama-model.cpp, llama-context.cpp, and rope_yarn of ggml-cpu/ops.cpp)"""
    theirs = {k.removeprefix("llama.rope."): v for k, v in fields.items()}
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    frequencies = theirs["freq_base"] ** (-2 * pairs / head_dim)
    if "rope_freqs.weight" in tensors:
        frequencies /= torch.from_numpy(tensors["rope_freqs.weight"].data.copy())
    # With scaling.type yarn it would compute frequencies of its own, with those two numbers.
    assert theirs.get("scaling.type", "linear") == "linear"
    return frequencies / theirs.get("scaling.factor", 1), theirs.get("scaling.attn_factor", 1)


@pytest.mark.parametrize("kind, betas", [
    ("linear", {}), ("ntk", {}), ("llama3", {}), ("yarn", {}),
    ("yarn", {"beta_fast": 80.0, "beta_slow": 3.0, "attention_factor": 1.3})])
def test_llama_cpp_turns_as_transformers_does(kind, betas, tmp_path):
    scaling = RopeScaling(kind, 4.0, 512, **betas)
    shape = {"head_dim": 64, "theta": 5e3, "max_positions": 2048, "rope_scaling": scaling}
    fields, tensors = read_gguf(make_run(tmp_path, **shape).path, tmp_path / "out.gguf")
    assert fields["llama.context_length"] == 2048
    original_length = None if kind == "ntk" else 512
    assert fields.get("llama.rope.scaling.original_context_length") == original_length
    frequencies, magnitude = llama_cpp_rotations(fields, tensors, 64)
    rotary = LlamaRotaryEmbedding(LlamaConfig(**hf.to_config(model_config(**shape))))
    torch.testing.assert_close(frequencies.float(), rotary.inv_freq, rtol=1e-5, atol=0)
    assert magnitude == pytest.approx(rotary.attention_scaling, rel=1e-6)
    own = precompute_freqs_cis(64, 2, 5e3, 1.0, scaling)[1].angle()
    torch.testing.assert_close(frequencies.float(), own, rtol=1e-5, atol=0)


def test_a_disk_that_lacks_the_last_byte_is_noticed(tmp_path, capsys):
    run = make_run(tmp_path).path
    size = export_to("gguf", run, tmp_path / "whole").stat().st_size
    with file_size_limit(size - 1):
        assert_refused(capsys, "gguf", run, tmp_path / "out", str(tmp_path / "out"))
    with file_size_limit(size):
        assert export_to("gguf", run, tmp_path / "out").stat().st_size == size


def test_a_file_ends_at_a_multiple_of_32_bytes(tmp_path):
    write_weights(tmp_path / "a.gguf", "a", {"a": torch.ones(3, 5)}, "f32", {})
    assert (tmp_path / "a.gguf").stat().st_size % 32 == 0


def test_a_name_that_is_not_utf_8_has_question_marks(tmp_path):
    run = make_run(tmp_path).path.rename(tmp_path / "ours\udcff")  # the byte FF
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    assert fields["general.name"] == "ours?"


@pytest.fixture(scope="module")
def with_a_hole(tmp_path_factory):
    """The fields of a GGUF whose tokenizer has the ids 0 to 329 and 331; its model has 336."""
    tmp_path = tmp_path_factory.mktemp("hole")
    folder = their_folder(tmp_path, "llama2-of-4")
    model = read_json(folder / "tokenizer.json")["model"]
    model["vocab"]["ż"] = 331
    edit_json(folder / "tokenizer.json", model=model)
    run = export_to("run", folder, tmp_path / "ours")
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    return fields


def test_ids_without_a_piece_are_unused(with_a_hole):
    assert with_a_hole["tokenizer.ggml.tokens"][330:] == [
        "[PAD330]", "ż", "[PAD332]", "[PAD333]", "[PAD334]", "[PAD335]"]
    assert with_a_hole["tokenizer.ggml.token_type"][330:] == [5, 1, 5, 5, 5, 5]


def test_an_imported_tokenizer_begins_texts_as_before(with_a_hole):
    assert with_a_hole["tokenizer.ggml.add_space_prefix"] is True
    assert with_a_hole["tokenizer.ggml.add_bos_token"] is True
    assert with_a_hole["tokenizer.ggml.bos_token_id"] == 1
    assert with_a_hole["tokenizer.ggml.eos_token_id"] == 2
    assert "tokenizer.ggml.padding_token_id" not in with_a_hole
