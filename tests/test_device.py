"""What `auto` stands for, and what is refused in words."""

import platform

import pytest
import torch
from conftest import CPU, output

from errors import UserError
from gyre.device import resolve_compile, resolve_device, resolve_dtype


def test_devices_and_dtypes_resolve_or_are_refused_in_words():
    assert resolve_device("cpu") == CPU
    for device, words in (("cuda:99", "has . CUDA"), ("tpu", "not known"),
                          ("meta", "not supported")):
        with pytest.raises(UserError, match=words):
            resolve_device(device)
    with pytest.raises(UserError, match="float16 needs a CUDA device, not cpu"):
        resolve_dtype("float16", CPU)
    assert resolve_dtype("float32", CPU)[0] == torch.float32
    dtype, why = resolve_dtype("auto", CPU)
    assert dtype in (torch.float32, torch.bfloat16) and "hardware" in why


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
    assert resolve_compile(False, CPU, 1e30) == (False, "eager, as asked")
    assert resolve_compile("auto", CPU, 1e6)[0] is False
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    yes, why = resolve_compile(True, CPU, 1e6)
    assert not yes and "no C++ compiler found" in why
