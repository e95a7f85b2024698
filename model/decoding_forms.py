"""Faster forms for decoding: products with few tokens, and attention of one query.

model/kernels.py says when each is used.

B batch, T tokens, S keys, H query heads, H_kv key/value heads, D head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def linear_by_sums(x: Tensor, weight: Tensor) -> Tensor:
    """`linear` as sums of products, in float32.

    The compiler fuses them with the operations around them into one loop, which is up to three
    times as fast as the library's product. Each token has its own sum, so that the loop reads every
    weight once.
    """
    tokens = x.reshape(-1, x.shape[-1]).float()
    if torch.compiler.is_compiling() and len(tokens) > 4:  # for fewer it gains nothing
        from torch._inductor.inductor_prims import force_stride_order

        # Stores them. Otherwise the compiler converts them to float32 again for every weight.
        tokens = force_stride_order(tokens, tokens.stride())
    sums = [(token * weight).sum(-1) for token in tokens]
    return torch.stack(sums).view(*x.shape[:-1], -1).type_as(x)


# --- attention of one query ---

# The compiler splits a sum of more than LONGEST_SUM float32 numbers, which makes it half as fast,
# and compiles again where a length crosses this limit (CppKernel.need_use_acc_helper of torch
# 2.13). Up to 65,000 keys, each of PARTS sums stays below it.
LONGEST_SUM = 4096
PARTS = 16


def attend_by_sums(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None) -> Tensor:
    """`attend` for one query (T == 1), in float32, as sums that the compiler fuses.

    A mask is (1, 1 or H, 1, S), and is added to the scores.
    """
    B, H, _, D = xq.shape
    group = H // xk.shape[1]
    q = xq.float().view(B, xk.shape[1], group, D) * D**-0.5
    # On a CPU each query head has its own sums. The compiler makes one loop of those of a group,
    # which reads and converts every key and value once, and adds up several sums at a time.
    size = 1 if xq.device.type == "cpu" else group
    scores = []
    for heads in q.split(size, dim=2):
        scores.append((heads[:, :, :, None] * xk[:, :, None]).sum(-1))
    all_scores = torch.cat(scores, dim=2)  # (B, H_kv, H / H_kv, S)
    if mask is not None:
        all_scores = all_scores + group_mask(mask, xk.shape[1])
    weights = all_scores.softmax(-1)
    outputs = [sum_values(some, xv) for some in weights.split(size, dim=2)]
    return torch.cat(outputs, dim=2).view(B, H, 1, -1).type_as(xq)


def sum_values(weights: Tensor, xv: Tensor) -> Tensor:
    """Return the sums of the values (B, H_kv, S, D) by weights (B, H_kv, R, S): (B, H_kv, R, D)."""
    S = xv.shape[2]
    # The values of a long text are summed in 16 parts: 15 of equal size at once, then the rest. The
    # rest is never empty, because an empty one would be another case to compile.
    cut = 0
    if xv.device.type == "cpu" and S > LONGEST_SUM:
        cut = S // PARTS * (PARTS - 1)
    out = (weights[..., cut:, None] * xv[:, :, None, cut:]).sum(-2)
    if cut:
        w = weights[..., :cut].unflatten(-1, (PARTS - 1, -1))
        v = xv[:, :, None, :cut].unflatten(3, (PARTS - 1, -1))
        out = out + (w[..., None] * v).sum(-2).sum(-2)
    return out


def group_mask(mask: Tensor, n_kv_heads: int) -> Tensor:
    """Return a mask (1, 1 or H, 1, S) as (1, 1 or H_kv, 1 or H / H_kv, S): by groups of heads."""
    if mask.shape[1] == 1:
        return mask
    return mask.unflatten(1, (n_kv_heads, -1)).squeeze(3)


def attend_by_scores(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor) -> Tensor:
    """`attend` for one query (T == 1) and a mask (1, 1 or H, 1, S), as two products.

    Scores are float32. The one fused kernel of CUDA that takes a mask reads the keys of a head one
    after the other, which took 31 us for 512 of them on an H200.
    """
    B, H, _, D = xq.shape
    q = xq.reshape(B * xk.shape[1], -1, D)  # (B * H_kv, H / H_kv, D)
    scores = float32_product(q, xk.flatten(0, 1).mT).view(B, xk.shape[1], -1, xk.shape[2])
    scores = torch.add(group_mask(mask, xk.shape[1]), scores, alpha=D**-0.5)
    weights = scores.softmax(-1).to(xv.dtype)  # (B, H_kv, H / H_kv, S)
    return (weights.flatten(0, 1) @ xv.flatten(0, 1)).view(B, H, 1, -1)


def float32_product(x: Tensor, y: Tensor) -> Tensor:
    """Multiply x (N, R, I) with y (N, I, C) -> (N, R, C) in float32; on CUDA without converting
    them."""
    if x.dtype == torch.float32 or x.device.type != "cuda":
        return x.float() @ y.float()
    return torch.bmm(x, y, out_dtype=torch.float32)


def attend_one_query(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """`attend` for one query (T == 1).

    The query heads of a group become several queries of one head, so that the keys and values of
    the group are read once.
    """
    stacked = xq.unflatten(1, (xk.shape[1], -1)).squeeze(3)  # (B, H_kv, H / H_kv, D)
    return F.scaled_dot_product_attention(stacked, xk, xv).flatten(1, 2).unsqueeze(2)
