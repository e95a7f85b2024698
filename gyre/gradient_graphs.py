"""Gradients by CUDA graphs: all kernels of a forward and a backward pass are launched at once.

A GPU computes a step of a small model in less time than its kernels take to launch one by one. A
graph repeats what was recorded, on the same memory, so all that changes from step to step has to
be in its inputs: token ids and the keys of dropout. Nothing in a forward pass draws from a
generator. The gradients are bit for bit those without a graph.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from errors import say
from files import first_line
from gyre.graphed import recording

AddGradient = Callable[..., Tensor]
"""Adds a gradient to those of the parameters, from tensors or None, and returns the loss."""

# Of a micro-batch. An H200 computes more of them in bfloat16 than the kernels of a model of some
# ten layers take to launch, so a graph gains nothing. It keeps the memory of its activations, which
# validation could use otherwise.
MOST_FLOPS = 1e13


class Recording(NamedTuple):
    """A graph with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor | None]
    loss: Tensor

    def run(self, inputs: tuple[Tensor | None, ...]) -> Tensor:
        """Run the graph with other inputs. Returns its loss, which the next run overwrites."""
        for own, given in zip(self.inputs, inputs, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        self.graph.replay()
        return self.loss


class GradientGraphs:
    """What has been recorded of one function for the parameters of one model.

    There is a graph for every shape of the inputs, and others for the first gradient of a batch,
    which the parameters have yet to get, and for those that are added to it.
    """

    def __init__(self, parameters: list[nn.Parameter]):
        self.parameters = parameters
        self.gradients: list[Tensor | None] = []
        """What all graphs write to, by parameter. Empty until the first is recorded."""
        self.recordings: dict[tuple, Recording | None] = {}
        """None for a kind of call that was made once."""
        self.pool: Any = None
        """Memory that the graphs share: they never run at once, and no graph reads what another one
        has left but the gradients."""
        self.works = True
        """Whether no recording has failed."""

    def run(self, add_gradient: AddGradient, *inputs: Tensor | None) -> Tensor:
        """Return `add_gradient(*inputs)`, by a graph from the second call of its kind on.

        The first call sets up what cannot be recorded, such as a library's workspace or a compiled
        function. The loss is overwritten by the next call.
        """
        adds = any(parameter.grad is not None for parameter in self.parameters)
        kind = (adds, *(None if given is None else given.shape for given in inputs))
        if not self.works or kind not in self.recordings:
            self.recordings[kind] = None
            return add_gradient(*inputs)
        recording = self.recordings[kind]
        if adds and not self.has_own_gradients():
            return add_gradient(*inputs)
        if recording is None:
            recording = self.try_to_record(add_gradient, inputs)
            if recording is None:
                return add_gradient(*inputs)
            self.recordings[kind] = recording
        loss = recording.run(inputs)
        if not adds:
            for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
                parameter.grad = gradient
        return loss

    def has_own_gradients(self) -> bool:
        """Return whether the parameters have the gradients that the graphs write to."""
        if not self.gradients:
            return False
        pairs = zip(self.parameters, self.gradients, strict=True)
        return all(parameter.grad is gradient for parameter, gradient in pairs)

    def try_to_record(
        self, add_gradient: AddGradient, inputs: tuple[Tensor | None, ...]
    ) -> Recording | None:
        """Return the recording of a call; None, from then on, if it cannot be recorded.

        Nothing is computed, but that a parameter without a gradient has one, of any values.
        """
        before = [parameter.grad for parameter in self.parameters]
        try:
            recording = self.record(add_gradient, inputs)
        except RuntimeError as error:  # a line of the model that reads a number, or no memory left
            for parameter, gradient in zip(self.parameters, before, strict=True):
                parameter.grad = gradient
            self.works = False
            say("note: training goes on without CUDA graphs (--train.cuda_graphs false), because "
                f"a step cannot be recorded: {first_line(find_cause(error))}")
            return None
        if not self.gradients:
            self.gradients = [parameter.grad for parameter in self.parameters]
        return recording

    def record(self, add_gradient: AddGradient, inputs: tuple[Tensor | None, ...]) -> Recording:
        """Return the recording of a call."""
        own = [None if given is None else given.clone() for given in inputs]
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with recording(graph, self.pool):
            loss = add_gradient(*own)
        return Recording(graph, own, loss)


def find_cause(error: BaseException) -> BaseException:
    """Return the error during which, if only indirectly, this one was raised.

    A recording that fails raises a second error when it ends, which does not say why.
    """
    while error.__context__ is not None:
        error = error.__context__
    return error
