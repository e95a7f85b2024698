"""When each faster form of the model's functions is used.

You can understand the model without this file. The forms are in four files beside it, which know
neither each other nor the choice.

plain form        faster form              used

shared_forms.py: in training and generation
linear            onednn_product           float32 on a CPU, no autocast, from 16 tokens, if oneDNN
                                           was measured to be faster
attend            attend_repeated_heads    fewer key heads than query heads on CUDA, with a mask, in
                                           float32, or on a card without flash attention
apply_rotary_emb  rotate_in_reals          compiled
rms_norm          rms_norm_by_cuda         CUDA, not compiled, x and weight of one dtype

training_forms.py: in training; on a CPU unless said
linear            linear_of_few_tensors    eager, of what `gate` returns
attend            attend_by_products       bfloat16, no mask: compiled; or eager, rows of up to 512
                                           tokens, where no backward pass computes a gradient
                                           of xq
                  attend_by_blocks         eager, bfloat16, no mask, rows of up to 512 tokens, where
                                           one does
call_each         call_each_on_one_copy    eager, autocast, on every device
embed             embed_in_order           compiled, on a CPU or CUDA
rms_norm          rms_norm_of_few_tensors  eager, float32
gate              gate_of_few_tensors      eager
summed_loss       loss_by_chunks           eager, of computed logits

decoding_forms.py: for few tokens, or for one query
linear            linear_by_sums           compiled generation, no autocast, up to 8 tokens on a
                                           CPU and up to 4 on CUDA
attend            attend_by_sums           compiled generation: without a mask on a CPU, with one on
                                           CUDA and up to 4 rows
                  attend_by_scores         a mask of xq's dtype, generation on CUDA
                  attend_one_query         no mask, everywhere else

packed_forms.py: in generation on a CPU, with joined, packed or int8 weights
attend            attend_by_two_products   compiled prefill of one row of up to 1024 tokens,
                                           bfloat16 on a CPU with instructions for it, no mask
linear            GroupedProducts.multiply compiled: packed weights in decoding, see
                                           `packs_weights`, and joined ones in prefill
                  the product's part       eager, within `multiply_each`: `find_product`
call_each         multiply_each            eager, no autocast, joined weights
multiply_int8     int8_with_float_inputs   compiled decoding: up to 4 tokens with AVX-512, and up to
                                           8, as words of four weights, with AVX2
                  int8_by_float_weights    where torch has no fast int8 product; and for weights
                                           with one input, for which its product is wrong

The plain forms are in model/transformer.py, model/rope.py, model/int8.py and gyre/step.py (the
loss), marked `@or_faster`. CHOICES picks the form for each call. tests/test_kernels.py compares
values and gradients of each form with the plain one. docs/speed.md has the gain of each.

Shapes of attention: xq (B, H, T, D), xk and xv (B, H_kv, S, D). B batch, T tokens, S keys, H query
heads, H_kv key/value heads, D head width.
"""

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from model import decoding_forms, packed_forms, shared_forms, training_forms

P = ParamSpec("P")
R = TypeVar("R")
Form = Callable[..., Any]

# What holds within a context. Only the context sets it, and sets it back.
_uses_onednn = False  # `products_by_onednn`
_groups: packed_forms.GroupedProducts | None = None  # `products_by_groups`


def or_faster(plain: Callable[P, R]) -> Callable[P, R]:
    """Return a function that calls the fastest form of `plain` for its arguments."""
    choose = CHOICES[plain.__name__]

    @functools.wraps(plain)
    def fastest(*args: P.args, **kwargs: P.kwargs) -> R:
        form = choose(*args, **kwargs) or plain
        return form(*args, **kwargs)

    return fastest


# --- matrix products ---

MAX_SUMMED_TOKENS = 8
MAX_SUMMED = {"cpu": MAX_SUMMED_TOKENS, "cuda": 4}


def choose_linear(x: Tensor, weight: Tensor) -> Form | None:
    """Return the faster form of `linear` for these operands, or None."""
    product = choose_product(x, weight)
    if trains_eagerly(x) and training_forms.is_gate(x.grad_fn):
        multiply = F.linear if product is None else product
        return functools.partial(training_forms.linear_of_few_tensors, multiply)
    return product


def choose_product(x: Tensor, weight: Tensor) -> Form | None:
    """Return the fastest way to multiply these operands, or None for F.linear."""
    device = x.device.type
    # Autocast converts the operands of F.linear, and not those of the faster forms.
    if device not in ("cpu", "cuda") or torch.is_autocast_enabled(device):
        return None
    if _groups is not None and _groups.holds(weight):
        return _groups.multiply
    if sums_products(x):
        return decoding_forms.linear_by_sums
    if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # The part of a product with a joined matrix that belongs to this weight
        part = packed_forms.find_product(x, weight)
        if part is not None:
            # The form returns what was found just now: another thread may replace it before the
            # form is called.
            return lambda *_: part
    return choose_library_product(x, weight)


def sums_products(x: Tensor) -> bool:
    """Return whether compiled generation multiplies x with a matrix by `linear_by_sums`.

    It does so for few tokens, and without autocast. x is on a CPU or on CUDA.
    """
    if not torch.compiler.is_compiling() or torch.is_grad_enabled():
        return False
    device = x.device.type
    return not torch.is_autocast_enabled(device) and x[..., 0].numel() <= MAX_SUMMED[device]


def choose_library_product(x: Tensor, weight: Tensor) -> Form | None:
    """Return oneDNN's product if it multiplies these operands, or None for F.linear."""
    if _uses_onednn and x.device.type == "cpu" and suits_onednn(x, weight):
        return shared_forms.onednn_product
    return None


def multiply_whole(x: Tensor, weight: Tensor) -> Tensor:
    """`linear` by oneDNN or F.linear, without a look for joined or packed weights."""
    multiply = choose_library_product(x, weight) or F.linear
    return multiply(x, weight)


def choose_each(x: Tensor, layers: Sequence[Any]) -> Form | None:
    """Return the faster form of `call_each` for these layers, or None."""
    if converts_inputs(x) and all(map(packed_forms.is_plain_linear, layers)):
        return training_forms.call_each_on_one_copy
    # Training needs the gradient of each weight, and compiled packages have forms of their own.
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    if autocasts(x.device):
        return None
    weight = getattr(layers[0], "weight", None)  # none in a layer of another kind
    part = None if weight is None else packed_forms.find_part(weight)
    if part is None:
        return None
    return functools.partial(packed_forms.multiply_each, part.whole, multiply_whole)


def suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN's operator can compute this product, and is worth it."""
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return False
    if math.prod(x.shape[:-1]) < MIN_ONEDNN_TOKENS:
        return False
    if torch.compiler.is_compiling():
        return True
    # The operator defines `backward` only. In forward mode its derivative would silently be 0, and
    # the transforms of torch.func would raise.
    return not takes_other_derivatives()


def takes_other_derivatives() -> bool:
    """Return whether forward-mode or functional derivatives are being taken."""
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    return torch._C._functorch.peek_interpreter_stack() is not None


def converts_inputs(x: Tensor) -> bool:
    """Return whether x gets a gradient by an eager backward pass, and autocast converts it for
    every product that reads it. Of a leaf, such as a weight, autocast keeps the converted copy."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    if x.is_leaf or not x.requires_grad:
        return False
    if x.dtype != torch.float32 or not autocasts(x.device):
        return False
    if torch.get_autocast_dtype(x.device.type) == torch.float32:
        return False
    return not takes_other_derivatives()


def autocasts(device: torch.device) -> bool:
    """Return whether autocast is active on a device."""
    # Asked about a device without autocast, such as meta, `is_autocast_enabled` raises.
    if not torch.amp.is_autocast_available(device.type):
        return False
    return torch.is_autocast_enabled(device.type)


def trains_eagerly(x: Tensor) -> bool:
    """Return whether x, on a CPU, gets a gradient by an eager backward pass."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    if x.device.type != "cpu" or not x.requires_grad:
        return False
    return not takes_other_derivatives()


# --- attention ---

EAGER_MAX_QUERIES = 512
FLASH_CAPABILITY = 8  # of the first cards that have flash attention


def choose_attention(xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None) -> Form | None:
    """Return the faster form of `attend` for these operands, or None."""
    choose = choose_for_one_query if xq.shape[2] == 1 else choose_for_many_queries
    form = choose(xq, mask)
    if form is None and needs_repeated_heads(xq, xk, mask):
        return shared_forms.attend_repeated_heads
    return form


def choose_for_one_query(xq: Tensor, mask: Tensor | None) -> Form | None:
    """Return the faster form of `attend` for one query (T == 1), or None."""
    generating = not torch.is_grad_enabled()
    compiling = torch.compiler.is_compiling()
    device = xq.device.type
    if mask is None:
        if compiling and generating and device == "cpu":
            return decoding_forms.attend_by_sums
        return decoding_forms.attend_one_query
    if not generating or device != "cuda" or mask.dtype != xq.dtype:
        return None
    if compiling and len(xq) <= MAX_SUMMED["cuda"]:  # each row is one token here
        return decoding_forms.attend_by_sums
    return decoding_forms.attend_by_scores


def choose_for_many_queries(xq: Tensor, mask: Tensor | None) -> Form | None:
    """Return the faster form of `attend` for several queries, or None.

    With instructions for bfloat16, matrix products take half to three quarters of the time of the
    CPU's fused kernel, forwards and backwards.
    """
    if mask is not None or xq.device.type != "cpu" or xq.dtype != torch.bfloat16:
        return None
    if not torch.is_grad_enabled():
        return choose_for_prefill(xq)
    # Without these instructions the products take up to 2.3 times as long as the kernel, but there
    # `auto` trains in float32.
    if torch.compiler.is_compiling():
        return training_forms.attend_by_products
    if xq.shape[2] > EAGER_MAX_QUERIES:  # eager products would keep too many attention weights
        return None
    if trains_eagerly(xq):
        return training_forms.attend_by_blocks
    # xq gets no gradient, or one that torch.func or forward mode computes. The written-out gradient
    # of `attend_by_blocks` does not serve these.
    return training_forms.attend_by_products


def choose_for_prefill(xq: Tensor) -> Form | None:
    """Return the faster form of causal `attend` for prefill, in bfloat16 on a CPU, or None."""
    if not is_in_package() or not scores_whole_prompts(xq.device, xq.dtype, len(xq)):
        return None
    if xq.shape[2] <= packed_forms.LONGEST_SCORED:
        return packed_forms.attend_by_two_products
    return None


def is_in_package() -> bool:
    """Return whether a step is being compiled into a package (gyre/compiled.py)."""
    return _groups is not None and torch.compiler.is_exporting()


def scores_whole_prompts(device: torch.device, dtype: torch.dtype, rows: int) -> bool:
    """Return whether prefill has a package that computes all scores of a prompt at once.

    That one serves prompts of at most LONGEST_SCORED tokens, and another one the longer prompts.
    Several rows would need too much memory.
    """
    if device.type != "cpu" or dtype != torch.bfloat16 or rows != 1:
        return False
    return has_bfloat16()


def needs_repeated_heads(xq: Tensor, xk: Tensor, mask: Tensor | None) -> bool:
    """Return whether a fused kernel of CUDA computes this only if each key head is repeated.

    Flash attention takes fewer key heads than query heads, but no mask and no float32, and needs a
    card of capability 8.0 or more. The other fused kernel has no such limits, but in torch 2.13 it
    needs as many key heads as query heads; in later versions not (pytorch/pytorch#191085).
    """
    if xq.device.type != "cuda" or xq.shape[1] == xk.shape[1]:
        return False
    if mask is not None or xq.dtype == torch.float32:
        return True
    return torch.cuda.get_device_properties(xq.device).major < FLASH_CAPABILITY


def attention_of_any_length(device: torch.device) -> AbstractContextManager[None]:
    """Return a context without cuDNN's attention, which makes a new plan for every length."""
    if device.type != "cuda":
        return nullcontext()
    return without_cudnn_attention()


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Turn cuDNN's attention off within."""
    was_on = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_on)


# --- embeddings, rotations, norms, SwiGLU and the loss ---


def choose_embedding(tokens: Tensor, weight: Tensor) -> Form | None:
    """Return the faster form of `embed` for these operands, or None."""
    compiled_training = torch.compiler.is_compiling() and torch.is_grad_enabled()
    if compiled_training and weight.device.type in ("cpu", "cuda"):
        return training_forms.embed_in_order
    return None


def choose_rotation(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> Form | None:
    """Return the faster form of `apply_rotary_emb` for these operands, or None."""
    # Inductor generates no code for complex numbers.
    if torch.compiler.is_compiling() and not freqs_cis.is_complex():
        return shared_forms.rotate_in_reals
    return None


def choose_norm(x: Tensor, weight: Tensor, eps: float) -> Form | None:
    """Return the faster form of `rms_norm` for these operands, or None."""
    if trains_eagerly(x):
        in_float32 = x.dtype == torch.float32 and weight.dtype == torch.float32
        return training_forms.rms_norm_of_few_tensors if in_float32 else None
    # The compiler makes one kernel of the plain form, with the operations around it.
    if x.device.type != "cuda" or torch.compiler.is_compiling():
        return None
    # PyTorch's fused kernel takes x and weight of one dtype only.
    return shared_forms.rms_norm_by_cuda if x.dtype == weight.dtype else None


def choose_gate(x: Tensor, y: Tensor) -> Form | None:
    """Return the form of `gate` that keeps less memory for these operands, or None."""
    return training_forms.gate_of_few_tensors if trains_eagerly(x) else None


def choose_loss(logits: Tensor, y: Tensor) -> Form | None:
    """Return the form of `summed_loss` that needs less memory for these operands, or None."""
    # It overwrites the logits. A leaf is the caller's own. Whoever keeps computed ones has to read
    # them before this.
    overwritable = logits.is_contiguous() and not logits.is_leaf
    return training_forms.loss_by_chunks if overwritable and trains_eagerly(logits) else None


# --- int8 ---

MAX_WORD_TOKENS = 8
MAX_FLOAT_TOKENS = 4  # for more, with AVX-512, the library's int8 products are faster


def choose_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Form | None:
    """Return the faster form of `multiply_int8` for these operands, or None."""
    product = choose_product(x, weight)  # which does not look at the weight's dtype
    if product is not None and keeps_float_inputs(x, weight):
        return functools.partial(packed_forms.int8_with_float_inputs, product)
    # On a CPU, `torch._int_mm` (2.13.0) gives arbitrary numbers for sums of one product
    # (pytorch/pytorch#195066).
    has_one_input = weight.shape[1] == 1
    if has_one_input or not multiplies_int8():
        return packed_forms.int8_by_float_weights
    return None


def keeps_float_inputs(x: Tensor, weight: Tensor) -> bool:
    """Return whether compiled decoding multiplies this int8 weight with float32 inputs."""
    if _groups is not None and _groups.holds(weight):  # as words of four weights
        return True
    if not sums_products(x) or x[..., 0].numel() > MAX_FLOAT_TOKENS:
        return False
    return has_avx512()


def has_avx512() -> bool:
    """Return whether the compiler's vectors have 512 bits."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def has_only_avx2() -> bool:
    """Return whether the compiler's vectors have 256 bits."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


def has_bfloat16() -> bool:
    """Return whether the processor has instructions for bfloat16, which may still be slow ones.

    False if torch does not tell.
    """
    return has_avx512() and read_capabilities().get("avx512_bf16", False)


def has_amx() -> bool:
    """Return whether oneDNN multiplies whole tiles of bfloat16 here. False if torch does not tell.

    The environment variable ONEDNN_MAX_CPU_ISA can limit oneDNN to older instructions.
    """
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    if limit.startswith(("SSE", "AVX")) and "AMX" not in limit:
        return False
    return read_capabilities().get("amx_bf16", False)


def read_capabilities() -> Mapping[str, Any]:
    """Return what torch says of the processor's instructions, by name. Torch 2.11 says nothing."""
    if hasattr(torch.cpu, "get_capabilities"):
        return torch.cpu.get_capabilities()
    return {}


def max_float_rows() -> int:
    """Return for how many rows compiled decoding multiplies int8 weights with float32 inputs."""
    if has_avx512():
        return MAX_FLOAT_TOKENS
    return MAX_WORD_TOKENS if has_only_avx2() else 0


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


# Keys are names of plain forms.
CHOICES: dict[str, Callable[..., Form | None]] = {
    "linear": choose_linear,
    "call_each": choose_each,
    "attend": choose_attention,
    "embed": choose_embedding,
    "apply_rotary_emb": choose_rotation,
    "rms_norm": choose_norm,
    "gate": choose_gate,
    "summed_loss": choose_loss,
    "multiply_int8": choose_int8,
}


# --- packed weights ---

MIN_PACKED_ROWS = 5  # in bfloat16
# Multiplications in a product, on average. For fewer, a call of oneDNN's takes longer than sums,
# because 15 us pass before it multiplies, and on a Xeon with AMX 25 us or more. docs/speed.md says
# where this was measured, and that it is a guess elsewhere.
MIN_PACKED_SIZE = 2**20
MIN_PACKED_SIZE_WITH_AMX = 5 * 2**20


def packs_weights(device: torch.device, dtype: torch.dtype, rows: int) -> bool:
    """Return whether compiled decoding of so many rows is faster with packed weights.

    In float32, sums are faster for up to MAX_SUMMED_TOKENS rows. In bfloat16 they are for fewer
    than MIN_PACKED_ROWS, and from there to MAX_SUMMED_TOKENS the size of the matrices decides:
    see `are_too_small`.
    """
    if device.type != "cpu":
        return False
    if dtype == torch.int8:  # as words of four weights
        return has_only_avx2() and rows <= MAX_WORD_TOKENS
    if not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if dtype == torch.bfloat16:  # with narrower vectors it is emulated, or refused
        return rows >= MIN_PACKED_ROWS and has_avx512()
    return dtype == torch.float32 and rows > MAX_SUMMED_TOKENS


def are_too_small(matrices: Sequence[int], dtype: torch.dtype, rows: int) -> bool:
    """Return whether matrices of these sizes are too small to be packed for so many rows.

    Each size is that of a packed matrix, which holds a group of weights. It decides for few rows
    in bfloat16 only.
    """
    if dtype != torch.bfloat16 or rows > MAX_SUMMED_TOKENS:
        return False
    least = MIN_PACKED_SIZE_WITH_AMX if has_amx() else MIN_PACKED_SIZE
    return rows * sum(matrices) < least * len(matrices)


@contextmanager
def products_by_groups(products: packed_forms.GroupedProducts) -> Iterator[None]:
    """Return a context in which `products` multiply with the weights that they hold."""
    global _groups
    before = _groups
    _groups = products
    try:
        yield
    finally:
        _groups = before


# --- products by oneDNN ---

# For few rows of small matrices, oneDNN is slower than MKL: 0.3 to 0.7 times as fast for one to
# eight rows and widths of 128 and 288. For many rows, it is about as fast on Intel's processors and
# on Zen 4, and twice as fast on Zen 5, where MKL uses half of the vectors' width.
MIN_ONEDNN_TOKENS = 16
ONEDNN_GAIN = 1.5  # the measured gain is about 1 or above 2, depending on the processor


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
    """Return whether oneDNN is so much faster that it should compute products on this device."""
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
            [lambda: F.linear(x, weight), lambda: shared_forms.onednn_product(x, weight)],
            time.thread_time, 20)
    return usual / onednn


# --- measuring ---


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
