"""A decoder-only transformer of the LLaMA family, with the names of Meta's reference code.

RMSNorm before each half of a block, grouped-query attention, SwiGLU, no biases. Everything about
positions lives in `model/position.py`; everything that changes while decoding lives in `KVCache`.

Shapes: B batch, T tokens, S keys (cached + new), H heads, D head width, C model width,
V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.position import INIT_STD, POSITIONS, RopeScaling

if TYPE_CHECKING:
    from model.generation import KVCache

PositionName = Literal[tuple(POSITIONS)]  # type: ignore[valid-type]  # a new encoding is one line
Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def address(*parts: object) -> int:
    """A seed for the random stream that belongs to `parts`, such as (seed, parameter name).

    Streams are addressed, not consumed: what one draws never depends on what was drawn before.
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # torch takes 63 bits


@dataclass
class ModelConfig:
    dim: int = 256
    """Width C of the residual stream."""
    n_layers: int = 4
    """Number of blocks."""
    n_heads: int = 4
    """Number of query heads H."""
    n_kv_heads: int | None = None
    """Number of key/value heads; must divide n_heads. Unset: n_heads (no grouping)."""
    head_dim: int | None = None
    """Width D of a head. Unset: dim / n_heads."""
    hidden_dim: int | None = None
    """Width of the SwiGLU layer. Unset: 8/3 dim, rounded up to a multiple of 32."""
    vocab_size: int | None = None
    """Vocabulary V. Unset: the tokenizer's."""
    tie_embeddings: bool = True
    """Use the embedding matrix as the output matrix too."""
    norm_eps: float = 1e-5
    """Epsilon of RMSNorm."""
    dropout: float = 0.0
    """Probability of dropping a channel of the embeddings and of what each half block adds."""
    max_positions: int | None = None
    """How far positions reach (prompt + new tokens). Unset: 4 data.seq_len or what rope_scaling is
    meant for, whichever is more; data.seq_len for an encoding that ends where training rows do."""
    position: PositionName = "rope"
    """Position encoding."""
    theta: float = 10000.0
    """Base of the wavelengths (rope, sinusoidal)."""
    partial: float = 1.0
    """Fraction of the channel pairs that turn, the fastest first (rope): p-RoPE."""
    rope_scaling: RopeScaling | None = None
    """Slower rotations for texts longer than the training rows (rope): type and factor, at least.
    Unset: none."""
    sinusoid: Literal["matched", "vaswani", "naive"] = "matched"
    """How sinusoids meet the embeddings (sinusoidal): E + alpha p, sqrt(C) E + p, or E + p."""

    def __post_init__(self):
        """Fill what is unset and raise ValueError for what cannot be built."""
        for name in ("dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden_dim",
                     "vocab_size", "max_positions"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"model.{name} must be at least 1, not {value}")
        if self.position not in POSITIONS:
            raise ValueError(f"model.position must be one of {', '.join(POSITIONS)}")
        if self.head_dim is None:
            if self.dim % self.n_heads:
                raise ValueError(
                    f"model.dim {self.dim} is not divisible by model.n_heads {self.n_heads}: "
                    "change one of them or set model.head_dim"
                )
            self.head_dim = self.dim // self.n_heads
        if self.n_kv_heads is None:
            self.n_kv_heads = self.n_heads
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"model.n_heads {self.n_heads} is not divisible by model.n_kv_heads "
                f"{self.n_kv_heads}: every key/value head serves the same number of query heads"
            )
        if self.hidden_dim is None:
            self.hidden_dim = 32 * math.ceil(8 * self.dim / 3 / 32)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout must be in [0, 1), not {self.dropout}")
        if not 0 <= self.partial <= 1:
            raise ValueError(f"model.partial must be in [0, 1], not {self.partial}")
        if self.theta <= 1:
            raise ValueError(f"model.theta must be above 1, not {self.theta}")
        if not self.norm_eps > 0:
            raise ValueError(f"model.norm_eps must be above 0, not {self.norm_eps}")
        self._refuse_options_without_effect()
        POSITIONS[self.position].check(self)

    def _refuse_options_without_effect(self):
        readers: dict[str, list[str]] = {}
        for name, encoding in POSITIONS.items():
            for option in encoding.options:
                readers.setdefault(option, []).append(name)
        for option, names in readers.items():
            default = type(self).__dataclass_fields__[option].default
            if self.position not in names and getattr(self, option) != default:
                raise ValueError(
                    f"model.{option} has no effect with model.position {self.position}: "
                    f"it belongs to {', '.join(names)}"
                )


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


# Up to so many tokens at once, compiled sums of products beat the library's matrix products.
MAX_SUMMED_TOKENS = 8


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (..., I), weight (O, I) -> (..., O).

    A few tokens, compiled for a CPU, are sums of products instead: the compiler makes one loop of
    them and what surrounds them, up to three times as fast as the library's matrix products. One
    sum for each token, not one for all: so the loop reads every weight once, for all of them.
    """
    autocast = torch.is_autocast_enabled(x.device.type)  # converts F.linear's operands, not these
    if not _decoding_compiled(x) or autocast or x[..., 0].numel() > MAX_SUMMED_TOKENS:
        return F.linear(x, weight)
    sums = [(token.float() * weight).sum(-1) for token in x.reshape(-1, x.shape[-1])]
    return torch.stack(sums).view(*x.shape[:-1], -1).type_as(x)


def _decoding_compiled(x: Tensor) -> bool:
    return torch.compiler.is_compiling() and x.device.type == "cpu" and not torch.is_grad_enabled()


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


def attend(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention of xq (B, H, T, D) over xk, xv (B, H_kv, S, D). Returns (B, H, T, D).

    `mask` is None where the plain causal pattern is meant (T == S) or nothing is hidden (T == 1);
    the flag `is_causal` aligns its triangle top-left, so it must never see T != S.
    """
    gqa = xq.shape[1] != xk.shape[1]
    if mask is None and xq.shape[2] == 1:
        if _decoding_compiled(xq):
            return attend_by_sums(xq, xk, xv)
        # A group's query heads as queries of one head: its keys and values are read once.
        stacked = xq.unflatten(1, (xk.shape[1], -1)).squeeze(3)
        return F.scaled_dot_product_attention(stacked, xk, xv).flatten(1, 2).unsqueeze(2)
    if mask is None:
        if _products_pay(xq):
            return attend_by_products(xq, xk, xv)
        return F.scaled_dot_product_attention(xq, xk, xv, is_causal=True, enable_gqa=gqa)
    if mask.is_floating_point() and xq.dtype != mask.dtype:
        # A bias in bfloat16 could not tell distance 256 from 257.
        with torch.autocast(xq.device.type, enabled=False):
            wide = (x.to(mask.dtype) for x in (xq, xk, xv))
            return F.scaled_dot_product_attention(*wide, mask, enable_gqa=gqa).type_as(xq)
    return F.scaled_dot_product_attention(xq, xk, xv, mask, enable_gqa=gqa)


# How many queries' scores are computed at a time. Larger blocks compute more of what the mask
# hides, more blocks take longer to compile.
MIN_QUERY_BLOCK = 128
MAX_QUERY_BLOCKS = 4
EAGER_MAX_QUERIES = 512


def _products_pay(xq: Tensor) -> bool:
    """Whether `attend_by_products` beats the CPU's fused kernel: in training in bfloat16, where the
    kernel's backward runs at a tenth of a matrix product's speed. Eager, the scores that are kept
    for the backward pass cost more memory than they save time in longer rows."""
    return (
        xq.device.type == "cpu"
        and xq.dtype == torch.bfloat16
        and torch.is_grad_enabled()
        and (torch.compiler.is_compiling() or xq.shape[2] <= EAGER_MAX_QUERIES)
    )


def attend_by_products(xq: Tensor, xk: Tensor, xv: Tensor) -> Tensor:
    """Causal `attend` for T == S, as matrix products: blocks of queries times the keys up to them.

    A group's query heads are stacked, so that each key/value head is one product and is never
    repeated. Scores are rounded to the inputs' dtype, which the fused kernel does not do: in
    bfloat16, large ones cost some more of its digits. The softmax is computed in float32.
    """
    B, H, T, D = xq.shape
    H_kv = xk.shape[1]
    size = max(MIN_QUERY_BLOCK, math.ceil(T / MAX_QUERY_BLOCKS))
    blocks = []
    for start in range(0, T, size):
        stop = min(start + size, T)
        q = xq[:, :, start:stop].reshape(B, H_kv, -1, D)
        scores = (q @ xk[:, :, :stop].transpose(-1, -2)).view(B, H, -1, stop)
        hidden = torch.full((stop - start, stop), -torch.inf, device=q.device).triu(start + 1)
        scores = torch.add(hidden, scores, alpha=D**-0.5)  # in float32, like `hidden`
        weights = torch.softmax(scores, -1).to(xv.dtype)
        blocks.append((weights.view(B, H_kv, -1, stop) @ xv[:, :, :stop]).view(B, H, -1, D))
    return torch.cat(blocks, dim=2)


# Of more float32 numbers than this the compiler makes a sum of sums, at half the speed, and guards
# on their number (CppKernel.need_use_acc_helper of torch 2.13). Each of 16 parts stays below that
# up to 65,000 keys.
LONGEST_SUM = 4096
PARTS = 16


def attend_by_sums(xq: Tensor, xk: Tensor, xv: Tensor) -> Tensor:
    """`attend` for one query that sees all keys (T == 1), for the compiler to fuse; in float32."""
    B, H, _, D = xq.shape
    S = xk.shape[2]
    q = xq.float().view(B, xk.shape[1], -1, 1, D) * D**-0.5  # (B, H_kv, H / H_kv, 1, D)
    weights = (q * xk[:, :, None]).sum(-1).softmax(-1)  # (B, H_kv, H / H_kv, S)
    # The values of a long text are summed in parts: all but the last side by side, and the last
    # alone, with what was left over. It is never empty, which would be another case to compile.
    cut = S // PARTS * (PARTS - 1) if S > LONGEST_SUM else 0
    out = (weights[..., cut:, None] * xv[:, :, None, cut:]).sum(-2)
    if cut:
        w = weights[..., :cut].unflatten(-1, (PARTS - 1, -1))
        v = xv[:, :, None, :cut].unflatten(3, (PARTS - 1, -1))
        out = out + (w[..., None] * v).sum(-2).sum(-2)
    return out.view(B, H, 1, D).type_as(xq)


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x). (Shazeer 2020, arXiv:2002.05202)"""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.w1 = Linear(config.dim, config.hidden_dim)
        self.w2 = Linear(config.hidden_dim, config.dim)
        self.w3 = Linear(config.dim, config.hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Dropout(nn.Dropout):
    """As PyTorch's. On a CPU, of 16 random bits per number instead of the 64 that PyTorch draws
    there one at a time, which training notices; so `p` is met within 2**-17."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return super().forward(x)
        count = math.ceil(x.numel() / 4)
        words = torch.randint(-(2**63), 2**63 - 1, (count,), device=x.device)
        draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform in -2**15 .. 2**15 - 1
        return torch.where(draws >= round(self.p * 2**16) - 2**15, x / (1 - self.p), 0)


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
            generator = torch.Generator().manual_seed(address(seed, name))
            std = INIT_STD
            if name.endswith(("wo.weight", "w2.weight")):
                std /= math.sqrt(2 * self.config.n_layers)
            drawn = torch.empty(parameter.shape, device="cpu").normal_(0, std, generator=generator)
            parameter.copy_(drawn)

    def features(self, tokens: Tensor, cache: KVCache | None = None, offset: int = 0) -> Tensor:
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
        return self.logits(self.features(tokens, cache, offset))

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
