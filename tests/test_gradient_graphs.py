"""Gradients by CUDA graphs are those without.

On a CPU, what stands in for a graph computes again.
"""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from conftest import build_setup
from torch import Tensor

from gyre.build import gains_by_graphs
from gyre.gradient_graphs import MOST_FLOPS, AddGradient, GradientGraphs, Recording
from gyre.parallel import World
from gyre.step import train_step

STEPS = 4
# Batches of 4 rows, in parts of 3 and 1: two shapes, of which the second adds to the first.
PARTS = ["--train.batch_size=4", "--train.micro_batch_size=3"]
CASES = {
    "whole": [], "parts": PARTS, "equal parts": [*PARTS, "--train.micro_batch_size=2"],
    "dropout": ["--model.dropout=0.2", *PARTS], "muon": ["--optim.optimizer=muon", *PARTS],
}
CARD = torch.device("cuda", 0)


class Imitation:
    """What a CUDA graph does, without one: computes again from the same inputs, into the same
    tensors."""

    def __init__(self, graphs: GradientGraphs, add_gradient: AddGradient,
                 inputs: list[Tensor | None]):
        self.graphs = graphs
        self.add_gradient = add_gradient
        self.inputs = inputs
        self.adds = graphs.parameters[0].grad is not None
        if not self.adds:
            for parameter in graphs.parameters:
                parameter.grad = torch.full_like(parameter, torch.nan)
        self.gradients = list_gradients(graphs)
        self.loss = torch.tensor(torch.nan)

    def replay(self) -> None:
        parameters = self.graphs.parameters
        if self.adds:
            self.loss.copy_(self.add_gradient(*self.inputs))
            return
        for parameter in parameters:
            parameter.grad = None
        self.loss.copy_(self.add_gradient(*self.inputs))
        for own, computed in zip(self.gradients, list_gradients(self.graphs), strict=True):
            own.copy_(computed)
        for parameter in parameters:  # a graph gives no parameter a gradient
            parameter.grad = None


def list_gradients(graphs: GradientGraphs) -> list[Tensor]:
    gradients = []
    for parameter in graphs.parameters:
        assert parameter.grad is not None
        gradients.append(parameter.grad)
    return gradients


class ImitatedGraphs(GradientGraphs):
    def record(self, add_gradient, inputs):
        own = [None if given is None else given.clone() for given in inputs]
        imitation = Imitation(self, add_gradient, own)
        return Recording(imitation, own, imitation.loss)


class BrokenGraphs(GradientGraphs):
    def record(self, add_gradient, inputs):
        for parameter in self.parameters:
            parameter.grad = torch.full_like(parameter, torch.nan)
        with failing_end():
            raise RuntimeError("operation not permitted when stream is capturing")


@contextmanager
def failing_end():
    try:
        yield
    finally:
        raise RuntimeError("the capture is not valid any more")


def trained(setup, graphs):
    """What steps measure, and the weights after them."""
    setup = replace(setup, graphs=graphs and graphs([*setup.model.parameters()]))
    results = [train_step(setup, step) for step in range(STEPS)]
    numbers = [(result.loss, result.grad_norm) for result in results]
    return numbers, [parameter.detach().clone() for parameter in setup.model.parameters()], setup


def assert_equal_trainings(plain, graphed):
    assert plain[0] == graphed[0]
    assert all(torch.equal(*pair) for pair in zip(plain[1], graphed[1], strict=True))


@pytest.mark.parametrize("extra", CASES.values(), ids=CASES)
def test_steps_are_the_same_bit_for_bit(workdir, extra):
    plain = trained(build_setup(workdir, *extra), None)
    graphed = trained(build_setup(workdir, *extra), ImitatedGraphs)
    assert_equal_trainings(plain, graphed)
    recordings = graphed[2].graphs.recordings.values()
    assert len(recordings) == (2 if extra else 1)
    assert None not in recordings


def test_what_cannot_be_recorded_runs_as_it_is(workdir, capsys):
    plain = trained(build_setup(workdir, *PARTS), None)
    capsys.readouterr()
    assert_equal_trainings(plain, trained(build_setup(workdir, *PARTS), BrokenGraphs))
    printed = capsys.readouterr().err
    assert printed.count("note: training goes on without CUDA graphs") == 1
    assert "recorded: operation not permitted" in printed


def test_a_gradient_from_elsewhere_is_added_to(workdir):
    """Somebody calls `backward` before the step's own gradient."""
    weights = []
    for graphs in (None, ImitatedGraphs):
        setup = build_setup(workdir)
        setup = replace(setup, graphs=graphs and graphs([*setup.model.parameters()]))
        for step in range(STEPS):
            setup.model.norm.weight.square().sum().backward()
            train_step(setup, step)
        weights.append([parameter.detach().clone() for parameter in setup.model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*weights, strict=True))


def test_graphs_are_for_small_models_on_one_card(workdir):
    config = build_setup(workdir).config
    alone = World(0, 1, CARD)
    assert gains_by_graphs(config, alone)
    assert not gains_by_graphs(config, World(0, 1, torch.device("cpu")))
    assert not gains_by_graphs(config, World(0, 2, CARD))
    without = replace(config, train=replace(config.train, cuda_graphs=False))
    assert not gains_by_graphs(without, alone)
    step = 6 * config.model.matrix_parameters * config.data.seq_len
    rows = int(MOST_FLOPS / step)
    for batch, gains in ((rows, True), (rows + 1, False)):
        large = replace(config, train=replace(config.train, batch_size=batch))
        assert gains_by_graphs(large, alone) == gains
    parts = replace(large, train=replace(large.train, micro_batch_size=rows))
    assert gains_by_graphs(parts, alone)


@pytest.mark.cuda
@pytest.mark.parametrize("extra", [
    *CASES.values(), ["--train.dtype=bfloat16", *PARTS], ["--train.dtype=float16"],
    ["--train.compile=true", *CASES["dropout"]], ["--train.checkpoint_blocks=true"]], ids=str)
def test_a_card_takes_the_same_steps(workdir, extra):
    extra = ["--train.device=cuda", *extra]
    plain = build_setup(workdir, *extra, "--train.cuda_graphs=false", device=CARD)
    assert plain.graphs is None
    graphed = trained(build_setup(workdir, *extra, device=CARD), GradientGraphs)
    assert_equal_trainings(trained(plain, None), graphed)
    assert graphed[2].graphs.works
    assert None not in graphed[2].graphs.recordings.values()


@pytest.mark.cuda
def test_a_model_that_reads_a_number_trains_on_a_card(workdir, capsys):
    extra = ["--train.device=cuda", *PARTS]

    def training(graphs):
        setup = build_setup(workdir, *extra, device=CARD)
        setup.model.norm.register_forward_hook(lambda *args: args[2].sum().item() and None)
        return trained(setup, graphs)

    before = torch.cuda.current_stream()
    assert_equal_trainings(training(None), training(GradientGraphs))
    assert torch.cuda.current_stream() == before
    assert "note: training goes on without CUDA graphs" in capsys.readouterr().err
