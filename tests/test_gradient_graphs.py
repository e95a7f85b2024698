"""Gradients by CUDA graphs equal those that are computed without graphs.

On a CPU, what stands in for a graph computes again.
"""

import gc
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from builders import build_setup, quick_for, start_python, tiny_argv
from torch import Tensor

from gyre.announce import describe_devices
from gyre.build import uses_graphs
from gyre.gradient_graphs import MOST_FLOPS, GradientGraphs, Recorded
from gyre.graphed import recording
from gyre.parallel import World
from gyre.step import add_gradient, train_step

STEPS = 4
# Batches of 4 rows, in parts of 3 and 1: two shapes, of which the second adds to the first.
PARTS = ["--train.batch_size=4", "--train.micro_batch_size=3"]
CASES = {
    "whole": [], "parts": PARTS, "equal parts": [*PARTS, "--train.micro_batch_size=2"],
    "dropout": ["--model.dropout=0.2", *PARTS], "muon": ["--optim.optimizer=muon", *PARTS],
}
CARD = torch.device("cuda", 0)


class Imitation:
    """What a CUDA graph does, without one.

    It computes again, from the same inputs into the same tensors. A real one only writes to memory:
    whether a tensor is the gradient of a parameter is nothing to it. The constructor stands for the
    recording, which makes tensors without values.
    """

    def __init__(self, graphs: GradientGraphs, inputs: list[Tensor | None]):
        self.graphs = graphs
        self.inputs = inputs
        self.adds = graphs.parameters[0].grad is not None
        if not self.adds:
            for parameter in graphs.parameters:
                parameter.grad = torch.full_like(parameter, torch.nan)
        self.gradients = list_gradients(graphs)
        self.loss = torch.tensor(torch.nan)

    def replay(self) -> None:
        if self.adds:  # to the same tensors, which the parameters have already
            self.loss.copy_(self.graphs.add_gradient(*self.inputs))
            return
        for parameter in self.graphs.parameters:
            parameter.grad = None
        self.loss.copy_(self.graphs.add_gradient(*self.inputs))
        for own, computed in zip(self.gradients, list_gradients(self.graphs), strict=True):
            own.copy_(computed)
        for parameter in self.graphs.parameters:
            parameter.grad = None  # `GradientGraphs.run` sets it to its tensor in `gradients`


def list_gradients(graphs: GradientGraphs) -> list[Tensor]:
    gradients = []
    for parameter in graphs.parameters:
        assert parameter.grad is not None
        gradients.append(parameter.grad)
    return gradients


class ImitatedGraphs(GradientGraphs):
    def record(self, inputs):
        own = [None if given is None else given.clone() for given in inputs]
        imitation = Imitation(self, own)
        return Recorded(imitation, own, imitation.loss)


class BrokenGraphs(ImitatedGraphs):
    def record(self, inputs):
        for parameter in self.parameters:
            parameter.grad = torch.full_like(parameter, torch.nan)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")


class MostlyBrokenGraphs(BrokenGraphs):
    """Only the graph of a first gradient can be recorded."""

    def record(self, inputs):
        if self.recorded:
            return super().record(inputs)
        return ImitatedGraphs.record(self, inputs)


def with_graphs(setup, graphs_class):
    """A setup whose gradients are computed by graphs of this class; None: by none."""
    setup = replace(setup, graphs=None)
    if graphs_class is None:
        return setup
    graphs = graphs_class(partial(add_gradient, setup), [*setup.model.parameters()])
    return replace(setup, graphs=graphs)


class TrainedSteps(NamedTuple):
    numbers: list[tuple[float, float]]  # loss and norm of the gradient of each step
    weights: list[Tensor]  # after the last one
    graphs: GradientGraphs | None


def trained(setup, graphs_class):
    setup = with_graphs(setup, graphs_class)
    results = [train_step(setup, step) for step in range(STEPS)]
    numbers = [(result.loss, result.grad_norm) for result in results]
    weights = [parameter.detach().clone() for parameter in setup.model.parameters()]
    return TrainedSteps(numbers, weights, setup.graphs)


def assert_equal_trainings(plain, graphed):
    assert repr(plain.numbers) == repr(graphed.numbers)  # of which a NaN may be one
    assert all(torch.equal(*pair) for pair in zip(plain.weights, graphed.weights, strict=True))


@pytest.mark.parametrize("case", quick_for(["whole", "equal parts", "dropout"], CASES))
def test_steps_are_the_same_bit_for_bit(workdir, case):
    extra = CASES[case]
    plain = trained(build_setup(workdir, *extra), None)
    graphed = trained(build_setup(workdir, *extra), ImitatedGraphs)
    assert_equal_trainings(plain, graphed)
    assert len(graphed.graphs.recorded) == (2 if extra else 1)


@pytest.mark.parametrize("broken", [BrokenGraphs, MostlyBrokenGraphs])
def test_what_cannot_be_recorded_runs_as_it_is(workdir, capsys, broken):
    plain = trained(build_setup(workdir, *PARTS), None)
    capsys.readouterr()
    graphed = trained(build_setup(workdir, *PARTS), broken)
    assert_equal_trainings(plain, graphed)
    assert not graphed.graphs.recorded
    assert not graphed.graphs.gradients
    assert capsys.readouterr().err.count(
        "note: no CUDA graph can be recorded of a step (operation not permitted when stream is "
        "capturing); training goes on without. ") == 1


def test_batches_may_begin_with_inputs_of_two_shapes():
    """The second shape gets no graph. Only one graph can compute a first gradient, because all
    others add to its tensors."""
    weight = torch.nn.Parameter(torch.ones(3))

    def add_gradient(x):
        loss = (x * weight).sum()
        loss.backward()
        return loss.detach()

    graphs = ImitatedGraphs(add_gradient, [weight])
    for number in range(12):
        x = torch.full((4 - number % 2, 3), float(number))
        loss = graphs.run(x)
        assert loss == x.sum()
        assert weight.grad.equal(x.sum(0))
        weight.grad = None


def test_an_error_while_recording_is_the_one_that_is_raised(monkeypatch):
    """torch raises another when the recording ends."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool: failing_end())
    with pytest.raises(RuntimeError, match="not permitted"), recording(None, None):
        raise RuntimeError("not permitted")
    with pytest.raises(RuntimeError, match="not valid any more"), recording(None, None):
        pass
    assert gc.isenabled()


@contextmanager
def failing_end():
    try:
        yield
    finally:
        raise RuntimeError("the capture is not valid any more")


def test_a_gradient_from_elsewhere_is_added_to(workdir):
    """Somebody calls `backward` before the step's own gradient."""
    weights = []
    for graphs in (None, ImitatedGraphs):
        setup = with_graphs(build_setup(workdir), graphs)
        for step in range(STEPS):
            setup.model.norm.weight.square().sum().backward()
            train_step(setup, step)
        weights.append([parameter.detach().clone() for parameter in setup.model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*weights, strict=True))


def test_graphs_are_for_small_models_on_one_card(workdir):
    config = build_setup(workdir).config
    alone = World(0, 1, CARD)
    assert uses_graphs(config, alone)
    assert not uses_graphs(config, World(0, 1, torch.device("cpu")))
    assert not uses_graphs(config, World(0, 2, CARD))
    without = replace(config, train=replace(config.train, cuda_graphs=False))
    assert not uses_graphs(without, alone)
    row_flops = 6 * config.model.matrix_parameters * config.data.seq_len
    rows = int(MOST_FLOPS / row_flops)
    fitting = replace(config, train=replace(config.train, batch_size=rows))
    assert uses_graphs(fitting, alone)
    too_large = replace(config, train=replace(config.train, batch_size=rows + 1))
    assert not uses_graphs(too_large, alone)
    in_parts = replace(too_large, train=replace(too_large.train, micro_batch_size=rows))
    assert uses_graphs(in_parts, alone)


def test_the_line_of_the_device_names_the_graphs(workdir):
    setup = build_setup(workdir)
    assert "CUDA graphs" not in describe_devices(setup)
    graphed = with_graphs(setup, ImitatedGraphs)
    assert describe_devices(graphed).endswith("; gradients by CUDA graphs")


WHOLE = ["--train.batch_size=4"]
BFLOAT16 = "--train.dtype=bfloat16"
FLOAT16 = "--train.dtype=float16"


@pytest.mark.cuda
@pytest.mark.parametrize("extra", [
    *CASES.values(), [BFLOAT16, *WHOLE], [BFLOAT16, *PARTS], [FLOAT16, *WHOLE], [FLOAT16, *PARTS],
    ["--train.compile=true", *CASES["dropout"]], ["--train.checkpoint_blocks=true"]], ids=str)
def test_a_card_takes_the_same_steps(workdir, extra):
    extra = ["--train.device=cuda", *extra]
    plain = build_setup(workdir, *extra, "--train.cuda_graphs=false", device=CARD)
    assert plain.graphs is None
    graphed = trained(build_setup(workdir, *extra, device=CARD), GradientGraphs)
    assert_equal_trainings(trained(plain, None), graphed)
    assert graphed.graphs.works
    assert graphed.graphs.recorded


@pytest.mark.cuda
def test_a_graph_is_recorded_while_an_older_one_is_garbage(workdir):
    """Freed meanwhile, it would end the recording."""
    setup = build_setup(workdir, "--train.device=cuda", device=CARD)
    old = trained(setup, GradientGraphs).graphs
    old.itself = old
    del old
    setup = with_graphs(setup, GradientGraphs)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        train_step(setup, 0)
        train_step(setup, 1)
    finally:
        gc.set_threshold(*before)
    assert setup.graphs.works


READS_A_NUMBER = """
import sys

import torch
import train
from gyre import build

made = build.build


def hooked(*args):
    setup = made(*args)
    setup.model.norm.register_forward_hook(lambda module, inputs, out: out * out.amax().item())
    return setup


train.build = hooked
try:
    train.main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0
assert torch.cuda.current_stream() == torch.cuda.default_stream()
"""


@pytest.mark.cuda
def test_a_model_that_reads_a_number_trains_on_a_card(workdir):
    """In a process of its own: torch does not recover all memory from a failed recording."""
    argv = tiny_argv(workdir, "--train.device=cuda", "--name=reads-a-number")
    program = start_python(READS_A_NUMBER, *argv, CUDA_VISIBLE_DEVICES="0")
    errors = program.communicate(timeout=300)[1]
    assert "note: no CUDA graph can be recorded of a step" in errors
    assert program.returncode == 0, errors
