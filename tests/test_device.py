"""What `auto` stands for, and what is refused in words."""

import itertools
import platform

import pytest
import torch
from conftest import CPU, model_config, output

from errors import UserError
from gyre import device as device_module
from gyre.device import product_rates, resolve_compile, resolve_device, resolve_dtype


def test_devices_and_dtypes_resolve_or_are_refused_in_words():
    assert resolve_device("cpu") == CPU
    for device, words in (("cuda:99", "has . CUDA"), ("tpu", "not supported"),
                          ("meta", "not supported")):
        with pytest.raises(UserError, match=words):
            resolve_device(device)
    with pytest.raises(UserError, match="float16 needs a CUDA device, not cpu"):
        resolve_dtype("float16", CPU, unmeasured)
    for dtype in (torch.float32, torch.bfloat16):
        assert resolve_dtype(str(dtype)[6:], CPU, unmeasured)[0] == dtype


def unmeasured():
    raise AssertionError("what was asked for needs no measurement")


@pytest.mark.parametrize(("float32", "bfloat16", "chosen"), [
    (257e9, 163e9, torch.float32),  # a Xeon whose flags say avx512_bf16
    (250e9, 299e9, torch.float32),
    (250e9, 301e9, torch.bfloat16),
    (210e9, 850e9, torch.bfloat16),
])
def test_auto_is_the_dtype_whose_products_are_faster_by_a_fifth(float32, bfloat16, chosen):
    dtype, why = resolve_dtype("auto", CPU, lambda: [float32, bfloat16])
    assert dtype == chosen
    assert f"{float32 / 1e9:.0f}" in why and f"{bfloat16 / 1e9:.0f}" in why


def test_the_rates_are_those_of_products_that_took_place(monkeypatch):
    """A clock that ticks a second at every look."""
    ticks = itertools.count()
    monkeypatch.setattr(device_module.time, "perf_counter", lambda: next(ticks))
    model = model_config(dim=5, hidden_dim=7, head_dim=4)
    assert product_rates(CPU, model, 3, training=True) == [6 * 3 * 5 * 7] * 2
    assert product_rates(CPU, model, 3, training=False) == [2 * 3 * 5 * 7] * 2


def test_a_dtype_that_is_hopelessly_slow_is_tried_twice_and_no_more(monkeypatch):
    """A clock that ticks a second at a float32 product, and a minute at one in bfloat16."""
    now, calls = [0.0], {torch.float32: 0, torch.bfloat16: 0}

    def product(x, weight):
        calls[x.dtype] += 1
        now[0] += 1 if x.dtype == torch.float32 else 60
        return x @ weight.T

    monkeypatch.setattr(device_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(device_module, "linear", product)
    float32, bfloat16 = product_rates(CPU, model_config(), 3, training=False)
    assert float32 == 60 * bfloat16 and calls == {torch.float32: 3, torch.bfloat16: 2}


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_on_a_cpu_freed_memory_serves_the_next_tensors():
    program = """
import resource, sys, torch
from gyre.device import resolve_device
if sys.argv[1] == "kept":
    resolve_device("cpu")
for mebibytes in (1, 40):  # below and above what glibc at most takes from its heap
    for times in (20, 10):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            torch.ones(mebibytes * 2**20 // 4).add(1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

    kept, returned = (output(program, how).split() for how in ("kept", "returned"))
    assert max(map(int, kept)) < 1_000  # a block of 40 MiB has 10 240 pages
    assert int(returned[1]) > 10_000


def test_compilation_is_chosen_by_the_work_and_given_up_without_a_compiler(monkeypatch):
    f32, bf16 = torch.float32, torch.bfloat16
    assert resolve_compile(False, CPU, bf16, 1e30) == (False, "eager, as configured")
    assert resolve_compile("auto", CPU, bf16, 1e6)[0] is False
    assert resolve_compile("auto", CPU, f32, 1e14)[0] is False  # where bfloat16 would gain more
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    yes, why = resolve_compile(True, CPU, f32, 1e6)
    assert not yes and "no C++ compiler found" in why


@pytest.mark.slow
def test_nobody_waits_for_the_compiler_who_does_not_compile():
    """Importing it takes as long as all else until the first token."""
    output("""
import sys, torch
from gyre.device import product_rates, resolve_device
from model.config import ModelConfig
product_rates(resolve_device("cpu"), ModelConfig(), 16, training=True)
assert "torch._dynamo" not in sys.modules
""")


def test_the_gain_is_how_many_times_faster_onednn_is(monkeypatch):
    device_module.onednn_gain.cache_clear()
    linear = torch.nn.functional.linear
    monkeypatch.setattr(device_module.F, "linear",
                        lambda x, weight: [linear(x, weight) for _ in range(30)][0])
    try:
        assert device_module.onednn_gain() > 2
    finally:
        device_module.onednn_gain.cache_clear()
