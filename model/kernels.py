"""Every form that is faster than plain PyTorch, and when it is taken. To understand the model,
read nothing here.

plain form              faster form              taken
linear                  linear_by_sums           compiled decoding on a CPU, no autocast, up to
                                                 8 tokens
                        linear_by_onednn         float32 on a CPU, no autocast, from 16 tokens,
                                                 where oneDNN was measured to be faster
attend                  attend_by_sums           one query, no mask, compiled decoding on a CPU
                        attend_one_query         one query, no mask, everywhere else
                        attend_by_products       no mask, training in bfloat16 on a CPU:
                                                 compiled, or rows of up to 512 tokens
rotate                  rotate_in_reals          compiled
any function to decode  compile_for_decoding     asked for by `generate(compile=True)`

The plain forms are in model/transformer.py. `or_faster` decides, from FORMS
at the end of this file. tests/test_kernels.py holds each form to its plain one, values and
gradients; docs/benchmarks.md says what each of them gains.

Shapes: B batch, T tokens, S keys, H query heads, H_kv key/value heads, D head width.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, library

from model.rope import reshape_for_broadcast

P = ParamSpec("P")
R = TypeVar("R")


def or_faster(plain: Callable[P, R]) -> Callable[P, R]:
    """`plain`, or the first of its FORMS whose condition holds for the arguments of a call."""
    forms = FORMS[plain.__name__]

    @functools.wraps(plain)
    def fastest(*args: P.args, **kwargs: P.kwargs) -> R:
        for form, taken in forms:
            if taken(*args, **kwargs):
                return form(*args, **kwargs)
        return plain(*args, **kwargs)

    return fastest


def decoding_compiled(x: Tensor) -> bool:
    """Whether this is being compiled for a CPU, to decode: training needs gradients."""
    return torch.compiler.is_compiling() and x.device.type == "cpu" and not torch.is_grad_enabled()


# --- matrix products ---

MAX_SUMMED_TOKENS = 8


def sums_pay(x: Tensor, weight: Tensor) -> bool:
    """With more tokens the library's products are faster. Autocast converts what F.linear is given,
    and would not convert the operands of sums."""
    autocast = torch.is_autocast_enabled(x.device.type)
    return decoding_compiled(x) and not autocast and x[..., 0].numel() <= MAX_SUMMED_TOKENS


def linear_by_sums(x: Tensor, weight: Tensor) -> Tensor:
    """`linear` as sums of products, in float32: the compiler makes one loop of them and of what
    surrounds them, up to three times as fast as the library's product.

    One sum for each token, not one for all, so that the loop reads every weight once.
    """
    sums = [(token.float() * weight).sum(-1) for token in x.reshape(-1, x.shape[-1])]
    return torch.stack(sums).view(*x.shape[:-1], -1).type_as(x)


# oneDNN multiplies few rows slower than MKL, and many about as fast on Intel's processors. On AMD's
# with AVX-512, of which MKL uses half, it is twice as fast.
MIN_ONEDNN_TOKENS = 16
onednn_is_faster = False  # see `prefer_onednn`


def prefer_onednn(faster: bool) -> None:
    """Whether this process computes float32 products by oneDNN. Nothing does unless told. A run
    that is resumed goes on as it began."""
    global onednn_is_faster
    onednn_is_faster = faster


def onednn_pays(x: Tensor, weight: Tensor) -> bool:
    return (
        onednn_is_faster
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and math.prod(x.shape[:-1]) >= MIN_ONEDNN_TOKENS
        and x.shape[-1] > 0
        and only_backward()
    )


def only_backward() -> bool:
    """Whether no derivative but that of `backward` is being taken: the operator has no other, and
    would say 0."""
    return torch.compiler.is_compiling() or (
        torch.autograd.forward_ad._current_level < 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def linear_by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    """`linear` and its gradients by oneDNN, where F.linear asks MKL."""
    return onednn_product(x, weight)


# An operator, because Inductor takes oneDNN's own for constant weights only. Not by custom_op: the
# first call of one imports the compiler, which takes as long as all else until the first token.
library.define("gyre::onednn_product", "(Tensor x, Tensor weight) -> Tensor")
onednn_product = torch.ops.gyre.onednn_product


@library.impl("gyre::onednn_product", "CPU")
def _onednn_product(x: Tensor, weight: Tensor) -> Tensor:
    """x (..., I) with weight (O, I) -> (..., O), in float32."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


@library.register_fake("gyre::onednn_product")
def _onednn_shape(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _onednn_gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    for_x = for_weight = None
    if ctx.needs_input_grad[0]:
        for_x = onednn_product(gradient, weight.t())
    if ctx.needs_input_grad[1]:
        inputs, outputs = x.flatten(0, -2).t(), gradient.flatten(0, -2).t()  # (I, T), (O, T)
        if len(inputs) < len(outputs):  # faster where the result is wide
            for_weight = onednn_product(inputs, outputs).t()
        else:
            for_weight = onednn_product(outputs, inputs)
    return for_x, for_weight


def _keep_operands(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


library.register_autograd(
    "gyre::onednn_product", _onednn_gradients, setup_context=_keep_operands
)


# --- attention ---


def one_query(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None) -> bool:
    """Whether this is one token that sees all keys."""
    return mask is None and xq.shape[2] == 1


def one_query_compiled(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None) -> bool:
    return one_query(xq, xk, xv, mask) and decoding_compiled(xq)


# Of more float32 numbers than this the compiler makes a sum of sums, at half the speed, and guards
# on their number (CppKernel.need_use_acc_helper of torch 2.13). Each of 16 parts stays below that
# up to 65,000 keys.
LONGEST_SUM = 4096
PARTS = 16


def attend_by_sums(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """`attend` for one query (T == 1), in float32, as sums that the compiler makes one loop of."""
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


def attend_one_query(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """`attend` for one query (T == 1): the query heads of a group are taken for queries of one
    head, so that its keys and values are read once."""
    stacked = xq.unflatten(1, (xk.shape[1], -1)).squeeze(3)  # (B, H_kv, H / H_kv, D)
    return F.scaled_dot_product_attention(stacked, xk, xv).flatten(1, 2).unsqueeze(2)


# How many queries' scores are computed at a time. Larger blocks compute more of what the mask
# hides, more blocks take longer to compile.
MIN_QUERY_BLOCK = 128
MAX_QUERY_BLOCKS = 4
EAGER_MAX_QUERIES = 512


def products_pay(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None) -> bool:
    """In bfloat16 the backward pass of the CPU's fused kernel runs at a tenth of a matrix product's
    speed. Eager, the scores that are kept for the backward pass cost more memory than they save
    time in longer rows."""
    return (
        mask is None
        and xq.device.type == "cpu"
        and xq.dtype == torch.bfloat16
        and torch.is_grad_enabled()
        and (torch.compiler.is_compiling() or xq.shape[2] <= EAGER_MAX_QUERIES)
    )


def attend_by_products(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """Causal `attend` (T == S) as matrix products: blocks of queries times the keys up to them.

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


# --- rotations ---


def compiling(xq: Tensor, xk: Tensor, pairs: Tensor) -> bool:
    """Inductor generates no code for complex operators."""
    return torch.compiler.is_compiling()


def rotate_in_reals(xq: Tensor, xk: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """`rotate` in real arithmetic: queries (B, T, H, D), keys (B, T, H_kv, D), pairs
    (T, D/2, 2) of cosine and sine."""
    cos, sin = pairs.unbind(-1)

    def rotate(x: Tensor) -> Tensor:
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # (B, T, H, D/2) each
        c, s = reshape_for_broadcast(cos, even), reshape_for_broadcast(sin, even)
        return torch.stack((even * c - odd * s, even * s + odd * c), dim=-1).flatten(-2).type_as(x)

    return rotate(xq), rotate(xk)


# --- compilation ---

MAX_GRAPHS = 32  # PyTorch's own limit, 8, is not enough for one of each number of rows


def compile_for_decoding(function: Callable[P, R], device_type: str) -> Callable[P, R]:
    """`function`, compiled once for all lengths of the cache, on a kind of device such as "cpu".

    The first two calls compile, for each number of rows up to MAX_SUMMED_TOKENS, for all larger
    ones together, and for every shape and dtype of model. So does the first beyond LONGEST_SUM
    keys, and one that fills the cache or `max_positions`, which `generate` never does; up to 16
    times LONGEST_SUM no other does, for as many tokens as follow. PyTorch gives up and runs
    eagerly, with a warning, after MAX_GRAPHS in a process.
    """
    # Else dynamic=True makes a tensor of every norm's eps at every step. That, and the checks that
    # buffers have the sizes the compiler gave them, would be a good part of one row's step.
    torch._dynamo.config.specialize_float = True
    torch._dynamo.config.recompile_limit = MAX_GRAPHS
    options: dict[str, Any] = {"size_asserts": False}
    if device_type == "cpu":
        # What loops read again and again, such as a normalised input by every row of a matrix, is
        # computed once if it takes more than one number to compute; by default, only if more than
        # four. That a loop reads it again torch 2.13 counts in its deterministic mode alone, which
        # does nothing else on a CPU.
        options |= {"realize_reads_threshold": 1, "deterministic": True}
    return torch.compile(function, dynamic=True, options=options)


# By the name of the plain form, in the order in which they are tried: (form, when it is taken).
FORMS: dict[str, list[tuple[Callable[..., Any], Callable[..., bool]]]] = {
    "linear": [(linear_by_sums, sums_pay), (linear_by_onednn, onednn_pays)],
    "attend": [
        (attend_by_sums, one_query_compiled),
        (attend_one_query, one_query),
        (attend_by_products, products_pay),
    ],
    "rotate": [(rotate_in_reals, compiling)],
}
