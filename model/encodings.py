"""POSITIONS: the encodings of model/position.py, and others for experiments. Yours goes here.

Some of the others add rows to the normalised stream of which queries and keys are made, but not to
that of values. The rows and that stream both have rms 1. (After Shortformer's position-infused
attention, Press et al. 2020, arXiv:2012.15832, section 5.1, page 5: key = query = X + P and value =
X.) They do it with PyTorch's module hooks, so that the model knows nothing of them.

Shapes are those of model/position.py.
"""

import math
from dataclasses import fields
from difflib import SequenceMatcher
from functools import partial
from inspect import getattr_static, signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from errors import UserError, closest, did_you_mean
from model.config import INIT_STD, ModelConfig
from model.position import HOOKS, ALiBi, Learned, PositionEncoding, RoPE, Sinusoidal, sinusoid
from model.rope import precompute_freqs_cis


class AddedRows(PositionEncoding):
    """Base of encodings that add rows to the inputs of modules in several layers."""

    layers = slice(None)
    """The layers, as a slice of `model.layers`."""
    parts: tuple[str, ...] = ("attention.wq", "attention.wk")
    """The modules of a layer whose input gets the rows; "" is the layer itself."""
    start = 0
    """Position of the first token of the latest forward pass, which `embed` sets. A backward pass
    that computes blocks anew (train.checkpoint_blocks) has to come before the next forward pass."""

    def attach(self, model: Any) -> None:
        for layer in model.layers[self.layers]:
            add = partial(self.add, layer.attention.layer)
            for part in self.parts:
                module = layer.get_submodule(part)
                module.register_forward_pre_hook(add)

    def embed(self, h: Tensor, start: int) -> Tensor:
        self.start = start
        return super().embed(h, start)

    def rows(self, layer: int) -> Tensor:
        """Return what is added in a layer, one row of (C,) for each position."""
        raise NotImplementedError

    def add(self, layer: int, part: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Add the rows of this forward pass to x (B, T, C), the first input of a part."""
        x, *others = inputs
        rows = self.rows(layer)[self.start : self.start + x.shape[1]]
        return (x + rows).type_as(x), *others


class SinusoidalQK(AddedRows):
    """Sinusoids added to what queries and keys are made of, in every layer."""

    options = ("theta",)

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.table = math.sqrt(2) * sinusoid(config.dim, config.max_positions, config.theta)

    def rows(self, layer: int) -> Tensor:
        return self.table


class SinusoidalQKFirst(SinusoidalQK):
    """The same, in the first layer only."""

    layers = slice(1)


class SinusoidalQKV(SinusoidalQK):
    """Sinusoids added to what queries, keys and values are made of, in every layer."""

    parts = ("attention",)


class SinusoidalResidual(AddedRows, Sinusoidal):
    """Sinusoids added to the residual stream before every block, and not only to the embeddings."""

    layers = slice(1, None)  # the embeddings have them
    parts = ("",)

    def rows(self, layer: int) -> Tensor:
        return self.alpha * self.table


class LearnedQK(AddedRows):
    """A trainable vector per position and layer, added to what queries and keys are made of.

    The weights start with std 0.02 and are divided by 0.02 when they are added, so rows start with
    rms 1, like the normalised stream. An optimizer step thus changes the rows, relative to the
    stream, as much as it changes learned positions relative to the embeddings.
    """

    extrapolates = False

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(config.n_layers, config.max_positions, config.dim))

    def rows(self, layer: int) -> Tensor:
        return self.weight[layer] / INIT_STD


def leave_unrotated(layer: nn.Module) -> None:
    """Let a layer run without freqs_cis, its second input."""
    layer.register_forward_pre_hook(lambda _, inputs: (inputs[0], None, *inputs[2:]))


class RoPEFirst(RoPE):
    """RoPE in the first layer only."""

    options = ("theta",)

    def attach(self, model: Any) -> None:
        for layer in model.layers[1:]:
            leave_unrotated(layer)


class RoPEWithNoPE(RoPE):
    """RoPE, but every fourth layer is without positions.

    Such a layer can look back over any distance: long texts have no rotations that are new to it. A
    model of fewer than four layers has none. (After Yang et al. 2025, arXiv:2501.18795, where
    layers alternate. SmolLM3 and Llama 4 have one layer in four.)
    """

    options = ("theta",)
    interval = 4

    def attach(self, model: Any) -> None:
        for layer in model.layers[self.interval - 1 :: self.interval]:
            leave_unrotated(layer)


class RoPEScaled(RoPE):
    """RoPE with the embeddings of Vaswani's sinusoids: sqrt(C) E, where E starts with standard
    deviation 1/sqrt(C)."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.embedding_scale = math.sqrt(config.dim)
        self.embedding_std = 1 / self.embedding_scale

    def embed(self, h: Tensor, start: int) -> Tensor:
        return self.embedding_scale * h


class PartialRoPE25(RoPE):
    """RoPE of a quarter of the channels, the first ones.

    Their frequencies are those of a head of R channels, theta^(-2j/R). (`model.partial` is another
    thing: it keeps the fastest frequencies of a head of D channels.) R is the even number that is
    nearest to the share, and at least 2. (After Khan et al. 2026, arXiv:2603.11611, table 1 in
    appendix A of its HTML, which has no pages: for a tenth, 6 of 64 channels, 12 of 128 and 26 of
    256)
    """

    options = ("theta",)
    share = 0.25

    def precompute(self, end: int) -> Tensor:
        head_dim = self.config.head_dim
        rotated_pairs = max(1, round(self.share * head_dim / 2))
        rotations = precompute_freqs_cis(2 * rotated_pairs, end, self.config.theta)
        still = rotations.new_ones(end, head_dim // 2 - rotated_pairs)
        return torch.view_as_real(torch.cat((rotations, still), dim=1))


class PartialRoPE10(PartialRoPE25):
    """The same with a tenth of the channels: 4 of 32, the nearest even number."""

    share = 0.1


class RoPESinusoidalQK(SinusoidalQK):
    """RoPE, and sinusoids added to what queries and keys are made of, in every layer."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        RoPE.check(config)

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.dim = config.dim
        rotations = precompute_freqs_cis(config.head_dim, config.max_positions, config.theta)
        rotations = torch.view_as_real(rotations).flatten(1)
        # One tensor, because `table` alone moves between devices with the model.
        self.table = torch.cat((self.table, rotations), dim=1)  # (positions, C + D)

    def rows(self, layer: int) -> Tensor:
        return self.table[:, : self.dim]

    def freqs_cis(self, start: int, stop: int) -> Tensor:
        rotations = self.table[start:stop, self.dim :]
        return rotations.contiguous().unflatten(-1, (-1, 2))


class SinusoidalQKRoPELast(RoPESinusoidalQK):
    """Sinusoids at queries and keys in every layer, and RoPE in the last layer only."""

    def attach(self, model: Any) -> None:
        super().attach(model)
        for layer in model.layers[:-1]:
            leave_unrotated(layer)


class PoPEWithoutPhases(PositionEncoding):
    """Polar positions: the magnitude of a channel says what, and its angle says where.

    Channel c of the query at t is a complex number of magnitude mu = softplus(q_c) and angle
    t theta_c, with theta_c = theta^(-c/D) for c = 0 .. D-1, and the same for the key at n. Their
    score is the sum over c of mu_q mu_k cos((n - t) theta_c), over sqrt(D). As real numbers, it is
    the product of [mu cos, mu sin], vectors of twice the width. (After Gopalakrishnan et al. 2025,
    arXiv:2509.10534v3: magnitudes, angles and scores are equations 3 to 5 on page 2, the product is
    equation 10 on page 4. With equal weights, the packages PoPE-pytorch 0.2.1 and x-transformers
    2.31.10 compute the same scores.)
    """

    options = ("theta",)
    key_width_factor = 2

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        # RoPE of twice as many channels has D pairs, with these frequencies.
        rotations = precompute_freqs_cis(2 * config.head_dim, config.max_positions, config.theta)
        self.table = torch.view_as_real(rotations)

    def freqs_cis(self, start: int, stop: int) -> Tensor:
        """Return (T, D, 2), the cosine and the sine of each channel's angle."""
        return self.table[start:stop]

    def attach(self, model: Any) -> None:
        for layer in model.layers:
            layer.attention.rotate = partial(self.rotate, layer.attention.layer)

    def rotate(
        self, layer: int, xq: Tensor, xk: Tensor, freqs_cis: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Turn xq (B, T, H, D) and xk (B, T, H_kv, D) into (B, T, H, 2D) and (B, T, H_kv, 2D)."""
        cos, sin = freqs_cis[:, None].unbind(-1)  # (T, 1, D) each
        # Attention divides scores by the root of the width, which is 2D, and not D.
        xq_out = math.sqrt(2) * make_polar(xq, cos, sin)
        xk_out = make_polar(xk, *self.turn_keys(layer, cos, sin))
        return xq_out.type_as(xq), xk_out.type_as(xk)

    def turn_keys(self, layer: int, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine (T, 1 or H_kv, D) of the angles of keys, from those of queries."""
        return cos, sin


def make_polar(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return [mu cos, mu sin], float32 (..., 2D), where mu is softplus(x) for x (..., D)."""
    magnitudes = F.softplus(x.float())
    return torch.cat((magnitudes * cos, magnitudes * sin), dim=-1)


class PoPE(PoPEWithoutPhases):
    """Polar positions whose keys have learned phases too: cos((n - t) theta_c + delta_c).

    Each layer, key head and channel has a delta, which is clamped to -2 pi .. 0 and starts at 0, as
    in both packages. (Equation 6 and the text below it, on page 3 of the article. Starting at 0 is
    its choice for longer texts.) What training moves out of these bounds has no gradient any more.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.shape = (config.n_layers, config.n_kv_heads, config.head_dim)
        # In one dimension, because matrices are drawn at random.
        self.phases = nn.Parameter(torch.zeros(math.prod(self.shape)))

    def turn_keys(self, layer: int, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        delta = bound_phases(self.phases.view(self.shape)[layer])  # (H_kv, D)
        cos_delta = delta.cos()
        sin_delta = delta.sin()
        return cos * cos_delta - sin * sin_delta, sin * cos_delta + cos * sin_delta


def bound_phases(phases: Tensor) -> Tensor:
    """Return phases clamped to -2 pi .. 0, with a gradient for those that are at a bound.

    Phases start at a bound, 0. After torch 2.13, `clamp` gives a value at its bound no gradient
    (pytorch/pytorch#195931), so with it no phase would learn.
    """
    low = -2 * math.pi
    within = (phases >= low) & (phases <= 0)
    return torch.where(within, phases, phases.detach().clamp(low, 0))


class Aligned(PositionEncoding):
    """A model that starts with w_k = w_q, both three times as large as usual.

    The score of two sinusoids then follows their distance at the start. With fewer key heads than
    query heads, w_k starts as the first rows of w_q: key head k is equal to query head k. Of the
    query heads, only the first then reads the key head that is equal to it. If w_k is smaller than
    w_q, and its size no multiple of 16, its last 16 values differ: torch's `normal_` draws the last
    16 values of such a tensor anew.
    """

    def attach(self, model: Any) -> None:
        super().attach(model)
        for name, _ in model.named_parameters():
            if ".attention.wq." in name or ".attention.wk." in name:
                model.drawn_as[name] = (name.replace(".wk.", ".wq."), 3.0)


class SinusoidalAligned(Aligned, Sinusoidal):
    """Sinusoids added to the embeddings, with aligned queries and keys."""


class SinusoidalQKAligned(Aligned, SinusoidalQK):
    """Sinusoids at queries and keys, which start aligned."""


# A new encoding: a class above, and a line here.
POSITIONS: dict[str, type[PositionEncoding]] = {
    "rope": RoPE,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "alibi": ALiBi,
    "none": PositionEncoding,
    # for experiments
    "sin_qk": SinusoidalQK,
    "sin_qk_first": SinusoidalQKFirst,
    "sin_qkv": SinusoidalQKV,
    "sin_residual": SinusoidalResidual,
    "learned_qk": LearnedQK,
    "rope_first": RoPEFirst,
    "rope_nope": RoPEWithNoPE,
    "rope_sinscale": RoPEScaled,
    "sin_aligned": SinusoidalAligned,
    "sin_qk_aligned": SinusoidalQKAligned,
    "pope": PoPE,
    "pope_nophase": PoPEWithoutPhases,
    "partial_25": PartialRoPE25,
    "partial_10": PartialRoPE10,
    "rope_sin_qk": RoPESinusoidalQK,
    "sin_qk_rope_last": SinusoidalQKRoPELast,
}


def key_dim(config: ModelConfig) -> int:
    """Return the width of the queries and keys that attention compares, and that are cached."""
    return POSITIONS[config.position].key_width_factor * config.head_dim


# The encodings that are listed before those for experiments.
MAIN = ("rope", "sinusoidal", "learned", "alibi", "none")

# What papers and other repositories call our encodings.
SYNONYMS = {"absolute": "sinusoidal", "learnable": "learned", "nope": "none", "null": "none",
            "rotary": "rope", "sin": "sinusoidal", "sine": "sinusoidal"}


# The fields of ModelConfig that the model itself reads. Encodings read the others.
MODEL_FIELDS = ("dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden_dim", "vocab_size",
                "tie_embeddings", "norm_eps", "dropout", "max_positions", "position")


def check_position(config: ModelConfig) -> None:
    """Raise UserError if the encoding is unknown, has no effect, cannot serve this model, or
    ignores an option that is set."""
    for name, encoding in POSITIONS.items():
        check_class(name, encoding)
    if config.position not in POSITIONS:
        experiments = ", ".join(name for name in POSITIONS if name not in MAIN)
        raise UserError(
            f"there is no model.position {config.position}{suggest_position(config.position)}: it "
            f"must be one of {', '.join(MAIN)} or, for experiments, {experiments}"
        )
    encoding = POSITIONS[config.position]
    refuse_misspelt_hooks(config.position, encoding)
    require_hook(config.position, encoding)
    check_arguments(config.position, encoding)
    for name, other in POSITIONS.items():
        for option in other.options:
            changed = getattr(config, option) != getattr(ModelConfig, option)
            if changed and option not in encoding.options:
                raise UserError(
                    f"model.{option} has no effect with model.position {config.position}: "
                    f"it belongs to {name}"
                )
    encoding.check(config)


def suggest_position(word: str) -> str:
    """Return " (did you mean NAME?)" for the encoding that a word may stand for, or ""."""
    lowered = word.lower()
    if lowered in SYNONYMS:
        return f" (did you mean {SYNONYMS[lowered]}?)"
    names = {name.lower(): name for name in POSITIONS}
    match = closest(lowered, names)
    return f" (did you mean {names[match]}?)" if match else ""


def check_class(name: str, encoding: Any) -> None:
    """Raise UserError if what POSITIONS has under a name is no class of encodings."""
    if not isinstance(encoding, type):
        raise UserError(
            f'POSITIONS["{name}"] is an object of type {type(encoding).__name__}, and must be a '
            f'class: write POSITIONS["{name}"] = NAME_OF_THE_CLASS, without a call'
        )
    if not issubclass(encoding, PositionEncoding):
        written = encoding.__name__
        raise UserError(
            f'POSITIONS["{name}"] is {written}, which is no PositionEncoding: '
            f"write class {written}(PositionEncoding)"
        )
    check_options(encoding)


def check_options(encoding: type[PositionEncoding]) -> None:
    """Raise UserError if the `options` of a class are not names of fields of ModelConfig that only
    encodings read."""
    written = encoding.__name__
    if not isinstance(encoding.options, tuple | list):
        raise UserError(
            f"the options of {written} are {encoding.options!r}, and must be a tuple: write "
            'options = ("theta",), with a comma, for one'
        )
    known = [field.name for field in fields(ModelConfig)]
    for option in encoding.options:
        if option not in known:
            raise UserError(
                f"the options of {written} name {option}{did_you_mean(option, known)}, which is no "
                "field of ModelConfig: add it in model/config.py, or leave it out"
            )
        if option in MODEL_FIELDS:
            raise UserError(
                f"the options of {written} name {option}, which every model has, whatever its "
                "encoding: leave it out"
            )


def refuse_misspelt_hooks(name: str, encoding: type[PositionEncoding]) -> None:
    """Raise UserError if the name of a method can be nothing but a misspelling of a hook."""
    for cls, method in added_methods(encoding):
        hook = misspelt_hook(method, cls)
        if hook is not None:
            raise UserError(
                f"model.position {name}: nothing calls the method {method} of {cls.__name__} "
                f"(did you mean {hook}?), because the hooks are {', '.join(HOOKS)}"
            )


def require_hook(name: str, encoding: type[PositionEncoding]) -> None:
    """Raise UserError for an encoding that overrides no hook, and so would change nothing.

    The error has a hint: the method whose name is most like that of a hook.
    """
    if encoding is PositionEncoding:
        return
    if any(overrides(encoding, method) for method in (*HOOKS, "mask")):
        return
    hint = ""
    most_alike = 0.0
    for _, method in added_methods(encoding):
        likely = closest(method, HOOKS)
        if likely is None:
            continue
        alike = SequenceMatcher(None, method, likely).ratio()
        if alike > most_alike:
            most_alike = alike
            hint = f" (did you mean {likely} by {method}?)"
    raise UserError(
        f"model.position {name} would train without positions: override one of the hooks "
        f"{', '.join(HOOKS)} in {encoding.__name__}{hint}"
    )


def check_arguments(name: str, encoding: type[PositionEncoding]) -> None:
    """Raise UserError for a hook that cannot be called with the arguments that it gets."""
    for hook in HOOKS:
        arguments = [*signature(getattr(PositionEncoding, hook)).parameters]
        given = arguments
        if isinstance(getattr_static(encoding, hook), staticmethod | classmethod):
            given = arguments[1:]  # without self
        try:
            signature(getattr(encoding, hook)).bind(*given)
        except TypeError:
            raise UserError(
                f"model.position {name}: {hook} of {encoding.__name__} is called with other "
                f"arguments than it takes: write def {hook}({', '.join(arguments)})"
            ) from None


def overrides(encoding: type[PositionEncoding], hook: str) -> bool:
    """Return whether an encoding has another method of this name than the base class."""
    return getattr(encoding, hook) is not getattr(PositionEncoding, hook)


def added_methods(encoding: type[PositionEncoding]) -> list[tuple[type, str]]:
    """Return (class, name) of each public method that an encoding adds to PositionEncoding."""
    methods = []
    for cls in encoding.__mro__:
        if cls in PositionEncoding.__mro__:
            continue
        for name, value in vars(cls).items():
            is_public = callable(value) and not name.startswith("_")
            if is_public and not hasattr(PositionEncoding, name):
                methods.append((cls, name))
    return methods


def misspelt_hook(method: str, cls: type) -> str | None:
    """Return the hook that a method of a class must be meant for, or None.

    A method is a misspelling if it has the hook's letters in another order, or one letter more or
    less. It is not if it contains the hook (`biased`), replaces a letter (`freqs_cos`), or stands
    beside that hook in its class.
    """
    for hook in HOOKS:
        if hook in vars(cls) or hook in method:
            continue
        if sorted(method) == sorted(hook):
            return hook
        if has_one_letter_more(method, hook) or has_one_letter_more(hook, method):
            return hook
    return None


def has_one_letter_more(long: str, short: str) -> bool:
    """Return whether a word is another one with one letter more."""
    return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def depends_on_matrix(result: Tensor, position: PositionEncoding) -> bool:
    """Return whether what an encoding has computed depends on one of its trained matrices."""
    matrices = [parameter for parameter in position.parameters() if parameter.ndim >= 2]
    if not matrices or not result.requires_grad:
        return False
    gradients = torch.autograd.grad(result.sum(), matrices, allow_unused=True)
    return any(gradient is not None for gradient in gradients)


def check_buffers(model: nn.Module) -> None:
    """Raise UserError if an encoding, or another part of the model, has registered a buffer.

    A buffer is cast with the model, and checkpoints would hold it, or lose it where a model is
    built without memory.
    """
    for name, _ in model.named_buffers():
        raise UserError(
            f"{name} is a buffer, which a model cannot have: keep what is trained in an "
            "nn.Parameter, and what an encoding computes in self.table"
        )


def check_embed(position: PositionEncoding, config: ModelConfig) -> None:
    """Raise UserError if `embed` of a new encoding does not keep the shape of the embeddings.

    It is called for one token and for three, once for a model, so that no step has to look. Without
    its weights, or with them elsewhere than on the CPU, an encoding is not checked.
    """
    has_weights = all(parameter.is_cpu for parameter in position.parameters())
    if not overrides(type(position), "embed") or not has_weights:
        return
    for n_tokens in (1, min(3, config.max_positions)):
        h = torch.zeros(2, n_tokens, config.dim)
        with torch.no_grad():
            result: Any = position.embed(h, 0)
        if isinstance(result, Tensor) and result.shape == h.shape:
            continue
        returned = type(result).__name__
        if isinstance(result, Tensor):
            returned = f"the shape {tuple(result.shape)}"
        raise UserError(
            f"embed of model.position {config.position} returns {returned} for embeddings of "
            f"the shape {tuple(h.shape)}: it must return a tensor of the same shape"
        )


def check_bias(position: PositionEncoding, config: ModelConfig) -> None:
    """Raise UserError if the bias of a new encoding is no floating-point tensor, has the wrong
    shape, or leaves no token to see.

    It is asked for 2 queries and 3 keys, and for token 0 alone, once for a model, so that no step
    has to look. A shorter context, as in `tensor_shapes` of formats/names.py, is not checked.
    """
    if not overrides(type(position), "bias") or config.max_positions < 3:
        return
    with torch.device("cpu"), torch.enable_grad():
        bias: Any = position.bias(torch.arange(1, 3), torch.arange(3))
        at_first_token: Any = position.bias(torch.arange(1), torch.arange(1))
    if bias is None or at_first_token is None:
        return
    for result in (bias, at_first_token):
        returned = result.dtype if isinstance(result, Tensor) else type(result).__name__
        if returned not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            raise UserError(
                f"the bias of model.position {config.position} is {returned}: it must be None or a "
                "tensor of floating-point numbers, as .float() makes one"
            )
    shared_by_heads = (1, 2, 3)
    one_per_head = (config.n_heads, 2, 3)
    if tuple(bias.shape) not in (shared_by_heads, one_per_head):
        raise UserError(
            f"the bias of model.position {config.position} has the shape {tuple(bias.shape)} for 2 "
            "queries and 3 keys, and must have (1 or H, T, S), here "
            f"{shared_by_heads} or {one_per_head}"
        )
    if depends_on_matrix(at_first_token, position):
        return  # matrices are drawn later, and may hold anything until then
    is_finite = at_first_token.isfinite()
    if not is_finite.all():
        raise UserError(
            f"the bias of model.position {config.position} is {at_first_token[~is_finite][0]} from "
            "token 0 to itself, the only token that it sees: it must be finite"
        )
