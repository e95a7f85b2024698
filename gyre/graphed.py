"""Decoding as a CUDA graph: a step's kernels are launched at once instead of one by one.

A small model computes a token in less time than its some 400 kernels take to launch. A CUDA graph
repeats what was recorded, so nothing in it may depend on the length of the text but through
tensors: keys and values are written at an index that is a tensor, attention reads all keys of a
block of KEY_BLOCK and more, and those that are not written yet are masked. What an encoding
computes from positions is computed outside of the graph.

The same step without a graph runs on any device, which is how it is tested.

B rows, S keys, H query heads, C model width, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from model.generation import Batch, Step, next_logits
from model.position import PositionEncoding
from model.transformer import KVCache, Transformer

KEY_BLOCK = 256
"""A graph serves lengths up to the next multiple of this."""
ALIGNED = 16
"""Attention kernels read masks whose rows begin at multiples of so many numbers."""


def graph_batch(batch: Batch, compiled: bool = False) -> Step:
    """Return the step that decodes a batch by CUDA graphs; `next_logits` where there can be none.

    With `compiled`, the operations between the products are fused by PyTorch's compiler first.
    """
    if batch.cache is None or not can_graph(batch.model, batch.device):
        return next_logits
    return GraphedStep(batch.model, batch.cache, compiled=compiled)


def can_graph(model: Transformer, device: torch.device) -> bool:
    """Return whether a model can be decoded by CUDA graphs on this device."""
    # What an encoding attaches to the layers may depend on the position, and not through a tensor.
    attaches = type(model.position).attach is not PositionEncoding.attach
    return device.type == "cuda" and not attaches and not torch.is_autocast_enabled("cuda")


class GraphedStep:
    """A `Step` whose calls for one token of each row are replays of CUDA graphs.

    All other calls, such as prefill, are `next_logits`. The logits (B, V) that it returns are
    overwritten by the next call. With `recorded` False the same operations run without a graph.
    """

    def __init__(
        self, model: Transformer, cache: KVCache, *, compiled: bool = False, recorded: bool = True
    ):
        self.model = model
        self.cache = cache
        self.pool = torch.cuda.graph_pool_handle() if recorded else None
        """Memory that the graphs share: they never run at once."""
        self.decode = decode_at
        if compiled:
            self.decode = torch.compile(decode_at, dynamic=False)
        self.blocks: dict[int, DecodingBlock] = {}
        """By the number of keys that they read."""

    def __call__(self, model: Transformer, tokens: Tensor, cache: KVCache | None) -> Tensor:
        if cache is not self.cache or tokens.shape[1] != 1 or cache.length == 0:
            return next_logits(model, tokens, cache)
        capacity = cache.keys[0].shape[2]
        start = cache.length
        if start == capacity:  # next_logits says what is wrong
            return next_logits(model, tokens, cache)
        n_keys = min(capacity, KEY_BLOCK * (start // KEY_BLOCK + 1))
        if n_keys not in self.blocks:
            self.blocks[n_keys] = self.make_block(n_keys, tokens)
        block = self.blocks[n_keys]
        block.fill(tokens, start)
        block.run()
        cache.length = start + 1
        return block.logits

    def make_block(self, n_keys: int, tokens: Tensor) -> "DecodingBlock":
        """Return the step that reads so many keys, recorded as a graph."""
        if not self.blocks:
            # Attention multiplies masked values by 0, and what no token has written may be NaN.
            for x in self.cache.keys + self.cache.values:
                x[:, :, self.cache.length :] = 0
        block = DecodingBlock(self.model, self.cache, n_keys, self.decode)
        if self.pool is not None:
            block.fill(tokens, self.cache.length)
            block.record(self.pool)
        return block


class PositionedCache:
    """The first keys and values of a KVCache, which are written at a position that is a tensor."""

    def __init__(self, cache: KVCache, n_keys: int, position: Tensor):
        self.keys = [x[:, :, :n_keys] for x in cache.keys]
        self.values = [x[:, :, :n_keys] for x in cache.values]
        self.position = position

    def update(self, layer: int, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        """Write xk, xv (B, H_kv, 1, D) and return all keys and values (B, H_kv, S, D)."""
        keys = self.keys[layer].index_copy_(2, self.position, xk)
        values = self.values[layer].index_copy_(2, self.position, xv)
        return keys, values


def decode_at(
    model: Transformer, h: Tensor, freqs_cis: Tensor | None, bias: Tensor, indices: Tensor,
    cache: PositionedCache,
) -> Tensor:
    """Return the logits (B, V) after embeddings h (B, 1, C) of the tokens at `cache.position`.

    `bias` (1, 1 or H, 1, S) is added to the scores; `indices` (S,) are the positions of the keys.
    """
    mask = bias.masked_fill(indices > cache.position, -torch.inf)
    for layer in model.layers:
        h = layer(h, freqs_cis, mask, cache)
    return model.logits(model.norm(h)[:, -1])


class DecodingBlock:
    """A decoding step that reads a fixed number of keys, with the tensors that it reads."""

    def __init__(
        self, model: Transformer, cache: KVCache, n_keys: int, decode: Callable[..., Tensor]
    ):
        device = cache.keys[0].device
        dtype = cache.keys[0].dtype
        rows = cache.keys[0].shape[0]
        self.model = model
        self.decode = decode
        self.graph: torch.cuda.CUDAGraph | None = None
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.cache = PositionedCache(cache, n_keys, self.position)
        self.indices = torch.arange(n_keys, device=device)
        self.h = torch.zeros(rows, 1, model.config.dim, dtype=dtype, device=device)
        self.freqs_cis: Tensor | None = None
        rotations = model.position.freqs_cis(0, 1)
        if rotations is not None:
            self.freqs_cis = rotations.clone()
        heads = 1
        self.biased = model.position.bias(self.indices[:1], self.indices[:1]) is not None
        if self.biased:  # float32: in bfloat16 it would round distance 257 to 256
            heads = model.config.n_heads
            dtype = torch.float32
        width = ALIGNED * math.ceil(n_keys / ALIGNED)
        self.bias = torch.zeros(1, heads, 1, width, dtype=dtype, device=device)[..., :n_keys]
        self.logits = torch.empty(0)

    def fill(self, tokens: Tensor, start: int) -> None:
        """Set what the step reads to tokens (B, 1) at position `start`."""
        position = self.model.position
        self.position.fill_(start)
        self.h.copy_(position.embed(self.model.tok_embeddings(tokens), start))
        rotations = position.freqs_cis(start, start + 1)
        if rotations is not None and self.freqs_cis is not None:
            self.freqs_cis.copy_(rotations)
        if self.biased:
            bias = position.bias(self.position, self.indices)
            assert bias is not None
            self.bias.copy_(bias[None])

    def compute(self) -> None:
        """Compute the logits."""
        self.logits = self.decode(
            self.model, self.h, self.freqs_cis, self.bias, self.indices, self.cache)

    def record(self, pool: Any) -> None:
        """Record the step as a graph, whose memory is of `pool`."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries set themselves up, which cannot be recorded
            self.compute()
            self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.compute()

    def run(self) -> None:
        """Compute the logits, by the graph if there is one."""
        if self.graph is None:
            self.compute()
        else:
            self.graph.replay()
