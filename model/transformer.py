"""A decoder-only transformer of the LLaMA family, with the names of Meta's reference code.

RMSNorm before each half of a block, grouped-query attention, SwiGLU, no biases. Everything about
positions lives in `model/position.py`; everything that changes while decoding lives in `KVCache`.

Shapes: B batch, T tokens, S keys (cached + new), H heads, D head width, C model width,
V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import KVCache
from model.config import INIT_STD, ModelConfig
from model.kernels import Dropout, attend, linear
from model.position import POSITIONS, check_position
from model.seeds import derive_seed

Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class RMSNorm(nn.Module):
    """x / rms(x) * weight, computed in float32. (Zhang & Sennrich 2019, arXiv:1910.07467)"""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


class Linear(nn.Linear):
    """A matrix without bias."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight)


class Attention(nn.Module):
    """Causal attention in which each key/value head serves a group of query heads."""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.wq = Linear(config.dim, config.n_heads * config.head_dim)
        self.wk = Linear(config.dim, config.n_kv_heads * config.head_dim)
        self.wv = Linear(config.dim, config.n_kv_heads * config.head_dim)
        self.wo = Linear(config.n_heads * config.head_dim, config.dim)

    def forward(
        self, x: Tensor, rotate: Rotate, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        xq, xk, xv = (w(x).unflatten(-1, (-1, self.head_dim)) for w in (self.wq, self.wk, self.wv))
        xq, xk = rotate(xq, xk)  # (B, T, H, D), (B, T, H_kv, D)
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)  # (B, H, T, D)
        if cache is not None:
            xk, xv = cache.update(self.layer, xk, xv)  # (B, H_kv, S, D)
        return self.wo(attend(xq, xk, xv, mask).transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x). (Shazeer 2020, arXiv:2002.05202)"""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.w1 = Linear(config.dim, config.hidden_dim)
        self.w2 = Linear(config.hidden_dim, config.dim)
        self.w3 = Linear(config.dim, config.hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.attention = Attention(config, layer)
        self.feed_forward = FeedForward(config)
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, rotate: Rotate, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        h = x + self.dropout(self.attention(self.attention_norm(x), rotate, mask, cache))
        return h + self.dropout(self.feed_forward(self.ffn_norm(h)))


class Transformer(nn.Module):
    """Tokens in, logits out. The state dict's keys are Meta's; tied models have no `output.weight`.

    The modules hold no state between calls: what decoding remembers is in the `cache` argument.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        for field in ("vocab_size", "max_positions"):
            if getattr(config, field) is None:
                raise ValueError(f"model.{field} must be set to build a Transformer")
        check_position(config)
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.position = POSITIONS[config.position](config)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(TransformerBlock(config, i) for i in range(config.n_layers))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        if not config.tie_embeddings:
            self.output = Linear(config.dim, config.vocab_size)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw every matrix from its own stream, addressed by (seed, parameter name).

        So two models of one seed share the values of all the parameters they share, whatever else
        either of them has. Normal with std 0.02; `wo` and `w2`, which write into the residual
        stream, are divided by sqrt(2 n_layers) so that its variance does not grow with depth
        (GPT-2). Vectors and scalars keep their constants.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                continue
            generator = torch.Generator().manual_seed(derive_seed(seed, name))
            std = INIT_STD
            if name.endswith(("wo.weight", "w2.weight")):
                std /= math.sqrt(2 * self.config.n_layers)
            drawn = torch.empty(parameter.shape, device="cpu").normal_(0, std, generator=generator)
            parameter.copy_(drawn)

    def hidden_states(
        self, tokens: Tensor, cache: KVCache | None = None, offset: int = 0
    ) -> Tensor:
        """Tokens (B, T) -> normalised hidden states (B, T, C): all but the output matrix.

        The first token stands at position `offset`, with nothing before it. With a cache, the
        tokens continue what it holds, and it is longer by T afterwards. Raises ValueError where
        positions would pass `max_positions`, or the keys in the cache would not be valid.
        """
        if offset < 0 or (offset and cache is not None):
            raise ValueError(
                f"offset {offset}: positions start at 0 or later, and a cache says itself where"
            )
        start = offset if cache is None else cache.length
        stop = start + tokens.shape[1]
        if stop > self.config.max_positions:
            raise ValueError(
                f"position {stop} is past the context of {self.config.max_positions} "
                "(model.max_positions)"
            )
        if cache is not None and stop > self.position.cache_limit:
            raise ValueError(
                f"position {stop} is past {self.position.cache_limit}, from where on this encoding "
                "turns all keys anew for every length (model.rope_scaling): keys that were cached "
                "before would be wrong, so go on without a cache"
            )
        rows = self.position.at(start, stop)  # sliced once, for every layer
        mask = self._mask(start - offset, stop - offset, tokens.device)

        def rotate(xq: Tensor, xk: Tensor) -> tuple[Tensor, Tensor]:
            return self.position.rotate(xq, xk, rows)

        h = self.dropout(self.position.embed(self.tok_embeddings(tokens), rows))
        for layer in self.layers:
            h = layer(h, rotate, mask, cache)
        if cache is not None:
            cache.length = stop
        return self.norm(h)

    def logits(self, features: Tensor) -> Tensor:
        """Hidden states (..., C) -> logits (..., V)."""
        output = self.tok_embeddings if self.config.tie_embeddings else self.output
        return linear(features, output.weight)

    def forward(self, tokens: Tensor, cache: KVCache | None = None, offset: int = 0) -> Tensor:
        """Tokens (B, T) -> logits (B, T, V). See `features`."""
        return self.logits(self.hidden_states(tokens, cache, offset))

    def _mask(self, start: int, stop: int, device: torch.device) -> Tensor | None:
        """What new tokens at start .. stop-1 may see of the keys 0 .. stop-1.

        None if SDPA needs no mask; bool (T, S), True = visible; or the encoding's bias
        (1, H, T, S) with -inf on what is hidden; of 3 dimensions, SDPA would not fuse it on a CPU.
        """
        keys = torch.arange(stop, device=device)
        queries = keys[start:]
        bias = self.position.bias(queries, keys)
        if bias is None and (start == 0 or stop - start == 1):
            return None
        visible = queries[:, None] >= keys[None, :]
        return visible if bias is None else bias.masked_fill(~visible, -torch.inf)[None]
