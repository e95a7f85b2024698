"""What bench.py prints: a table for people, one line of JSON last, and figures that agree."""

import json
import os
from pathlib import Path

import pytest
import torch
from conftest import model_config, refusal

import bench
from model.config import ModelConfig

TINY = ["--model.dim", "32", "--model.n_layers", "1", "--model.n_heads", "2",
        "--model.n_kv_heads", "1", "--model.hidden_dim", "48", "--data.vocab_size", "300",
        "--data.seq_len", "24", "--train.batch_size", "3", "--train.device", "cpu",
        "--train.compile", "false", "--repeats", "1", "--new-tokens", "5"]
PEERS = {"transformers, eager, float32", "transformers, eager, bfloat16"}


@pytest.mark.slow
def test_figures_are_printed_and_written(tmp_path, capsys):
    bench.main([*TINY, "--json", str(tmp_path / "bench.json")])
    out = capsys.readouterr().out
    figures = json.loads(out.splitlines()[-1])
    assert figures == json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    model = ModelConfig(**figures["model"])
    chosen = figures["dtype"].removeprefix("torch.")
    for part in ("training", "prefill", "decoding_1", "decoding_8", "decoding_32"):
        rates = figures[part]["tokens_per_second"]
        assert set(rates) == {f"gyre, eager, {chosen}", *PEERS}
        assert all(rate > 0 for rate in rates.values())
    assert all(peak > 2**26 for peak in figures["training"]["peak_bytes"].values())
    limit = figures["matmul_flops_per_second"][figures["dtype"]] / model.flops_per_token(24)
    assert figures["training"]["limit"] == pytest.approx(limit)
    # 32 rows read the weights once, and 32 caches.
    width = 2 if figures["dtype"] == "torch.bfloat16" else 4
    weights = width * (300 * 32 + 3 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32)
    for batch in (1, 32):
        read = weights + batch * width * 2 * 16 * 5 / 2
        limit = batch * figures["copy_bytes_per_second"] / read
        assert figures[f"decoding_{batch}"]["limit"] == pytest.approx(limit)


@pytest.mark.slow
def test_a_compiled_subject_compiles_into_its_own_cache():
    config, cpu = model_config(n_layers=1), torch.device("cpu")
    with bench.subject(cpu) as call:
        setting = bench.Setting("gyre", True, torch.float32)
        assert call(bench.build, bench.training_step, setting, config, 3, 24, cpu) > 0
        assert call(bench.measure_call) > 0
        cache = Path(call(os.getenv, "TORCHINDUCTOR_CACHE_DIR"))
        assert any(cache.rglob("*.so"))
        assert call(bench.peak_bytes) > 2**26
        call(bench.release)
    assert not cache.exists()


@pytest.mark.slow
def test_an_encoding_that_is_not_llamas_runs_without_the_peer(capsys):
    bench.main([*TINY, "--model.position", "alibi", "--train.dtype", "float32"])
    captured = capsys.readouterr()
    assert "without transformers" in captured.err
    rates = json.loads(captured.out.splitlines()[-1])["prefill"]["tokens_per_second"]
    assert set(rates) == {"gyre, eager, float32"}


@pytest.mark.parametrize(("options", "words"), [
    (["--train.micro_batch_size", "1"], "train.micro_batch_size are not measured"),
    (["--train.dtype", "float16"], "train.dtype float16 and"),
    (["--repeats", "0"], "repeats must be at least 1, not 0"),
])
def test_what_cannot_be_measured_is_refused(options, words, capsys):
    assert words in refusal(capsys, bench.main, *TINY, *options)[-1]
