"""Continue a text with a trained model.

    python generate.py --prompt "def read_file("
    python generate.py --prompt-file start.txt --temperature 0 --stop "class "
    python generate.py --prompt "import" --prompt "from" --num-samples 3
    python generate.py --interactive

The text goes to stdout, everything else to stderr.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import torch

from data.tokenizer import Stream, Tokenizer, open_tokenizer
from errors import UserError, exit_in_words, say
from gyre.cli import Parser, add_weights_and_device, load_file
from gyre.config import Config
from gyre.device import resolve_compile, resolve_device
from gyre.rundir import RunDir
from gyre.trained import load_model
from model.config import ModelConfig
from model.generation import generate
from model.rope import RopeScaling, ScalingType
from model.sampling import Sampling

NEW_TOKENS = 200  # unless the user asks for a number, or the context has less room


def main(argv: list[str] | None = None) -> None:
    with exit_in_words():
        try:
            run(parse(argv))
        except KeyboardInterrupt:
            say("")
            sys.exit(130)
        except BrokenPipeError:  # the reader has what it wanted (`| head`)
            sys.exit(141)


# --- what the user asks for -----------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument_group("the model").add_argument
    add("--run", metavar="FOLDER", help="Folder of a run. Default: the newest one in runs/.")
    add_weights_and_device(add)
    add(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="float32 draws the same text alone, in a batch and on another machine. bfloat16 keeps "
        "8 bits and is up to twice as fast where the hardware has it. Default: float32.",
    )
    add(
        "--compile",
        action="store_true",
        help="Compile decoding: up to a minute the first time, then, on a CPU, several times as "
        "many tokens a second for one sample, fewer times for more. That minute pays from some ten "
        "thousand tokens on for one sample, from some hundred thousand for eight and more.",
    )
    add(
        "--rope-scaling",
        choices=get_args(ScalingType),
        help="Slow the rotations of a RoPE model down, without training it again, so that it reads "
        "further than its training rows. Default: as it was trained.",
    )
    add(
        "--rope-factor",
        type=float,
        metavar="F",
        help="How many times the length of the training rows --rope-scaling is for.",
    )
    add = parser.add_argument_group("the prompt").add_argument
    add(
        "--prompt",
        action="append",
        default=[],
        metavar="TEXT",
        help="Text to continue. Given several times: one batch.",
    )
    add(
        "--prompt-file",
        metavar="FILE",
        help="Continue what is in this UTF-8 file, to its last newline; - is stdin.",
    )
    add(
        "--interactive",
        action="store_true",
        help="Continue one line of stdin after the other. Ctrl-D ends.",
    )
    add = parser.add_argument_group("the text").add_argument
    add(
        "--max-new-tokens",
        type=int,
        metavar="N",
        help="Length of the continuation in tokens, the prompt not counted. Default: "
        f"{NEW_TOKENS}, or what the context (model.max_positions) has room for.",
    )
    add(
        "--num-samples",
        type=int,
        default=1,
        metavar="N",
        help="Different continuations of every prompt. Default: 1.",
    )
    add(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="End where the model writes this, and leave it out. Can be given several times.",
    )
    add(
        "--seed", type=int, default=0, metavar="N", help="Another number, another text. Default: 0."
    )
    add = parser.add_argument_group("the choice of each token").add_argument
    add(
        "--temperature",
        type=float,
        default=Sampling.temperature,
        metavar="T",
        help="Below 1 the likely tokens become likelier, above 1 the unlikely ones; 0 always takes "
        f"the likeliest. Default: {Sampling.temperature}.",
    )
    add("--top-k", type=int, metavar="K", help="Choose among the K likeliest tokens. Default: all.")
    add(
        "--top-p",
        type=float,
        metavar="P",
        help="Choose among the likeliest tokens that together reach probability P. Default: all.",
    )
    add(
        "--min-p",
        type=float,
        metavar="P",
        help="Choose among tokens at least P times as likely as the likeliest. Default: all.",
    )
    add(
        "--repetition-penalty",
        type=float,
        default=Sampling.repetition_penalty,
        metavar="X",
        help="Above 1, make what the text holds already, prompt included, less likely. Default: 1.",
    )
    options = parser.parse_args(argv)

    if (options.rope_scaling is None) != (options.rope_factor is None):
        raise UserError("--rope-scaling TYPE and --rope-factor F belong together: give both")
    if options.interactive and (options.prompt or options.prompt_file):
        raise UserError(
            "--interactive reads its prompts from stdin: leave out --prompt and --prompt-file"
        )
    if not (options.interactive or options.prompt or options.prompt_file):
        raise UserError(
            "nothing to continue: give --prompt TEXT, --prompt-file FILE or --interactive"
        )
    if "" in options.prompt:
        raise UserError("--prompt is empty: there is nothing to continue")
    if "" in options.stop:
        raise UserError("--stop is empty: every text would end before it begins")
    if options.temperature == 0 and options.num_samples > 1:
        raise UserError(
            "--num-samples has no effect at --temperature 0: the samples would be the same"
        )
    return options


@contextmanager
def in_options() -> Iterator[None]:
    """What `model/` refuses was said on the command line: name the option and not the argument."""
    names = [field.name for field in fields(Sampling)] + ["max_new_tokens", "num_samples"]
    options = {name: "--" + name.replace("_", "-") for name in names}
    options |= {
        "model.rope_scaling.factor": "--rope-factor",
        "model.rope_scaling": "--rope-scaling",
    }
    try:
        yield
    except ValueError as error:
        pattern = rf"\b({'|'.join(map(re.escape, options))})\b"
        message = re.sub(pattern, lambda name: options[name[0]], str(error))
        raise UserError(message) from None


def read_prompt(path: str) -> str:
    """The file as it is: no newline translated, none stripped."""
    raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    name = "stdin" if path == "-" else path
    if not raw:
        raise UserError(f"{name} is empty: there is nothing to continue")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}"
        ) from None


def read_lines() -> Iterator[str]:
    """The lines of stdin, without their newline, until Ctrl-D or Ctrl-C."""
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # the tokenizer refuses those
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            line = ""
        if not line:
            return
        yield line.removesuffix("\n")


# --- the model ------------------------------------------------------------------------------------


def scale(config: Config, type: ScalingType, factor: float) -> ModelConfig:
    """The model of a run, its rotations slowed and its context extended to what that is meant for.

    Raises UserError where the run has none, or was trained with other ones.
    """
    if config.model.rope_scaling is not None:
        raise UserError(
            f"this run was trained with model.rope_scaling {config.model.rope_scaling.type}: "
            "--rope-scaling would take it away"
        )
    with in_options():
        scaling = RopeScaling(type, factor, original_positions=config.data.seq_len)
        reach = max(config.model.max_positions, scaling.reach)
        return replace(config.model, rope_scaling=scaling, max_positions=reach)


class Row:
    """The text of one row, its prompt first: tokens in, what can be shown out.

    Held back are the bytes of an unfinished character and what may be the start of a stop string.
    """

    def __init__(self, prompt: str, tokenizer: Tokenizer, stops: list[str]):
        self.stopped = False
        self._stream = Stream(tokenizer)
        self._stops = stops
        self._prompt = prompt
        self._held = ""

    def push(self, token: int) -> str:
        """More text; `stopped` is set when a stop string was complete, and cut off."""
        return self._release(self._stream.push(token))

    def finish(self) -> str:
        """The rest, once no token follows."""
        text = self._release(self._stream.flush())
        return text if self.stopped else text + self._held

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        # Of the stop strings that are complete first, the longest: where the text ends must not
        # depend on how it was cut into tokens.
        ends = [(text.index(stop) + len(stop), -len(stop)) for stop in self._stops if stop in text]
        if ends:
            self.stopped = True
            end, length = min(ends)
            safe = end + length
        else:
            safe = len(text) - max((overlap(text, stop) for stop in self._stops), default=0)
        shown, self._held = self._prompt + text[:safe], text[safe:]
        self._prompt = ""
        return shown


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)


class Writer:
    """A trained model with all that it takes to answer a list of prompts."""

    def __init__(self, options: argparse.Namespace):
        with in_options():
            names = [field.name for field in fields(Sampling)]
            self.sampling = Sampling(**{name: getattr(options, name) for name in names})
        device = resolve_device(options.device)
        run = RunDir.open(options.run)
        config = load_file(run.path / "config.yaml")
        self.tokenizer = open_tokenizer(run.path)
        if self.tokenizer.vocab_size != config.data.vocab_size:
            raise UserError(
                f"the tokenizer in {run.path} has {self.tokenizer.vocab_size} pieces, and its "
                f"config.yaml says {config.data.vocab_size} (data.vocab_size): they do not belong "
                "together"
            )
        model, scaled = config.model, ""
        if options.rope_scaling:
            model = scale(config, options.rope_scaling, options.rope_factor)
            scaled = f" scaled by {options.rope_scaling} {options.rope_factor:g}"
        self.model = load_model(model, run.load_weights(options.checkpoint))
        self.model.to(device, getattr(torch, options.dtype))
        compiled = ""
        self.compiled = False
        if options.compile:
            self.compiled, why = resolve_compile(True, device, 0)
            compiled = f", {why}"
        self.seq_len = config.data.seq_len
        self.options = options
        say(
            f"{run.path}{'' if options.run else ' (the newest run)'}: {options.checkpoint} "
            f"weights, {model.position} positions{scaled}, {device}, {options.dtype}{compiled}"
        )

    def write(self, prompts: list[str]) -> None:
        """Show every prompt with its continuations: one as it comes, several at the end."""
        options = self.options
        start = self.tokenizer.prefix_ids
        ids = [start + self.tokenizer.encode(prompt) for prompt in prompts]
        longest = max(map(len, ids))
        new_tokens = options.max_new_tokens
        if new_tokens is None:
            room = self.model.config.max_positions - longest
            new_tokens = max(1, min(NEW_TOKENS, room))  # 1 where there is none: `generate` refuses
        limit = self.model.position.cache_limit
        use_cache = longest + new_tokens <= limit
        if not use_cache:
            say(
                f"note: no cache, so every token takes longer: past {limit} tokens this scaling "
                "turns all keys anew for every length"
                + (", and decoding is not compiled" if self.compiled else "")
            )
        rows = [
            Row(prompt, self.tokenizer, options.stop)
            for prompt in prompts
            for _ in range(options.num_samples)
        ]
        texts = [""] * len(rows)
        times = [time.perf_counter()]

        def add(row: int, text: str) -> None:
            if len(rows) == 1:
                print(text, end="", flush=True)
            else:
                texts[row] += text

        def on_token(row: int, token: int) -> bool:
            times.append(time.perf_counter())
            add(row, rows[row].push(token))
            return rows[row].stopped

        with in_options():
            new = generate(
                self.model,
                ids,
                self.sampling,
                max_new_tokens=new_tokens,
                eos_id=self.tokenizer.eos_id,
                num_samples=options.num_samples,
                seed=options.seed,
                use_cache=use_cache,
                compile=self.compiled and use_cache,
                on_token=on_token,
            )
        times.append(time.perf_counter())
        for i, row in enumerate(rows):
            add(i, row.finish())
        if len(rows) == 1:
            print(flush=True)
        for i, text in enumerate(texts if len(rows) > 1 else []):
            prompt, sample = divmod(i, options.num_samples)
            print(f"=== prompt {prompt + 1}, sample {sample + 1} ===\n{text}", flush=True)
        self._report([len(x) for x in ids for _ in range(options.num_samples)], new, times)

    def _report(self, prompts: list[int], new: list[list[int]], times: list[float]) -> None:
        """Speeds, and whether the text is longer than what the model was trained on. `prompts`: the
        length of every row's; `times`: of the start, of every token, and of the end."""
        common = min(prompts)
        prefill, decode = times[1] - times[0], times[-1] - times[1]
        # The first forward draws a token for the rows whose prompt it has read to the end.
        decoded = max(0, len(times) - 2 - prompts.count(common))
        fed = common * len(prompts)
        speeds = f"prefill: {fed} tokens in {prefill:.3f} s ({fed / prefill:.0f} tokens/s)"
        if decoded:
            rate = f"{decoded / decode:.0f} tokens/s"
            compiling = ", compilation included" if self.compiled else ""
            speeds += f"; decode: {decoded} tokens in {decode:.3f} s ({rate}{compiling})"
        say(speeds)
        longest = max(n + len(row) for n, row in zip(prompts, new, strict=True))
        if longest > self.seq_len:
            say(
                f"note: this text has {longest} tokens; the model was trained on rows of "
                f"{self.seq_len} (data.seq_len), and past that it may get worse"
            )


def run(options: argparse.Namespace) -> None:
    sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character shows a ?
    prompts = list(options.prompt)
    if options.prompt_file:
        prompts.append(read_prompt(options.prompt_file))
    writer = Writer(options)
    if not options.interactive:
        writer.write(prompts)
        return
    for line in read_lines():
        if not line:
            continue
        try:
            writer.write([line])
        except UserError as error:  # this line's fault: the next one may be better
            say(f"error: {error}")


if __name__ == "__main__":
    main()
