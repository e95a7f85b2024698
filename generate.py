"""Continue a text with a trained model.

    python generate.py --prompt "def read_file("
    python generate.py --prompt-file start.txt --temperature 0 --stop "class "
    python generate.py --prompt "import" --prompt "from" --num-samples 3
    python generate.py --interactive

The text goes to stdout, everything else to stderr.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from io import TextIOWrapper
from operator import add
from pathlib import Path

from errors import UserError, exit_in_words, say
from gyre.device import DTYPE_NAMES, InferenceDtype, check_memory, resolve_compile
from gyre.load import Row, Trained, continued, load
from gyre.options import Parser, RunOptions
from model.config import RopeScaling, ScalingType
from model.sampling import Sampling

# What the errors of model/ call a value -> the option that sets it.
OPTION_NAMES = {
    "model.rope_scaling.factor": "--rope-factor", "model.rope_scaling": "--rope-scaling",
    "max_new_tokens": "--max-new-tokens", "num_samples": "--num-samples",
    **{field.name: f"--{field.name.replace('_', '-')}" for field in fields(Sampling)},
}


def main(argv: list[str] | None = None) -> None:
    """Exits with 2 for what the user got wrong, 130 after Ctrl-C, 141 where nobody reads on."""
    with exit_in_words():
        run(parse(argv))


def run(options: argparse.Namespace) -> None:
    """Continue what the options name. UserError where something does not fit."""
    prompts = list(options.prompt)
    if options.prompt_file:
        prompts.append(read_prompt(options.prompt_file))
    trained, compiled = open_run(options)
    if not options.interactive:
        say(speeds(write(trained, compiled, prompts, options), compiled))
        return
    say("Each line is continued on its own, up to the end of its text; --seed draws other texts, "
        "and Ctrl-D ends.")
    total = Speed()
    for line in read_lines():
        if not line:
            continue
        try:
            total += write(trained, compiled, [line], options)
        except UserError as error:  # about this line; the next one may be better
            say(f"error: {error}")
    if total.fed:
        say(speeds(total, compiled))


# --- what the user asks for -----------------------------------------------------------------------


@dataclass
class ModelOptions:
    """How the model runs, beside RunOptions."""

    run: str | None = None
    """A run: its folder, or its name in runs/. Unset: the newest one there."""
    dtype: InferenceDtype = "float32"
    """float32 draws the same text alone, in a batch and on another machine. bfloat16 keeps 8 bits
    and is up to twice as fast on some processors, slower on others; auto measures which is faster
    for so many samples, not compiled. int8, on a CPU, quantises the weights when it loads them,
    and what they are multiplied with: for many samples of larger models, with --compile, where the
    processor has AVX-512; without, int8 is a fraction as fast."""
    compile: bool = False
    """Compile decoding: up to a minute the first time, then, on a CPU, several times as many tokens
    a second for one sample, fewer times for more. That minute pays from some ten thousand tokens on
    for one sample, from some hundred thousand for eight and more."""
    rope_scaling: ScalingType | None = None
    """Slow the rotations of a RoPE model down, without training it again, so that it reads further
    than its training rows. Unset: as it was trained."""
    rope_factor: float | None = None
    """How many times the length of the training rows --rope-scaling is for."""


@dataclass
class PromptOptions:
    """What is continued."""

    prompt: list[str]
    """Text to continue; '' begins a document. Given several times: one batch."""
    prompt_file: str | None = None
    """Continue what is in this UTF-8 file, to its last newline; - is stdin."""
    interactive: bool = False
    """Continue one line of stdin after the other. Ctrl-D ends."""


@dataclass
class TextOptions:
    """How much is written."""

    stop: list[str]
    """End where the model writes this, and leave it out. Can be given several times."""
    max_new_tokens: int | None = None
    """Length of the continuation in tokens, the prompt not counted. Unset: 200, or what the context
    (model.max_positions) has room for behind the longest prompt."""
    num_samples: int = 1
    """Different continuations of every prompt."""
    seed: int | None = None
    """Another number, another text. Unset: 0."""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked, with `sampling` made of those of Sampling."""
    parser = Parser(__doc__)
    parser.add_fields(RunOptions, ModelOptions, heading="the model")
    parser.add_fields(PromptOptions, heading="the prompt")
    parser.add_fields(TextOptions, heading="the text")
    parser.add_fields(Sampling, heading="the choice of each token")
    options = parser.parse_args(argv)
    scaled = options.rope_scaling is not None
    given = [options.interactive, bool(options.prompt or options.prompt_file)]
    for wrong, message in (
        (scaled != (options.rope_factor is not None),
         "--rope-scaling TYPE and --rope-factor F belong together: give both"),
        (all(given),
         "--interactive reads its prompts from stdin: leave out --prompt and --prompt-file"),
        (not any(given),
         "nothing to continue: give --prompt TEXT, --prompt-file FILE or --interactive"),
        ("" in options.stop, "--stop is empty: every text would end before it begins"),
        (options.temperature == 0 and options.num_samples > 1,
         "--num-samples has no effect at --temperature 0: the samples would be the same"),
        (options.temperature == 0 and options.seed is not None,
         "--seed has no effect at --temperature 0, which draws nothing"),
        *((getattr(options, name) is not None and getattr(options, name) < 1,
           f"--{name.replace('_', '-')} must be at least 1, not {getattr(options, name)}")
          for name in ("num_samples", "max_new_tokens")),
    ):
        if wrong:
            raise UserError(message)
    options.seed = options.seed or 0
    with options_named():
        options.sampling = Sampling(**{f.name: getattr(options, f.name) for f in fields(Sampling)})
    return options


@contextmanager
def options_named() -> Iterator[None]:
    """Turn a ValueError of model/ into a UserError that names the option instead of the field."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        for name, option in OPTION_NAMES.items():
            message = message.replace(name, option)
        raise UserError(message) from None


def read_prompt(path: str) -> str:
    """The text of a file, or of stdin for "-": no newline translated, none stripped."""
    # One that a shell has made, for <(command), has a writer; another one may never have any.
    if Path(path).is_fifo() and not path.startswith(("/dev/fd/", "/proc/")):
        raise UserError(f"{path} is a named pipe: give - and send the text to stdin")
    raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    name = "stdin" if path == "-" else path
    if not raw:
        raise UserError(f"{name} is empty: there is nothing to continue")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise UserError(f"{name} is not UTF-8: byte {error.start} is 0x{byte:02x}") from None


def read_lines() -> Iterator[str]:
    """The lines of stdin, without their newline, until Ctrl-D or Ctrl-C. On a terminal they can be
    edited, and the arrow keys bring earlier ones back."""
    if isinstance(sys.stdin, TextIOWrapper):  # the tokenizer refuses what is not UTF-8
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    with suppress(ImportError):
        import readline  # noqa: F401  input() uses it from then on, where there is one
    terminal = sys.stdin.isatty() and sys.stdout.isatty()  # else a prompt would be in the results
    while True:
        try:
            yield input("> ") if terminal else input()
        except (EOFError, KeyboardInterrupt):
            return


# --- text -----------------------------------------------------------------------------------------


def open_run(options: argparse.Namespace) -> tuple[Trained, bool]:
    """The run, and whether its decoding is compiled. Says on stderr what it is."""
    scaling, scaled, compiled, how = None, "", False, ""
    with options_named():
        if options.rope_scaling:
            scaling = RopeScaling(options.rope_scaling, options.rope_factor)
            scaled = f" scaled by {scaling.type} {scaling.factor:g}"
        prompts = max(1, len(options.prompt) + bool(options.prompt_file))
        trained = load(options.run, options.checkpoint, options.device, options.dtype, scaling,
                       rows=prompts * options.num_samples)
    if options.compile:
        compiled, why = resolve_compile(True, trained.device, trained.dtype, 0)
        how = f", {why}"
    dtype = DTYPE_NAMES[trained.dtype] if options.dtype == "auto" else options.dtype
    newest = "" if options.run else " (the newest run)"
    say(f"{trained.run.path}{newest}: {options.checkpoint} weights, "
        f"{trained.config.model.position} positions{scaled}, {trained.device}, "
        f"{dtype}{how}")
    return trained, compiled


@dataclass
class Speed:
    """Tokens and seconds of reading prompts, and of decoding."""

    fed: int = 0
    prefill: float = 0.0
    decoded: int = 0
    decode: float = 0.0

    def __add__(self, other: "Speed") -> "Speed":
        return Speed(*map(add, astuple(self), astuple(other)))


def write(
    trained: Trained, compiled: bool, prompts: list[str], options: argparse.Namespace
) -> Speed:
    """Print every prompt with its continuations: one as it comes, several at the end. Says what a
    reader would wonder about: a text that ends early, or is longer than what was trained on."""
    ids = [trained.encode(prompt) for prompt in prompts]
    longest, new_tokens = max(map(len, ids)), options.max_new_tokens
    if new_tokens is None:
        new_tokens = trained.new_tokens(longest)
    limit = trained.model.position.cache_limit
    if longest + new_tokens > limit:
        say(f"note: no cache, so every token takes longer: past {limit} tokens this scaling turns "
            "all keys anew for every length" + compiled * ", and decoding is not compiled")
    model = trained.model.config  # for keys and values of all tokens
    size = 2 * model.n_layers * model.n_kv_heads * model.head_dim * (longest + new_tokens)
    size *= len(prompts) * options.num_samples * trained.dtype.itemsize
    check_memory(trained.device, size, "the cache of so many samples",
                   "lower --num-samples or --max-new-tokens")
    repeated = [prompt for prompt in prompts for _ in range(options.num_samples)]
    rows = [Row(prompt, trained.tokenizer, options.stop) for prompt in repeated]
    streamed, times = len(rows) == 1, [time.perf_counter()]

    def on_token(row: int, token: int) -> bool:
        times.append(time.perf_counter())
        text = rows[row].push(token)
        if streamed:
            print(text, end="", flush=True)
        return rows[row].stopped

    with options_named():
        new = continued(
            trained.model, trained.tokenizer, ids, options.sampling, max_new_tokens=new_tokens,
            num_samples=options.num_samples, seed=options.seed, compile=compiled, on_token=on_token,
        )
    times.append(time.perf_counter())
    for i, row in enumerate(rows):
        rest = row.finish()
        prompt, sample = divmod(i, options.num_samples)
        heading = f"=== prompt {prompt + 1}, sample {sample + 1} ==="
        print(rest if streamed else f"{heading}\n{row.text}", flush=True)
    lengths = [len(x) for x in ids for _ in range(options.num_samples)]
    ended = sum(len(x) < new_tokens and not row.stopped for x, row in zip(new, rows, strict=True))
    if ended:
        texts = "its text here" if streamed else f"{ended} of {len(rows)} texts by itself"
        other = f"--seed {options.seed + 1}" if options.temperature else "--temperature 0.8"
        say(f"note: the model ended {texts}: {other} draws another")
    longest, seq_len = max(map(add, lengths, map(len, new))), trained.config.data.seq_len
    if longest > seq_len:
        say(f"note: this text has {longest} tokens; the model was trained on rows of {seq_len} "
            "(data.seq_len), and past that it may get worse")
    # The first forward draws a token for the rows whose prompt it has read to the end.
    fed, decoded = min(lengths) * len(ids), len(times) - 2 - lengths.count(min(lengths))
    return Speed(fed, times[1] - times[0], max(0, decoded), times[-1] - times[1])


def speeds(speed: Speed, compiled: bool) -> str:
    """In words."""
    said = f"prefill: {speed.fed} tokens in {speed.prefill:.3f} s "
    said += f"({speed.fed / speed.prefill:.0f} tokens/s)"
    if speed.decoded > 0:
        said += f"; decode: {speed.decoded} tokens in {speed.decode:.3f} s "
        said += f"({speed.decoded / speed.decode:.0f} tokens/s"
        said += f"{', compilation included' * compiled})"
    return said


if __name__ == "__main__":
    main()
