"""A decoder-only transformer of the LLaMA family, with the names of Meta's reference code.

Positions are in `model/position.py`. A function marked `@or_faster` is the plain form of what it
does; where another form is faster, `model/kernels.py` puts that in its place.

B batch, T tokens, S keys, H query heads, H_kv key/value heads, D head width, C width, V vocabulary.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import KVCache
from model.config import INIT_STD, ModelConfig
from model.dropout import Drop, dropping, no_dropout
from model.kernels import or_faster
from model.position import POSITIONS, Mask, Rotate, check_position
from model.seeds import derive_seed


@or_faster
def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (..., I) with weight (O, I) -> (..., O)."""
    return F.linear(x, weight)


@or_faster
def attend(xq: Tensor, xk: Tensor, xv: Tensor, mask: Mask) -> Tensor:
    """Softmax attention of xq (B, H, T, D) over xk, xv (B, H_kv, S, D) -> (B, H, T, D).

    No mask, causal, is for T == S or T == 1 only: `is_causal` aligns its triangle top-left.
    """
    gqa, causal = xq.shape[1] != xk.shape[1], mask is None and xq.shape[2] > 1
    if mask is None or mask.dtype in (torch.bool, xq.dtype):
        return F.scaled_dot_product_attention(xq, xk, xv, mask, is_causal=causal, enable_gqa=gqa)
    with torch.autocast(xq.device.type, enabled=False):  # a bfloat16 bias rounds 257 to 256
        q, k, v = (x.to(mask.dtype) for x in (xq, xk, xv))
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=gqa).type_as(xq)


class Linear(nn.Linear):
    """A weight matrix without bias: (..., I) -> (..., O)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight)


class RMSNorm(nn.Module):
    """x / rms(x) * weight, (..., C) -> (..., C), computed in float32. (arXiv:1910.07467)"""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


class Attention(nn.Module):
    """Grouped-query attention, (B, T, C) -> (B, T, C), or with `last_only` (B, 1, C), what the last
    token's query finds. (Ainslie et al. 2023, arXiv:2305.13245)"""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.wq = Linear(config.dim, config.n_heads * config.head_dim)
        self.wk = Linear(config.dim, config.n_kv_heads * config.head_dim)
        self.wv = Linear(config.dim, config.n_kv_heads * config.head_dim)
        self.wo = Linear(config.n_heads * config.head_dim, config.dim)

    def forward(
        self, x: Tensor, rotate: Rotate, mask: Mask, cache: KVCache | None, last_only: bool = False
    ) -> Tensor:
        xq, xk, xv = (w(x).unflatten(-1, (-1, self.head_dim)) for w in (self.wq, self.wk, self.wv))
        xq, xk = rotate(xq, xk)  # (B, T, H, D), (B, T, H_kv, D)
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)  # (B, H, T, D)
        if cache is not None:
            xk, xv = cache.update(self.layer, xk, xv)  # (B, H_kv, S, D)
        if last_only:
            xq, mask = xq[:, :, -1:], None if mask is None else mask[..., -1:, :]
        return self.wo(attend(xq, xk, xv, mask).transpose(1, 2).flatten(-2))

    def weights(self, x: Tensor, rotate: Rotate, mask: Tensor) -> Tensor:
        """The softmax of the scores plus a float mask: (B, T, C) -> (B, H, T, T)."""
        xq, xk = (w(x).unflatten(-1, (-1, self.head_dim)) for w in (self.wq, self.wk))
        xq, xk = rotate(xq, xk)
        xk = xk.repeat_interleave(xq.shape[2] // xk.shape[2], dim=2)  # (B, T, H, D), as xq
        scores = torch.einsum("bthd,bshd->bhts", xq, xk) * self.head_dim**-0.5
        return (scores + mask).softmax(-1)


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x), (..., C) -> (..., C). (Shazeer 2020, arXiv:2002.05202)"""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.w1 = Linear(config.dim, config.hidden_dim)
        self.w2 = Linear(config.hidden_dim, config.dim)
        self.w3 = Linear(config.dim, config.hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    """Attention and SwiGLU, each normalised and added to the residual stream (B, T, C)."""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.attention = Attention(config, layer)
        self.feed_forward = FeedForward(config)
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)

    def forward(
        self, x: Tensor, rotate: Rotate, mask: Mask, cache: KVCache | None,
        drop: Drop = no_dropout, last_only: bool = False,
    ) -> Tensor:
        place = 2 * self.attention.layer + 1
        attended = self.attention(self.attention_norm(x), rotate, mask, cache, last_only)
        h = (x[:, -1:] if last_only else x) + drop(attended, place)
        return h + drop(self.feed_forward(self.ffn_norm(h)), place + 1)


class Transformer(nn.Module):
    """Tokens in, logits out. State-dict keys are Meta's; tied models have no `output.weight`.
    Raises ValueError for a configuration that is incomplete or that its encoding cannot serve."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        config.require("vocab_size", "max_positions")
        check_position(config)
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        with torch.device("cpu"):  # what it computes has values where the rest is on "meta" too
            self.position = POSITIONS[config.position](config)
        self.layers = nn.ModuleList(TransformerBlock(config, i) for i in range(config.n_layers))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        if not config.tie_embeddings:
            self.output = Linear(config.dim, config.vocab_size)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw every matrix, see `drawn`."""
        parameters = dict(self.named_parameters())
        for name, matrix in self.drawn(seed):
            parameters[name].copy_(matrix)

    def drawn(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Name and first value of every matrix, one at a time, on the CPU: normal with std 0.02,
        from a stream addressed by (seed, its name).

        So models of one seed share the values of all matrices that they share. What writes into the
        residual stream is divided by sqrt(2 n_layers): its variance does not grow with depth. An
        encoding may ask for another std of the embeddings."""
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                into_residual = name.endswith(("wo.weight", "w2.weight"))
                std = INIT_STD / math.sqrt(2 * self.config.n_layers if into_residual else 1)
                std = self.position.embedding_std if name == "tok_embeddings.weight" else std
                generator = torch.Generator().manual_seed(derive_seed(seed, name))
                matrix = torch.empty(parameter.shape, device="cpu")
                yield name, matrix.normal_(0, std, generator=generator)

    def hidden_states(
        self, tokens: Tensor, cache: KVCache | None = None, offset: int | Tensor = 0,
        keys: Tensor | None = None, last_only: bool = False,
    ) -> Tensor:
        """Tokens (B, T) -> normalised hidden states (B, T, C). With a cache, the tokens continue it
        and it is longer by T afterwards; without, the first token stands at position `offset`,
        which may differ from row to row, (B,), where positions are added to the embeddings. `keys`
        (B,) address dropout. With `last_only` they are those of the last token, (B, 1, C), nothing
        is dropped, and the last block is computed for it alone, but for queries, keys and values.
        Raises ValueError as `PositionEncoding.span` does, and for offsets beside a cache."""
        common = 0 if isinstance(offset, Tensor) else offset
        start, stop = self.position.span(tokens.shape[1], cache, common)
        rows = self.position.at(start, stop)  # sliced once, for every layer
        if isinstance(offset, Tensor):
            if cache is not None:
                raise ValueError("offsets of rows beside a cache, which says itself where they are")
            rows = self.position.at_each(offset, tokens.shape[1])
        rotate = partial(self.position.rotate, rows=rows)
        mask = self.position.mask(start, stop, tokens.device, first=common)
        h = self.position.embed(self.tok_embeddings(tokens), rows)
        dropped = self.training and not last_only
        drop = dropping(self.config.dropout if dropped else 0.0, tokens, keys)
        h = drop(h, 0)
        for layer in self.layers:
            h = layer(h, rotate, mask, cache, drop, last_only and layer is self.layers[-1])
        if cache is not None:
            cache.length = stop
        return self.norm(h)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Hidden states (..., C) -> logits (..., V)."""
        own, weight = getattr(self, "output", None), self.tok_embeddings.weight
        return linear(hidden_states, weight) if own is None else own(hidden_states)

    def forward(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Tokens (B, T) -> logits (B, T, V). The arguments are those of `hidden_states`."""
        return self.logits(self.hidden_states(tokens, *args, **kwargs))

    def attention_weights(self, tokens: Tensor) -> Iterator[Tensor]:
        """Tokens (B, T) -> for each layer in turn what attention weighs values by, (B, H, T, T)."""
        rows = self.position.at(0, tokens.shape[1])
        rotate = partial(self.position.rotate, rows=rows)
        mask = self.position.causal_bias(tokens.shape[1], tokens.device)
        h = self.position.embed(self.tok_embeddings(tokens), rows)
        for layer in self.layers:
            assert isinstance(layer, TransformerBlock)
            yield layer.attention.weights(layer.attention_norm(h), rotate, mask)
            h = layer(h, rotate, mask, None)
