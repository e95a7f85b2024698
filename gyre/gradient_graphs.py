"""Gradients by CUDA graphs: all kernels of a forward and a backward pass are launched at once.

A GPU computes a step of a small model in less time than its kernels take to launch one by one. A
graph repeats what was recorded, on the same memory, so all that changes from step to step has to
be in its inputs: token ids and the keys of dropout. Nothing in a forward pass draws from a
generator. The kernels are those that run without a graph, so results are bit-identical wherever the
kernels are deterministic.
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

# FLOPs of a micro-batch above which an H200 computes longer (bfloat16) than some ten layers'
# kernels take to launch. A graph then gains nothing, and would hold the memory of its activations,
# which validation could use.
MOST_FLOPS = 1e13


class Recorded(NamedTuple):
    """A graph with the tensors that it reads and writes, besides the gradients."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor | None]
    loss: Tensor

    def run(self, inputs: tuple[Tensor | None, ...]) -> Tensor:
        """Run the graph with other inputs. Returns its loss, which the next run overwrites."""
        for target, given in zip(self.inputs, inputs, strict=True):
            if target is not None and given is not None:
                target.copy_(given)
        self.graph.replay()
        return self.loss


class GradientGraphs:
    """`add_gradient`, by CUDA graphs where it was called in the same way before.

    One graph computes the first gradient of a batch. It is for one shape of inputs only, the first
    that came twice. Other graphs, one for each shape, add further gradients to it.
    """

    def __init__(self, add_gradient: AddGradient, parameters: list[nn.Parameter]):
        self.add_gradient = add_gradient
        self.parameters = parameters
        self.gradients: list[Tensor | None] = []
        """What all graphs write to, by parameter. Empty until the first is recorded."""
        self.seen: set[tuple] = set()
        """The kinds of calls that were made: see `run`."""
        self.recorded: dict[tuple, Recorded] = {}
        """By kind."""
        self.pool: Any = None
        """Memory that the graphs share, as they never run at once. What has to outlast the next run
        is the gradients and, until it is read, the loss."""
        self.works = True
        """Whether no recording has failed."""

    def run(self, *inputs: Tensor | None) -> Tensor:
        """Return `add_gradient(*inputs)`. The next call overwrites it.

        The kind of a call is whether the parameters have gradients already, and the shapes of the
        inputs.
        """
        has_gradients = any(parameter.grad is not None for parameter in self.parameters)
        kind = (has_gradients, *(None if given is None else given.shape for given in inputs))
        recorded = self.find_graph(kind, has_gradients, inputs)
        if recorded is None:
            return self.add_gradient(*inputs)
        loss = recorded.run(inputs)
        if not has_gradients:
            for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
                parameter.grad = gradient
        return loss

    def find_graph(
        self, kind: tuple, has_gradients: bool, inputs: tuple[Tensor | None, ...]
    ) -> Recorded | None:
        """Return the graph for a call, recorded now if it is the second of its kind.

        None: the call has to run as it is, for one of these reasons, in this order:

        - A recording has failed.
        - The parameters have gradients which a step without a graph has made.
        - The call is the first of its kind, and sets up what cannot be recorded: workspaces of
          libraries, and compiled functions.
        - A batch begins with another shape than the first graph, to whose gradients all write.
        """
        if not self.works:
            return None
        if has_gradients and not self.has_graph_gradients():
            return None
        if kind in self.recorded:
            return self.recorded[kind]
        if kind not in self.seen:
            self.seen.add(kind)
            return None
        if not has_gradients and self.gradients:
            return None
        recorded = self.try_to_record(inputs)
        if recorded is not None:
            self.recorded[kind] = recorded
        return recorded

    def has_graph_gradients(self) -> bool:
        """Return whether the parameters have the gradients that the graphs write to."""
        if not self.gradients:
            return False
        pairs = zip(self.parameters, self.gradients, strict=True)
        return all(parameter.grad is gradient for parameter, gradient in pairs)

    def try_to_record(self, inputs: tuple[Tensor | None, ...]) -> Recorded | None:
        """Return the graph of a call. If it cannot be recorded, return None, now and always.

        Computes nothing. A parameter without a gradient gets the tensor that the graph will write
        to, whose values are undefined until it does.
        """
        before = [parameter.grad for parameter in self.parameters]
        try:
            recorded = self.record(inputs)
        except RuntimeError as error:  # a line of the model that reads a number, or no memory left
            for parameter, gradient in zip(self.parameters, before, strict=True):
                parameter.grad = gradient
            self.works = False
            self.recorded.clear()
            self.gradients.clear()
            # torch 2.13 keeps the memory of a recording that failed
            # (pytorch/pytorch#190348 mends that).
            say(f"note: no CUDA graph can be recorded of a step ({first_line(error)}); training "
                "goes on without. --train.cuda_graphs false does not try, which saves memory")
            return None
        if not self.gradients:
            self.gradients = [parameter.grad for parameter in self.parameters]
        return recorded

    def record(self, inputs: tuple[Tensor | None, ...]) -> Recorded:
        """Return the graph of a call."""
        copies = [None if given is None else given.clone() for given in inputs]
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with recording(graph, self.pool):
            loss = self.add_gradient(*copies)
        return Recorded(graph, copies, loss)
