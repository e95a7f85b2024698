"""Faster forms for training on a CPU.

Two are for other devices too: `embed_in_order` for CUDA, `call_each_on_one_copy` for every one.

In eager training, a gradient that is written out keeps less in memory than PyTorch's automatic
differentiation does. model/kernels.py says when each form is used.

B batch, T tokens, S keys, H query heads, H_kv key/value heads, D head width, D_v width of a value,
C width, V vocabulary.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, library, nn
from torch.autograd.graph import saved_tensors_hooks

P = ParamSpec("P")
R = TypeVar("R")


def first_derivative_only(backward: Callable[P, R]) -> Callable[P, R]:
    """Return a `backward` that raises RuntimeError where its own gradient may be asked for.

    PyTorch's `once_differentiable` raises in some of these cases only. In the others a part of the
    second derivative is missing (findings/once-differentiable.sh).
    """
    @functools.wraps(backward)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():  # by create_graph=True
            raise RuntimeError("this form has no second derivative: use the plain one")
        return backward(*args, **kwargs)

    return checked


# --- attention ---

# Queries are processed in blocks. Larger blocks compute more scores that the mask hides; more
# blocks take longer to compile.
MIN_BLOCK = 128
MAX_BLOCKS = 4
MIN_EAGER_BLOCK = 64
MAX_EAGER_BLOCKS = 2


def cut_queries(n_queries: int, min_block: int, max_blocks: int) -> list[tuple[int, int]]:
    """Return the first query of each block, and the one after its last.

    There are at most `max_blocks`. All but the last have `min_block` queries or more.
    """
    size = max(min_block, math.ceil(n_queries / max_blocks))
    return [(start, min(start + size, n_queries)) for start in range(0, n_queries, size)]


def attend_by_products(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """Causal `attend` (T == S) as matrix products: blocks of queries times the keys up to them.

    The query heads of a group are stacked, so that no key/value head is repeated. Scores are
    rounded to the inputs' dtype, unlike in the fused kernel, so large scores lose some digits in
    bfloat16. The softmax is float32.
    """
    B, H, T, D = xq.shape
    H_kv = xk.shape[1]
    D_v = xv.shape[-1]
    blocks = []
    for start, stop in cut_queries(T, MIN_BLOCK, MAX_BLOCKS):
        q = xq[:, :, start:stop].reshape(B, H_kv, -1, D)
        scores = (q @ xk[:, :, :stop].transpose(-1, -2)).view(B, H, -1, stop)
        causal = torch.full((stop - start, stop), -torch.inf, device=q.device).triu(start + 1)
        scores = torch.add(causal, scores, alpha=D**-0.5)  # in float32, like `causal`
        weights = torch.softmax(scores, -1).to(xv.dtype)
        blocks.append((weights.view(B, H_kv, -1, stop) @ xv[:, :, :stop]).view(B, H, -1, D_v))
    return torch.cat(blocks, dim=2)


class _AttentionByBlocks(torch.autograd.Function):
    """Shapes: N = B * H_kv, G = H / H_kv, P queries in a block, Q = G * P."""

    @staticmethod
    def forward(ctx: Any, xq: Tensor, xk: Tensor, xv: Tensor) -> Tensor:
        B, H, T, D = xq.shape
        H_kv = xk.shape[1]
        queries = xq.reshape(B * H_kv, H // H_kv, T, D)
        keys = xk.reshape(B * H_kv, T, D)
        values = xv.reshape(B * H_kv, T, -1)
        out = values.new_empty(*queries.shape[:3], values.shape[-1])  # (N, G, T, D_v)
        all_weights: list[Tensor] = []
        for start, stop in cut_queries(T, MIN_EAGER_BLOCK, MAX_EAGER_BLOCKS):
            q = queries[:, :, start:stop].flatten(1, 2)  # (N, Q, D)
            causal = q.new_full((stop - start, stop), -torch.inf).triu(start + 1)  # (P, S)
            scores = torch.baddbmm(causal.repeat(H // H_kv, 1), q, keys[:, :stop].mT,
                                   alpha=D**-0.5)  # (N, Q, S)
            weights = torch.softmax(scores, -1)
            block = weights @ values[:, :stop]  # (N, Q, D_v)
            out[:, :, start:stop] = block.unflatten(1, (-1, stop - start))
            all_weights.append(weights)
        ctx.save_for_backward(queries, keys, values, *all_weights)
        ctx.n_heads = H
        return out.view(B, H, T, -1)

    @staticmethod
    @first_derivative_only
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (gradient,) = gradients
        queries, keys, values, *all_weights = ctx.saved_tensors
        T, D = queries.shape[2:]
        grad_out = gradient.reshape(*queries.shape[:3], -1)
        grad_q = torch.empty_like(queries)
        grad_k = torch.zeros_like(keys)
        grad_v = torch.zeros_like(values)
        blocks = cut_queries(T, MIN_EAGER_BLOCK, MAX_EAGER_BLOCKS)
        for (start, stop), weights in zip(blocks, all_weights, strict=True):
            q = queries[:, :, start:stop].flatten(1, 2)
            grad_block = grad_out[:, :, start:stop].flatten(1, 2)
            grad_v[:, :stop].baddbmm_(weights.mT, grad_block)
            grad_weights = grad_block @ values[:, :stop].mT
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_q_block = grad_scores @ keys[:, :stop]
            grad_q[:, :, start:stop] = grad_q_block.unflatten(1, (-1, stop - start))
            grad_k[:, :stop].baddbmm_(grad_scores.mT, q)
        grad_q *= D**-0.5
        grad_k *= D**-0.5
        H = ctx.n_heads
        H_kv = H // queries.shape[1]
        return (grad_q.view(-1, H, T, D), grad_k.view(-1, H_kv, T, D),
                grad_v.view(-1, H_kv, T, values.shape[-1]))


def attend_by_blocks(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """`attend_by_products` for eager training, with a gradient that is written out.

    Besides the inputs it keeps the attention weights, in the inputs' dtype, where automatic
    differentiation keeps them in float32 too, and it adds the gradients of the blocks in place.
    """
    # The gradient is computed without autocast, in the dtype of the queries.
    return _AttentionByBlocks.apply(xq, xk.to(xq.dtype), xv.to(xq.dtype))


# --- embeddings ---


def embed_in_order(tokens: Tensor, weight: Tensor) -> Tensor:
    """`embed`, whose gradient adds the rows of a token in the order of the batch.

    The compiler's own gradient adds them by atomic additions of several threads, in any order, so
    that no two trainings are equal.
    """
    return _EmbeddingInOrder.apply(tokens, weight)


class _EmbeddingInOrder(torch.autograd.Function):
    """For compiled training, where PyTorch itself refuses second derivatives."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.n_rows = weight.shape[0]
        return F.embedding(tokens, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (gradient,) = gradients
        (tokens,) = ctx.saved_tensors
        return None, torch.ops.gyre.embedding_gradient(gradient, tokens, ctx.n_rows)


# The compiler replaces torch's operator by code of its own. It leaves this one as it is.
library.define("gyre::embedding_gradient", "(Tensor gradient, Tensor tokens, int n_rows) -> Tensor")


@library.impl("gyre::embedding_gradient", ("CPU", "CUDA"))
def _embedding_gradient(gradient: Tensor, tokens: Tensor, n_rows: int) -> Tensor:
    """Return the sums of rows of `gradient` (B, T, C) by their token (B, T) -> (n_rows, C)."""
    return torch.ops.aten.embedding_dense_backward(gradient, tokens, n_rows, -1, False)


@library.register_fake("gyre::embedding_gradient")
def _embedding_gradient_shape(gradient: Tensor, tokens: Tensor, n_rows: int) -> Tensor:
    return gradient.new_empty(n_rows, gradient.shape[-1])


# --- norms ---


class _RmsNormOfFewTensors(torch.autograd.Function):
    """Takes x twice, also as `same_x`, so that its gradient has two parts.

    The plain form adds two gradients to that of the residual stream, one after the other: of x
    itself, and of x in the scale. If they were added to one another first, the sum would be rounded
    differently.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, same_x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(same_x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    @first_derivative_only
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (gradient,) = gradients
        x, weight, scale = ctx.saved_tensors
        tokens = tuple(range(x.ndim - 1))
        grad_weight = (x * scale).mul_(gradient).sum(tokens)
        grad_normed = gradient * weight
        grad_scale = (grad_normed * x).sum(-1, keepdim=True)
        grad_mean = -0.5 * grad_scale * scale.pow(3)
        grad_square = grad_mean / x.shape[-1]
        return grad_normed.mul_(scale), x * (2 * grad_square), grad_weight, None


def rms_norm_of_few_tensors(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` in float32, which keeps its input and a number for each token for the gradient.

    The plain form keeps the normalised input too. The values and the gradients are bitwise the
    same.
    """
    return _RmsNormOfFewTensors.apply(x, x, weight, eps)


# --- layers with the same input ---


class _CopyOnce(torch.autograd.Function):
    """It has second derivatives: `backward` is made of operations that PyTorch differentiates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype, n_readers: int) -> tuple[Tensor, ...]:
        ctx.dtype = x.dtype
        copy = x.to(dtype)
        return tuple(copy.detach() for _ in range(n_readers))  # all share its memory

    @staticmethod
    def backward(  # pyrefly: ignore[bad-override]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, None, None]:
        # PyTorch runs the backward pass of the last layer first, and adds in this order.
        *earlier, last = gradients
        grad_x = last.to(ctx.dtype)
        for gradient in reversed(earlier):
            grad_x += gradient
        return grad_x, None, None


def call_each_on_one_copy(x: Tensor, layers: Sequence[nn.Module]) -> list[Tensor]:
    """`call_each` under autocast, which converts x once.

    Otherwise autocast converts x for each layer, and all of these copies are kept for the gradients
    of the weights. The values and the gradients are bitwise the same.
    """
    copies = _CopyOnce.apply(x, torch.get_autocast_dtype(x.device.type), len(layers))
    return [layer(copy) for layer, copy in zip(layers, copies, strict=True)]


# --- SwiGLU, and the product after it ---


class _GateOfFewTensors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.read = None  # what `read_gate` has returned
        return F.silu(x).mul_(y)

    @staticmethod
    @first_derivative_only
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        x, y, activated = read_gate(ctx)
        ctx.read = None  # nothing reads it after the gate
        grad_x = torch.ops.aten.silu_backward(gradient * y, x)
        return grad_x, activated * gradient


def read_gate(node: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, y and silu(x) of a node of `_GateOfFewTensors`.

    In the backward pass, the product that reads the gate's output needs them first, and the gate
    needs them after it. They are unpacked once, because a block that is computed again
    (`checkpoint_blocks`) lets its tensors be unpacked only once. In between, `node.read` keeps
    them; `_GateOfFewTensors.backward` clears it.
    """
    if node.read is None:
        x, y = node.saved_tensors
        node.read = (x, y, F.silu(x))
    return node.read


def is_gate(node: Any) -> bool:
    """Return whether a `grad_fn` is a node of `_GateOfFewTensors`."""
    return node is not None and node.name() == "_GateOfFewTensorsBackward"


def compute_gate_again(node: Any) -> Tensor:
    """Return the output of a node of `_GateOfFewTensors`."""
    _, y, activated = read_gate(node)
    return activated * y


def gate_of_few_tensors(x: Tensor, y: Tensor) -> Tensor:
    """`gate`, which keeps its two inputs for the gradient, and computes silu(x) again.

    The values and the gradients are bitwise those of the plain form.
    """
    return _GateOfFewTensors.apply(x, y)


def linear_of_few_tensors(
    multiply: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor
) -> Tensor:
    """`linear` of an x that `gate_of_few_tensors` returned.

    It does not keep x for the gradient of the weight, but computes it again. `multiply` computes
    the product: F.linear, or a form of it.
    """
    node: Any = x.grad_fn
    address = x.data_ptr()  # autograd may keep another view of x

    def pack(kept: Tensor) -> Tensor | torch.Size:
        return kept.shape if kept.data_ptr() == address else kept

    def unpack(packed: Tensor | torch.Size) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        # The gradient of `gate` comes later, so the node still has its tensors.
        return compute_gate_again(node).view(packed)

    with saved_tensors_hooks(pack, unpack):
        return multiply(x, weight)


# --- the loss ---

LOSS_CHUNK = 2**19  # logits, 2 MiB in float32, which the caches hold


class _LossByChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(logits, y)
        losses = []
        for some_logits, some_y in cut_into_chunks(logits, y):
            losses.append(F.cross_entropy(some_logits.float(), some_y, reduction="none"))
        # `torch.cat(losses).sum()` would add in another order than the plain form. nll_loss adds in
        # the same order, so that the sum is bitwise the same. It gets a vocabulary of one class,
        # whose log-probability is the negative loss, and leaves out targets of -100.
        log_probabilities = torch.cat(losses).neg_().unsqueeze(1)
        only_class = y.flatten().clamp(max=0)  # -100 stays
        return F.nll_loss(log_probabilities, only_class, reduction="sum")

    @staticmethod
    @first_derivative_only
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        logits, y = ctx.saved_tensors
        for some_logits, some_y in cut_into_chunks(logits, y):
            leaf = some_logits.float().detach().requires_grad_()
            with torch.enable_grad():
                # As a factor, and not as `grad_outputs`, with which PyTorch imports sympy.
                loss = F.cross_entropy(leaf, some_y, reduction="sum") * gradient
            (grad_logits,) = torch.autograd.grad(loss, leaf)
            some_logits.copy_(grad_logits)
        return logits, None


def cut_into_chunks(logits: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits (B, T, V) and targets (B, T) as (N, V) and (N,), N tokens at a time.

    The logits are views, because `choose_loss` (model/kernels.py) lets in contiguous logits only.
    """
    n_tokens = max(1, LOSS_CHUNK // logits.shape[-1])
    return zip(logits.flatten(0, 1).split(n_tokens), y.flatten().split(n_tokens), strict=True)


def loss_by_chunks(logits: Tensor, y: Tensor) -> Tensor:
    """`summed_loss` of some tokens after the other, whose gradient overwrites the logits.

    The plain form has three tensors of all logits in memory at once. The values and the gradients
    are bitwise the same. A second backward pass raises RuntimeError.
    """
    return _LossByChunks.apply(logits, y)
