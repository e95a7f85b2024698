"""What bench.py prints and writes, and what it measures."""

import io
import mmap
import os
import signal
import sys
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from types import SimpleNamespace
from unittest.mock import Mock, call

import gguf
import psutil
import pytest
import torch
from builders import CPU, error_lines, model_config, parse_config

import bench
from errors import UserError
from files import read_json
from model.config import ModelConfig
from model.encodings import key_dim
from tools import llama_cpp

TINY = """
model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_heads: 1, hidden_dim: 64, max_positions: 7}
data: {vocab_size: 300, seq_len: 5}
train: {batch_size: 3, device: cpu, compile: false, dtype: float32, sample_tokens: 0}
"""
OURS = "gyre, eager, float32"
THEIRS = "transformers, eager, float32"
PARTS = ("training", "prefill", "decoding_1", "decoding_8", "decoding_32")


@pytest.fixture(scope="module")
def bench_argv(tmp_path_factory):
    """The command line for a tiny model, measured once."""
    file = tmp_path_factory.mktemp("configs") / "tiny.yaml"
    file.write_text(TINY, encoding="utf-8")
    return ["--config", str(file), "--repeats=1", "--new-tokens=9"]


@contextmanager
def measuring_here():
    """Measure in this process, with a fake clock: each call takes 0.5 s.

    The machine has 5 GFLOP/s and copies 3 GB/s. Yields the list of what the calls returned.
    """
    results = []

    def measure_seconds(device, call, burst=1):
        results.append(call())
        return 0.5

    def start_subject(held):
        return lambda function, *arguments: function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "measure_machine", lambda *_: (3e9, {"torch.float32": 5e9}))
        patch.setattr(bench, "start_subject", start_subject)
        patch.setattr(bench, "measure_seconds", measure_seconds)
        patch.setattr(bench.gc, "collect", lambda: None)
        patch.setattr(bench.time, "sleep", lambda seconds: None)
        yield results


@pytest.fixture
def results():
    with measuring_here() as results:
        yield results


@pytest.fixture(scope="module")
def measured(bench_argv, tmp_path_factory):
    """What bench.py writes and prints of a model that has no peer, because of its encoding."""
    file = tmp_path_factory.mktemp("figures") / "bench.json"
    out = io.StringIO()
    err = io.StringIO()
    with measuring_here() as results, redirect_stdout(out), redirect_stderr(err):
        bench.main([*bench_argv, "--model.position=alibi", "--json", str(file)])
    return SimpleNamespace(figures=read_json(file), results=results, out=out.getvalue(),
                           err=err.getvalue())


@pytest.fixture(scope="module")
def figures(measured):
    return measured.figures


# --- the figures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("part, rate", [
    ("training", 30.0), ("prefill", 80.0), ("decoding_1", 18.0), ("decoding_8", 144.0),
    ("decoding_32", 576.0)])
def test_a_rate_is_tokens_by_seconds(figures, part, rate):
    """3 rows of 5 tokens, 8 prompts of 5 tokens, and 9 new tokens of 1, 8 and 32 rows."""
    assert figures[part]["tokens_per_second"] == {OURS: rate}


def test_decoding_is_measured_of_every_row(measured):
    """Each three times: the first call, and two rounds."""
    decoded = [rows for rows in measured.results if isinstance(rows, list)]
    assert [len(rows) for rows in decoded] == [1, 1, 1, 8, 8, 8, 32, 32, 32]
    for rows in decoded:
        assert {len(row) for row in rows} == {9}


def test_the_machine_is_printed_first(measured):
    first = measured.out.splitlines()[0]
    assert first.endswith("; GFLOP/s: 5 in torch.float32; copies: 3.0 GB/s")


def test_the_limit_of_training_is_the_rate_of_products(figures):
    """6 FLOPs for each weight of a product, and 12 for each score of a query and key."""
    weights = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 32 * 300
    scores = 5 * 32
    assert figures["training"]["limit"] == pytest.approx(5e9 / (6 * weights + 12 * scores))


def test_the_limit_of_prefill_needs_the_end_of_one_token_only(figures):
    """Queries, keys and values of every token, and all that follows of the last."""
    every_token = 32 * 32 + 2 * 32 * 16
    last_token = 2 * 5 * 32 + 32 * 32 + 3 * 32 * 64 + 32 * 300
    flops = 2 * (5 * every_token + last_token)
    assert figures["prefill"]["limit"] == pytest.approx(5 * 5e9 / flops)


@pytest.mark.parametrize("rows", [1, 32])
def test_bandwidth_limits_decoding_to_reading_once(figures, rows):
    """The weights and, for each row, a cache of on average 4.5 tokens."""
    weights = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 32 * 300
    cache = 4.5 * 2 * 16
    limit = rows * 3e9 / (4 * (weights + rows * cache))
    limits = figures[f"decoding_{rows}"]["limits"]
    assert limits["limit of bandwidth"] == pytest.approx(limit)


@pytest.mark.parametrize("rows", [1, 32])
def test_products_limit_decoding_to_their_rate(figures, rows):
    """2 FLOPs for each weight, and 2 for each channel of 4.5 keys and of their values."""
    weights = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 32 * 300
    limit = 5e9 / (2 * weights + 2 * 4.5 * (32 + 32))
    limits = figures[f"decoding_{rows}"]["limits"]
    assert limits["limit of products"] == pytest.approx(limit)


@pytest.mark.parametrize("rows, smaller", [
    (1, "limit of bandwidth"), (32, "limit of products")])
def test_the_limit_of_decoding_is_the_smaller_one(figures, rows, smaller):
    decoding = figures[f"decoding_{rows}"]
    assert decoding["limit"] == decoding["limits"][smaller]


@pytest.mark.parametrize("tied", [True, False])
def test_32_rows_read_the_weights_once_and_32_caches(tied):
    """Of embeddings that are in no product, a row; tied, they are the output matrix."""
    weights = 97 * 48 + 3 * (2 * 48 * 48 + 2 * 48 * 16 + 3 * 48 * 80)
    caches = 32 * 2.5 * 2 * 3 * 16
    read = bench.count_bytes(model_config(tie_embeddings=tied), 32, 2.5, torch.bfloat16)
    assert read == 2 * (weights + caches)


def test_wider_keys_are_counted_where_they_are_read():
    """PoPE's keys have 2 x 16 numbers a token and layer, and its values 16."""
    weights = 97 * 48 + 3 * (2 * 48 * 48 + 2 * 48 * 16 + 3 * 48 * 80)
    read = bench.count_bytes(model_config(position="pope"), 32, 2.5, torch.bfloat16)
    assert read == 2 * (weights + 32 * 2.5 * 3 * (32 + 16))


def test_wider_keys_are_counted_where_they_are_compared():
    """3 layers, 6 heads, 8 channels: PoPE's 16 instead of 8 cost 6 x 20 x 3 x 6 x 8 more."""
    pope = model_config(position="pope")
    assert pope.flops_per_token(20, key_dim(pope)) == pope.flops_per_token(20) + 17280


@pytest.mark.slow
def test_processes_measure_both_programs(bench_argv, tmp_path, capsys, monkeypatch):
    """Two rounds of each, of which the second one counts, for the machine too."""
    alternate = bench.alternate
    monkeypatch.setattr(bench, "alternate", lambda clocks, repeats, what:
                        alternate(clocks, 1, what))
    bench.main([*bench_argv, "--json", str(tmp_path / "bench.json")])
    figures = read_json(tmp_path / "bench.json")
    assert ModelConfig(**figures["model"]).dim == 32
    printed = capsys.readouterr().out
    for part in PARTS:
        rates = figures[part]["tokens_per_second"]
        assert set(rates) == {OURS, THEIRS}
        for rate in rates.values():
            share = 100 * rate / figures[part]["limit"]
            assert rate > 0
            assert f" {rate:,.0f} {share:>12.0f} %" in printed


@pytest.mark.slow
def test_a_process_that_is_killed_is_an_error():
    with ExitStack() as held, pytest.raises(UserError, match="killed, perhaps for lack of memory"):
        bench.start_subject(held)(os._exit, 9)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows blocks no signal")
@pytest.mark.parametrize("module", ["sitecustomize", "torch"])  # the first module, and a slow one
def test_ctrl_c_while_a_subject_starts_has_no_traceback(module, tmp_path, monkeypatch, capfd):
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\n"
        + "time.sleep(60)\n" * (module == "torch"), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the process while Python starts
    monkeypatch.syspath_prepend(tmp_path)  # and afterwards
    command = SimpleNamespace(__file__=bench.__file__, __spec__=None)
    monkeypatch.setitem(sys.modules, "__main__", command)
    with ExitStack() as held, pytest.raises(UserError, match="killed"):
        bench.start_subject(held)(os.getpid)
    assert capfd.readouterr() == ("", "")


# --- how it is measured ---------------------------------------------------------------------------


LIMITS = {"limit of products": 16.0, "limit of bandwidth": 8.0}


@pytest.fixture
def part():
    """The figures of 12 tokens that took 1 s, then 3 s and 40 s; 9 s with compilation, before a
    round of 8 s that is not counted. The limits are 16 and 8 tokens/s."""
    setting = bench.Setting("gyre", True, torch.float32)
    seconds = iter([9.0, 8.0, 1.0, 3.0, 40.0])
    calls = {setting: lambda *_: next(seconds)}
    pace = bench.Pace()
    return bench.measure_part(calls, None, CPU, pace, "a title", [setting], 12, LIMITS, 3,
                              None)


COMPILED = "gyre, compiled, float32"


def test_a_rate_is_that_of_the_median(part):
    assert part["tokens_per_second"] == {COMPILED: 4.0}


def test_compilation_is_what_the_first_call_takes_longer(part):
    assert part["compile_seconds"] == {COMPILED: 6.0}


def test_the_rate_stands_beside_its_share_of_the_smaller_limit(capsys, part):
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"{COMPILED} 4 50 %" in lines
    assert "limit of products 16 200 %" in lines
    assert f"compiling {COMPILED}: 6.0 s" in lines


@pytest.fixture(scope="module")
def machine():
    """Rates of a machine on which everything takes half a second, and the bursts measured."""
    bursts = []

    def measure_seconds(device, call, burst):
        bursts.append(burst)
        return 0.5

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "measure_seconds", measure_seconds)
        patch.setattr(torch, "ones", torch.empty)  # 256 MB and 16 M numbers that no one reads
        patch.setattr(torch, "ones_like", torch.empty_like)
        patch.setattr(torch, "randn", torch.empty)
        dtypes = (torch.float32, torch.bfloat16, torch.float32)
        copied, flops = bench.measure_machine(CPU, dtypes, 10)
    return copied, flops, bursts


def test_a_copy_reads_and_writes(machine):
    copied, _, _ = machine
    assert copied == 2 * 2**27 / 0.5


def test_a_product_has_two_flops_for_each_weight_and_row(machine):
    _, flops, _ = machine
    assert flops == {"torch.float32": 2 * 2048**3 / 0.5, "torch.bfloat16": 2 * 2048**3 / 0.5}


def test_the_machine_is_measured_in_bursts(machine):
    _, _, bursts = machine
    assert set(bursts) == {10}


def test_a_burst_is_as_many_calls():
    call = Mock()
    bench.measure_seconds(CPU, call, 10)
    assert call.call_count == 10


def test_the_seconds_of_a_burst_are_those_of_one_call(monkeypatch):
    monkeypatch.setattr(bench.time, "perf_counter", Mock(side_effect=[3.0, 8.0]))
    assert bench.measure_seconds(CPU, Mock(), 10) == 0.5


def test_on_the_cpu_each_call_is_a_turn_with_a_pause_after_it():
    pace = bench.Pace(burst=1, pause=0.25, frees=False)
    assert bench.choose_paces(CPU) == (pace, pace)


def test_a_turn_ends_with_its_pause(monkeypatch):
    pauses = []
    monkeypatch.setattr(bench.time, "sleep", pauses.append)
    monkeypatch.setattr(bench, "_calls", [Mock()])
    bench.measure_turn(CPU, bench.Pace(pause=0.125))
    assert pauses == [0.125]


def test_the_first_call_replaces_what_the_process_measured_before(results, monkeypatch):
    before = Mock()
    call = Mock()
    setting = bench.Setting("gyre", False, torch.float32)
    monkeypatch.setattr(bench, "_calls", [before])
    bench.measure_first(CPU, bench.Pace(), lambda *_: call, setting)
    bench.measure_turn(CPU, bench.Pace())
    assert before.call_count == 0
    assert call.call_count == 2


# --- how it is measured on a GPU ------------------------------------------------------------------

CUDA = torch.device("cuda", 0)
BF16 = torch.bfloat16
ALL_SETTINGS = [bench.Setting("gyre", True, BF16), bench.Setting("gyre", False, BF16),
                bench.Setting("transformers", True, BF16),
                bench.Setting("transformers", False, BF16)]


class FakeEvent:
    """A CUDA event that records into a list that it was called. Two are 5 seconds apart."""

    def __init__(self, events):
        self.events = events

    def record(self, stream):
        self.events.append("record")

    def synchronize(self):
        self.events.append("wait for the event")

    def elapsed_time(self, ended):
        return 5000.0


def test_on_cuda_events_enclose_a_burst(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: FakeEvent(events))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append("empty the queue"))
    seconds = bench.measure_seconds(CUDA, lambda: events.append("call"), 2)
    assert seconds == 2.5
    assert events == ["empty the queue", "record", "call", "call", "record", "wait for the event"]


def test_on_cuda_a_turn_of_training_is_ten_steps_and_no_pause():
    training, generating = bench.choose_paces(CUDA)
    assert training == bench.Pace(burst=10, pause=0.0, frees=True)
    assert generating == bench.Pace(burst=1, pause=0.0, frees=False)


def test_a_turn_takes_memory_before_its_time_and_frees_it_after(monkeypatch):
    events = []

    def measure_seconds(device, call, burst):
        events.append(f"{burst} timed")
        return 0.5

    monkeypatch.setattr(bench, "_calls", [lambda: events.append("untimed")])
    monkeypatch.setattr(bench, "measure_seconds", measure_seconds)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: events.append("freed"))
    bench.measure_turn(CPU, bench.Pace(burst=10, frees=True))
    assert events == ["untimed", "10 timed", "freed"]


def raise_out_of_memory(*_):
    raise torch.OutOfMemoryError("no room for 6 GB\nand more")


def raise_value_error(*_):
    raise ValueError("it does not compile")


@pytest.mark.parametrize("program, make, reason", [
    ("gyre", raise_out_of_memory, "no room for 6 GB"),
    ("transformers", raise_out_of_memory, "no room for 6 GB"),
    ("transformers", raise_value_error, "it does not compile")])
def test_what_cannot_run_has_a_reason_instead_of_seconds(results, program, make, reason):
    setting = bench.Setting(program, True, BF16)
    assert bench.measure_first(CPU, bench.Pace(), make, setting) == reason


def test_an_error_of_ours_is_raised(results):
    setting = bench.Setting("gyre", True, BF16)
    with pytest.raises(ValueError, match="it does not compile"):
        bench.measure_first(CPU, bench.Pace(), raise_value_error, setting)


@pytest.fixture
def part_without_peer():
    """The figures of a part on a GPU, where our setting takes 3 GB and the peer's does not run."""
    ours = ALL_SETTINGS[0]
    theirs = ALL_SETTINGS[2]

    def call_ours(function, *arguments):
        return 3e9 if function is torch.cuda.max_memory_allocated else 2.0

    calls = {ours: call_ours, theirs: lambda *_: "no room"}
    pace = bench.Pace(burst=10, frees=True)
    return bench.measure_part(calls, None, CPU, pace, "a title", [ours, theirs], 12, LIMITS, 3,
                              None)


def test_a_setting_that_cannot_run_is_left_out(part_without_peer):
    assert part_without_peer["tokens_per_second"] == {"gyre, compiled, bfloat16": 6.0}


def test_a_note_says_which_setting_is_left_out(capsys, part_without_peer):
    err = capsys.readouterr().err
    assert "note: a title: without transformers, compiled, bfloat16: no room\n" in err


def test_where_memory_is_short_its_peak_is_printed(capsys, part_without_peer):
    assert part_without_peer["peak_memory_bytes"] == {"gyre, compiled, bfloat16": 3e9}
    assert "  peak memory of gyre, compiled, bfloat16: 3.0 GB\n" in capsys.readouterr().out


def test_the_peak_memory_of_each_process_is_printed(capsys):
    calls = {ALL_SETTINGS[0]: lambda function: 3 * 2**20}
    assert bench.measure_peaks(calls) == {str(ALL_SETTINGS[0]): 3 * 2**20}
    assert capsys.readouterr().out == (
        f"  peak memory of {ALL_SETTINGS[0]}: 3 MiB, imports included\n")


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_peak_memory_of_a_process_counts_what_was_freed():
    before = bench.peak_resident_bytes()
    below_the_peak = before - psutil.Process().memory_info().rss
    # 40 MiB more than the process has ever had.
    with mmap.mmap(-1, below_the_peak + (40 << 20)) as memory:
        for offset in range(0, len(memory), mmap.PAGESIZE):
            memory[offset] = 1
    assert bench.peak_resident_bytes() > before + (20 << 20)


@pytest.fixture
def measured_on_cuda(monkeypatch, capsys):
    """The figures of a GPU on which every call takes half a second, and what is asked of it."""
    asked = []

    def measure_machine(device, dtypes, burst):
        asked.append((dtypes, burst))
        return 3e12, {"torch.bfloat16": 8e14}

    def start_subject(held):
        return lambda function, *arguments: 0.5

    monkeypatch.setattr(bench.computing, "resolve_device", lambda device: CUDA)
    monkeypatch.setattr(bench, "choose_settings", lambda *_: (BF16, ALL_SETTINGS))
    monkeypatch.setattr(bench, "measure_machine", measure_machine)
    monkeypatch.setattr(bench, "start_subject", start_subject)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    config = parse_config("--config", "bench-gpu.yaml", "--model.dropout=0.1")
    figures = bench.measure_all(config, "transformers", 1, 128)
    return SimpleNamespace(figures=figures, asked=asked, out=capsys.readouterr().out)


def test_on_cuda_the_card_is_named(measured_on_cuda):
    assert measured_on_cuda.figures["processor"] == "a card"
    assert measured_on_cuda.out.startswith("machine: a card; GFLOP/s: 800,000 in torch.bfloat16;")


def test_nothing_is_measured_with_dropout(measured_on_cuda):
    """No peer has it."""
    assert measured_on_cuda.figures["model"]["dropout"] == 0


def test_on_cuda_the_machine_is_measured_in_our_dtype_in_bursts_of_ten(measured_on_cuda):
    assert measured_on_cuda.asked == [((BF16,), 10)]


@pytest.mark.parametrize("part, peers", [
    ("training", ["transformers, compiled, bfloat16", "transformers, eager, bfloat16"]),
    ("prefill", ["transformers, eager, bfloat16"]),
    ("decoding_1", ["transformers, compiled, bfloat16", "transformers, eager, bfloat16"]),
    ("decoding_32", ["transformers, compiled, bfloat16", "transformers, eager, bfloat16"])])
def test_on_cuda_the_peer_is_compiled_except_in_prefill(measured_on_cuda, part, peers):
    rates = measured_on_cuda.figures[part]["tokens_per_second"]
    assert [*rates] == ["gyre, compiled, bfloat16", "gyre, eager, bfloat16", *peers]


def test_the_configuration_for_a_gpu_has_124_million_parameters():
    config = parse_config("--config", "bench-gpu.yaml")
    assert config.model.matrix_parameters == 123_568_128
    assert config.train.batch_size * config.data.seq_len == 32_768


# --- the file of the figures ----------------------------------------------------------------------


def test_stdout_for_the_figures_is_refused(capsys, monkeypatch, bench_argv):
    monkeypatch.setattr(bench, "measure_all", None)
    assert "--json - is not stdout" in error_lines(capsys, bench.main, *bench_argv, "--json=-")[-1]


def test_a_folder_for_the_figures_is_refused(capsys, monkeypatch, bench_argv):
    monkeypatch.setattr(bench, "measure_all", None)
    assert "--json . is a folder" in error_lines(capsys, bench.main, *bench_argv, "--json=.")[-1]


def test_a_place_that_cannot_be_written_is_refused_first(bench_argv, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "measure_all", None)
    (tmp_path / "file").touch()
    error = error_lines(capsys, bench.main, *bench_argv, f"--json={tmp_path}/file/a.json")[-1]
    assert error.endswith(f"because {tmp_path}/file is no folder: choose another place")


def test_a_file_of_something_else_is_not_overwritten(bench_argv, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "measure_all", None)
    file = tmp_path / "config.yaml"
    file.write_text("name: x", encoding="utf-8")
    error = error_lines(capsys, bench.main, *bench_argv, f"--json={file}")[-1]
    assert f"--json {file} would replace a file that --json has not written" in error


def test_the_figures_of_an_earlier_call_are_replaced(measured, bench_argv, tmp_path, monkeypatch):
    file = tmp_path / "bench.json"
    for threads in (3, 4):
        figures = measured.figures | {"threads": threads}
        monkeypatch.setattr(bench, "measure_all", Mock(return_value=figures))
        bench.main([*bench_argv, f"--json={file}"])
    assert read_json(file)["threads"] == 4


# --- what is measured -----------------------------------------------------------------------------


@pytest.mark.parametrize("rates, words, settings", [
    ([1e9, 2e9], [], ["gyre, eager, bfloat16", THEIRS, "transformers, eager, bfloat16"]),
    ([1e9, 2e8], [], [OURS, THEIRS, "transformers, eager, bfloat16"]),
    ([1e9, 9e7], [], [OURS, THEIRS]),  # an emulated bfloat16
    ([9e7, 1e9], [], ["gyre, eager, bfloat16", "transformers, eager, bfloat16"]),
    ([1e9, 2e9], ["--train.dtype=float32"], [OURS, THEIRS]),
    ([1e9, 2e9], ["--model.position=alibi"], ["gyre, eager, bfloat16"])])
def test_the_peer_runs_in_every_fast_dtype(monkeypatch, rates, words, settings):
    """The rates are those of float32 and of bfloat16, in FLOP/s."""
    monkeypatch.setattr(bench.computing, "matmul_rates", lambda *_, **__: rates)
    config = parse_config("--train.compile=false", *words)
    _, chosen = bench.choose_settings(config, CPU, "transformers")
    assert [str(setting) for setting in chosen] == settings


@pytest.mark.parametrize("words", [["--train.dtype=auto"], ["--train.dtype=bfloat16"]])
def test_on_cuda_no_rate_is_measured_to_choose_dtypes(monkeypatch, words):
    monkeypatch.setattr(bench.computing, "matmul_rates", raise_value_error)
    monkeypatch.setattr(bench.computing, "resolve_dtype", lambda *_: (BF16, "bfloat16"))
    config = parse_config("--train.compile=false", *words)
    _, chosen = bench.choose_settings(config, CUDA, "transformers")
    assert [str(setting) for setting in chosen] == [
        "gyre, eager, bfloat16", "transformers, eager, bfloat16"]


@pytest.fixture
def tiny_model():
    return model_config(vocab_size=97, max_positions=16)


@pytest.mark.parametrize("clips, n_clipped", [(True, 2), (False, 0)])
def test_a_step_clips_the_gradient_if_asked_to(monkeypatch, tiny_model, clips, n_clipped):
    clip = Mock()
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clip)
    setting = bench.Setting("gyre", False, torch.float32)
    step = bench.training_step(setting, tiny_model, CPU, 2, 8, clips)
    step()
    step()
    assert clip.call_count == n_clipped


def test_steps_of_training_lower_the_loss(tiny_model):
    setting = bench.Setting("gyre", False, torch.float32)
    step = bench.training_step(setting, tiny_model, CPU, 2, 8, True)
    losses = [step().item() for _ in range(5)]
    assert losses[4] < losses[0] - 0.1


def test_a_step_returns_a_loss_that_is_not_read(tiny_model):
    """Its reader would wait for a GPU."""
    setting = bench.Setting("gyre", False, torch.float32)
    loss = bench.training_step(setting, tiny_model, CPU, 2, 8, True)()
    assert isinstance(loss, torch.Tensor)
    assert not loss.requires_grad


@pytest.mark.slow
def test_the_peer_decodes_the_same_with_a_static_cache(tiny_model):
    texts = []
    for compiled in (False, True):
        torch.manual_seed(3)
        setting = bench.Setting("transformers", compiled, torch.float32)
        texts.append(bench.decoding(setting, tiny_model, CPU, 2, 9)().tolist())
    assert [len(row) for row in texts[0]] == [10, 10]
    assert texts[1] == texts[0]


def test_a_note_says_why_there_is_no_peer(measured):
    assert "note: without transformers: " in measured.err


# --- llama.cpp ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def beside_llama_cpp(bench_argv, tmp_path_factory):
    """What bench.py measures and prints beside a llama.cpp that decodes 0, 1, 2, ...

    `opened` are the dtypes of the tensors of each file that it has opened.
    """
    opened = []

    def open_model(file):
        tensors = gguf.GGUFReader(file).tensors
        opened.append({tensor.tensor_type.name for tensor in tensors})

    def generate(prompts, new):
        return [list(range(new)) for _ in prompts]

    decoder = Mock(return_value=Mock(generate=generate))
    file = tmp_path_factory.mktemp("llama.cpp") / "bench.json"
    out = io.StringIO()
    with (measuring_here() as results, redirect_stdout(out),
          pytest.MonkeyPatch.context() as patch):
        patch.setattr(llama_cpp, "load_library", lambda: None)
        patch.setattr(llama_cpp, "describe_library", lambda: "npm's, CPU : AVX2")
        patch.setattr(llama_cpp, "Model", open_model)
        patch.setattr(llama_cpp, "Decoder", decoder)
        patch.setattr(torch, "get_num_threads", lambda: 3)
        bench.main([*bench_argv, "--peer=llama.cpp", "--json", str(file)])
    return SimpleNamespace(opened=opened, results=results, decoder=decoder, out=out.getvalue(),
                           figures=read_json(file))


def test_llama_cpp_gets_the_model_in_each_dtype(beside_llama_cpp):
    """For prefill, and for decoding of 1 and of 8 rows."""
    assert beside_llama_cpp.opened == [{"F32"}, {"F32", "Q8_0"}] * 3


def test_llama_cpp_decodes_as_many_rows_and_tokens(beside_llama_cpp):
    assert beside_llama_cpp.results[-1] == [[0, 1, 2, 3, 4, 5, 6, 7, 8]] * 8


def test_llama_cpp_has_a_cache_for_each_row(beside_llama_cpp):
    """Of 10 positions: a prompt of one, and 9 new tokens."""
    assert beside_llama_cpp.decoder.call_args_list == [
        call(None, 10, rows, 3) for rows in (1, 1, 1, 1, 8, 8)]


def test_the_llama_cpp_that_was_measured_is_named(beside_llama_cpp):
    assert beside_llama_cpp.figures["llama.cpp"] == "npm's, CPU : AVX2"
    assert "llama.cpp: npm's, CPU : AVX2\n" in beside_llama_cpp.out


def test_beside_llama_cpp_our_model_runs_in_int8_too(beside_llama_cpp):
    assert beside_llama_cpp.out.count("gyre, eager, int8 ") == 3


def test_llama_cpp_that_cannot_be_had_ends_the_measurement(bench_argv, monkeypatch, capsys):
    def load_library():
        raise UserError("llama.cpp is not at hand")

    monkeypatch.setattr(llama_cpp, "load_library", load_library)
    monkeypatch.setattr(bench, "measure_machine", raise_value_error)
    lines = error_lines(capsys, bench.main, *bench_argv, "--peer=llama.cpp")
    assert lines[-1] == "error: llama.cpp is not at hand"


def test_llama_cpp_is_no_peer_on_a_gpu(monkeypatch):
    monkeypatch.setattr(bench.computing, "resolve_dtype", lambda *_: (BF16, "bfloat16"))
    config = parse_config("--train.compile=false")
    with pytest.raises(UserError, match="--train.device is cuda: choose cpu"):
        bench.choose_settings(config, CUDA, "llama.cpp")
