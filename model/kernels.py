"""Every faster form."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
