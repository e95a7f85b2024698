"""Decoding as a CUDA graph: a step's kernels are launched at once instead of one by one.

A GPU computes a token of a model of 124 M parameters in less time than its 444 kernels take to
launch. A CUDA graph repeats what was recorded. So what depends on the length of the text has to be
in tensors: keys and values are written at an index that is a tensor, and attention reads whole
blocks of KEY_BLOCK keys, as many as hold the text, and masks those not written yet. What an
encoding adds to embeddings is computed outside of the graph.

The same step without a graph runs on any device, which is how it is tested.

B rows, S keys, H query heads, H_kv key/value heads, D head width, C model width, V vocabulary.
"""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from errors import say
from files import first_line
from model.generation import KEY_BLOCK, Batch, NextLogits, evaluating, next_logits
from model.position import PositionEncoding
from model.transformer import KVCache, Transformer


def graph_batch(
    batch: Batch, previous: NextLogits | None = None, *, compiled: bool = False
) -> NextLogits:
    """Return the step that decodes a batch by CUDA graphs; `next_logits` where there can be none.

    With `compiled`, PyTorch's compiler fuses the operations of a layer first. `previous` is the
    step of an earlier batch, which must have ended. If it fits, it is returned with all that it has
    recorded, and `batch` gets its cache.

    What the first tokens need is compiled and recorded now, so that none of them waits for it.
    """
    if batch.cache is None or not can_graph(batch.model, batch.device):
        return next_logits
    if isinstance(previous, GraphedStep) and previous.fits(batch.model, batch.cache, compiled):
        step = previous
        batch.cache = step.cache
    else:
        step = GraphedStep(batch.model, batch.cache, compiled=compiled)
    step.prepare(min(batch.prompt_lengths), batch.tokens.shape[1])
    return step


def can_graph(model: Transformer, device: torch.device) -> bool:
    """Return whether a model can be decoded by CUDA graphs on this device."""
    # What an encoding attaches to the layers may depend on the position, and not through a tensor.
    attaches = type(model.position).attach is not PositionEncoding.attach
    return device.type == "cuda" and not attaches and not torch.is_autocast_enabled("cuda")


class GraphedStep:
    """A `NextLogits` whose calls for one token of each row are replays of CUDA graphs.

    All other calls, such as prefill, are `next_logits`. The logits (B, V) that it returns are
    overwritten by the next call. Call `prepare` before each further text. With `recorded` False the
    same operations run without a graph.
    """

    def __init__(
        self, model: Transformer, cache: KVCache, *, compiled: bool = False, recorded: bool = True
    ):
        self.model = model
        self.cache = cache
        self.compiled = compiled
        self.pool = torch.cuda.graph_pool_handle() if recorded else None
        """Memory that the graphs share: they never run at once."""
        self.run_layer: Callable[..., Tensor] = run_layer
        self.run_output: Callable[..., Tensor] = run_output
        if compiled:
            self.run_layer = torch.compile(run_layer)
            self.run_output = torch.compile(run_output)
        # The capacity of the cache is rounded up, and may be more than a text can have.
        self.max_keys = int(min(cache.keys[0].shape[2], model.config.max_positions,
                                model.position.cache_limit))
        self.blocks: dict[int, DecodingBlock] = {}
        """By the number of keys that they read."""
        self.clear_rest()

    def fits(self, model: Transformer, cache: KVCache, compiled: bool) -> bool:
        """Return whether this step can decode with its own cache in place of this one."""
        own = self.cache.keys[0]
        key = cache.keys[0]
        same_cache = own.shape == key.shape and own.dtype == key.dtype
        return same_cache and self.model is model and self.compiled == compiled

    def __call__(self, model: Transformer, tokens: Tensor, cache: KVCache | None) -> Tensor:
        if cache is not self.cache or tokens.shape[1] != 1 or cache.length == 0:
            return next_logits(model, tokens, cache)
        start = cache.length
        if start >= self.max_keys:  # next_logits says what is wrong
            return next_logits(model, tokens, cache)
        block = self.find_block(start)
        block.fill(tokens, start)
        block.run()
        cache.length = start + 1
        return block.logits

    @torch.inference_mode()
    def prepare(self, start: int, length: int) -> None:
        """Empty the cache, and record the first step of a text of `length` tokens, at `start`."""
        if start < length - 1:  # no step reads the last token
            with evaluating(self.model):
                self.find_block(start)
        self.cache.length = 0
        self.clear_rest()

    @torch.inference_mode()
    def clear_rest(self) -> None:
        """Set what the text has not written to 0.

        Attention multiplies masked values by 0, and what memory or a broken text has left there may
        be NaN.
        """
        for x in self.cache.keys + self.cache.values:
            x[:, :, self.cache.length :] = 0

    def find_block(self, start: int) -> "DecodingBlock":
        """Return the step for the token at position `start`, recorded if it was not before."""
        n_keys = min(self.max_keys, KEY_BLOCK * (start // KEY_BLOCK + 1))
        if n_keys not in self.blocks:
            self.blocks[n_keys] = self.make_block(n_keys, start)
        return self.blocks[n_keys]

    def make_block(self, n_keys: int, start: int) -> "DecodingBlock":
        """Return the step that reads so many keys, recorded as a graph at position `start`."""
        block = DecodingBlock(self, n_keys)
        if self.pool is None:
            return block
        block.fill(block.tokens, start)
        with ExitStack() as contexts:
            if self.compiled:
                # For each number of rows there is a graph of its own, and 8 would be too few.
                # What does not compile runs as it is written.
                contexts.enter_context(torch._dynamo.config.patch(
                    recompile_limit=32, suppress_errors=True))
                # The compiler advises to round float32 products to TF32.
                contexts.enter_context(warnings.catch_warnings(action="ignore"))
            try:
                block.record(self.pool)
            except RuntimeError as error:  # a line of the model that reads a number, say
                say("note: no CUDA graph can be recorded of a token, which is then computed as it "
                    f"is, and more slowly ({first_line(error)})")
                self.pool = None
                block.graph = None
                block.known_position = -1  # `position` may have moved on
        return block


class LayerCache:
    """The cache of one layer, which is written at a position that is a tensor.

    It has as many keys as `indices` has numbers.
    """

    def __init__(self, keys: Tensor, values: Tensor, position: Tensor, indices: Tensor):
        self.keys = keys  # (B, H_kv, capacity, D)
        self.values = values
        self.position = position  # (1,)
        self.indices = indices  # (S,)

    def update(self, layer: int, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        """Write xk, xv (B, H_kv, 1, D) and return keys and values (B, H_kv, S, D).

        Layers call it as they call `KVCache.update`; `layer` is not needed.
        """
        self.keys.index_copy_(2, self.position, xk)
        self.values.index_copy_(2, self.position, xv)
        n_keys = len(self.indices)
        return self.keys[:, :, :n_keys], self.values[:, :, :n_keys]


def run_layer(
    layer: nn.Module, h: Tensor, freqs_cis: Tensor | None, bias: Tensor, cache: LayerCache
) -> Tensor:
    """Return h (B, 1, C) after a layer. `bias` (1, 1 or H, 1, S) is added to the scores of the keys
    up to the position, and the others are masked."""
    mask = bias.masked_fill(cache.indices > cache.position, -torch.inf)
    return layer(h, freqs_cis, mask, cache)


def run_output(model: Transformer, h: Tensor) -> Tensor:
    """Return the logits (B, V) of hidden states (B, 1, C)."""
    return model.logits(model.norm(h)[:, -1])


class DecodingBlock:
    """A decoding step that reads a fixed number of keys, with the tensors that it reads.

    It moves `position` on to the next token.
    """

    def __init__(self, step: GraphedStep, n_keys: int):
        keys = step.cache.keys[0]
        rows = len(keys)
        model = step.model
        encoding = model.position
        self.step = step
        self.graph: torch.cuda.CUDAGraph | None = None
        self.known_position = -1
        """What `position` holds, on the CPU. -1: not known."""
        self.position = torch.zeros(1, dtype=torch.long, device=keys.device)
        self.tokens = torch.zeros(rows, 1, dtype=torch.long, device=keys.device)
        self.indices = torch.arange(n_keys, device=keys.device)
        pairs = zip(step.cache.keys, step.cache.values, strict=True)
        self.caches = [LayerCache(*pair, self.position, self.indices) for pair in pairs]
        # An encoding that adds to the embeddings does so by a number, outside of the graph.
        self.embedded: Tensor | None = None  # (B, 1, C)
        if type(encoding).embed is not PositionEncoding.embed:
            self.embedded = torch.zeros(rows, 1, model.config.dim, dtype=keys.dtype,
                                        device=keys.device)
        # One table for texts of all lengths: else keys could not be cached.
        self.rotations = encoding.freqs_cis(0, n_keys)
        self.has_bias = encoding.bias(self.indices[:1], self.indices[:1]) is not None
        self.no_bias = torch.zeros(1, 1, 1, n_keys, dtype=keys.dtype, device=keys.device)
        self.logits = torch.empty(0)
        """(B, V), of the last run."""
        if step.compiled:  # one graph of the compiler for any number of keys
            mark_lengths(self.indices, self.caches)

    def fill(self, tokens: Tensor, start: int) -> None:
        """Set what the step reads to tokens (B, 1) at position `start`."""
        model = self.step.model
        if self.known_position != start:
            self.position.fill_(start)
        self.known_position = start
        if self.embedded is None:
            self.tokens.copy_(tokens)
        else:
            self.embedded.copy_(model.position.embed(model.tok_embeddings(tokens), start))

    def compute(self) -> None:
        """Compute the logits."""
        model = self.step.model
        h = self.embedded
        if h is None:
            h = model.tok_embeddings(self.tokens)
        freqs_cis = self.rotations
        if freqs_cis is not None:
            freqs_cis = freqs_cis.index_select(0, self.position)
        bias = self.no_bias
        if self.has_bias:
            encoded = model.position.bias(self.position, self.indices)
            assert encoded is not None
            bias = encoded[None]
        if self.step.compiled:
            torch._dynamo.mark_dynamic(bias, 3)
        for layer, cache in zip(model.layers, self.caches, strict=True):
            h = self.step.run_layer(layer, h, freqs_cis, bias, cache)
        self.logits = self.step.run_output(model, h)
        self.position += 1

    def record(self, pool: Any) -> None:
        """Record the step as a graph, whose memory is of `pool`."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries set themselves up, which cannot be recorded
            for _ in range(2):
                self.compute()
                self.position -= 1  # which it has moved on
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with recording(self.graph, pool):
            self.compute()

    def run(self) -> None:
        """Compute the logits, by the graph if there is one."""
        if self.graph is None:
            self.compute()
        else:
            self.graph.replay()
        self.known_position += 1  # as `compute`, or the graph, has moved `position` on


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Return the context in which CUDA computes nothing, and records it as a graph instead.

    `pool` is the memory of the graph. Raises RuntimeError for what cannot be recorded.
    """
    collects = gc.isenabled()
    # A collection may free an older graph, and that ends this recording with an error (seen with
    # torch 2.11).
    gc.disable()
    # torch leaves its own stream the current one if a recording fails.
    stream = torch.cuda.stream(torch.cuda.current_stream())
    cause: RuntimeError | None = None
    try:
        with stream, torch.cuda.graph(graph, pool=pool):
            try:
                yield
            except RuntimeError as error:
                cause = error
                raise
    except RuntimeError as error:
        if cause is None or cause is error:
            raise
        raise cause from error  # which says only that there was an error
    finally:
        if collects:
            gc.enable()


def mark_lengths(indices: Tensor, caches: list[LayerCache]) -> None:
    """Tell the compiler that the number of keys and the size of a cache may be others."""
    torch._dynamo.mark_dynamic(indices, 0)
    for cache in caches:
        torch._dynamo.mark_dynamic(cache.keys, 2)
        torch._dynamo.mark_dynamic(cache.values, 2)
