"""A decoder-only transformer of the LLaMA family, with the names of Meta's reference code.

Position encodings are in `model/position.py` and `model/encodings.py`. Functions marked
`@or_faster` are plain PyTorch; `model/kernels.py` replaces them where another form computes the
same faster.

B batch, T tokens, S keys, H query heads, H_kv key/value heads, D head width, C width, V vocabulary.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

from errors import UserError
from model.config import INIT_STD, ModelConfig
from model.dropout import Drop, make_dropout
from model.encodings import (
    POSITIONS,
    check_bias,
    check_buffers,
    check_embed,
    check_position,
    key_dim,
)
from model.kernels import or_faster
from model.position import Mask
from model.rope import apply_rotary_emb


@or_faster
def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply x (..., I) with a weight (O, I) -> (..., O)."""
    return F.linear(x, weight)


@or_faster
def call_each(x: Tensor, layers: Sequence[nn.Module]) -> list[Tensor]:
    """Apply layers that read the same input, x (..., I) -> a list of (..., O)."""
    return [layer(x) for layer in layers]


@or_faster
def embed(tokens: Tensor, weight: Tensor) -> Tensor:
    """Look up tokens (...) in a weight (V, C) -> (..., C)."""
    return F.embedding(tokens, weight)


@or_faster
def attend(xq: Tensor, xk: Tensor, xv: Tensor, mask: Mask) -> Tensor:
    """Softmax attention of xq (B, H, T, D) over xk, xv (B, H_kv, S, D) -> (B, H, T, D).

    Without a mask, attention is causal. T must then be S, or 1: a single query sees all keys.
    Values may be narrower than queries and keys.
    """
    width = xv.shape[-1]
    if width < xq.shape[-1]:
        # The CPU's fused kernel and CUDA's flash attention take queries, keys and values of one
        # width only. Without a fused kernel, attention needs more time and memory.
        padded = F.pad(xv, (0, xq.shape[-1] - width))
        return attend(xq, xk, padded, mask)[..., :width]
    gqa = xq.shape[1] != xk.shape[1]
    # The mask is passed by position: ablation/attention.py reads it there.
    if mask is None:
        causal = bool(xq.shape[2] > 1)  # a bool even where a compiled prefill has symbolic sizes
        return F.scaled_dot_product_attention(xq, xk, xv, mask, is_causal=causal, enable_gqa=gqa)
    if mask.dtype in (torch.bool, xq.dtype):
        return F.scaled_dot_product_attention(xq, xk, xv, mask, enable_gqa=gqa)
    # The mask is a float32 bias. In bfloat16 it would round distance 257 to 256.
    with torch.autocast(xq.device.type, enabled=False):
        q, k, v = (x.to(mask.dtype) for x in (xq, xk, xv))
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=gqa).type_as(xq)


@or_faster
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / rms(x) * weight, (..., C) -> (..., C), in the dtype of x.

    x / rms(x) is computed in float32 and rounded to the dtype of x before it meets the weight.
    """
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (normed.type_as(x) * weight).type_as(x)


@or_faster
def gate(x: Tensor, y: Tensor) -> Tensor:
    """Return silu(x) * y, (..., hidden_dim) -> (..., hidden_dim)."""
    return F.silu(x) * y


class KVCache:
    """The keys and values of the tokens so far: two (B, H_kv, S, D) tensors per layer.

    Values have the width `head_dim`, and keys the one that the encoding gives them (`key_dim`).
    The keys of a head are adjacent in memory, because attention reads one head after the other.
    `length` is the number of tokens held. `Transformer.hidden_states` advances it after all layers
    have written. It is a Python int, because reading a tensor would wait for the device.
    """

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int,
        device: torch.device | str | None = None, dtype: torch.dtype = torch.float32,
    ):
        shape = (batch_size, config.n_kv_heads, max_length)
        layers = range(config.n_layers)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.keys = [torch.empty(*shape, key_dim(config), **options) for _ in layers]
        self.values = [torch.empty(*shape, config.head_dim, **options) for _ in layers]
        self.length = 0

    def every_nth(self, n: int) -> "KVCache":
        """Return a cache of every n-th row. Its tensors are views of this one's."""
        rows = copy.copy(self)
        rows.keys = [x[::n] for x in self.keys]
        rows.values = [x[::n] for x in self.values]
        return rows

    def update(self, layer: int, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        """Append xk, xv (B, H_kv, T, D) and return all keys and values, (B, H_kv, S, D).

        Raises ValueError, with nothing written, for too many tokens, another batch size (it would
        broadcast), or another dtype (attention would convert all the keys at every step).
        """
        keys = self.keys[layer]
        values = self.values[layer]
        stop = self.length + xk.shape[2]
        if stop > keys.shape[2] or xk.shape[0] != keys.shape[0] or xk.dtype != keys.dtype:
            raise ValueError(
                f"{xk.shape[0]} x {stop} tokens in {xk.dtype} do not fit into a cache "
                f"for {keys.shape[0]} x {keys.shape[2]} in {keys.dtype}"
            )
        keys[:, :, self.length : stop] = xk
        values[:, :, self.length : stop] = xv
        return keys[:, :, :stop], values[:, :, :stop]


class Linear(nn.Linear):
    """A weight matrix without bias: (..., I) -> (..., O)."""

    has_input_hook = False
    """Whether a hook may change this layer's input. Then it is not joined with its neighbours
    (`is_plain_linear` in model/packed_forms.py)."""

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> RemovableHandle:
        self.has_input_hook = True
        return super().register_forward_pre_hook(*args, **kwargs)

    def reset_parameters(self) -> None:
        """Draw nothing: the values come from `Transformer.draw_matrices` or from a checkpoint."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight)


class Embedding(nn.Embedding):
    """A vector for each token: ids (...) -> (..., C)."""

    def forward(self, input: Tensor) -> Tensor:
        return embed(input, self.weight)


class RMSNorm(nn.RMSNorm):
    """x / rms(x) * weight, (..., C) -> (..., C). (Zhang and Sennrich 2019, arXiv:1910.07467)

    The normalisation runs in float32. The result has the dtype of x.
    """

    eps: float  # type: ignore[override]  # PyTorch's may be None

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention, (B, T, C) -> (B, T, C). (Ainslie et al. 2023, arXiv:2305.13245)"""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.rotate: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = apply_rotary_emb
        """Rotates queries and keys; an encoding may put another function in its place."""
        self.wq = Linear(config.dim, config.n_heads * config.head_dim, bias=False)
        self.wk = Linear(config.dim, config.n_kv_heads * config.head_dim, bias=False)
        self.wv = Linear(config.dim, config.n_kv_heads * config.head_dim, bias=False)
        self.wo = Linear(config.n_heads * config.head_dim, config.dim, bias=False)

    def forward(
        self, x: Tensor, freqs_cis: Tensor | None, mask: Mask, cache: KVCache | None,
        last_only: bool = False,
    ) -> Tensor:
        """With a cache, append keys and values to it. Attention stays causal.

        With `last_only`, only the last token has a query: the result is (B, 1, C).
        """
        xq, xk, xv = call_each(x, (self.wq, self.wk, self.wv))
        xq = xq.unflatten(-1, (-1, self.head_dim))  # (B, T, H, D)
        xk = xk.unflatten(-1, (-1, self.head_dim))  # (B, T, H_kv, D)
        xv = xv.unflatten(-1, (-1, self.head_dim))  # (B, T, H_kv, D)
        if freqs_cis is not None:  # RoPE, or an encoding with a `rotate` that may widen both
            xq, xk = self.rotate(xq, xk, freqs_cis)
        xq = xq.transpose(1, 2)  # (B, H, T, D)
        xk = xk.transpose(1, 2)  # (B, H_kv, T, D)
        xv = xv.transpose(1, 2)
        if cache is not None:  # it keeps rotated keys, because their positions never change
            xk, xv = cache.update(self.layer, xk, xv)  # (B, H_kv, S, D)
        if last_only:
            xq = xq[:, :, -1:]
            mask = None if mask is None else mask[..., -1:, :]
        out = attend(xq, xk, xv, mask).transpose(1, 2).flatten(-2)  # (B, T, H*D)
        return self.wo(out)


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x), (..., C) -> (..., C). (Shazeer 2020, arXiv:2002.05202)"""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.w1 = Linear(config.dim, config.hidden_dim, bias=False)
        self.w2 = Linear(config.hidden_dim, config.dim, bias=False)
        self.w3 = Linear(config.dim, config.hidden_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(gate(*call_each(x, (self.w1, self.w3))))


class TransformerBlock(nn.Module):
    """Attention and SwiGLU. Each reads the normalised stream (B, T, C) and adds to it."""

    def __init__(self, config: ModelConfig, layer: int):
        super().__init__()
        self.attention = Attention(config, layer)
        self.feed_forward = FeedForward(config)
        # On the CPU even if the model is built on "meta": norms have values from the start.
        self.attention_norm = RMSNorm(config.dim, config.norm_eps, device="cpu")
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps, device="cpu")

    def forward(
        self, x: Tensor, freqs_cis: Tensor | None, mask: Mask, cache: KVCache | None,
        drop: Drop | None = None, last_only: bool = False,
    ) -> Tensor:
        if last_only and drop is not None:
            # Dropout addresses a value by its position in x. So compute all tokens, and keep the
            # last.
            return self.forward(x, freqs_cis, mask, cache, drop)[:, -1:]
        attended = self.attention(self.attention_norm(x), freqs_cis, mask, cache, last_only)
        if drop is not None:  # dropout has numbered places: 0 the embeddings, then two a block
            attended = drop(attended, 2 * self.attention.layer + 1)
        h = (x[:, -1:] if last_only else x) + attended
        out = self.feed_forward(self.ffn_norm(h))
        if drop is not None:
            out = drop(out, 2 * self.attention.layer + 2)
        return h + out


class Transformer(nn.Module):
    """Tokens in, logits out. State-dict keys are Meta's; tied models have no `output.weight`.

    It may be built on the meta device. Its vectors and tables have their values from the start, on
    the CPU. Its matrices get theirs later, from `draw_matrices` or from a checkpoint.

    Raises UserError if the configuration is incomplete or its encoding cannot serve it.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        for name in ("vocab_size", "max_positions"):
            if getattr(config, name) is None:
                raise UserError(f"model.{name} must be set to build a Transformer")
        check_position(config)
        self.config = config
        # In training, keep only the input of each block, and compute the block again in the
        # backward pass. It takes less memory and changes no number.
        self.checkpoint_blocks = False
        # from_pretrained, because the constructor would draw values, and drawing on "meta" imports
        # torch._dynamo, which is slow.
        embeddings = torch.empty(config.vocab_size, config.dim)
        self.tok_embeddings = Embedding.from_pretrained(embeddings, freeze=False)
        with fixed_draws("constructor"):
            self.position = POSITIONS[config.position](config)
        check_bias(self.position, config)
        self.layers = nn.ModuleList(TransformerBlock(config, i) for i in range(config.n_layers))
        self.norm = RMSNorm(config.dim, config.norm_eps, device="cpu")
        if not config.tie_embeddings:
            self.output = Linear(config.dim, config.vocab_size, bias=False)
        # Matrix -> the matrix whose random stream it is drawn from, and a factor on its std.
        self.drawn_as: dict[str, tuple[str, float]] = {}
        with fixed_draws("attach"):
            self.position.attach(self)
            check_embed(self.position, config)
        check_buffers(self)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Initialise every matrix, see `draw_matrices`. Vectors and scalars keep their values."""
        parameters = dict(self.named_parameters())
        for name, matrix in self.draw_matrices(seed):
            parameters[name].copy_(matrix)

    def draw_matrices(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the initial values of every matrix, on the CPU.

        They are normal with std 0.02 (embeddings: what the encoding asks for), from a random stream
        addressed by (seed, name). So two models of one seed have the same values in a matrix of the
        same name and shape. If their encodings ask for different stds, the values of one are a
        multiple of those of the other.
        Matrices that write into the residual stream are divided by sqrt(2 n_layers), so that its
        variance does not grow with depth. In `drawn_as` an encoding can give a matrix the stream of
        another one, and a factor on its std.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                continue
            std = INIT_STD
            if name.endswith(("wo.weight", "w2.weight")):  # writes into the residual stream
                std = INIT_STD / math.sqrt(2 * self.config.n_layers)
            elif name == "tok_embeddings.weight":
                std = self.position.embedding_std
            stream, factor = self.drawn_as.get(name, (name, 1.0))
            generator = torch.Generator().manual_seed(derive_seed(seed, stream))
            matrix = torch.empty(parameter.shape, device="cpu")
            yield name, matrix.normal_(0, factor * std, generator=generator)

    def hidden_states(
        self, tokens: Tensor, cache: KVCache | None = None, start: int = 0,
        dropout_keys: Tensor | None = None, last_only: bool = False,
    ) -> Tensor:
        """Tokens (B, T) -> normalised hidden states (B, T, C).

        With a cache, the tokens continue it, and it grows by T. Without one, the first token stands
        at position `start`. `dropout_keys` (B,) decide what is dropped, see model/dropout.py. With
        `last_only`, only what the last token needs is computed: (B, 1, C).

        Raises ValueError for positions past `max_positions`, for a start that is negative or given
        beside a cache, and for a length at which the cached keys would be wrong.
        """
        if start < 0 or (start and cache is not None):
            raise ValueError(f"start is {start}: use 0 or more, and 0 with a cache")
        first_token = first_key = start
        if cache is not None:
            first_token = cache.length
            first_key = 0  # the cache holds the keys of all positions before
        stop = first_token + tokens.shape[1]
        if stop > self.config.max_positions:
            raise ValueError(
                f"a text of {stop} tokens is longer than the context of "
                f"{self.config.max_positions} (model.max_positions)"
            )
        if cache is not None and stop > self.position.cache_limit:
            raise ValueError(
                f"past {self.position.cache_limit} tokens this encoding changes its frequencies "
                f"with the length (model.rope_scaling), and this text has {stop}. Cached keys "
                "would be wrong: use no cache"
            )
        h = self.position.embed(self.tok_embeddings(tokens), first_token)
        freqs_cis = self.position.freqs_cis(first_token, stop)
        mask = self.position.mask(first_token, stop, tokens.device, first_key)
        drop = None
        if self.training and self.config.dropout:
            drop = make_dropout(self.config.dropout, tokens, dropout_keys)
            h = drop(h, 0)
        for layer in self.layers:
            last = last_only and layer is self.layers[-1]  # earlier blocks compute all tokens
            h = self.run_block(layer, h, freqs_cis, mask, cache, drop, last)
        if cache is not None:
            cache.length = stop
        return self.norm(h)

    def run_block(self, block: nn.Module, *inputs: Any) -> Tensor:
        """Return the output of a block; with `checkpoint_blocks` it keeps its inputs only."""
        if self.checkpoint_blocks and self.training:
            # No block draws from a generator, so the state of none needs to be restored.
            return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=False)
        return block(*inputs)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Hidden states (..., C) -> logits (..., V)."""
        # Not `config.tie_embeddings`: in int8, a tied model has an output layer too (`to_int8`).
        if hasattr(self, "output"):
            return self.output(hidden_states)
        return linear(hidden_states, self.tok_embeddings.weight)

    def forward(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Tokens (B, T) -> logits (B, T, V). The arguments are those of `hidden_states`."""
        return self.logits(self.hidden_states(tokens, *args, **kwargs))


@contextmanager
def fixed_draws(method: str) -> Iterator[None]:
    """Let a method of an encoding draw the same random numbers each time, on the CPU.

    The table of an encoding is in no checkpoint, so random numbers in it have to be the same when
    the model is built again. Afterwards PyTorch's random stream goes on where it was before.
    """
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(method))
        yield


def derive_seed(*address: object) -> int:
    """Return the seed of the random stream at an address, such as (seed, name).

    It is 63 bits of the sha256 of "seed/name". So no draw depends on earlier draws. No part of an
    address has a slash, so no two are spelled alike.
    """
    digest = hashlib.sha256("/".join(map(str, address)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
