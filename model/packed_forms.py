"""Faster forms for generation on a CPU with joined, packed or int8 weights, and how these are made.

Joined weights lie one after the other in memory, so that one product multiplies with all of them. A
packed weight is a copy in the layout that oneDNN reads fastest. For an int8 weight there is no
copy: it is viewed as words of four bytes. `attend_by_two_products` has no weights. It stands here,
because only compiled prefill uses it. model/kernels.py says when each form is used.

B batch, T tokens, H heads, D head width, I inputs, O outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Parts of a module that read the same input. One product with all of their matrices is faster than
# one with each, because a call of oneDNN's takes some 15 us before it multiplies.
JOINED = (("wq", "wk", "wv"), ("w1", "w3"))


# --- joined weights ---


class JoinedMatrix:
    """Weights (O, I) of layers with the same input, one after the other in one matrix."""

    def __init__(self, parts: Sequence[Tensor]):
        self.matrix = torch.cat(list(parts))
        self.latest: tuple[Tensor, Tensor] | None = None
        """An input and the product of all parts with it, while `multiply_each` runs."""


@dataclass(frozen=True)
class Part:
    """The place of a weight in a JoinedMatrix: its rows from `start` to `stop`."""

    whole: JoinedMatrix
    start: int
    stop: int
    address: int
    """Where the weight lies in memory. It may be moved, as by `model.to(dtype)`, and is then no
    part any more."""


def join_matrices(model: nn.Module) -> None:
    """Move the weights of layers that read the same input next to each other.

    No weight changes, and there is no second copy: each becomes a view of a joined matrix, and has
    its place there as its attribute `joined`.
    """
    for module in model.modules():
        for names in JOINED:
            layers: list[Any] = [getattr(module, name, None) for name in names]
            if not can_be_joined(layers):
                continue
            whole = JoinedMatrix([layer.weight.detach() for layer in layers])
            start = 0
            for layer in layers:
                stop = start + len(layer.weight)
                layer.weight.data = whole.matrix[start:stop]
                layer.weight.joined = Part(whole, start, stop, layer.weight.data_ptr())
                start = stop


def can_be_joined(layers: Sequence[Any]) -> bool:
    """Return whether layers only multiply inputs of one width, and their weights are parameters,
    not computed as by weight_norm. A module of a user's own may have any layers of these names."""
    if not all(map(is_plain_linear, layers)):
        return False
    if not all(isinstance(layer.weight, nn.Parameter) for layer in layers):
        return False
    return len({layer.weight.shape[1] for layer in layers}) == 1


def is_plain_linear(layer: Any) -> bool:
    """Return whether a layer only multiplies its input with a matrix: it has no bias, and no hook
    changes its input. Such layers can be joined, and can share a copy of their input."""
    if not isinstance(layer, nn.Linear) or layer.bias is not None:
        return False
    return not getattr(layer, "has_input_hook", False)


def find_part(weight: Tensor) -> Part | None:
    """Return the place of a weight in a joined matrix, or None if it is in none."""
    part = getattr(weight, "joined", None)
    if part is None or part.address != weight.data_ptr():
        return None
    return part


def multiply_each(
    whole: JoinedMatrix, multiply: Callable[[Tensor, Tensor], Tensor], x: Tensor,
    layers: Sequence[nn.Module],
) -> list[Tensor]:
    """`call_each` for layers whose weights are the parts of a joined matrix.

    Multiplies once, by `multiply`. Then each layer is called as usual, with its hooks, and finds
    its share of the product.
    """
    whole.latest = (x, multiply(x, whole.matrix))
    try:
        return [layer(x) for layer in layers]
    finally:
        whole.latest = None  # x or a weight may change before the next call


def find_product(x: Tensor, weight: Tensor) -> Tensor | None:
    """Return the share of a weight in the product that `multiply_each` has computed.

    None if there is none: for another input, as that of a hook, and outside of `multiply_each`.
    """
    part = find_part(weight)
    if part is None:
        return None
    latest = part.whole.latest  # read once: another thread may replace it
    if latest is None or latest[0] is not x:
        return None
    return latest[1].narrow(-1, part.start, part.stop - part.start)


# --- packed weights ---


def group_matrices(model: nn.Module) -> list[list[str]]:
    """Return groups of names of matrices; those of a group read the same input.

    They are all that a model multiplies with, but for an output matrix of floats that is tied to
    the embeddings, and for weights that are computed, as by weight_norm.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    grouped: set[str] = set()  # a weight that layers share is packed once
    # A tied matrix has the first of its names.
    names = {id(x): name for name, x in [*model.named_parameters(), *model.named_buffers()]}
    for path, module in model.named_modules():
        parent, _, part = path.rpartition(".")
        if isinstance(module, nn.Linear):
            name = names.get(id(module.weight))
            if name is None or name in grouped:
                continue
            grouped.add(name)
            first = part
            for parts in JOINED:
                if part in parts:
                    first = parts[0]
            width = module.weight.shape[1]  # in a module of one's own, it may differ
            groups.setdefault((f"{parent}.{first}", width), []).append(name)
        elif part != "tok_embeddings" and can_read_words(module):
            groups[path, 0] = [names[id(module.weight)]]  # int8, in a group of its own
    return list(groups.values())


def pack_matrices(parts: Sequence[Tensor], rows: int) -> Tensor:
    """Return matrices (O, I) of one width, joined, in the layout that oneDNN reads fastest.

    It is opaque: only oneDNN's operators read it. `rows` is the number of tokens in a product.
    Matrices in int8 are not copied: see `linear_by_words`.
    """
    if parts[0].dtype == torch.int8:
        return parts[0].view(torch.float32)
    return torch.ops.mkldnn._reorder_linear_weight(torch.cat(list(parts)), rows)


def multiply_packed(x: Tensor, matrix: Tensor) -> Tensor:
    """`linear`, (..., I) -> (..., O), with a packed matrix."""
    return torch.ops.mkldnn._linear_pointwise(x, matrix, None, "none", [], "")


class GroupedProducts:
    """Products with matrices that hold a group of weights each, packed or not.

    The product with a weight is a part of the product with the matrix of its group. The latter is
    computed once, if the products with the other weights of the group follow at once and have the
    same x. `multiply_matrix` multiplies with a whole matrix.
    """

    def __init__(
        self, groups: Sequence[Sequence[Tensor]], matrices: Sequence[Tensor],
        multiply_matrix: Callable[[Tensor, Tensor], Tensor] = multiply_packed,
    ):
        self.multiply_matrix = multiply_matrix
        self.places: dict[int, tuple[Tensor, int, int]] = {}
        """By the id of a weight: its matrix, its first row there, and the row after its last."""
        self.held = groups  # an id is not used again as long as its weight is held
        for parts, matrix in zip(groups, matrices, strict=True):
            start = 0
            for part in parts:
                self.places[id(part)] = (matrix, start, start + len(part))
                start += len(part)
        self.x: Tensor | None = None
        self.matrix: Tensor | None = None
        self.product: Any = None

    def holds(self, weight: Tensor) -> bool:
        """Return whether one of the matrices holds a weight."""
        return id(weight) in self.places

    def multiply(self, x: Tensor, weight: Tensor) -> Tensor:
        """`linear`, (..., I) -> (..., O), by the matrix that holds a weight (O, I)."""
        matrix, start, stop = self.places[id(weight)]
        if weight.dtype == torch.int8:
            return linear_by_words(x, matrix)
        if x is not self.x or matrix is not self.matrix:
            self.product = self.multiply_matrix(x, matrix)
            self.x = x
            self.matrix = matrix
        return self.product[..., start:stop]


# --- attention ---

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
    # No size is -1, and there are no blocks of queries. With these, the compiler, where it does not
    # know T, would compute indices by divisions, and be slower than the fused kernel.
    keys = xk.reshape(B * H_kv, T, D)
    values = xv.reshape(B * H_kv, T, xv.shape[-1])
    scores = torch.bmm(xq.reshape(B * H_kv, rows, D), keys.mT)
    causal = torch.full((T, T), -torch.inf, device=xq.device).triu(1)
    scores = torch.add(causal, scores.view(B * H_kv, H // H_kv, T, T), alpha=D**-0.5)  # float32
    weights = scores.softmax(-1).to(values.dtype)
    return torch.bmm(weights.view(B * H_kv, rows, T), values).view(B, H, T, values.shape[-1])


# --- int8 ---

BYTES = 4  # of a word


def can_read_words(module: nn.Module) -> bool:
    """Return whether a module has an int8 weight with which `linear_by_words` can multiply."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dtype != torch.int8:
        return False
    return weight.shape[1] % BYTES == 0


def linear_by_words(x: Tensor, words: Tensor) -> Tensor:
    """`linear` as sums of products, in float32, with int8 weights (O, I).

    Each of `words` (O, I/4) holds four weights. The compiler fuses the sums with the operations
    around them into one loop, which reads every word once.

    The compiler's AVX2 code loads eight int8 numbers by way of an array on the stack, which takes
    ten times as long as multiplying them (findings/inductor-int8-loads.sh). Float32 numbers are
    loaded at once. So `words` are the int8 weights, viewed as float32. In a register their bits
    become integers, and shifts cut the bytes out.
    """
    tokens = x.reshape(-1, words.shape[1], BYTES).float()
    # (tokens, 4, I/4): the inputs of the first bytes of all words, of the second ones, and so on.
    inputs = tokens.transpose(1, 2).contiguous()
    if torch.compiler.is_compiling():
        from torch._inductor.inductor_prims import force_stride_order

        # Stores them. Otherwise the compiler converts them to float32 again for every word.
        inputs = force_stride_order(inputs, inputs.stride())
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
