"""What `auto` stands for, and what is refused in words."""

import platform
import re

import psutil
import pytest
import torch
from conftest import CPU, model_config, output

from errors import UserError
from gyre import compute, parallel
from model import kernels
from model.config import ModelConfig


def test_a_device_is_one_that_this_machine_has(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    resolve = compute.resolve_device
    assert resolve("auto") == resolve("cpu") == CPU
    for name in ("cuda", "mps", "meta"):
        with pytest.raises(UserError, match=f"{name}.* was asked for, but this machine has cpu"):
            resolve(name)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve("auto") == resolve("mps") == torch.device("mps")
    assert compute.resolve_dtype("auto", resolve("mps"), rates=None)[0] == torch.float32
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve("auto", 1) == resolve("cuda", 1) == torch.device("cuda", 1)
    assert resolve("cuda:0", 1) == torch.device("cuda", 0)
    with pytest.raises(UserError, match="cuda:2 was asked for.* has cuda:0, cuda:1, mps, cpu"):
        resolve("cuda", 2)
    monkeypatch.setattr(parallel.os, "environ", {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"})
    assert parallel.World.from_env().device == torch.device("cuda", 1)
    assert parallel.World.from_env("mps").device == CPU  # which processes cannot share


def test_a_model_that_no_memory_holds_is_refused():
    memory = psutil.virtual_memory().total
    compute.check_memory(CPU, memory // 2, "it", "wait")
    with pytest.raises(UserError, match="it takes .* bytes or more, and cpu has .*: wait"):
        compute.check_memory(CPU, 2 * memory, "it", "wait")


@pytest.mark.parametrize("bfloat16, chosen", [(299e9, torch.float32), (301e9, torch.bfloat16)])
def test_auto_is_the_dtype_whose_products_are_faster_by_a_fifth(bfloat16, chosen):
    dtype, why = compute.resolve_dtype("auto", CPU, lambda: [250e9, bfloat16])
    assert dtype == chosen and "250" in why and f"{bfloat16 / 1e9:.0f}" in why


def test_the_rates_are_those_of_products_that_took_place_twice_and_no_more(monkeypatch):
    """A clock that ticks a second at a float32 product, and a minute at one in bfloat16."""
    now, calls = [0.0], {torch.float32: 0, torch.bfloat16: 0}

    def product(x, weight):
        calls[x.dtype] += 1
        now[0] += 1 if x.dtype == torch.float32 else 60
        return x @ weight.T

    monkeypatch.setattr(compute.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(compute, "linear", product)
    model = model_config(dim=5, hidden_dim=7, head_dim=4)
    for training, flops in ((True, 6 * 3 * 5 * 7), (False, 2 * 3 * 5 * 7)):
        assert compute.matmul_rates(CPU, model, 3, training=training) == [flops, flops / 60]
    assert calls == {torch.float32: 4, torch.bfloat16: 4}


def test_whole_steps_reach_a_share_of_the_rate_that_grows_with_the_width():
    narrow, wide = ModelConfig(dim=110, n_heads=1, vocab_size=1000), ModelConfig(vocab_size=1000)
    for model, share in ((narrow, 0.375), (wide, 0.525)):  # 110 and 256 wide
        flops = 6 * model.matrix_parameters * 5000
        seconds = compute.estimate_seconds(model, 5000, 1e9)
        assert seconds == pytest.approx(flops / 1e9 / share, rel=0.002)


@pytest.mark.parametrize("seconds, words", [
    (0.2, "about 1 seconds"), (89, "about 89 seconds"), (90, "about 1.5 minutes"),
    (300, "about 5 minutes"), (5400, "about 1.5 hours"), (200_000, "about 2.3 days")])
def test_an_estimate_has_the_unit_that_fits(seconds, words):
    assert compute.format_estimate(seconds) == words


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_on_a_cpu_freed_memory_serves_the_next_tensors_and_no_compiler_is_imported():
    """Importing it takes as long as all else until the first token."""
    returned, *kept = output("""
import resource, sys, torch
from gyre.compute import keep_freed_memory, matmul_rates
from model.config import ModelConfig

def count_faults(mebibytes):
    counts = []
    for _ in range(50):
        torch.ones(mebibytes * 2**20 // 4).add(1)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    # The fewest in ten of them in a row: in others the heap may still grow.
    return min(after - before for before, after in zip(counts, counts[10:]))

print(count_faults(40))
keep_freed_memory()
matmul_rates(torch.device("cpu"), ModelConfig(), 16, training=True)
assert "torch._dynamo" not in sys.modules
print(count_faults(1), count_faults(40))  # below and above what glibc at most takes from its heap
""").split()
    assert int(returned) > 10_000 > 1_000 > max(map(int, kept))  # 40 MiB have 10 240 pages


def test_autocast_keeps_no_rounded_weights():
    with compute.Compute(CPU, torch.bfloat16).autocast():
        assert not torch.is_autocast_cache_enabled()
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    with compute.Compute(CPU, torch.float32).autocast():
        assert not torch.is_autocast_enabled("cpu")


def test_compilation_is_chosen_by_the_work_and_given_up_without_a_compiler(monkeypatch):
    f32, bf16 = torch.float32, torch.bfloat16
    assert compute.resolve_compile(False, CPU, bf16, 1e30) == (False, "eager, as configured")
    for target, dtype, flops, words in (
        (CPU, bf16, 4e13, "longer than it would save"),
        (CPU, f32, 1e14, "would save"),  # where bfloat16 would gain more
        (torch.device("cuda"), f32, 9e14, "would save"),
        (torch.device("mps"), f32, 1e30, "not tried on mps")):
        compiled, why = compute.resolve_compile("auto", target, dtype, flops)
        assert not compiled and re.search(words, why)
    monkeypatch.setattr(compute.os, "environ", {"PATH": ""})
    for choice, dtype, flops in ((True, f32, 0), ("auto", bf16, 6e13), ("auto", f32, 3e14)):
        compiled, why = compute.resolve_compile(choice, CPU, dtype, flops)
        assert not compiled and "no C++ compiler found" in why
    monkeypatch.setattr(compute.shutil, "which", {"clang++": "/bin/clang++"}.get)  # one is enough
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert compute.resolve_compile(True, CPU, f32, 0)[0]


@pytest.mark.parametrize("slowed, faster", [("linear", True), ("onednn_product", False)])
def test_the_gain_is_how_many_times_faster_onednn_is(monkeypatch, slowed, faster):
    module = kernels.F if slowed == "linear" else kernels
    product = getattr(module, slowed)
    monkeypatch.setattr(module, slowed, lambda *args: [product(*args) for _ in range(6)][0])
    monkeypatch.setattr(kernels, "onednn_gain", kernels.onednn_gain.__wrapped__)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    assert (kernels.onednn_gain() > 2) == faster
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert kernels.prefers_onednn() is faster


def test_a_rate_that_is_emulated_is_not_shown_as_zero():
    _, why = compute.resolve_dtype("auto", CPU, lambda: [1234e9, 0.0561e9])
    assert "run at 1,234 GFLOP/s in float32 and at 0.056 in bfloat16" in why


def test_products_are_as_before_after_a_context():
    with kernels.products_by_onednn(True):
        with kernels.products_by_onednn(False):
            assert not kernels.uses_onednn()
        assert kernels.uses_onednn()
    assert not kernels.uses_onednn()


def test_products_are_as_before_after_an_error():
    with pytest.raises(ValueError), compute.Compute(CPU, torch.float32, onednn=True).active():
        assert kernels.uses_onednn()
        raise ValueError
    assert not kernels.uses_onednn()


@pytest.mark.slow
def test_nothing_compiled_outlives_the_training():
    limit = torch._dynamo.config.recompile_limit
    with compute.Compute(CPU, torch.float32, compiled=True).active():
        assert torch._dynamo.config.recompile_limit > limit
    assert torch._dynamo.config.recompile_limit == limit
