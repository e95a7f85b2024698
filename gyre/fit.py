"""Fit the numbers of a configuration to its text: what `auto` stands for.

A configuration file has the numbers that suit its own text. If a later file or the command line
names another text, they become limits, and what suits that text is chosen below them; only
data.val_fraction may become larger. A number that is given together with the text, or after it, is
kept.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.sources import AUTO, SOURCES, TEXT_CHOICE, TEXT_OPTIONS
from errors import UserError
from gyre.options import OPTIONS, Config, TrainConfig, flatten, make_config, named_source
from model.encodings import POSITIONS

Layer = dict[str, Any]
"""Values by dotted name."""

# Numbers that may be chosen. train.minutes chooses those that depend on the steps.
FITTED_TO_STEPS = ("train.steps", "optim.warmup_steps", "train.eval_interval")
FITTED = ("data.vocab_size", "data.seq_len", "data.val_fraction", *FITTED_TO_STEPS)

# Rows are shortened until an epoch has this many batches: with longer rows, a training on a short
# text would take too few steps. They keep SHORTEST_ROW tokens, because the context of a model is
# four times its rows.
BATCHES = 4
SHORTEST_ROW = 32
WARMUP_SHARE = 0.1  # of the steps
VALIDATIONS = 3  # in a training of fitted length, if its steps allow so many
# With this many validation tokens, there are fewer validations if they would otherwise take more
# than this share of the time of the steps.
MANY_VAL_TOKENS = 50_000
VALIDATION_SHARE = 0.25


@dataclass(frozen=True)
class Draft:
    """A configuration in which numbers may still depend on the text."""

    layers: Sequence[Layer]
    """The layers that were read, without the values that are `auto`. The limit of such an option is
    its number in an earlier layer, or its default."""
    fitted: frozenset[str]
    """The options that are chosen for the text, or for train.minutes."""
    config: Config
    """The configuration of the layers, with each number that is chosen later at its limit."""
    shortens_samples: bool = False
    """Whether samples are shortened to fit into the context of shorter rows."""

    @classmethod
    def of_final(cls, config: Config) -> "Draft":
        """Return the draft of a configuration in which nothing is left to choose."""
        return cls((), frozenset(), config)

    def fit(self, manifest: Mapping[str, Any]) -> tuple[Config, dict[str, int | float]]:
        """Return the configuration for the prepared text of `manifest`, and what was chosen.

        The choices are numbers by dotted name.
        """
        limits = self.config
        if not self.fitted:
            return limits, {}
        train_tokens = manifest["train"]["tokens"]
        numbers: dict[str, int | float] = {}
        if "data.vocab_size" in self.fitted:
            numbers["data.vocab_size"] = manifest["vocab_size"]
        seq_len = limits.data.seq_len
        if "data.seq_len" in self.fitted:
            seq_len = fit_row(seq_len, train_tokens, limits.train.batch_size)
            numbers["data.seq_len"] = seq_len
        configured = limits.data.val_fraction
        held_out = manifest.get("val_fraction", configured)  # it is there only if it was fitted
        if "data.val_fraction" in self.fitted and held_out != configured:
            numbers["data.val_fraction"] = held_out
        if limits.train.minutes is None:  # else the steps are chosen once their rate is measured
            steps = limits.train.steps
            step_tokens = limits.train.batch_size * seq_len
            if "train.steps" in self.fitted:
                steps = fit_steps(steps, train_tokens, step_tokens)
                numbers["train.steps"] = steps
            numbers |= self.fit_to_steps(steps, step_tokens, manifest["val"]["tokens"])
        chosen = dict(numbers)
        if self.shortens_samples:  # not named in `chosen`, because it follows from the rows
            # With 0, because the number of the layers may not fit into the context of these rows.
            without_samples = make_config(*self.layers, numbers, {"train.sample_tokens": 0})
            half = without_samples.model.max_positions // 2  # the other half is for the prompt
            numbers["train.sample_tokens"] = min(limits.train.sample_tokens, half)
        return make_config(*self.layers, numbers), chosen

    def fit_to_steps(self, steps: int, step_tokens: int, val_tokens: int) -> dict[str, int]:
        """Return the options that follow from the number of steps, as far as they are fitted.

        A step takes `step_tokens`, and a validation `val_tokens`.
        """
        limits = self.config
        warmup_steps = round(WARMUP_SHARE * steps)
        n_validations = VALIDATIONS
        if val_tokens >= MANY_VAL_TOKENS:
            # Forwards and backwards, a token takes three times as long as forwards only.
            affordable = int(VALIDATION_SHARE * 3 * steps * step_tokens / val_tokens)
            n_validations = max(1, min(VALIDATIONS, affordable))
        eval_interval = math.ceil(steps / n_validations)
        numbers = {
            "optim.warmup_steps": min(limits.optim.warmup_steps, warmup_steps),
            "train.eval_interval": min(limits.train.eval_interval, eval_interval),
        }
        return {name: number for name, number in numbers.items() if name in self.fitted}


def make_draft(*layers: Mapping[str, Any]) -> Draft:
    """Return the configuration of these layers, each over the one before it.

    If a layer names another text, the numbers of the layers before it become limits. train.minutes
    makes limits of the numbers that depend on the steps. Three options are adjusted to others:

    - A warm-up is fitted to the steps of a later layer if it is longer, or if these are `auto`.
    - Samples that do not fit into model.max_positions of a later layer take half of it.
    - A row length that is to be fitted is at most model.max_positions, if that is given. With
      learned positions it is exactly that, and not fitted.
    """
    reading = Layers()
    for layer in layers:
        reading.add(layer)
    values = reading.values
    fitted = reading.fitted | reading.timed
    adjusted: Layer = {}  # over all layers that were read
    steps = values["train.steps"]
    warmup_steps = values["optim.warmup_steps"]
    steps_come_later = reading.set_by["train.steps"] > reading.set_by["optim.warmup_steps"]
    may_be_too_long = warmup_steps > steps or "train.steps" in fitted
    if may_be_too_long and steps_come_later:
        fitted.add("optim.warmup_steps")
    # With train.minutes, how many steps there are is not known yet.
    if "optim.warmup_steps" in fitted and values["train.minutes"] is None:
        # Fewer than 0 steps are refused later, by an error that names train.steps.
        adjusted["optim.warmup_steps"] = min(warmup_steps, max(0, steps))
    context = values["model.max_positions"]
    if "data.seq_len" in fitted and context is not None:
        encoding = POSITIONS.get(values["model.position"])  # an unknown one is refused later
        if encoding is not None and not encoding.extrapolates:
            # Shorter rows would not train its last positions, which is refused.
            fitted.discard("data.seq_len")
            adjusted["data.seq_len"] = context
        elif values["data.seq_len"] > context:
            adjusted["data.seq_len"] = context
    shortens_samples = reading.shortens_samples and "data.seq_len" in fitted
    complete = [*reading.kept, adjusted]
    return Draft(complete, frozenset(fitted), make_config(*complete), shortens_samples)


@dataclass
class Layers:
    """What the layers so far have said, while `make_draft` reads one after the other."""

    values: dict[str, Any] = field(
        default_factory=lambda: {name: option.default for name, option in OPTIONS.items()})
    """What each option is so far. Of texts only the last one that was named is in it."""
    kept: list[Layer] = field(default_factory=list)
    """The layers, without the values that are `auto`."""
    fitted: set[str] = field(default_factory=set)
    """The options that are chosen for the text."""
    timed: set[str] = field(default_factory=set)
    """The options that are chosen for train.minutes, if a layer sets that."""
    set_by: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FITTED, -1))
    """The number of the layer that an option is from."""
    shortens_samples: bool = False

    def add(self, layer: Mapping[str, Any]) -> None:
        """Read the next layer. UserError if it says both train.minutes and train.steps."""
        options = dict(flatten(layer))
        names_text = any(name in options and options[name] != self.values[name]
                         for name in TEXT_CHOICE)
        if names_text or options.get("data.seq_len") == AUTO:
            self.shortens_samples = True
        if "train.sample_tokens" in options:
            self.shortens_samples = False
        if names_text:
            self.fitted.update(FITTED)
            # A prompt of another text shows nothing. Samples then continue the first words of this.
            options.setdefault("train.sample_prompt", TrainConfig.sample_prompt)
        self.fit_samples(options)
        self.choose_time(options)
        self.note_fitted(options)
        self.values |= options
        self.forget_other_texts(options)
        self.kept.append(options)

    def fit_samples(self, options: dict[str, Any]) -> None:
        """Let samples of earlier layers take half of the context that a layer asks for, if they do
        not fit into it."""
        context = options.get("model.max_positions")
        if context is None or "train.sample_tokens" in options:
            return
        if self.values["train.sample_tokens"] >= context > 0:
            options["train.sample_tokens"] = context // 2

    def forget_other_texts(self, options: Mapping[str, Any]) -> None:
        """Let the text that a layer names, if it does, be the only one in `values`."""
        source = named_source(options)
        if source not in SOURCES:
            return
        self.values["data.source"] = source
        for name in TEXT_OPTIONS - {"data.source"}:
            if name.removeprefix("data.") not in SOURCES[source].options:
                self.values[name] = OPTIONS[name].default

    def choose_time(self, options: dict[str, Any]) -> None:
        """Let the steps or the minutes of a layer replace those of earlier layers."""
        has_steps = options.get("train.steps", AUTO) != AUTO
        if has_steps and options.get("train.minutes") is not None:
            raise UserError("train.minutes chooses train.steps: leave one of them out")
        if has_steps:
            options["train.minutes"] = None
        if "train.minutes" in options:
            self.timed = set() if options["train.minutes"] is None else set(FITTED_TO_STEPS)

    def note_fitted(self, options: dict[str, Any]) -> None:
        """Note which numbers of a layer are to be fitted, and take their `auto` out of it."""
        for name in FITTED:
            if name not in options:
                continue
            self.set_by[name] = len(self.kept)
            self.timed.discard(name)
            if options[name] == AUTO:
                self.fitted.add(name)
                del options[name]
            else:
                self.fitted.discard(name)


def fit_row(limit: int, train_tokens: int, batch_size: int) -> int:
    """Return the length of a row: `limit`, halved until it suits a training text of so many tokens.

    A text that is shorter than the shortest row is one row.
    """
    seq_len = limit
    while seq_len >= 2 * SHORTEST_ROW and train_tokens < BATCHES * batch_size * seq_len:
        seq_len //= 2
    return max(1, min(seq_len, train_tokens - 1))


def fit_steps(limit: int, train_tokens: int, step_tokens: int) -> int:
    """Return the steps of a training: so many epochs as suit the text, at most `limit` steps.

    More epochs would learn a short text by heart and get worse at any other. Fitted by hand to the
    validation losses of small.yaml's model (docs/speed.md): 10 epochs of 10,000 tokens, 7 of
    100,000, 5 of 600,000. A text of one character has no token for training, and is refused later.
    """
    epochs = 48 * max(1, train_tokens)**-0.17
    return min(limit, max(1, round(epochs * train_tokens / step_tokens)))
