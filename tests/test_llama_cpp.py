"""llama.cpp called from Python. Most tests here need the libraries that npm brings."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from builders import ROOT, random_model, require_program, skip_without
from saved_models import byte_level_gguf, export_to, make_run
from saved_tokenizers import byte_level_fields

from data.tokenizer import open_tokenizer
from errors import UserError
from formats import gguf, names
from formats.gguf_tokenizers import ENDS, write_tokenizer
from model.generation import generate
from model.sampling import Sampling
from tools import judge_gguf, llama_cpp

IDS = [5, 90, 17, 3, 64, 64, 8, 41, 2, 77]


@pytest.fixture(scope="module", autouse=True)
def no_llama_cpp_python():
    """Whatever is installed, npm's libraries are tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama_cpp, "find_spec", lambda name: None)
        llama_cpp.load_library.cache_clear()
        yield
    llama_cpp.load_library.cache_clear()


# --- the libraries --------------------------------------------------------------------------------


def test_without_npm_an_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="npm is not installed.*pip install llama-cpp-python"):
        llama_cpp.fetch_libraries(tmp_path)


def test_other_systems_are_told_that_npm_has_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(UserError, match="linux-x64@3.22.1 runs on Linux on x86 only"):
        llama_cpp.fetch_libraries(tmp_path)


@pytest.fixture(scope="module")
def library():
    require_program("npm")
    try:
        return llama_cpp.load_library()
    except UserError:
        skip_without("node-llama-cpp")


@pytest.mark.slow
def test_defaults_stand_where_the_structures_have_them(library):
    params = library.llama_context_default_params()
    seen = [params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max, params.n_threads,
            params.flash_attn_type, params.defrag_thold, params.type_k, params.type_v]
    assert seen == [512, 2048, 512, 1, 4, -1, -1.0, 1, 1]
    model = library.llama_model_default_params()
    assert [model.n_gpu_layers, model.split_mode, model.load_mode] == [-1, 1, -1]


@pytest.mark.slow
def test_its_instructions_are_named(library):
    text = llama_cpp.describe_library()
    assert text.startswith("@node-llama-cpp/linux-x64@3.22.1, CPU : SSE3 ")
    assert " REPACK" in text


@pytest.mark.slow
def test_what_keeps_pytorch_from_avx512_keeps_llama_cpp(library):
    script = "from tools import llama_cpp; print(llama_cpp.describe_library())"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True,
                          check=True, env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"})
    assert " AVX2 " in done.stdout
    assert "AVX512" not in done.stdout


# --- models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours():
    """A random model of 97 ids and 16 positions, with large weights."""
    model = random_model(vocab_size=97, max_positions=16)
    for weight in model.parameters():
        weight.data *= 4
    return model


@pytest.fixture(scope="module")
def theirs(library, ours, tmp_path_factory):
    file = tmp_path_factory.mktemp("gguf") / "model.gguf"
    weights = ours.state_dict()
    tensor_names = names.tensor_names(ours.config, "gguf")
    tensors = {gguf_name: weights[name] for name, gguf_name in tensor_names.items()}
    fields = {**gguf.model_fields(ours.config), "tokenizer.ggml.model": "no_vocab"}
    gguf.write_weights(file, "random", tensors, "f32", fields)
    return llama_cpp.Model(file)


@torch.no_grad()
def our_logits(ours):
    return ours(torch.tensor([IDS]))[0]


@pytest.mark.slow
def test_exact_logits_are_ours(ours, theirs):
    decoder = llama_cpp.Decoder(theirs, 16, rows=1, threads=1, exact=True)
    logits = torch.tensor(decoder.read([IDS], every=True))
    assert our_logits(ours).abs().max() > 1
    torch.testing.assert_close(logits, our_logits(ours), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_logits_with_its_own_settings_are_close_to_ours(ours, theirs):
    decoder = llama_cpp.Decoder(theirs, 16, rows=1, threads=2)
    logits = torch.tensor(decoder.read([IDS]))
    torch.testing.assert_close(logits[0], our_logits(ours)[-1], atol=2e-2, rtol=0)


@pytest.mark.slow
def test_a_text_read_in_two_parts_has_the_same_logits(ours, theirs):
    decoder = llama_cpp.Decoder(theirs, 16, rows=1, threads=1, exact=True)
    decoder.read([IDS[:7]])
    logits = torch.tensor(decoder.read([IDS[7:]]))
    torch.testing.assert_close(logits[0], our_logits(ours)[-1], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_after_clear_a_text_begins_anew(ours, theirs):
    decoder = llama_cpp.Decoder(theirs, 16, rows=1, threads=1, exact=True)
    decoder.read([IDS[::-1]])
    decoder.clear()
    logits = torch.tensor(decoder.read([IDS]))
    torch.testing.assert_close(logits[0], our_logits(ours)[-1], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_parallel_sequences_get_the_tokens_that_ours_get(ours, theirs):
    prompts = [[row + 1, 50 - row] for row in range(8)]
    decoder = llama_cpp.Decoder(theirs, 16, rows=8, threads=2, exact=True)
    expected = list(generate(ours, prompts, Sampling(temperature=0), max_new_tokens=9))
    assert len({tuple(tokens) for tokens in expected}) == 8
    assert decoder.generate(prompts, 9) == expected


@pytest.mark.slow
def test_ids_after_the_last_position_are_refused(theirs):
    decoder = llama_cpp.Decoder(theirs, 16, rows=1, threads=1)
    decoder.read([[1] * 10])
    with pytest.raises(ValueError, match="17 ids are more than the cache's 16 positions"):
        decoder.read([[1] * 7])


@pytest.mark.slow
@pytest.mark.parametrize("ids, refused", [([[1], [1] * 17], "17 ids are more"),
                                          ([[1], [1], [1]], "3 rows are more")])
def test_rows_that_the_cache_has_no_room_for_are_refused(theirs, ids, refused):
    decoder = llama_cpp.Decoder(theirs, 16, rows=2, threads=1)
    with pytest.raises(ValueError, match=refused):
        decoder.read(ids)


@pytest.mark.slow
def test_a_file_without_a_model_is_refused(library, tmp_path):
    file = Path(tmp_path, "empty.gguf")
    file.write_bytes(b"GGUF")
    with pytest.raises(UserError, match="llama.cpp cannot load .*empty.gguf"):
        llama_cpp.Model(file)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [1, 3, 4])
def test_texts_of_a_gguf_end_where_llama_cpp_ends_them(kind, library, tmp_path):
    """Of these types: ordinary, control, and user-defined."""
    ends = sorted(ENDS - {"</s>"})
    fields = byte_level_fields("gpt-2", eot_token_id=299)
    fields["tokenizer.ggml.tokens"][300:] = ends
    fields["tokenizer.ggml.token_type"][300:] = [kind] * len(ends)
    written = tmp_path / "written"
    written.mkdir()
    write_tokenizer(fields, written)
    theirs = llama_cpp.Model(byte_level_gguf(tmp_path, fields, vocab_size=310))
    assert sorted(open_tokenizer(written).eos_ids) == list(range(299, 310))
    assert [i for i in range(310) if theirs.ends_texts(i)] == list(range(299, 310))


@pytest.mark.slow
def test_the_judge_finds_no_difference_in_an_export(library, tmp_path, capsys):
    """But for U+2581, which llama.cpp reads as a space."""
    run = make_run(tmp_path, max_positions=128)
    file = export_to("gguf", run.path, tmp_path / "out.gguf")
    judge_gguf.main(str(run.path), [str(file)])
    out, err = capsys.readouterr()
    row = out.splitlines()[-1].split(" | ")
    assert row[1:3] == ["23 of 24", "1 of 1"]
    assert row[4:] == ["100.0%", "64 of 64 |"]
    assert err.splitlines()[-1].endswith("other ids for '▁ a▁b'")
