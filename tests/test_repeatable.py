"""A compiled training with two threads on a CPU computes the same bits every time."""

import pytest
import torch
from builders import exit_code, randn, tiny_argv, train_tiny
from resumption import EXACT, assert_equal_runs, kill_before

import train
from model.transformer import embed

COMPILED = ["--train.compile=true", "--data.seq_len=64", "--model.n_layers=1"]


@pytest.fixture(autouse=True, scope="module")
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_the_compiled_gradient_of_an_embedding_is_always_the_same():
    """The compiler's own had 26 values in 40 calls."""
    tokens = torch.arange(4096).view(16, 256) % 300
    upstream = randn(16, 256, 96)

    @torch.compile
    def weigh(weight):
        return (embed(tokens, weight) * upstream).sum()

    gradients = []
    for _ in range(20):
        weight = torch.ones(300, 96, requires_grad=True)
        weigh(weight).backward()
        gradients.append(weight.grad)
    torch._dynamo.reset()
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@pytest.mark.slow
def test_two_compiled_trainings_in_bfloat16_are_equal(workdir):
    options = [*EXACT, *COMPILED, "--train.dtype=bfloat16"]
    first = train_tiny(workdir, "first-bfloat16", *options)
    assert_equal_runs(first, train_tiny(workdir, "second-bfloat16", *options))


@pytest.mark.slow
def test_a_compiled_training_killed_and_resumed_equals_one_never_stopped(workdir):
    """In float32. So two that are not stopped are equal too."""
    straight = train_tiny(workdir, "straight", *EXACT, *COMPILED)
    killed = workdir / "runs" / "killed"
    kill_before("start_step", lambda setup, step: step == 5,
                *tiny_argv(workdir, *EXACT, *COMPILED, "--name", "killed"))
    assert exit_code(train.main, "--resume", killed) == 0
    assert_equal_runs(straight, killed)
