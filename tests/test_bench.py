"""What bench.py prints and writes, and what it measures."""

import itertools
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import CPU, load, model_config

import bench
from files import read_json
from model.config import ModelConfig

TINY = ["--model.dim", "32", "--model.n_layers", "1", "--model.n_heads", "2",
        "--model.n_kv_heads", "1", "--model.hidden_dim", "48", "--data.vocab_size", "300",
        "--data.seq_len", "24", "--train.batch_size", "3", "--train.device", "cpu",
        "--train.compile", "false", "--train.dtype", "float32", "--repeats", "1",
        "--new-tokens", "5"]


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_figures_are_printed_and_written(tmp_path, capsys, monkeypatch, real):
    """Of processes that measure; or of this one, for a model without a peer, at once."""
    subjects, argv = {"gyre, eager, float32", "transformers, eager, float32"}, TINY
    if not real:
        machine = (3e9, {"torch.float32": 5e9})
        monkeypatch.setattr(bench, "measure_machine", lambda *_: machine)
        monkeypatch.setattr(bench, "start_subject", lambda _: lambda call, *words: call(*words))
        monkeypatch.setattr(bench, "measure_seconds", lambda _, call: (call(), 0.5)[1])
        monkeypatch.setattr(bench, "gc", Mock())
        monkeypatch.setattr(bench.time, "sleep", Mock())
        subjects, argv = {"gyre, eager, float32"}, [*TINY, "--model.position", "alibi"]
    bench.main([*argv, "--json", str(tmp_path / "bench.json")])
    figures, out = read_json(tmp_path / "bench.json"), capsys.readouterr().out
    model = ModelConfig(**figures["model"])
    for part, tokens in (("training", 3 * 24), ("prefill", bench.PREFILLS * 24),
                         ("decoding_1", 5), ("decoding_8", 8 * 5), ("decoding_32", 32 * 5)):
        rates = figures[part]["tokens_per_second"]
        assert set(rates) == subjects
        assert real or {*rates.values()} == {tokens / 0.5}
        assert all(rate > 0 and f"{rate:,.0f}" in out for rate in rates.values())
    limit = figures["matmul_flops_per_second"]["torch.float32"] / model.flops_per_token(24)
    assert figures["training"]["limit"] == pytest.approx(limit)
    for batch in (1, 32):
        read = bench.count_bytes(model, batch, 5 / 2, torch.float32)
        limit = batch * figures["copy_bytes_per_second"] / read
        assert figures[f"decoding_{batch}"]["limit"] == pytest.approx(limit)


def test_a_rate_leaves_the_first_round_out_and_a_copy_reads_and_writes(monkeypatch):
    seconds = iter([9.0, 1.0, 3.0])
    assert bench.alternate({"a": lambda: next(seconds)}, 2, "") == {"a": 2.0}
    monkeypatch.setattr(bench, "measure_seconds", lambda *_: 0.5)
    copied, flops = bench.measure_machine(CPU, torch.float32)
    assert copied == 2 * 2**27 / 0.5 and {*flops.values()} == {2 * 2048**3 / 0.5}


def test_32_rows_read_the_weights_once_and_32_caches():
    """Of embeddings that are in no product, a row; tied, they are the output matrix."""
    weights = 97 * 48 + 7 * 48 + 3 * (2 * 48 * 48 + 2 * 48 * 16 + 3 * 48 * 80)
    for tied, rows in itertools.product((True, False), (1, 32)):
        read = bench.count_bytes(model_config(tie_embeddings=tied), rows, 2.5, torch.bfloat16)
        assert read == 2 * (weights + rows * 2.5 * 2 * 3 * 16)


def compile_cache() -> str:
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # slow to import

    return cache_dir()


@pytest.mark.slow
def test_each_subject_has_an_empty_compile_cache_of_its_own():
    with ExitStack() as held:
        caches = [Path(bench.start_subject(held)(compile_cache)) for _ in range(2)]
        assert caches[0] != caches[1] and not any(any(cache.iterdir()) for cache in caches)
    assert not any(cache.exists() for cache in caches)


def test_the_peer_is_measured_in_every_fast_dtype_unless_it_has_no_such_model(monkeypatch, capsys):
    def settings(rates, *words):
        monkeypatch.setattr(bench.devices, "matmul_rates", lambda *_, **__: rates)
        return list(map(str, bench.choose_settings(load("--train.compile=false", *words), CPU)))

    peer = "transformers, eager, "
    both = [peer + "float32", peer + "bfloat16"]
    assert settings([1e9, 2e9]) == ["gyre, eager, bfloat16", *both]
    assert settings([1e9, 2e8]) == ["gyre, eager, float32", *both]
    assert settings([1e9, 9e7]) == ["gyre, eager, float32", peer + "float32"]
    assert settings([1e9, 2e9], "--train.dtype=float32") == [
        "gyre, eager, float32", peer + "float32"]
    assert settings([1e9, 2e9], "--model.position=alibi") == ["gyre, eager, bfloat16"]
    assert "without transformers" in capsys.readouterr().err
