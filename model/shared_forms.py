"""Faster forms that training and generation share.

model/kernels.py says when each is used. `attend_by_two_products` is for prefill only.

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
        inputs = x.flatten(0, -2).t()  # (I, T)
        outputs = gradient.flatten(0, -2).t()  # (O, T)
        if len(inputs) < len(outputs):  # faster where the result is wide
            grad_weight = onednn_product(inputs, outputs).t()
        else:
            grad_weight = onednn_product(outputs, inputs)
    return grad_x, grad_weight


library.register_autograd(
    "gyre::onednn_product", _onednn_gradients,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


# Queries of a prompt whose scores are computed at once, as whole matrices.
LONGEST_SCORED = 1024


def attend_by_two_products(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """Causal `attend` (T == S) as one product of all queries and keys, and one with the values.

    The query heads of a group are stacked, so that no key/value head is repeated. Scores are
    rounded to the inputs' dtype, unlike in the fused kernel, so large scores lose digits in
    bfloat16: the error is 2, 4 and 10 times the kernel's where scores reach 5, 22 and 87. The
    softmax is float32.
    """
    B, H, T, D = xq.shape
    H_kv = xk.shape[1]
    rows = H // H_kv * T
    # Every size is written out, and there are no blocks of queries: where the compiler does not
    # know T, it would else compute indices by divisions, and be slower than the fused kernel.
    keys = xk.reshape(B * H_kv, T, D)
    values = xv.reshape(B * H_kv, T, xv.shape[-1])
    scores = torch.bmm(xq.reshape(B * H_kv, rows, D), keys.mT)
    causal = torch.full((T, T), -torch.inf, device=xq.device).triu(1)
    scores = torch.add(causal, scores.view(B * H_kv, H // H_kv, T, T), alpha=D**-0.5)  # float32
    weights = scores.softmax(-1).to(values.dtype)
    return torch.bmm(weights.view(B * H_kv, rows, T), values).view(B, H, T, values.shape[-1])


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
