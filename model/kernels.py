"""Faster forms of the model's functions, and when each is used.

You can understand the model without this file.

plain form              faster form              used
linear                  linear_by_sums           compiled generation, no autocast, up to 8 tokens
                                                 on a CPU and up to 4 on CUDA
                        onednn_product           float32 on a CPU, no autocast, from 16 tokens,
                                                 if oneDNN was measured to be faster
                        PackedProducts.multiply  compiled decoding on a CPU, see `packs_weights`
                        linear_of_few_tensors    eager training on a CPU, of what `gate` returns
attend                  attend_by_sums           one query, compiled generation: without a mask on a
                                                 CPU, with one on CUDA
                        attend_by_scores         one query, a mask, generation on CUDA
                        attend_one_query         one query, no mask, everywhere else
                        attend_by_products       no mask, compiled training in bfloat16 on a CPU
                        attend_by_blocks         the same, but eager, and rows of up to 512 tokens
                        attend_repeated_heads    fewer key heads than query heads on CUDA, with
                                                 a mask, or in float32
embed                   embed_in_order           compiled training on a CPU
apply_rotary_emb        rotate_in_reals          compiled
rms_norm                rms_norm_by_cuda         CUDA, not compiled, x and weight of one dtype
                        rms_norm_of_few_tensors  eager training in float32 on a CPU
gate                    gate_of_few_tensors      eager training on a CPU
summed_loss             loss_by_chunks           eager training on a CPU, of computed logits
multiply_int8           int8_with_float_inputs   compiled decoding: up to 4 tokens with AVX-512, and
                                                 up to 8, as words, with AVX2
                        int8_by_float_weights    a CPU on which torch has no fast int8 product

The plain forms are in model/transformer.py, model/rope.py, model/int8.py and gyre/step.py (the
loss), marked `@or_faster`. CHOICES picks the form for each call. tests/test_kernels.py compares
values and gradients of each form with the plain one. docs/speed.md has the gain of each.

Shapes: B batch, T tokens, S keys, H query heads, H_kv key/value heads, D head width.
"""

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, library, nn
from torch.autograd.graph import saved_tensors_hooks

P = ParamSpec("P")
R = TypeVar("R")
Form = Callable[..., Any]


def or_faster(plain: Callable[P, R]) -> Callable[P, R]:
    """Return a function that calls the fastest form of `plain` for its arguments."""
    choose = CHOICES[plain.__name__]

    @functools.wraps(plain)
    def fastest(*args: P.args, **kwargs: P.kwargs) -> R:
        form = choose(*args, **kwargs) or plain
        return form(*args, **kwargs)

    return fastest


def choose_linear(x: Tensor, weight: Tensor) -> Form | None:
    """Return the faster form of `linear` for these operands, or None."""
    product = choose_product(x, weight)
    # Is x what `gate_of_few_tensors` returned?
    if trains_eagerly(x) and hasattr(x.grad_fn, "compute_again"):
        multiply = F.linear if product is None else product
        return functools.partial(linear_of_few_tensors, multiply)
    return product


def choose_product(x: Tensor, weight: Tensor) -> Form | None:
    """Return the fastest way to multiply these operands, or None for F.linear."""
    device = x.device.type
    # Autocast converts the operands of F.linear, and not those of the faster forms.
    if device not in MAX_SUMMED or torch.is_autocast_enabled(device):
        return None
    if _packed is not None and _packed.holds(weight):
        return _packed.multiply
    generating = torch.compiler.is_compiling() and not torch.is_grad_enabled()
    if generating and x[..., 0].numel() <= MAX_SUMMED[device]:
        return linear_by_sums
    if _uses_onednn and device == "cpu" and suits_onednn(x, weight):
        return onednn_product
    return None


def suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN's operator can compute this product, and is worth it."""
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return False
    if math.prod(x.shape[:-1]) < MIN_ONEDNN_TOKENS:
        return False
    if torch.compiler.is_compiling():
        return True
    # The operator defines `backward` only; other derivatives would silently be 0.
    return not takes_other_derivatives()


def takes_other_derivatives() -> bool:
    """Return whether forward-mode or functional derivatives are being taken."""
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    return torch._C._functorch.peek_interpreter_stack() is not None


def trains_eagerly(x: Tensor) -> bool:
    """Return whether x, on a CPU, gets a gradient by an eager backward pass."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    if x.device.type != "cpu" or not x.requires_grad:
        return False
    return not takes_other_derivatives()


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


def choose_attention(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None) -> Form | None:
    """Return the faster form of `attend` for these operands, or None."""
    choose = choose_for_one_query if xq.shape[2] == 1 else choose_for_many_queries
    form = choose(xq, mask)
    if form is None and lacks_fused_kernel(xq, xk, mask):
        return attend_repeated_heads
    return form


def choose_for_one_query(xq: Tensor, mask: Tensor | None) -> Form | None:
    """Return the faster form of `attend` for one query (T == 1), or None."""
    generating = not torch.is_grad_enabled()
    compiling = torch.compiler.is_compiling()
    device = xq.device.type
    if mask is None:
        fuses = compiling and generating and device == "cpu"
        return attend_by_sums if fuses else attend_one_query
    if not generating or device != "cuda" or mask.dtype != xq.dtype:
        return None
    few = len(xq) <= MAX_SUMMED["cuda"]
    return attend_by_sums if compiling and few else attend_by_scores


def choose_for_many_queries(xq: Tensor, mask: Tensor | None) -> Form | None:
    """Return the faster form of `attend` for several queries, or None."""
    training = torch.is_grad_enabled()
    if mask is not None or not training or xq.device.type != "cpu" or xq.dtype != torch.bfloat16:
        return None
    # With instructions for bfloat16, matrix products take half to three quarters of the time of the
    # CPU's fused kernel, forwards and backwards. Without, they take up to 2.3 times as long, but
    # `auto` trains in float32 there.
    if torch.compiler.is_compiling():
        return attend_by_products
    if xq.shape[2] > EAGER_MAX_QUERIES:  # eager products would keep too many weights in memory
        return None
    if trains_eagerly(xq):
        return attend_by_blocks
    return attend_by_products


FLASH_CAPABILITY = 8  # of the first cards that have flash attention


def lacks_fused_kernel(xq: Tensor, xk: Tensor, mask: Tensor | None) -> bool:
    """Return whether no fused kernel of CUDA takes so many key heads.

    Flash attention takes fewer of them than query heads, but no mask, no float32, and no card of a
    capability below 8.0. The kernel that takes these needs as many.
    """
    if xq.device.type != "cuda" or xq.shape[1] == xk.shape[1]:
        return False
    if mask is not None or xq.dtype == torch.float32:
        return True
    return torch.cuda.get_device_properties(xq.device).major < FLASH_CAPABILITY


def choose_embedding(tokens: Tensor, weight: Tensor) -> Form | None:
    """Return the faster form of `embed` for these operands, or None."""
    compiled_training = torch.compiler.is_compiling() and torch.is_grad_enabled()
    if compiled_training and weight.device.type == "cpu":
        return embed_in_order
    return None


def choose_rotation(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> Form | None:
    """Return the faster form of `apply_rotary_emb` for these operands, or None."""
    # Inductor generates no code for complex numbers.
    if torch.compiler.is_compiling() and not freqs_cis.is_complex():
        return rotate_in_reals
    return None


def choose_norm(x: Tensor, weight: Tensor, eps: float) -> Form | None:
    """Return the faster form of `rms_norm` for these operands, or None."""
    if trains_eagerly(x):
        in_float32 = x.dtype == torch.float32 and weight.dtype == torch.float32
        return rms_norm_of_few_tensors if in_float32 else None
    # The compiler makes one kernel of the plain form, with the operations around it.
    if x.device.type != "cuda" or torch.compiler.is_compiling():
        return None
    # For two dtypes, PyTorch has no kernel either.
    return rms_norm_by_cuda if x.dtype == weight.dtype else None


def choose_gate(x: Tensor, y: Tensor) -> Form | None:
    """Return the form of `gate` that keeps less memory for these operands, or None."""
    return gate_of_few_tensors if trains_eagerly(x) else None


def choose_loss(logits: Tensor, y: Tensor) -> Form | None:
    """Return the form of `summed_loss` that needs less memory for these operands, or None."""
    # It overwrites the logits, which nobody misses if they were computed.
    overwritable = logits.is_contiguous() and not logits.is_leaf
    return loss_by_chunks if overwritable and trains_eagerly(logits) else None


def choose_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Form | None:
    """Return the faster form of `multiply_int8` for these operands, or None."""
    product = choose_product(x, weight)
    if product is not None and keeps_float_inputs(x, weight, product):
        return functools.partial(int8_with_float_inputs, product)
    return None if multiplies_int8() else int8_by_float_weights


def keeps_float_inputs(x: Tensor, weight: Tensor, product: Form) -> bool:
    """Return whether compiled decoding multiplies this int8 weight with float32 inputs.

    `product` is the form of `linear` for these operands.
    """
    if _packed is not None and _packed.holds(weight):  # as words
        return True
    if product is not linear_by_sums or x[..., 0].numel() > MAX_FLOAT_TOKENS:
        return False
    return has_avx512()


# Keys are names of plain forms.
CHOICES: dict[str, Callable[..., Form | None]] = {
    "linear": choose_linear,
    "attend": choose_attention,
    "embed": choose_embedding,
    "apply_rotary_emb": choose_rotation,
    "rms_norm": choose_norm,
    "gate": choose_gate,
    "summed_loss": choose_loss,
    "multiply_int8": choose_int8,
}


# --- matrix products ---

MAX_SUMMED_TOKENS = 8
MAX_SUMMED = {"cpu": MAX_SUMMED_TOKENS, "cuda": 4}


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


# --- packed weights ---

MIN_PACKED_ROWS = 5
# Parts of a module that read the same input. Their matrices are packed as one, because a call of
# oneDNN's takes some 15 us before it multiplies.
JOINED = (("wq", "wk", "wv"), ("w1", "w3"))


def packs_weights(device: torch.device, dtype: torch.dtype, rows: int) -> bool:
    """Return whether compiled decoding of so many rows is faster with packed weights.

    In float32, sums are faster for up to MAX_SUMMED_TOKENS rows.
    """
    if device.type != "cpu":
        return False
    if dtype == torch.int8:  # as words
        return rows <= max_float_rows() and not has_avx512()
    if not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if dtype == torch.bfloat16:  # with narrower vectors it is emulated, or refused
        return rows >= MIN_PACKED_ROWS and has_avx512()
    return dtype == torch.float32 and rows > MAX_SUMMED_TOKENS


def group_matrices(model: nn.Module) -> list[list[str]]:
    """Return the names of the matrices that a model multiplies with, those to be joined together.
    """
    groups: dict[str, list[str]] = {}
    # A tied matrix has the first of its names.
    names = {id(x): name for name, x in [*model.named_parameters(), *model.named_buffers()]}
    for path, module in model.named_modules():
        parent, _, part = path.rpartition(".")
        if isinstance(module, nn.Linear):
            first = part
            for parts in JOINED:
                if part in parts:
                    first = parts[0]
            groups.setdefault(f"{parent}.{first}", []).append(f"{path}.weight")
        elif part != "tok_embeddings" and can_read_words(module):
            groups[path] = [names[id(module.weight)]]
    return list(groups.values())


def pack_matrices(parts: Sequence[Tensor], rows: int) -> Tensor:
    """Return matrices (O, I) of one width, joined, in the layout that oneDNN reads fastest.

    It is opaque: only oneDNN's operators read it. `rows` is the number of tokens in a product.
    Matrices in int8 are not copied: see `linear_by_words`.
    """
    if parts[0].dtype == torch.int8:
        return parts[0].view(torch.float32)
    return torch.ops.mkldnn._reorder_linear_weight(torch.cat(list(parts)), rows)


class PackedProducts:
    """Products with matrices that were packed, for the weights that they were made of.

    A product with one of the joined weights is a part of the product with all of them. That is
    computed once, if the products with the others follow at once and have the same x.
    """

    def __init__(self, groups: Sequence[Sequence[Tensor]], packed: Sequence[Tensor]):
        self.places: dict[int, tuple[Tensor, int, int]] = {}
        """By the id of a weight: what it is packed in, and the first and last of its rows there."""
        self.held = groups  # an id is not used again as long as its weight is held
        for parts, matrix in zip(groups, packed, strict=True):
            start = 0
            for part in parts:
                self.places[id(part)] = (matrix, start, start + len(part))
                start += len(part)
        self.x: Tensor | None = None
        self.matrix: Tensor | None = None
        self.product: Any = None

    def holds(self, weight: Tensor) -> bool:
        """Return whether a weight is packed."""
        return id(weight) in self.places

    def multiply(self, x: Tensor, weight: Tensor) -> Tensor:
        """`linear`, (..., I) -> (..., O), with what a weight (O, I) is packed in."""
        matrix, start, stop = self.places[id(weight)]
        if weight.dtype == torch.int8:
            return linear_by_words(x, matrix)
        if x is not self.x or matrix is not self.matrix:
            self.product = torch.ops.mkldnn._linear_pointwise(x, matrix, None, "none", [], "")
            self.x = x
            self.matrix = matrix
        return self.product[..., start:stop]


_packed: PackedProducts | None = None  # only `products_by_packed` sets it


@contextmanager
def products_by_packed(packed: PackedProducts) -> Iterator[None]:
    """Return a context in which products with the weights in `packed` are its products."""
    global _packed
    before = _packed
    _packed = packed
    try:
        yield
    finally:
        _packed = before


# --- int8 ---

MAX_WORD_TOKENS = 8
MAX_FLOAT_TOKENS = 4  # for more, with AVX-512, the library's int8 products are faster
BYTES = 4  # of a word


def has_avx512() -> bool:
    """Return whether the compiler's vectors have 512 bits."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def max_float_rows() -> int:
    """Return for how many rows compiled decoding multiplies int8 weights with float32 inputs."""
    if has_avx512():
        return MAX_FLOAT_TOKENS
    return MAX_WORD_TOKENS if torch.backends.cpu.get_cpu_capability() == "AVX2" else 0


def can_read_words(module: nn.Module) -> bool:
    """Return whether a module has an int8 weight with which `linear_by_words` can multiply."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dtype != torch.int8:
        return False
    return weight.shape[1] % BYTES == 0


def linear_by_words(x: Tensor, words: Tensor) -> Tensor:
    """`linear_by_sums` with int8 weights (O, I), of which each of `words` (O, I/4) holds four.

    The compiler's AVX2 code loads eight int8 numbers by way of an array on the stack, which takes
    ten times as long as multiplying them (findings/inductor-int8-loads.sh). Float32 numbers are
    loaded at once. So `words` are the int8 weights, viewed as float32. In a register their bits
    become integers, and shifts cut the bytes out.
    """
    tokens = x.reshape(-1, words.shape[1], BYTES).float()
    # (B, 4, I/4): the inputs of the first bytes of all words, of the second ones, and so on.
    inputs = tokens.transpose(1, 2).contiguous()
    if torch.compiler.is_compiling():
        from torch._inductor.inductor_prims import force_stride_order

        inputs = force_stride_order(inputs, inputs.stride())  # stores them: see `linear_by_sums`
    integers = words.view(torch.int32)
    weights = []
    for byte in range(BYTES):
        highest = integers << 8 * (BYTES - 1 - byte)  # little-endian: byte 0 is the lowest
        weights.append((highest >> 8 * (BYTES - 1)).float())  # the shift keeps the sign
    sums = []
    for token in inputs:
        first, second, third, fourth = (part * weight
                                        for part, weight in zip(token, weights, strict=True))
        sums.append(((first + second) + (third + fourth)).sum(-1))
    return torch.stack(sums).view(*x.shape[:-1], -1)


def int8_with_float_inputs(
    multiply: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, scale: Tensor
) -> Tensor:
    """`multiply_int8` without rounding x. It reads a byte for each weight.

    `multiply` is a form of `linear` that takes an int8 weight.
    """
    return multiply(x, weight) * scale


CONVERTED = 2**18  # numbers of a weight that are converted at a time: 1 MiB, which a cache holds


def int8_by_float_weights(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """`multiply_int8` without rounding x, by float32 products with parts of the weight."""
    if torch.compiler.is_compiling():
        return F.linear(x, weight.float()) * scale
    rows = max(1, CONVERTED // weight.shape[1])
    parts = [F.linear(x, part.float()) for part in weight.split(rows)]
    return torch.cat(parts, -1) * scale


@functools.cache
def multiplies_int8() -> bool:
    """Return whether torch multiplies int8 matrices faster than float32 ones here.

    Measured once, in a few ms. Without instructions for int8, torch multiplies one number after the
    other, which takes ten times as long as a float32 product or more; with them, half as long.
    """
    values = torch.ones(16, 256, dtype=torch.int8)
    weight = torch.ones(512, 256, dtype=torch.int8)
    x = values.float()
    with one_thread():
        in_int8, in_float32 = shortest_times(
            [lambda: torch._int_mm(values, weight.T), lambda: F.linear(x, weight.float())],
            time.thread_time, 5)
    return in_int8 < in_float32


# --- products by oneDNN ---

# oneDNN is slower than MKL for few rows. For many, it is about as fast on Intel's processors and
# twice as fast on AMD's with AVX-512, where MKL uses half of the vectors' width.
MIN_ONEDNN_TOKENS = 16
ONEDNN_GAIN = 1.5  # the measured gain is about 1 or above 2, depending on the processor
_uses_onednn = False  # only `products_by_onednn` sets it


@contextmanager
def products_by_onednn(used: bool) -> Iterator[None]:
    """Return a context in which float32 products on the CPU are oneDNN's, or are F.linear's.

    The two round differently, so a resumed run takes those that it began with.
    """
    global _uses_onednn
    before = _uses_onednn
    _uses_onednn = used
    try:
        yield
    finally:
        _uses_onednn = before


def uses_onednn() -> bool:
    """Return whether float32 products on the CPU are oneDNN's now."""
    return _uses_onednn


def prefers_onednn(device: torch.device) -> bool:
    """Return whether oneDNN is so much faster here that products on this device should be its."""
    if device.type != "cpu":
        return False
    return onednn_gain() >= ONEDNN_GAIN


@functools.cache
def onednn_gain() -> float:
    """Return the speedup of oneDNN over F.linear for a float32 product.

    Measured once, in some 30 ms, in the processor time of one thread, which a busy machine hardly
    lengthens. 0 if this torch has no oneDNN.
    """
    if not torch.backends.mkldnn.is_available():
        return 0.0
    x = torch.ones(256, 256)
    weight = torch.ones(512, 256)
    with one_thread():
        usual, onednn = shortest_times(
            [lambda: F.linear(x, weight), lambda: onednn_product(x, weight)], time.thread_time, 20)
    return usual / onednn


@contextmanager
def one_thread() -> Iterator[None]:
    """Return a context in which torch computes in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def shortest_times(
    calls: Sequence[Callable[[], object]], clock: Callable[[], float], rounds: int,
    seconds: float = 0.0,
) -> list[float]:
    """Return the shortest time of each call. They take turns, for `rounds` and `seconds` at least.
    """
    best = [math.inf] * len(calls)
    stop = clock() + seconds
    while rounds > 0 or clock() < stop:
        for number, call in enumerate(calls):
            started = clock()
            call()
            best[number] = min(best[number], clock() - started)
        rounds -= 1
    return best


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
    for_x = for_weight = None
    if ctx.needs_input_grad[0]:
        for_x = onednn_product(gradient, weight.t())
    if ctx.needs_input_grad[1]:
        inputs = x.flatten(0, -2).t()  # (I, T)
        outputs = gradient.flatten(0, -2).t()  # (O, T)
        if len(inputs) < len(outputs):  # faster where the result is wide
            for_weight = onednn_product(inputs, outputs).t()
        else:
            for_weight = onednn_product(outputs, inputs)
    return for_x, for_weight


library.register_autograd(
    "gyre::onednn_product", _onednn_gradients,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def linear_of_few_tensors(
    multiply: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor
) -> Tensor:
    """`linear` of an x that `gate_of_few_tensors` returned.

    It does not keep x for the gradient of the weight, but computes it again. `multiply` computes
    the product: F.linear, or a form of it.
    """
    node: Any = x.grad_fn
    address = x.data_ptr()

    def pack(kept: Tensor) -> Tensor | torch.Size:
        return kept.shape if kept.data_ptr() == address else kept

    def unpack(packed: Tensor | torch.Size) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        # The gradient of `gate` comes later, so the node still has its tensors.
        return node.compute_again(node).view(packed)

    with saved_tensors_hooks(pack, unpack):
        return multiply(x, weight)


# --- attention ---


# The compiler splits longer sums of float32 numbers, which makes them half as fast, and compiles
# again where a length crosses this limit (CppKernel.need_use_acc_helper of torch 2.13). 16 parts
# keep each sum below it up to 65,000 keys.
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
    """Multiply x (N, R, I) with y (N, I, C) -> (N, R, C) in float32, without converting them."""
    if x.dtype == torch.float32 or x.device.type != "cuda":
        return x.float() @ y.float()
    return torch.bmm(x, y, out_dtype=torch.float32)


@contextmanager
def attention_of_any_length(device: torch.device) -> Iterator[None]:
    """Return a context in which attention is none of cuDNN's, which plans anew for every length."""
    if device.type != "cuda":
        yield
        return
    was_on = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_on)


def attend_one_query(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """`attend` for one query (T == 1).

    The query heads of a group become several queries of one head, so that the keys and values of
    the group are read once.
    """
    stacked = xq.unflatten(1, (xk.shape[1], -1)).squeeze(3)  # (B, H_kv, H / H_kv, D)
    return F.scaled_dot_product_attention(stacked, xk, xv).flatten(1, 2).unsqueeze(2)


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


# Queries are processed in blocks. Larger blocks compute more scores that the mask hides; more
# blocks take longer to compile.
MIN_QUERY_BLOCK = 128
MAX_QUERY_BLOCKS = 4


def attend_by_products(xq: Tensor, xk: Tensor, xv: Tensor, mask: None = None) -> Tensor:
    """Causal `attend` (T == S) as matrix products: blocks of queries times the keys up to them.

    The query heads of a group are stacked, so that no key/value head is repeated. Scores are
    rounded to the inputs' dtype, unlike in the fused kernel, so large scores lose some digits in
    bfloat16. The softmax is float32.
    """
    B, H, T, D = xq.shape
    H_kv = xk.shape[1]
    D_v = xv.shape[-1]
    size = max(MIN_QUERY_BLOCK, math.ceil(T / MAX_QUERY_BLOCKS))
    blocks = []
    for start in range(0, T, size):
        stop = min(start + size, T)
        q = xq[:, :, start:stop].reshape(B, H_kv, -1, D)
        scores = (q @ xk[:, :, :stop].transpose(-1, -2)).view(B, H, -1, stop)
        causal = torch.full((stop - start, stop), -torch.inf, device=q.device).triu(start + 1)
        scores = torch.add(causal, scores, alpha=D**-0.5)  # in float32, like `causal`
        weights = torch.softmax(scores, -1).to(xv.dtype)
        blocks.append((weights.view(B, H_kv, -1, stop) @ xv[:, :, :stop]).view(B, H, -1, D_v))
    return torch.cat(blocks, dim=2)


EAGER_MAX_QUERIES = 512
MIN_EAGER_BLOCK = 64


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
        for start, stop in cut_queries(T):
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
        for_out = gradient.reshape(*queries.shape[:3], -1)
        for_q = torch.empty_like(queries)
        for_k = torch.zeros_like(keys)
        for_v = torch.zeros_like(values)
        for (start, stop), weights in zip(cut_queries(T), all_weights, strict=True):
            q = queries[:, :, start:stop].flatten(1, 2)
            for_block = for_out[:, :, start:stop].flatten(1, 2)
            for_v[:, :stop].baddbmm_(weights.mT, for_block)
            for_weights = for_block @ values[:, :stop].mT
            for_scores = torch._softmax_backward_data(for_weights, weights, -1, weights.dtype)
            for_q_of_block = for_scores @ keys[:, :stop]
            for_q[:, :, start:stop] = for_q_of_block.unflatten(1, (-1, stop - start))
            for_k[:, :stop].baddbmm_(for_scores.mT, q)
        for_q *= D**-0.5
        for_k *= D**-0.5
        H = ctx.n_heads
        H_kv = H // queries.shape[1]
        return (for_q.view(-1, H, T, D), for_k.view(-1, H_kv, T, D),
                for_v.view(-1, H_kv, T, values.shape[-1]))


def cut_queries(n_queries: int) -> list[tuple[int, int]]:
    """Return the first query of each block, and the one after its last."""
    size = max(MIN_EAGER_BLOCK, math.ceil(n_queries / 2))
    return [(start, min(start + size, n_queries)) for start in range(0, n_queries, size)]


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


@library.impl("gyre::embedding_gradient", "CPU")
def _embedding_gradient(gradient: Tensor, tokens: Tensor, n_rows: int) -> Tensor:
    """Return the sums of rows of `gradient` (B, T, C) by their token (B, T) -> (n_rows, C)."""
    return torch.ops.aten.embedding_dense_backward(gradient, tokens, n_rows, -1, False)


@library.register_fake("gyre::embedding_gradient")
def _embedding_gradient_shape(gradient: Tensor, tokens: Tensor, n_rows: int) -> Tensor:
    return gradient.new_empty(n_rows, gradient.shape[-1])


# --- rotations ---


def rotate_in_reals(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]:
    """`apply_rotary_emb` in real arithmetic; `freqs_cis` (T, D/2, 2) are cosines and sines."""
    cos, sin = freqs_cis[:, None].unbind(-1)  # (T, 1, D/2) each

    def rotate(x: Tensor) -> Tensor:
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # (B, T, H, D/2) each
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).type_as(x)

    return rotate(xq), rotate(xk)


# --- norms ---


def rms_norm_by_cuda(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` as one kernel of CUDA instead of seven, and two instead of 14 backwards.

    It rounds to the dtype of x once, after the product with the weight.
    """
    return F.rms_norm(x, weight.shape, weight, eps)


class _RmsNormOfFewTensors(torch.autograd.Function):
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
        for_weight = (x * scale).mul_(gradient).sum(tokens)
        for_normed = gradient * weight
        for_scale = (for_normed * x).sum(-1, keepdim=True)
        for_mean = -0.5 * for_scale * scale.pow(3)
        for_square = for_mean / x.shape[-1]
        return for_normed.mul_(scale), x * (2 * for_square), for_weight, None


def rms_norm_of_few_tensors(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` in float32, which keeps its input and a number for each token for the gradient.

    The plain form keeps the normalised input too. The values and the gradients are bitwise the
    same.
    """
    # The gradient of x has two parts. PyTorch adds one after the other to that of the residual
    # stream, as in the plain form: their sum would be rounded differently.
    return _RmsNormOfFewTensors.apply(x, x, weight, eps)


# --- SwiGLU ---


class _GateOfFewTensors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.read = None  # what `read_gate` has returned
        ctx.compute_again = compute_gate_again  # `linear_of_few_tensors` calls it
        return F.silu(x).mul_(y)

    @staticmethod
    @first_derivative_only
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        x, y, activated = read_gate(ctx)
        ctx.read = None
        for_x = torch.ops.aten.silu_backward(gradient * y, x)
        return for_x, activated * gradient


def read_gate(node: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, y and silu(x) of a node of `_GateOfFewTensors`.

    In the backward pass, the product that reads the gate's output needs them first, and the gate
    needs them after it. They are unpacked once and kept in between, because a block that is
    computed again (`checkpoint_blocks`) lets its tensors be unpacked only once.
    """
    if node.read is None:
        x, y = node.saved_tensors
        node.read = (x, y, F.silu(x))
    return node.read


def compute_gate_again(node: Any) -> Tensor:
    _, y, activated = read_gate(node)
    return activated * y


def gate_of_few_tensors(x: Tensor, y: Tensor) -> Tensor:
    """`gate`, which keeps its two inputs for the gradient, and computes silu(x) again.

    The values and the gradients are bitwise those of the plain form.
    """
    return _GateOfFewTensors.apply(x, y)


# --- the loss ---

LOSS_CHUNK = 2**20  # logits, 4 MiB in float32, which the caches hold


class _LossByChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(logits, y)
        losses = []
        for some_logits, some_y in cut_into_chunks(logits, y):
            losses.append(F.cross_entropy(some_logits.float(), some_y, reduction="none"))
        # Added up by PyTorch's loss of one class, in its order.
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
            (for_logits,) = torch.autograd.grad(loss, leaf)
            some_logits.copy_(for_logits)
        return logits, None


def cut_into_chunks(logits: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits (B, T, V) and targets (B, T) as views (N, V) and (N,), N tokens at a time."""
    n_tokens = max(1, LOSS_CHUNK // logits.shape[-1])
    return zip(logits.flatten(0, 1).split(n_tokens), y.flatten().split(n_tokens), strict=True)


def loss_by_chunks(logits: Tensor, y: Tensor) -> Tensor:
    """`summed_loss` of some tokens after the other, whose gradient overwrites the logits.

    The plain form has three tensors of all logits in memory at once. The values and the gradients
    are bitwise the same. A second backward pass raises RuntimeError.
    """
    return _LossByChunks.apply(logits, y)
