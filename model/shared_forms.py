"""Faster forms that training and generation share.

model/kernels.py says when each is used.

B batch, T tokens, S keys, H heads, D head width, I inputs, O outputs.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, library

# `linear` and its gradients by oneDNN; F.linear uses MKL. An operator of our own is needed, because
# Inductor compiles torch's one only if the weight is a constant. It is no custom_op, because the
# first call of one imports the compiler, which doubles the time to the first token.
library.define("gyre::onednn_product", "(Tensor x, Tensor weight) -> Tensor")
onednn_product = torch.ops.gyre.onednn_product


@library.impl("gyre::onednn_product", "CPU")
def _onednn_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply x (..., I) with a weight (O, I) -> (..., O), in float32."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


@library.register_fake("gyre::onednn_product")
def _onednn_shape(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _onednn_gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    grad_x = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_x = onednn_product(gradient, weight.t())
    if ctx.needs_input_grad[1]:
        x_columns = x.flatten(0, -2).t()  # (I, T)
        gradient_columns = gradient.flatten(0, -2).t()  # (O, T)
        is_tall = len(gradient_columns) > len(x_columns)
        if is_tall:  # faster: then the result, (I, O), is wide
            grad_weight = onednn_product(x_columns, gradient_columns).t()
        else:
            grad_weight = onednn_product(gradient_columns, x_columns)
    return grad_x, grad_weight


library.register_autograd(
    "gyre::onednn_product", _onednn_gradients,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def attend_repeated_heads(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None) -> Tensor:
    """`attend` with each key/value head repeated for the query heads of its group.

    Without a fused kernel, all scores would be in memory: T x S of them for each head.
    """
    dtype = xq.dtype
    if mask is not None and mask.dtype != torch.bool:
        dtype = mask.dtype  # a float32 bias, see the plain form
    group = xq.shape[1] // xk.shape[1]
    causal = bool(mask is None and xq.shape[2] > 1)
    with torch.autocast(xq.device.type, enabled=False):
        q = xq.to(dtype)
        k = xk.to(dtype).repeat_interleave(group, dim=1)
        v = xv.to(dtype).repeat_interleave(group, dim=1)
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal).type_as(xq)


def rotate_in_reals(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]:
    """`apply_rotary_emb` in real arithmetic; `freqs_cis` (T, D/2, 2) are cosines and sines."""
    cos, sin = freqs_cis[:, None].unbind(-1)  # (T, 1, D/2) each

    def rotate(x: Tensor) -> Tensor:
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # (B, T, H, D/2) each
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).type_as(x)

    return rotate(xq), rotate(xk)


def rms_norm_by_cuda(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` as one kernel of CUDA instead of seven, and two instead of 14 backwards.

    It rounds to the dtype of x once, after the product with the weight.
    """
    return F.rms_norm(x, weight.shape, weight, eps)
