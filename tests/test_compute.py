"""Which device, dtype and compilation `auto` stands for, and what is refused in words."""

import os
import platform

import psutil
import pytest
import torch
from builders import CPU, model_config, run_python

from errors import UserError
from gyre import compute, estimate, parallel
from model import kernels, shared_forms
from model.config import ModelConfig

# --- the device -----------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """Say which devices this machine has: `machine(cards=2, mps=True)`."""
    def machine(cards=0, mps=False):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return machine


@pytest.mark.parametrize("cards, mps, name", [
    (0, False, "cpu"), (0, True, "mps"), (2, False, "cuda:0"), (2, True, "cuda:0")])
def test_auto_is_cuda_else_mps_else_the_cpu(machine, cards, mps, name):
    machine(cards, mps)
    assert compute.resolve_device("auto") == torch.device(name)


@pytest.mark.parametrize("name", ["cpu", "mps", "cuda:0", "cuda:1"])
def test_a_device_can_be_named(machine, name):
    machine(cards=2, mps=True)
    assert compute.resolve_device(name) == torch.device(name)


@pytest.mark.parametrize("name, local_rank, card", [
    ("auto", 1, "cuda:1"), ("cuda", 1, "cuda:1"), ("cuda:0", 1, "cuda:0")])
def test_each_process_has_a_card_unless_one_is_named(machine, name, local_rank, card):
    machine(cards=2)
    assert compute.resolve_device(name, local_rank) == torch.device(card)


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:x", ""])
def test_another_word_is_no_device(name):
    with pytest.raises(UserError, match=f"^device must be auto, cpu, .*, not {name}$"):
        compute.resolve_device(name)


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(machine, name):
    machine()
    with pytest.raises(UserError, match=f"{name}.* was asked for, but this machine has cpu"):
        compute.resolve_device(name)


def test_the_refusal_of_a_card_lists_all_devices(machine):
    machine(cards=2, mps=True)
    words = r"cuda \(cuda:2\) was asked for.* has cuda:0, cuda:1, mps, cpu"
    with pytest.raises(UserError, match=words):
        compute.resolve_device("cuda", 2)


@pytest.fixture
def one_of_four(monkeypatch):
    """The environment of the fourth of four processes, which is the second of its machine."""
    environment = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    monkeypatch.setattr(parallel.os, "environ", environment)


def test_a_process_takes_the_card_of_its_local_rank(machine, one_of_four):
    machine(cards=2)
    assert parallel.World.from_env().device == torch.device("cuda", 1)


@pytest.mark.parametrize("variables, words", [
    ({"RANK": "1"}, "RANK is 1 and WORLD_SIZE is 1: unset both, or start with torchrun"),
    ({"WORLD_SIZE": "0"}, "RANK is 0 and WORLD_SIZE is 0: unset both"),
    ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', which is no number"),
    ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is '-1', which is no number")])
def test_variables_that_do_not_fit_together_are_refused(variables, words, monkeypatch):
    monkeypatch.setattr(parallel.os, "environ", variables)
    with pytest.raises(UserError, match=words):
        parallel.World.from_env("cpu")


def test_several_processes_do_not_share_mps(machine, one_of_four):
    machine(mps=True)
    assert parallel.World.from_env("mps").device == CPU


def test_several_processes_do_not_share_a_named_card(machine, one_of_four):
    machine(cards=2)
    with pytest.raises(UserError, match="cuda:1 is one card for 4 processes: use cuda"):
        parallel.World.from_env("cuda:1")


# --- memory ---------------------------------------------------------------------------------------


def test_what_fits_into_half_of_the_memory_is_accepted():
    compute.check_memory(CPU, psutil.virtual_memory().total // 2, "it", "wait")


def test_a_model_that_no_memory_holds_is_refused():
    with pytest.raises(UserError, match="it takes .* GB or more, and cpu has .*: wait"):
        compute.check_memory(CPU, 2 * psutil.virtual_memory().total, "it", "wait")


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_on_a_cpu_freed_memory_serves_the_next_tensors():
    """By default, glibc gives a block of more than 32 MiB back to the system at once.

    Memory that comes anew from the system costs a fault for each page: 40 MiB have 10,240.
    """
    before, of_1_mib, of_40_mib = run_python("""
import resource, torch
from gyre.compute import keep_freed_memory

def count_faults(mebibytes):
    counts = []
    for _ in range(60):
        torch.ones(mebibytes * 2**20 // 4).add(1)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return counts[-1] - counts[40]  # of the last ones: among the first, the heap may still grow

print(count_faults(40))
keep_freed_memory()
print(count_faults(1), count_faults(40))
""").split()
    assert int(before) > 10_000
    assert int(of_1_mib) < 1_000
    assert int(of_40_mib) < 1_000


# --- the dtype ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bfloat16, chosen", [(299e9, torch.float32), (301e9, torch.bfloat16)])
def test_auto_is_bfloat16_if_faster_by_a_fifth(bfloat16, chosen):
    dtype, _ = compute.resolve_dtype("auto", CPU, lambda: [250e9, bfloat16])
    assert dtype == chosen


def test_the_reason_for_a_dtype_has_both_rates():
    _, reason = compute.resolve_dtype("auto", CPU, lambda: [250e9, 301e9])
    assert reason == ("bfloat16: matrix products have just run at 250 GFLOP/s in float32 and "
                      "at 301 in bfloat16")


@pytest.fixture
def card(monkeypatch):
    """Say which capability the card of this machine has: `card(8, 0)` gives its device."""
    def card(*capability):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        return torch.device("cuda", 0)

    return card


@pytest.mark.parametrize("capability, training, chosen", [
    ((9, 0), True, torch.bfloat16), ((8, 0), False, torch.bfloat16), ((7, 5), True, torch.float16),
    ((7, 5), False, torch.float32)])
def test_on_cuda_auto_depends_on_the_capability(card, capability, training, chosen):
    """Nothing is measured."""
    dtype, _ = compute.resolve_dtype("auto", card(*capability), rates=None, training=training)
    assert dtype == chosen


def test_the_reason_for_a_dtype_on_cuda_is_the_capability(card):
    _, reason = compute.resolve_dtype("auto", card(9, 0), rates=None)
    assert reason == "bfloat16: the card's capability is 9.0"


def test_the_reason_for_float16_says_what_bfloat16_needs(card):
    _, reason = compute.resolve_dtype("auto", card(7, 5), rates=None)
    assert reason == "float16: the card's capability is 7.5, and bfloat16 needs 8.0"


def test_on_mps_auto_is_float32_without_a_measurement():
    dtype, reason = compute.resolve_dtype("auto", torch.device("mps"), rates=None)
    assert dtype == torch.float32
    assert reason == "float32: bfloat16 is not tried on mps"


def test_a_rate_that_is_emulated_is_not_shown_as_zero():
    _, reason = compute.resolve_dtype("auto", CPU, lambda: [1234e9, 0.0561e9])
    assert "run at 1,234 GFLOP/s in float32 and at 0.056 in bfloat16" in reason


@pytest.fixture
def slow_products(monkeypatch):
    """A clock that ticks a second at a float32 product, and a minute at one in bfloat16.

    Gives the number of products so far, by dtype.
    """
    counts = {torch.float32: 0, torch.bfloat16: 0}
    seconds = {torch.float32: 1.0, torch.bfloat16: 60.0}

    def product(x, weight):
        counts[x.dtype] += 1
        return x @ weight.T

    def clock():
        return sum(counts[dtype] * seconds[dtype] for dtype in counts)

    monkeypatch.setattr(compute.time, "perf_counter", clock)
    monkeypatch.setattr(compute, "linear", product)
    return counts


@pytest.mark.parametrize("training, flops", [(True, 630), (False, 210)])
def test_a_rate_counts_three_products_in_training(slow_products, training, flops):
    """Of 3 tokens and a matrix of 7 x 5, with 2 FLOPs for each weight and token."""
    model = model_config(dim=5, hidden_dim=7, head_dim=4)
    rates = compute.matmul_rates(CPU, model, 3, training=training)
    assert rates == [flops, flops / 60]


def test_slow_products_take_place_twice_and_no_more(slow_products):
    compute.matmul_rates(CPU, model_config(dim=5, hidden_dim=7, head_dim=4), 3, training=True)
    assert slow_products == {torch.float32: 2, torch.bfloat16: 2}


def test_without_its_instructions_int8_is_slower_than_float32():
    """Then torch multiplies one number after the other, as it does without oneDNN."""
    with torch.backends.mkldnn.flags(enabled=False):
        in_float32, in_int8 = compute.int8_rates(model_config(dim=288, hidden_dim=768), 16)
    assert in_int8 < in_float32


def test_rates_in_int8_leave_the_number_of_threads_as_it_was():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    compute.int8_rates(model_config(dim=6, hidden_dim=7, head_dim=4), 1)
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == before + 1


def test_autocast_keeps_no_rounded_weights():
    with compute.Compute(CPU, torch.bfloat16).autocast():
        assert not torch.is_autocast_cache_enabled()
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16


def test_float32_needs_no_autocast():
    with compute.Compute(CPU, torch.float32).autocast():
        assert not torch.is_autocast_enabled("cpu")


# --- TF32 -----------------------------------------------------------------------------------------


def test_tf32_holds_within_a_context_only():
    with compute.Compute(CPU, torch.float32, tf32=True).active():
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"


def test_tf32_holds_no_longer_after_an_error():
    with pytest.raises(ValueError), compute.Compute(CPU, torch.float32, tf32=True).active():
        raise ValueError
    assert torch.get_float32_matmul_precision() == "highest"


def test_without_tf32_float32_products_are_exact():
    with compute.Compute(CPU, torch.float32).active():
        assert torch.get_float32_matmul_precision() == "highest"


# --- oneDNN ---------------------------------------------------------------------------------------


def six_times(product):
    """The same product, but it takes six times as long."""
    def slowed(*args):
        for _ in range(5):
            product(*args)
        return product(*args)

    return slowed


@pytest.mark.parametrize("module, slowed, onednn_wins", [
    (kernels.F, "linear", True), (shared_forms, "onednn_product", False)])
def test_onednn_is_used_where_it_is_measured_to_be_faster(
        monkeypatch, module, slowed, onednn_wins):
    """Either torch's product or oneDNN's is made slow."""
    monkeypatch.setattr(module, slowed, six_times(getattr(module, slowed)))
    monkeypatch.setattr(kernels, "onednn_gain", kernels.onednn_gain.__wrapped__)  # not cached
    assert kernels.prefers_onednn(torch.device("cpu")) is onednn_wins


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


def test_measuring_onednn_leaves_the_number_of_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    kernels.onednn_gain.__wrapped__()
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


# --- how long it takes ----------------------------------------------------------------------------


@pytest.mark.parametrize("width, share", [(110, 0.375), (256, 0.525)])
def test_steps_reach_more_of_the_rate_in_wide_models(width, share):
    """The share of the rate is 0.75 * width / (width + 110)."""
    model = ModelConfig(dim=width, n_heads=1, vocab_size=1000)
    flops = 6 * model.matrix_parameters * 5000
    seconds = estimate.estimate_seconds(model, 5000, 1e9)
    assert flops / 1e9 / seconds == pytest.approx(share, rel=0.002)


@pytest.mark.parametrize("seconds, words", [
    (0.2, "about a second"), (89, "about 89 seconds"), (90, "about 1.5 minutes"),
    (300, "about 5 minutes"), (5400, "about 1.5 hours"), (200_000, "about 2.3 days")])
def test_an_estimate_has_the_unit_that_fits(seconds, words):
    assert estimate.format_estimate(seconds) == words


@pytest.mark.parametrize("load, expected", [
    (2.9, ""), (8.2, ", longer while others run here too (load 8 on 2 cores)")])
def test_an_estimate_of_a_busy_machine_says_so(load, expected, monkeypatch):
    """A machine is busy from a load of 1.5 for each core on."""
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert estimate.describe_load() == expected


# --- compilation ----------------------------------------------------------------------------------


def test_nothing_is_compiled_where_false_is_configured():
    decided = compute.resolve_compile(False, CPU, torch.bfloat16, 1e30)
    assert decided == (False, "not compiled, as configured")


TOO_SHORT = "not compiled, which takes longer than it saves in so short a training"


@pytest.mark.parametrize("name, dtype, flops, reason", [
    ("cpu", torch.bfloat16, 4e13, TOO_SHORT),
    ("cpu", torch.float32, 1e14, TOO_SHORT),  # where bfloat16 would gain more
    ("cuda", torch.float32, 1.9e16, TOO_SHORT), ("cuda", torch.bfloat16, 1.9e16, TOO_SHORT),
    ("mps", torch.float32, 1e30, "not compiled, which is not tried on mps")])
def test_auto_compiles_no_training_that_it_hardly_shortens(name, dtype, flops, reason):
    assert compute.resolve_compile("auto", torch.device(name), dtype, flops) == (False, reason)


@pytest.fixture
def compilers(monkeypatch):
    """The programs that this machine has: none, until a test adds one. torch.compile works."""
    programs = {}
    monkeypatch.setattr(compute.os, "environ", {"PATH": ""})
    monkeypatch.setattr(compute.shutil, "which", programs.get)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    return programs


@pytest.mark.parametrize("choice, dtype, flops", [
    (True, torch.float32, 0), ("auto", torch.bfloat16, 6e13), ("auto", torch.float32, 3e14)])
def test_without_a_compiler_nothing_is_compiled(compilers, choice, dtype, flops):
    decided = compute.resolve_compile(choice, CPU, dtype, flops)
    assert decided == (False, "not compiled: no C++ compiler found")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_auto_compiles_what_repays_it(monkeypatch, dtype):
    monkeypatch.setattr(compute, "missing_for_compiling", lambda device: None)
    compiled, _ = compute.resolve_compile("auto", torch.device("cuda"), dtype, 2.1e16)
    assert compiled is True


@pytest.mark.parametrize("choice, dtype, flops", [
    (True, torch.float32, 0), ("auto", torch.bfloat16, 6e13), ("auto", torch.float32, 3e14)])
def test_one_compiler_is_enough(compilers, choice, dtype, flops):
    compilers["clang++"] = "/bin/clang++"
    compiled, _ = compute.resolve_compile(choice, CPU, dtype, flops)
    assert compiled is True


def test_the_compiler_may_be_that_of_cxx(compilers, monkeypatch):
    monkeypatch.setitem(compute.os.environ, "CXX", "mine")
    compilers["mine"] = "/bin/mine"
    compiled, _ = compute.resolve_compile(True, CPU, torch.float32, 0)
    assert compiled is True


def test_a_compiler_that_fails_is_given_up(compilers, monkeypatch):
    def fail(function):
        raise RuntimeError("no such header\nin two lines")

    compilers["g++"] = "/bin/g++"
    monkeypatch.setattr(torch, "compile", fail)
    decided = compute.resolve_compile(True, CPU, torch.float32, 0)
    assert decided == (False, "not compiled: torch.compile does not work here (no such header)")


@pytest.fixture
def triton(compilers, card, monkeypatch, tmp_path):
    """A card, and all that torch.compile needs for it; but to call torch.compile is an error."""
    monkeypatch.delattr(torch, "compile")
    monkeypatch.setattr(compute, "find_spec", lambda name: name)
    monkeypatch.setattr(compute.sys, "platform", "linux")
    monkeypatch.setattr(compute.sysconfig, "get_config_var", lambda _: tmp_path)
    (tmp_path / "Python.h").touch()
    compilers["gcc"] = "/bin/gcc"
    return card(7, 0)


def test_on_cuda_nothing_is_compiled_to_try_it_out(triton):
    compiled, _ = compute.resolve_compile(True, triton, torch.float32, 0)
    assert compiled is True


def test_without_triton_nothing_is_compiled_on_cuda(triton, monkeypatch):
    monkeypatch.setattr(compute, "find_spec", lambda name: None)
    decided = compute.resolve_compile(True, triton, torch.float32, 0)
    assert decided == (False, "not compiled: torch.compile needs the package triton")


def test_nothing_is_compiled_for_a_card_that_is_too_old(triton, card):
    decided = compute.resolve_compile(True, card(6, 1), torch.float32, 0)
    assert decided == (False, "not compiled: torch.compile needs a card of capability 7.0 or more")


def test_without_a_c_compiler_nothing_is_compiled_on_cuda(triton, compilers):
    del compilers["gcc"]
    decided = compute.resolve_compile(True, triton, torch.float32, 0)
    assert decided == (False, "not compiled: no C compiler found")


def test_without_pythons_headers_nothing_is_compiled_on_cuda(triton, tmp_path):
    (tmp_path / "Python.h").unlink()
    compiled, reason = compute.resolve_compile(True, triton, torch.float32, 0)
    assert compiled is False
    assert reason.startswith("not compiled: Python.h was not found")


@pytest.mark.slow
def test_the_settings_of_the_compiler_are_as_before_after_a_context():
    limit = torch._dynamo.config.recompile_limit
    with compute.Compute(CPU, torch.float32, compiled=True).active():
        assert torch._dynamo.config.recompile_limit > limit
    assert torch._dynamo.config.recompile_limit == limit
