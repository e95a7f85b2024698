"""What bench.py prints: a table for people, one line of JSON last, and figures that agree."""

import json

import pytest
import torch
from matplotlib import image

import bench
from gyre.measure import flops_per_token
from model.config import ModelConfig

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
        assert set(rates) == {"gyre, eager", "transformers, eager"}
        assert all(rate > 0 for rate in rates.values())
    assert all(peak > 2**26 for peak in figures["training"]["peak_bytes"].values())
    limit = figures["matmul_flops_per_second"] / flops_per_token(model, 16)
    assert figures["training"]["limit"] == pytest.approx(limit)
    # 32 rows read the weights once, and 32 caches.
    width = 2 if figures["dtype"] == "torch.bfloat16" else 4
    weights = width * (300 * 32 + 3 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 32)
    for batch in (1, 32):
        read = weights + batch * width * 2 * 16 * 3 / 2
        limit = batch * figures["copy_bytes_per_second"] / read
        assert figures[f"decoding_{batch}"]["limit"] == pytest.approx(limit)


def test_a_compiled_subject_compiles_into_its_own_cache(tmp_path):
    config = ModelConfig(
        dim=32, n_layers=1, n_heads=2, n_kv_heads=1, vocab_size=300, max_positions=16
    )
    cpu = torch.device("cpu")
    with bench._process() as process:
        subject = bench.Subject(process, cpu, str(tmp_path))
        subject.build(bench.training_step, "gyre, compiled", config, 2, 16, cpu, torch.float32)
        assert subject.seconds() > 0
        assert any(tmp_path.rglob("*.so"))
        assert subject.peak_bytes() > 2**26
        subject.release()


def test_an_encoding_that_is_not_llamas_runs_without_the_peer(capsys):
    bench.main([*TINY, "--model.position", "alibi"])
    captured = capsys.readouterr()
    assert "without transformers" in captured.err
    assert set(json.loads(captured.out.splitlines()[-1])["prefill"]["tokens_per_second"]) == {
        "gyre, eager"
    }


def test_growth_measures_every_point_and_draws_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "GROWTH_SIZES", [(64, 2)])
    monkeypatch.setattr(bench, "GROWTH_CONTEXTS", [96])
    monkeypatch.setattr(bench, "GROWTH_ROWS", [5])
    tiny = [*TINY[:-2], "--growth", str(tmp_path)]
    for option, words in (
        ([], "data.seq_len must be above 64"),
        (["--new-tokens", "3"], "--new-tokens has no effect"),
        (["--train.micro_batch_size", "1"], "micro_batch_size"),
    ):
        with pytest.raises(SystemExit):
            bench.main([*tiny, *option])
        assert words in capsys.readouterr().err
    bench.main([*tiny, "--data.seq_len", "80"])
    assert image.imread(tmp_path / "growth.png").std() > 0
    size, context, batch = json.loads(capsys.readouterr().out.splitlines()[-1])["points"]
    base = 300 * 32 + 3 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 32
    assert [p["parameters"] for p in (context, batch)] == [base, base] != size["parameters"]
    assert [(p["context"], p["rows"], p["train_rows"]) for p in (size, context, batch)] == [
        (80, 1, 2), (96, 1, 1), (80, 5, 5)
    ]  # fmt: skip
    for point in (size, context, batch):
        assert point["step_seconds"] > 0
        assert 2**26 < point["decode_peak_bytes"] < point["train_peak_bytes"]
    caches = batch["step_bytes"] - context["step_bytes"]  # of mean lengths 48 and 64
    assert caches in [width * 2 * 16 * (5 * 48 - 64) for width in (2, 4)]
