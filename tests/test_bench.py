"""What bench.py prints: a table for people, one line of JSON last, and figures that agree."""

import json

import pytest

import bench
from evaluate import flops_per_token
from model.transformer import ModelConfig

TINY = ["--model.dim", "32", "--model.n_layers", "1", "--model.n_heads", "2",
        "--model.n_kv_heads", "1", "--model.hidden_dim", "32", "--data.vocab_size", "300",
        "--data.seq_len", "16", "--train.batch_size", "2", "--train.device", "cpu",
        "--train.compile", "false", "--repeats", "1", "--new-tokens", "3"]  # fmt: skip


def test_figures_are_printed_and_written(tmp_path, capsys):
    bench.main([*TINY, "--json", str(tmp_path / "bench.json")])
    out = capsys.readouterr().out
    figures = json.loads(out.splitlines()[-1])
    assert figures == json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    model = ModelConfig(**figures["model"])
    parts = ["training", "prefill", "decoding_1", "decoding_8", "decoding_32"]
    for part in parts:
        rates = figures[part]["tokens_per_second"]
        assert {name.split(",")[0] for name in rates} == {"gyre", "transformers"}
        assert all(rate > 0 for rate in rates.values())
    limit = figures["matmul_flops_per_second"] / flops_per_token(model, 16)
    assert figures["training"]["limit"] == pytest.approx(limit)
    # 32 rows read the weights once, and 32 caches.
    width = 2 if figures["dtype"] == "torch.bfloat16" else 4
    weights = width * (300 * 32 + 3 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 32)
    for batch in (1, 32):
        read = weights + batch * width * 2 * 16 * 3 / 2
        limit = batch * figures["copy_bytes_per_second"] / read
        assert figures[f"decoding_{batch}"]["limit"] == pytest.approx(limit)


def test_an_encoding_that_is_not_llamas_runs_without_the_peer(capsys):
    bench.main([*TINY, "--model.position", "alibi"])
    captured = capsys.readouterr()
    assert "without transformers" in captured.err
    assert set(json.loads(captured.out.splitlines()[-1])["prefill"]["tokens_per_second"]) == {
        "gyre, eager"
    }
