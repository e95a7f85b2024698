"""What a training needs in memory, counted before it is built, and what makes it less."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import CPU, build_setup, read_metric, run_python, tiny_argv, train_tiny

from errors import UserError
from gyre import memory
from gyre.auto import check_start
from gyre.options import TrainConfig
from gyre.parallel import ALONE, World
from gyre.start import resolve
from gyre.step import summed_loss
from model.config import ModelConfig
from model.transformer import Transformer


@pytest.fixture
def asked_bytes(monkeypatch):
    """The bytes that each memory check so far has asked for."""
    sizes = []
    monkeypatch.setattr(memory, "check_memory", lambda device, size, *_: sizes.append(size))
    return sizes


def test_the_bytes_of_logits_are_counted(workdir, asked_bytes):
    """The first check counts 2 bytes, the least that a logit can take. The second knows that the
    training is in float32, and counts 4. A pass has 5 rows of 20 tokens, with 300 logits each.
    The batch is checked before each of the two, so that there are four checks.
    """
    build_setup(workdir, "--train.micro_batch_size=5")
    _, first, _, second = asked_bytes
    assert second - first == 2 * 5 * 20 * 300


@pytest.mark.parametrize("position, channels", [("rope", 8), ("pope", 16), ("alibi", 0)])
def test_the_bytes_of_a_table_of_rotations_are_counted(workdir, asked_bytes, position, channels):
    """A position has a float32 for each of the 8 channels of a head; with PoPE, a key has 16."""
    for length in ("100", "1100"):
        config = resolve(tiny_argv(workdir, "--model.max_positions", length,
                                   "--model.position", position), "").config
        memory.check_fits(config, ALONE, torch.float32, compiled=False)
    shorter, longer = asked_bytes
    assert longer - shorter == 1000 * 4 * channels


DYNAMIC = ["--model.rope_scaling.type=dynamic", "--model.rope_scaling.factor=2",
           "--model.rope_scaling.original_positions=500"]


@pytest.mark.parametrize("length, positions", [("100", 100), ("1100", 500)])
def test_the_bytes_of_dynamic_scalings_table_are_counted(workdir, asked_bytes, length, positions):
    """Its table ends with the trained length, here 500 positions of 8 channels."""
    for position in (["--model.position=rope", *DYNAMIC], ["--model.position=none"]):
        config = resolve(tiny_argv(workdir, "--model.max_positions", length, *position), "").config
        memory.check_fits(config, ALONE, torch.float32, compiled=False)
    with_table, without_table = asked_bytes
    assert with_table - without_table == positions * 4 * 8


@pytest.mark.parametrize("length, positions", [("100", 100), ("1100", 500)])
def test_the_table_of_dynamic_scaling_ends_with_the_trained_length(workdir, length, positions):
    argv = tiny_argv(workdir, "--model.max_positions", length, *DYNAMIC)
    model = Transformer(resolve(argv, "").config.model)
    assert len(model.position.table) == positions


def test_a_table_is_refused_by_what_making_it_takes(asked_bytes):
    """8 bytes for each of the 16 pairs, and 24 more in double precision while it is made."""
    model = ModelConfig(vocab_size=300, max_positions=1000, dim=96, n_heads=3)
    memory.check_table(model, "here", "mend it")
    assert asked_bytes == [1000 * 16 * 32]


# Not resource.getrusage: its peak begins with that of the process that started this one.
PEAK_OF_A_TABLE = """
import re
from pathlib import Path
from model.rope import precompute_freqs_cis

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

precompute_freqs_cis(32, 1000)
before = peak()
precompute_freqs_cis(32, 1_000_000)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux has this file")
def test_making_a_table_takes_four_times_its_bytes():
    kibibytes = int(run_python(PEAK_OF_A_TABLE))
    assert kibibytes * 1024 == pytest.approx(4 * 1_000_000 * 16 * 8, rel=0.1)


def test_without_micro_batches_a_pass_has_the_largest_share():
    """27 rows of four processes are 6 + 7 + 7 + 7."""
    assert memory.count_rows(TrainConfig(batch_size=27), World(0, 4, CPU)) == 7


def test_a_batch_that_no_memory_holds_names_what_to_lower(workdir):
    config = resolve(tiny_argv(workdir, "--train.batch_size=1000000000000"), "").config
    words = r": choose a smaller model, data\.seq_len or train\.micro_batch_size$"
    with pytest.raises(UserError, match=words):
        memory.check_fits(config, ALONE, torch.float32, compiled=False)


def test_rows_that_no_memory_holds_are_refused_whatever_a_pass_has(workdir):
    start = resolve(tiny_argv(workdir, "--train.batch_size=1000000000000",
                              "--train.micro_batch_size=4"), "")
    words = ("^reading 1000000000000 rows of 20 tokens for each step takes 672,000.0 GB or more, "
             r"and cpu has .*: choose a smaller train\.batch_size or data\.seq_len$")
    with pytest.raises(UserError, match=words):
        check_start(start, ALONE)


def test_each_process_reads_its_share_of_a_batch(workdir, asked_bytes):
    config = resolve(tiny_argv(workdir, "--train.batch_size=9"), "").config
    memory.check_batch(config, World(0, 2, CPU, is_main=True))
    assert asked_bytes == [32 * 5 * 21]  # 5 rows of 20 tokens, and one more


PEAK_OF_A_BATCH = """
import re
import sys
from pathlib import Path
import numpy as np
from data.dataset import TokenDataset

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

file = Path(sys.argv[1])
np.zeros(1000, dtype=np.uint16).tofile(file)

def read(rows):
    data = TokenDataset(file, seq_len=99, batch_size=rows, seed=1, dtype="uint16",
                        vocab_size=300)
    data.batch(0)

read(10)
before = peak()
read(20_000)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux has this file")
def test_reading_a_batch_takes_so_many_bytes(workdir, asked_bytes, tmp_path):
    config = resolve(tiny_argv(workdir, "--train.batch_size=20000", "--data.seq_len=99"), "").config
    memory.check_batch(config, ALONE)
    kibibytes = int(run_python(PEAK_OF_A_BATCH, tmp_path / "train.bin"))
    assert kibibytes * 1024 == pytest.approx(asked_bytes[0], rel=0.1)


@pytest.mark.parametrize("device, dtype, compiled, expected", [
    ("cuda", torch.float32, False, 12), ("cuda", torch.bfloat16, False, 12),
    ("cpu", torch.float32, False, 4), ("cpu", torch.bfloat16, False, 2),
    ("cpu", torch.float32, True, 8), ("cuda", torch.float16, True, 4)])
def test_a_logit_takes_so_many_bytes(workdir, asked_bytes, device, dtype, compiled, expected):
    """Compare 5 rows with 6. The sixth has 20 tokens, with 300 logits each."""
    world = replace(ALONE, device=torch.device(device))
    for rows in ("5", "6"):
        config = resolve(tiny_argv(workdir, "--train.micro_batch_size", rows), "").config
        memory.check_fits(config, world, dtype, compiled)
    fewer, more = asked_bytes
    assert more - fewer == expected * 20 * 300


def test_an_eager_loss_on_a_cpu_takes_the_memory_of_its_logits(workdir):
    """The gradient of the logits is where they were, as `count_logit_bytes` counts."""
    config = ModelConfig(dim=16, n_layers=1, n_heads=2, vocab_size=300, max_positions=20)
    tokens = torch.zeros(2, 20, dtype=torch.int64)
    logits = Transformer(config)(tokens)
    places = []
    logits.register_hook(lambda gradient: places.append(gradient.data_ptr()))
    summed_loss(logits, tokens).backward()
    assert places == [logits.data_ptr()]


@pytest.mark.parametrize("option, expected", [("true", True), ("false", False)])
def test_checkpoint_blocks_is_passed_to_the_model(workdir, option, expected):
    setup = build_setup(workdir, "--train.checkpoint_blocks", option)
    assert setup.model.checkpoint_blocks is expected


def test_blocks_that_are_computed_again_change_no_number(workdir):
    options = ["--model.dropout=0.2", "--train.micro_batch_size=14", "--train.steps=4"]
    path = train_tiny(workdir, "kept", *options)
    again = train_tiny(workdir, "again", *options, "--train.checkpoint_blocks", "true")
    assert read_metric(again) == read_metric(path)
    assert read_metric(again, "train/grad_norm") == read_metric(path, "train/grad_norm")
