"""What bench.py prints and writes, and what it measures."""

import itertools
import sys
from unittest.mock import Mock

import gguf
import pytest
import torch
from conftest import CPU, load, model_config, refusal

import bench
from files import read_json
from model.config import ModelConfig

TINY = """model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_heads: 1, hidden_dim: 48, max_positions: 8}
data: {vocab_size: 300, seq_len: 8}
train: {batch_size: 3, device: cpu, compile: false, dtype: float32, sample_tokens: 0}"""


@pytest.fixture
def at_once(monkeypatch):
    """What was made, in this process and in no measured time."""
    made = []
    monkeypatch.setattr(bench, "measure_machine", lambda *_: (3e9, {"torch.float32": 5e9}))
    monkeypatch.setattr(bench, "start_subject", lambda _: lambda call, *words: call(*words))
    monkeypatch.setattr(bench, "measure_seconds", lambda _, call: (made.append(call()), 0.5)[1])
    monkeypatch.setattr(bench, "gc", Mock())
    monkeypatch.setattr(bench.time, "sleep", Mock())
    return made


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_figures_are_printed_and_written(tmp_path, capsys, request, real):
    """Of processes that measure; or of this one, for a model without a peer, at once."""
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    argv = ["--config", str(tmp_path / "tiny.yaml"), "--repeats=1", "--new-tokens=9"]
    subjects, made = {"gyre, eager, float32", "transformers, eager, float32"}, []
    if not real:
        made = request.getfixturevalue("at_once")
        subjects, argv = {"gyre, eager, float32"}, [*argv, "--model.position", "alibi"]
    bench.main([*argv, "--json", str(tmp_path / "bench.json")])
    figures, out = read_json(tmp_path / "bench.json"), capsys.readouterr().out
    model = ModelConfig(**figures["model"])
    assert real or "GFLOP/s: 5 in torch.float32; copies: 3.0 GB/s" in out
    decoded = [list(map(len, rows)) for rows in made if isinstance(rows, list)]
    assert real or decoded == [[9] * rows for rows in (1, 8, 32) for _ in range(3)]
    for part, tokens in (("training", 3 * 8), ("prefill", bench.PREFILLS * 8),
                         ("decoding_1", 9), ("decoding_8", 8 * 9), ("decoding_32", 32 * 9)):
        rates, limit = figures[part]["tokens_per_second"], figures[part]["limit"]
        assert set(rates) == subjects and (real or {*rates.values()} == {tokens / 0.5})
        assert all(rate > 0 and f" {rate:,.0f} {100 * rate / limit:>12.0f} %" in out
                   for rate in rates.values())
    flops = figures["matmul_flops_per_second"]["torch.float32"]
    # Queries, keys and values of every token, and all that follows of the last.
    work = 2 * (8 * 2 * 32 * 32 + 2 * 8 * 32 + 32 * 32 + 3 * 32 * 48 + 32 * 300)
    limits = {"training": flops / model.flops_per_token(8), "prefill": 8 * flops / work}
    for rows in (1, 32):
        read = bench.count_bytes(model, rows, 9 / 2, torch.float32)
        limits[f"decoding_{rows}"] = rows * figures["copy_bytes_per_second"] / read
    assert {part: figures[part]["limit"] for part in limits} == pytest.approx(limits)


def test_a_rate_leaves_the_first_round_out_and_a_copy_reads_and_writes(monkeypatch, capsys):
    """A rate is that of the median, and compiling is what the first call takes longer."""
    kind, times = bench.Setting("gyre", True, torch.float32), iter([9.0, 8.0, 1.0, 3.0, 40.0])
    bench.measure_part({kind: lambda *_: next(times)}, None, CPU, "", [kind], 12, 8.0, 3, None)
    assert {"4", "50", "6.0"} <= {*capsys.readouterr().out.split()}  # rate, share, seconds
    monkeypatch.setattr(bench, "measure_seconds", lambda *_: 0.5)
    copied, flops = bench.measure_machine(CPU, torch.float32)
    assert copied == 2 * 2**27 / 0.5 and {*flops.values()} == {2 * 2048**3 / 0.5}


def test_32_rows_read_the_weights_once_and_32_caches():
    """Of embeddings that are in no product, a row; tied, they are the output matrix."""
    weights = 97 * 48 + 3 * (2 * 48 * 48 + 2 * 48 * 16 + 3 * 48 * 80)
    for tied, rows in itertools.product((True, False), (1, 32)):
        read = bench.count_bytes(model_config(tie_embeddings=tied), rows, 2.5, torch.bfloat16)
        assert read == 2 * (weights + rows * 2.5 * 2 * 3 * 16)


def test_the_peer_is_measured_in_every_fast_dtype_unless_it_has_no_such_model(monkeypatch, capsys):
    def settings(rates, *words):
        monkeypatch.setattr(bench.devices, "matmul_rates", lambda *_, **__: rates)
        config = load("--train.compile=false", *words)
        return list(map(str, bench.choose_settings(config, CPU, "transformers")[1]))

    both = ["transformers, eager, float32", "transformers, eager, bfloat16"]
    assert settings([1e9, 2e9]) == ["gyre, eager, bfloat16", *both]
    assert settings([1e9, 2e8]) == ["gyre, eager, float32", *both]
    assert settings([1e9, 9e7]) == ["gyre, eager, float32", both[0]]
    assert settings([1e9, 2e9], "--train.dtype=float32") == ["gyre, eager, float32", both[0]]
    assert settings([1e9, 2e9], "--model.position=alibi") == ["gyre, eager, bfloat16"]
    assert "without transformers" in capsys.readouterr().err


def test_llama_cpp_gets_the_same_model_in_each_dtype(tmp_path, at_once, monkeypatch, capsys):
    kinds = []

    def open_model(file, **_):
        kinds.append({tensor.tensor_type.name for tensor in gguf.GGUFReader(file).tensors})
        return Mock(generate=lambda prompt, temp: itertools.count())

    monkeypatch.setitem(sys.modules, "llama_cpp", Mock(Llama=open_model))
    (tmp_path / "tiny.yaml").write_text(TINY.replace("48", "64"), encoding="utf-8")
    argv = [f"--config={tmp_path / 'tiny.yaml'}", "--new-tokens=5", "--peer=llama.cpp"]
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    assert "needs `pip install llama-cpp-python`" in refusal(capsys, bench.main, *argv)[-1]
    monkeypatch.setattr(bench, "find_spec", str)
    bench.main(argv)
    assert kinds == 2 * [{"F32"}, {"F32", "Q8_0"}] and at_once[-1] == [*range(5)]
    assert capsys.readouterr().out.count("gyre, eager, int8 ") == 2
