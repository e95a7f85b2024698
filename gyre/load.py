"""Load a run: its configuration, its tokenizer and its model.

    from gyre.load import load
    run = load("runs/small-rope-s1")
    print(run.generate("def read_file(", max_new_tokens=50))
"""

import codecs
import numbers
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from data.tokenizer import Tokenizer, open_tokenizer, require_utf8
from errors import UserError, did_you_mean, say
from gyre.checkpoint import Convert, weight_shapes
from gyre.compute import Compute, InferenceDtype, matmul_rates, resolve_device, resolve_dtype
from gyre.memory import check_table
from gyre.options import Config
from gyre.rundir import RunDir
from gyre.yaml_files import read_config, require_encoding
from model import kernels
from model.config import ModelConfig, RopeScaling
from model.generation import Batch, NextLogits, next_logits
from model.int8 import Int8Linear, int8_tensors, to_int8
from model.packed_forms import join_matrices
from model.sampling import Sampling
from model.transformer import Transformer

NEW_TOKENS = 200  # by default, if the context has room for them


@dataclass
class WeightOptions:
    """Which weights of a run, and where they run."""

    checkpoint: Literal["best", "last"] = "best"
    """Weights with the lowest validation loss, or the last ones."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""


@dataclass(frozen=True)
class Trained:
    """A run, ready to use. `model` is in evaluation mode; `model.config` differs from
    `config.model` if `load` was given a rope_scaling. The fastest products for this machine are
    taken within `compute.active()`, which `generate` enters."""

    run: RunDir
    config: Config
    tokenizer: Tokenizer
    model: Transformer
    compute: Compute
    trained_length: int | None
    """See `find_trained_length`."""
    step: int
    """The step after which the weights were saved; 0 for an imported model."""

    def __repr__(self) -> str:
        with torch.device("meta"):  # matrices in int8 are no parameters
            plain = Transformer(self.model.config)
        size = sum(parameter.numel() for parameter in plain.parameters())
        is_int8 = any(isinstance(module, Int8Linear) for module in self.model.modules())
        dtype = "int8 matrices" if is_int8 else self.dtype
        return (f"<{self.run.path}: {size:,} parameters, positions: {self.config.model.position}, "
                f"{dtype} on {self.device}>")

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.compute.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights; with int8, of those that are not quantised."""
        return self.compute.dtype

    def generate(
        self, prompt: str, *, max_new_tokens: int | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> str:
        """Return the continuation of `prompt`, up to the end of the document or a text in `stop`.

        `max_new_tokens` unset: see `default_new_tokens`. `sampling` are fields of Sampling, such as
        temperature=0. Warns of a text that is too long for what the model was trained on, see
        `describe_excess`. Raises UserError where the context has no room or an option has no
        meaning, and TypeError for a prompt that is no text, an unknown option and a value of
        another type.
        """
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be text, not {type(prompt).__name__}: call generate once "
                            "for each text")
        check_sampling_names(sampling)
        check_numbers({"max_new_tokens": max_new_tokens, "seed": seed, **sampling})
        if stop is None:
            raise TypeError("stop must be text or several texts, not None")
        if stop == "":  # a value that was left empty; in a list, "" is a mistake
            stop = []
        stops = [stop] if isinstance(stop, str) else [*stop]
        for text in stops:
            if not isinstance(text, str):
                raise TypeError(f"stop must be text or several texts, not {text!r}")
            require_utf8(text)
        if "" in stops:
            raise UserError("stop '' is in every text: leave it out")
        ids = self.tokenizer.encode_prompt(prompt)
        if max_new_tokens is None:
            max_new_tokens = self.default_new_tokens(len(ids))
        batch = Batch(self.model, [ids], Sampling(**sampling), max_new_tokens=max_new_tokens,
                      eos_ids=end_ids(self.tokenizer, stops), seed=seed)
        row = Row(prompt, self.tokenizer, stops)
        with self.compute.active():
            text = "".join(part for _, part in stream(batch, [row]))
        warning = self.describe_excess(max(batch.lengths))
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        return text[len(prompt) :]

    def describe_excess(self, n_tokens: int) -> str | None:
        """Return a warning of a text of so many tokens if the model was trained on shorter ones, or
        None. None also for an imported model, whose training is not known."""
        if self.trained_length is None or n_tokens <= self.trained_length:
            return None
        seq_len = self.config.data.seq_len
        how = f"was trained on rows of {seq_len} (data.seq_len)"
        if self.trained_length > seq_len:
            how = f"has a rope_scaling that reaches {self.trained_length}"
        return f"this text has {n_tokens} tokens; the model {how}, and past that it may get worse"

    def default_new_tokens(self, prompt_tokens: int) -> int:
        """Return how many tokens follow a prompt by default, see the function of this name."""
        return default_new_tokens(self.model.config.max_positions, prompt_tokens)


def default_new_tokens(context: int, prompt_tokens: int) -> int:
    """Return how many tokens follow a prompt by default: NEW_TOKENS, or what the context of so many
    tokens has room for.

    If the context has no room, returns 1. `Batch` then refuses the prompt.
    """
    return max(1, min(NEW_TOKENS, context - prompt_tokens))


def find_trained_length(run: RunDir, config: Config) -> int | None:
    """Return how many tokens the model of a run reads well. None for an imported one, of which it
    is not known."""
    return None if run.is_imported else trained_length(config)


def trained_length(config: Config) -> int:
    """Return how many tokens a model reads well that was trained so: those of a training row, or as
    many as its rope_scaling reaches."""
    scaling = config.model.rope_scaling
    return config.data.seq_len if scaling is None else max(config.data.seq_len, scaling.reach)


def check_sampling_names(sampling: Iterable[str]) -> None:
    """Raise TypeError, which lists the options of `generate`, for a name that is none of them."""
    known = ["max_new_tokens", "seed", "stop", *(option.name for option in fields(Sampling))]
    for name in sampling:
        if name in known:
            continue
        hint = did_you_mean(name, known)
        if name == "do_sample":
            hint = " (for the likeliest tokens, give temperature=0)"
        raise TypeError(f"generate has no option {name}{hint}: it has {', '.join(known)}")


def check_numbers(values: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that is no number, or no whole one where it has to be.

    True is no number, as on the command line. Those that are unset by default may be None.
    """
    for name, value in values.items():
        if value is None and name in ("max_new_tokens", "top_k", "top_p", "min_p"):
            continue
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} must be a number, not {value!r}")
        is_whole = isinstance(value, numbers.Integral)
        if name in ("max_new_tokens", "seed", "top_k") and not is_whole:
            raise TypeError(f"{name} must be a whole number, not {value!r}")


def load(
    run: str | Path | RunDir | None = None, checkpoint: Literal["best", "last"] = "best",
    device: str = "auto", dtype: InferenceDtype = "float32",
    rope_scaling: RopeScaling | None = None, rows: int = 1,
    weights: Iterable[tuple[str, Tensor]] | None = None,
) -> Trained:
    """Load the run in a folder; unset, the newest one in runs/.

    dtype: that of the weights. auto chooses float32 or bfloat16: on a CPU by measuring which one
    is faster, and on CUDA by the capability of the card (`resolve_dtype`). With int8, matrices are
    in int8 and all else is in float32 (model/int8.py).
    rope_scaling: makes a RoPE model read further than its training rows, see `scale_rotations`.
    rows: how many texts are decoded together, prompts times samples. Only auto measures with it.
    weights: (name, weight) of each, to use instead of those of a `checkpoint`, which then does
    nothing.

    Raises UserError for what is missing, damaged or does not belong together, for int8 elsewhere
    than on a CPU, and for a scaling that the model cannot have. Raises TypeError for one that is no
    RopeScaling.
    """
    if dtype not in get_args(InferenceDtype):
        raise UserError(f"dtype must be one of {', '.join(get_args(InferenceDtype))}, not {dtype}")
    if rope_scaling is not None and not isinstance(rope_scaling, RopeScaling):
        raise TypeError("rope_scaling must be a RopeScaling, such as RopeScaling('yarn', 4.0), not "
                        f"{rope_scaling!r}")
    where = resolve_device(str(device))
    if dtype == "int8" and where.type != "cpu":
        raise UserError(f"int8 is for a CPU, not for {where}: give --device cpu, or another dtype")
    if not isinstance(run, RunDir):
        run = RunDir.open(run)
    config = read_config(run.path / "config.yaml")
    require_encoding(run.path, config)
    if run.has_changed_encoding(config.model.position):
        say(f"note: the code of model.position {config.model.position} has changed since "
            f"{run.path} was made: if it computes other numbers now, so does this model")
    model_config = scale_rotations(config, rope_scaling) if rope_scaling else config.model
    compute = choose_compute_to_generate(where, dtype, model_config, rows)

    def to_device(name: str, weight: Tensor) -> dict[str, Tensor]:
        return {name: weight.to(where, compute.dtype)}

    convert: Convert = to_device
    with torch.device("meta"):  # without memory: the weights bring theirs
        model = Transformer(model_config)
        shapes = weight_shapes(model)
        if dtype == "int8":
            to_int8(model)
            convert = partial(int8_tensors, model)
    if weights is None:
        state, step, _ = run.checkpoints.load_saved_weights(checkpoint, convert, shapes)
    else:
        step = 0
        state = {}
        for name, weight in weights:
            state |= convert(name, weight)
    model.load_state_dict(state, assign=True)  # without a copy
    model.to(where).eval()
    if where.type == "cpu":
        join_matrices(model)
    as_loaded = replace(config, model=model_config)  # with the `rope_scaling` that was given
    return Trained(run, config, open_tokenizer(run.path), model, compute,
                   find_trained_length(run, as_loaded), step)


def choose_compute_to_generate(
    device: torch.device, dtype: InferenceDtype, model: ModelConfig, rows: int
) -> Compute:
    """Return how a model computes on a device; see `load` for `dtype` and `rows`."""
    onednn = kernels.prefers_onednn(device)
    unquantised = "float32" if dtype == "int8" else dtype
    with kernels.products_by_onednn(onednn):
        rates = partial(matmul_rates, device, model, rows, training=False)
        weight_dtype, reason = resolve_dtype(unquantised, device, rates, training=False)
    return Compute(device, weight_dtype, onednn=onednn, dtype_reason=reason)


def scale_rotations(config: Config, scaling: RopeScaling) -> ModelConfig:
    """Return the model of a run with its rotations slowed, and a context as long as they reach.

    `original_positions`, unset, are the length of the training rows. Raises UserError for a run
    that was trained with a scaling. `Transformer` refuses one for a model that does not rotate.
    """
    if config.model.rope_scaling is not None:
        raise UserError("this run was trained with model.rope_scaling "
                        f"{config.model.rope_scaling.type}: --rope-scaling would replace it")
    if scaling.original_positions is None:
        scaling = replace(scaling, original_positions=config.data.seq_len)
    reach = max(config.model.max_positions, scaling.reach)
    scaled = replace(config.model, rope_scaling=scaling, max_positions=reach)
    check_table(scaled, f"for a factor of {scaling.factor:g}", "choose a smaller one")
    return scaled


def end_ids(tokenizer: Tokenizer, stops: Iterable[str]) -> list[int]:
    """Return the ids that end a text: the tokenizer's, and those of stop strings that are special
    tokens, which no text shows."""
    ids = list(tokenizer.eos_ids)
    for stop in stops:
        i = tokenizer.special_id(stop)
        if i is not None:
            ids.append(i)
    return ids


def stream(
    batch: Batch, rows: Sequence["Row"], step: NextLogits = next_logits
) -> Iterator[tuple[int, str]]:
    """Yield (i, text) for every new token of rows[i], and after all of them the rest of each row.

    The text of a token can be empty (see `Row`). A row ends at its first stop string.
    """
    for i, token in batch.draw(step):
        text = rows[i].add(token)
        if rows[i].stopped:
            batch.end(i)
        yield i, text
    for i, row in enumerate(rows):
        yield i, row.finish()


@dataclass
class Row:
    """A prompt and its continuation: tokens in, text out, up to the first stop string.

    The prompt comes with the first text. The bytes of an unfinished character, and what may be the
    start of a stop string, are held back. `text` is what was given out since the start or the last
    `resume`. Without a prompt the text begins as `Tokenizer.decode` begins it: without the
    tokenizer's own space.

    With the stop string "END", tokens that add "we EN" give out "we ", and "EN" is held. `finish`
    then gives "EN" out, as the rest, and remembers it as `shown_tail`: if "D" follows after
    `resume`, the stop string is complete.
    """

    prompt: str
    tokenizer: Tokenizer
    stops: Sequence[str] = ()
    text: str = field(default="", init=False)
    stopped: bool = field(default=False, init=False)
    """Whether a stop string is complete, and the text cut there."""
    first: str = field(init=False)
    """What comes in front of the next text: the prompt, or after `resume` the stop string that was
    held back. No stop is looked for in it: the last text has ended there."""
    strips_space: bool = field(init=False)
    """Whether a space in front of the next text is the tokenizer's own."""
    held: str = field(default="", init=False)
    """Text that is not given out yet."""
    shown_tail: str = field(default="", init=False)
    """After a `finish`, the end of the text given out, if a stop string may begin in it."""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=partial(codecs.getincrementaldecoder("utf-8"), errors="replace"),
        init=False)
    unfinished: tuple[bytes, int] = field(default=(b"", 0), init=False)
    """The state of the decoder at the end: the bytes of a character that the end has cut."""
    replacement: str = field(default="", init=False)
    """After a `finish`, the end of the text given out that stands for these bytes: U+FFFD, or
    nothing."""

    def __post_init__(self) -> None:
        self.first = self.prompt
        self.strips_space = self.tokenizer.adds_space and not self.prompt

    def add(self, token: int | None) -> str:
        """Return more text, or the rest if None says that no token follows.

        Sets `stopped` and cuts the text once a stop string is complete.
        """
        if self.stopped:
            return ""
        n_shown = len(self.shown_tail)  # 0, except after `finish`
        # Of this text, text[:n_shown] has been given out already.
        text = self.shown_tail + self.held + self.decode(token)
        end = find_stop(text, self.stops)
        if end is not None:
            self.stopped = True
        elif token is None:
            end = len(text)
        else:
            end = len(text) - unsafe_length(text, self.stops)
        # If `end` lies before `n_shown`, text that was given out may begin a stop string. It cannot
        # be held back any more, but is remembered.
        self.shown_tail = text[end:n_shown]
        end = max(end, n_shown)
        shown = self.first + text[n_shown:end]
        self.held = text[end:]
        self.first = ""
        self.text += shown
        return shown

    def decode(self, token: int | None) -> str:
        """Return the characters that a token completes; of None, what is left."""
        piece = b"" if token is None else self.tokenizer.piece(token)
        text = self.decoder.decode(piece, final=token is None)
        if text and self.strips_space:
            self.strips_space = False
            return text.removeprefix(" ")
        return text

    def finish(self) -> str:
        """Return the rest of the text. After `resume`, more tokens can be added."""
        self.unfinished = self.decoder.getstate()
        may_begin_stop = self.shown_tail + self.held
        rest = self.add(None)
        self.shown_tail = "" if self.stopped else may_begin_stop
        cut_bytes, _ = self.unfinished
        self.replacement = "\ufffd" if cut_bytes and not self.stopped else ""
        return rest

    def resume(self) -> None:
        """Go on after `finish`. A stop string that was left out comes with the next text."""
        self.decoder.setstate(self.unfinished)
        self.first = self.held
        self.held = ""
        self.text = ""
        self.stopped = False


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Return where a text ends because of a stop string, or None if it has none.

    The text ends before the stop string that is complete first. If several are complete at once, it
    ends before the longest. So the end does not depend on how the text was cut into tokens.
    """
    first_end = len(text) + 1
    start = None
    for stop in sorted(stops, key=len, reverse=True):
        at = text.find(stop)
        if at >= 0 and at + len(stop) < first_end:
            first_end = at + len(stop)
            start = at
    return start


def unsafe_length(text: str, stops: Sequence[str]) -> int:
    """Return how many characters at the end of a text may be the start of a stop string."""
    longest = max(map(len, stops), default=1) - 1
    for n in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-n:]) for stop in stops):
            return n
    return 0
