"""Continue a text with a trained model.

    python generate.py --prompt "def read_file("
    python generate.py --prompt-file start.txt --temperature 0 --stop "class "
    python generate.py --prompt "import" --prompt "from" --num-samples 3
    python generate.py --interactive --prompt "class Stack:"

Texts go to stdout, several of them under a heading each. Everything else goes to stderr.
"""

import interrupts  # first: from here on, Ctrl-C shows no traceback

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

from errors import (
    Range,
    UserError,
    bar_interval,
    busy_load,
    hide_controls,
    importing,
    is_terminal,
    note_backslash_n,
    report_errors,
    say,
)

with importing(__name__):
    import torch
    from torch import Tensor
    from tqdm import tqdm

    from data.readers import decode, reading
    from formats.chat import Chat, chat_template, encode_chat, read_chat
    from gyre.compiled import make_decoding_step
    from gyre.compute import DTYPE_NAMES, InferenceDtype, int8_rates, keep_freed_memory
    from gyre.estimate import format_rate
    from gyre.load import NEW_TOKENS, Row, Trained, WeightOptions, end_ids, load, stream
    from gyre.parser import Parser
    from gyre.rundir import RunDir, is_foreign
    from model.config import RopeScaling, ScalingType
    from model.generation import Batch, NextLogits
    from model.kernels import max_float_rows
    from model.sampling import Sampling
    from model.transformer import derive_seed

PROMPT_TOKENS = 16  # the length of a prompt for which the speed of int8 is measured
# What interactive sessions say of their lines.
LINES_ARE_PROMPTS = "Each line is a prompt of its own"
LINES_ARE_TURNS = "Each line is what you say next"
COMMANDS = {
    ":more": "go on with the last text",
    ":new": "in a conversation (--chat, and one sample), begin a new one",
    ":seed N": "draw the texts of another seed, N",
    ":help": "print this",
    "::TEXT": "the prompt :TEXT",
    ":q": "end, as quit, exit and Ctrl-D do",
}
COMMAND_USES = [use for use in COMMANDS if use != "::TEXT"]  # ::TEXT is a prompt
COMMAND_WORDS = [use.split()[0] for use in COMMAND_USES]
ENDS = ("quit", "exit", ":q")  # lines that end an interactive session, as Ctrl-D does


def main(argv: list[str] | None = None) -> None:
    """Exits with 2 for what the user got wrong, and 141 if the output is closed.

    Ctrl-C exits with 130. At the prompt of an interactive session it ends as Ctrl-D does.
    """
    with report_errors():
        options = parse(argv)
        trained, chat = load_trained(options)
        if trained.compute.device.type == "cpu":
            keep_freed_memory()
        with trained.compute.active():
            if options.interactive:
                speed = converse(trained, chat, options)
            else:
                ids = encode_prompts(trained, options.prompt, chat)
                rows = make_rows(trained, chat, options.prompt, options)
                speed = generate_texts(trained, ids, rows, options, options.seed).speed
        speed.print_rates()


@dataclass
class Speed:
    """How fast texts were written: reading prompts (prefill), and what follows (decode).

    Of prompts of different lengths, prefill reads as many tokens of each as the shortest has. The
    rest of a longer one is read in decode. That time counts as decode, but these tokens are not
    counted, so that the rate of decode is lower than that of writing alone.
    """

    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decoded_tokens: int = 0
    decoding_seconds: float = 0.0

    def add(self, other: "Speed") -> None:
        """Count the texts of `other` too."""
        self.prefill_tokens += other.prefill_tokens
        self.prefill_seconds += other.prefill_seconds
        self.decoded_tokens += other.decoded_tokens
        self.decoding_seconds += other.decoding_seconds

    def print_rates(self) -> None:
        """Print both parts on stderr, as far as there was one."""
        for part, tokens, seconds in (
            ("prefill", self.prefill_tokens, self.prefill_seconds),
            ("decode", self.decoded_tokens, self.decoding_seconds),
        ):
            if tokens:
                noun = "token" if tokens == 1 else "tokens"
                say(f"{part}: {tokens} {noun} in {seconds:.3f} s ({tokens / seconds:.0f} tokens/s)")


@dataclass(frozen=True)
class Written:
    """What `generate_texts` has made, besides what it has printed."""

    new_tokens: list[list[int]]
    """Those of each row. `Session` uses those of the first."""
    speed: Speed
    """Without the time of compiling."""
    decoding_step: NextLogits
    """The function that computed the logits."""


# --- what the user asks for -----------------------------------------------------------------------


@dataclass
class ModelOptions:
    """Which run, and how its model computes."""

    run: str | None = None
    """A run: its folder, or its name in runs/. Or a folder of Hugging Face's or Meta's, or a GGUF:
    these are converted first, as by export.py --to run. Unset: the newest run in runs/."""
    dtype: InferenceDtype = "float32"
    """In float32 a text is the same alone, in a batch and on another machine. bfloat16 keeps 8
    significant bits of a number, and is up to twice as fast on some processors, slower on others.
    auto chooses one of the two: on a CPU it measures which of them is faster for this number of
    samples, without compiling, and on CUDA it takes bfloat16 from capability 8.0 on. There is no
    float16, because its range is too small for some weights. int8, on a CPU only, quantises
    weights, and their inputs where that is faster. It pays for larger models, with --compile. Where
    its products are slower than float32's, a note with both rates says so."""
    compile: bool = False
    """Compile decoding before the first text, and on a CPU the reading of prompts of 128 tokens or
    more. Each takes up to some minutes the first time, which tokens/s leave out. On a CPU the
    outcome is kept for later starts (in ~/.cache/gyre), and one sample is several times as fast;
    with more samples the gain is smaller."""
    rope_scaling: ScalingType | None = None
    """Slow the rotations of a RoPE model down, without training it again, so that it reads further
    than its training rows. Unset: as it was trained."""
    rope_factor: Annotated[float | None, Range(ge=1, le=1e6)] = None
    """The length to reach with --rope-scaling, as a multiple of that of the training rows."""


@dataclass
class TextOptions:
    """What is continued, and how far.

    A list is an option that can be given several times, or not at all.
    """

    prompt: list[str]
    """Text to continue, without a space at its end, because pieces begin with one; '' begins a
    document. Given several times: one batch."""
    stop: list[str]
    """End where the model writes this, and leave it out: a text, or a special token such as
    <|im_end|>. Can be given several times."""
    prompt_file: str | None = None
    """Continue the text in this UTF-8 file, its last newline included; - is stdin."""
    chat: bool = False
    """Put every prompt into the chat template of the model's folder, as what a user says, and print
    the answer only. The name of a special token in a prompt becomes that token, as in
    transformers."""
    interactive: bool = False
    """Continue one line of stdin after the other, each with random numbers of its own. A --prompt
    comes first. With --chat and one sample, the lines are one conversation. The line :more goes on
    with the last text, :seed N changes the seed, and :help lists all commands. quit, exit, :q or
    Ctrl-D ends."""
    max_new_tokens: Annotated[int | None, Range(ge=1)] = None
    """Length of the continuation in tokens, the prompt not counted. Unset: 200, or what the context
    (model.max_positions) has room for behind the longest prompt."""
    num_samples: Annotated[int, Range(ge=1, le=1_000_000)] = 1
    """Different continuations of every prompt."""
    seed: int = 0
    """Seed of the sampling: another number gives another text."""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options, checked: all prompts in `prompt`, and a Sampling in `sampling`."""
    options = Parser(__doc__, WeightOptions, ModelOptions, TextOptions, Sampling).parse_args(argv)
    prompted = bool(options.prompt) or options.prompt_file is not None
    if (options.rope_scaling is None) != (options.rope_factor is None):
        raise UserError("--rope-scaling TYPE and --rope-factor F belong together: give both")
    if not options.interactive and not prompted:
        raise UserError("give --prompt TEXT or --prompt-file FILE, or else --interactive, which "
                        "reads stdin")
    if options.interactive and options.prompt_file == "-":
        raise UserError("--prompt-file - reads all of stdin, which leaves none to --interactive: "
                        "give the prompt by --prompt TEXT")
    if "" in options.stop:
        raise UserError("--stop '' is in every text: leave it out")
    options.sampling = Sampling(**{f.name: getattr(options, f.name) for f in fields(Sampling)})
    options.sampling.check()
    note_backslash_n("--prompt", options.prompt)
    note_backslash_n("--stop", options.stop)
    note_files(options.prompt)
    if options.prompt_file is not None:
        options.prompt.append(read_prompt(options.prompt_file))
    if options.sampling.is_greedy and options.num_samples > 1:
        say(f"note: all {options.num_samples} samples are the same, because each token is the "
            "likeliest one")
    return options


def load_trained(options: argparse.Namespace) -> tuple[Trained, Chat | None]:
    """Return the run with its model, as WeightOptions and ModelOptions ask, and print on stderr
    what it is.

    The second value is its chat template with --chat, and None without.
    """
    scaling = None
    if options.rope_scaling is not None:
        scaling = RopeScaling(options.rope_scaling, options.rope_factor)
    n_prompts = 1 if options.interactive else len(options.prompt)
    n_rows = n_prompts * options.num_samples
    with open_source(options) as (run, weights):
        trained = load(run, options.checkpoint, options.device, options.dtype,
                       rope_scaling=scaling, rows=n_rows, weights=weights)
        template = chat_template(trained.run.path)
        chat = read_chat(trained.run.path) if options.chat else None
        which = name_weights(trained, options.checkpoint)
        # Of other people's models, `trained.run` is a temporary folder, which now goes away.
        name = trained.run.path if weights is None else options.run
    dtype = DTYPE_NAMES[trained.compute.dtype] if options.dtype == "auto" else options.dtype
    say(f"{name}: {which}, "
        f"{trained.config.model.position} positions, {trained.compute.device}, {dtype}, "
        f"{name_compilation(trained, options.compile)}")
    if options.dtype == "int8":
        warn_if_int8_is_slow(trained, n_rows, options.compile)
    if options.compile:
        note_busy_cores(trained)
    if chat is None and template is not None:
        say(f"note: {name} has a chat template, and prompts are continued as they are: --chat puts "
            "them into it")
    return trained, chat


def name_weights(trained: Trained, checkpoint: str) -> str:
    """Return in words which weights of a run were read. Without a `best`, they are its last."""
    run = trained.run
    if run.is_imported:
        return "imported weights"
    if checkpoint == "last" or not run.checkpoints.has_best:
        return "last weights"
    last_step = run.checkpoints.saved_step("last")
    if 0 < trained.step < last_step:  # 0: not known
        return f"best weights, of step {trained.step} of {last_step}"
    return "best weights"


def name_compilation(trained: Trained, compiled: bool) -> str:
    """Return in words for which texts decoding is compiled: none, all or the shorter ones."""
    if not compiled:
        return "not compiled"
    limit = trained.model.position.cache_limit
    if limit < trained.model.config.max_positions:
        # Dynamic scaling changes the keys of longer texts, which are then written without a cache,
        # and not compiled.
        return f"compiled up to {limit} tokens"
    return "compiled"


def warn_if_int8_is_slow(trained: Trained, n_rows: int, compiled: bool) -> None:
    """Print a note if this processor multiplies slower in int8 than in float32."""
    n_tokens = n_rows  # decoding multiplies one token of each row
    if compiled and n_rows <= max_float_rows():
        # With so few rows, compiled decoding multiplies in float32. Only prompts are read in int8.
        n_tokens = PROMPT_TOKENS
    with trained.compute.active():
        in_float32, in_int8 = int8_rates(trained.model.config, n_tokens)
    if in_int8 < in_float32:
        say(f"note: int8 is slower than float32 here: products run at {format_rate(in_int8)} "
            f"GFLOP/s in int8 and at {format_rate(in_float32)} in float32, in one thread")


def note_busy_cores(trained: Trained) -> None:
    """Print a note if other processes take the cores from the threads of compiled decoding.

    After each loop of the compiled code, which takes microseconds, all threads wait for the last
    one.
    """
    n_threads = torch.get_num_threads() if trained.compute.device.type == "cpu" else 1
    if n_threads > 1 and busy_load(per_core=1):
        say("note: other processes keep the cores busy: with OMP_NUM_THREADS=1 before the command, "
            "compiled decoding may be many times as fast")


def open_source(
    options: argparse.Namespace,
) -> AbstractContextManager[tuple[str | RunDir | None, Iterable[tuple[str, Tensor]] | None]]:
    """Return a context with (run, weights) for `load`.

    For a run of ours they are what --run says, and None: `load` reads the weights. For other
    people's models they are a RunDir without weights, in a temporary folder, and their tensors.
    """
    if options.run is None or not is_foreign(Path(options.run)):
        return nullcontext((options.run, None))
    if options.checkpoint != "best":
        raise UserError(f"--checkpoint has no effect on {options.run}, which is no run")
    from formats.folders import open_model  # slow to import, and not needed for runs

    return open_model(Path(options.run))


# --- prompts --------------------------------------------------------------------------------------


def read_prompt(path: str) -> str:
    """Return the text of a file, or of stdin for "-": no newline translated, none stripped. A byte
    order mark at its start is dropped, as from text to train on."""
    if not path:  # perhaps from a shell variable that is not set
        raise UserError("--prompt-file '' names no file: give one, or leave it out")
    if path == "-" and sys.stdin is None:
        raise UserError("--prompt-file - reads stdin, which is closed: give a file")
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"--prompt-file {path} cannot be read ({error.strerror}): give a file of "
                        "text in UTF-8, or - for stdin") from error
    with reading(f"--prompt-file {path}"):
        return decode(raw)


def note_files(prompts: list[str]) -> None:
    """Print a note for a prompt such as FILE, @FILE or -, for which other programs would read the
    file, or stdin."""
    for prompt in prompts:
        path = prompt.removeprefix("@")
        if path == "-" or os.path.isfile(path):
            place = "stdin" if path == "-" else "the file of this name"
            say(f"note: --prompt {shlex.quote(prompt)} is continued as it is written: for the text "
                f"in {place}, say --prompt-file {shlex.quote(path)}")


def encode_prompts(trained: Trained, prompts: list[str], chat: Chat | None) -> list[list[int]]:
    """Return the ids of prompts. With `chat`, each prompt is put into its template."""
    tokenizer = trained.tokenizer
    if chat is not None:
        return [encode_chat(chat, tokenizer, prompt) for prompt in prompts]
    if any(prompt.endswith(" ") for prompt in prompts):
        say("note: a prompt ends with a space, and pieces of the tokenizer begin with one: leave "
            "the space out, or nonsense may follow")
    if any(tokenizer.starts_with_prefix(tokenizer.encode(prompt)) for prompt in prompts):
        say("note: a prompt begins with the token that begins every text: it is not added again")
    return [tokenizer.encode_prompt(prompt) for prompt in prompts]


def converse(trained: Trained, chat: Chat | None, options: argparse.Namespace) -> Speed:
    """Continue the prompts of the command line, then lines of stdin, until one of ENDS, Ctrl-D or
    Ctrl-C.

    On a terminal lines can be edited, and the arrow keys bring earlier ones back.
    """
    check_room(trained, options.max_new_tokens)
    if sys.stdin is None:
        raise UserError("--interactive reads stdin, which is closed: give prompts by --prompt TEXT")
    session = Session(trained, chat, options, options.seed)
    lines = LINES_ARE_PROMPTS
    if session.is_conversation:
        lines = f"{LINES_ARE_TURNS}, and :new begins a new conversation"
    say(f"{lines}. :more goes on with the last text, and :seed N draws others; :help lists the "
        "commands. quit, exit, :q or Ctrl-D ends.")
    # Let bytes that are not UTF-8 through. `input` would raise an error that ends the session. The
    # tokenizer refuses only their line.
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    with suppress(ImportError):
        import readline  # noqa: F401  input() edits lines with it
    # In a file, "> " would be among the results.
    shows_prompt = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    for prompt in options.prompt:
        session.begin(prompt)
    while True:
        try:
            line = input("> " if shows_prompt else "")
        except (EOFError, KeyboardInterrupt):
            if shows_prompt:
                print()  # ends the line of the prompt
            return session.speed
        if line.strip() in ENDS:
            return session.speed
        try:
            session.answer(line)
        except UserError as error:  # about this line; the next one may be better
            say(f"error: {error}")


def as_prompt(line: str) -> str | None:
    """Return the prompt that a line of an interactive session is, or None if it is a command.

    "::TEXT" is the prompt ":TEXT". A line that begins with one colon is a command, known or not. An
    indented line is a command only if it is a known one: ":param x:" in Python is a prompt.
    """
    if line.startswith("::"):
        return line[1:]
    first, *_ = line.split(maxsplit=1)
    if line.startswith(":") or first in COMMAND_WORDS:
        return None
    return line


def check_room(trained: Trained, max_new_tokens: int | None) -> None:
    """Raise UserError if so many new tokens leave no room for any prompt."""
    context = trained.model.config.max_positions
    if max_new_tokens is not None and max_new_tokens >= context:
        raise UserError(f"--max-new-tokens {max_new_tokens} leaves no room for a prompt in the "
                        f"context of {context} (model.max_positions): give a smaller number")


@dataclass
class Session:
    """An interactive session.

    The first text is drawn by the seed itself, as without --interactive, and later ones by a seed
    that is derived from (seed, turn).
    """

    trained: Trained
    chat: Chat | None
    """The template of prompts. None without --chat."""
    options: argparse.Namespace
    seed: int
    turn: int = 0
    """How many texts were written since the seed was set."""
    ids: list[int] = field(default_factory=list)
    """Tokens of the last text, its prompt included."""
    exchanges: list[tuple[str, str]] = field(default_factory=list)
    """What was said and answered in this conversation. Always empty if there is none."""
    rows: list[Row] = field(default_factory=list)
    """The last text, or the samples of it."""
    speed: Speed = field(default_factory=Speed)
    """That of all texts."""
    decoding_step: NextLogits | None = None
    """The function that computed the logits of the last text. The next text may use it again, with
    the CUDA graphs that it has recorded."""

    @property
    def is_conversation(self) -> bool:
        """Whether a prompt follows what was said before: with --chat, and one answer to each."""
        return self.chat is not None and self.options.num_samples == 1

    def answer(self, line: str) -> None:
        """Continue a line, or obey a command. One of spaces alone does nothing.

        Raises UserError for an unknown command, and for a prompt that cannot be continued.
        """
        if not line.strip():
            return
        prompt = as_prompt(line)
        if prompt is not None:
            self.begin(prompt)
            return
        command, *rest = line.strip().split(maxsplit=1)
        argument = rest[0] if rest else ""
        if command not in COMMAND_WORDS:
            raise UserError(f"{command} is no command ({', '.join(COMMAND_USES)}); to continue "
                            f"this text as a prompt, write :{line.strip()}")
        if command == ":seed":
            self.set_seed(argument)
            return
        if argument:
            raise UserError(f"{command} takes nothing after it, not {argument!r}")
        # :q is not here: `converse` has ended at it.
        obey = {":more": self.go_on, ":new": self.forget, ":help": self.print_help}
        obey[command]()

    def print_help(self) -> None:
        """Print what lines are, and the commands."""
        say(f"{LINES_ARE_TURNS if self.is_conversation else LINES_ARE_PROMPTS}. The commands:")
        for use, meaning in COMMANDS.items():
            say(f"    {use:<10} {meaning}")

    def begin(self, prompt: str) -> None:
        """Continue a prompt. With --chat, it follows what was said and answered before."""
        rows = make_rows(self.trained, self.chat, [prompt], self.options)
        ids, exchanges = self.encode_next(prompt)
        self.continue_text(ids, rows)
        # Only now: if the prompt alone has no room, `continue_text` raises, and nothing is
        # forgotten.
        n_forgotten = len(self.exchanges) - len(exchanges)
        if n_forgotten:
            context = self.trained.model.config.max_positions
            say(f"note: the context (model.max_positions) is {context} tokens long: the beginning "
                f"of the conversation is forgotten ({n_forgotten} of {len(self.exchanges)} "
                "answers)")
        self.exchanges = exchanges
        if self.is_conversation:
            self.exchanges.append((prompt, rows[0].text))

    def encode_next(self, prompt: str) -> tuple[list[int], list[tuple[str, str]]]:
        """Return the ids of a prompt after what was said before, and the exchanges that they have.

        If the context has no room for all and the answer, the first exchanges are left out. Without
        --chat there are no exchanges, and the ids are those of the prompt.
        """
        chat = self.chat
        if chat is None:
            (ids,) = encode_prompts(self.trained, [prompt], None)
            return ids, []
        exchanges = [*self.exchanges]
        ids = encode_chat(chat, self.trained.tokenizer, prompt, exchanges)
        while exchanges and len(ids) > self.room_for_prompt():
            del exchanges[0]
            ids = encode_chat(chat, self.trained.tokenizer, prompt, exchanges)
        return ids, exchanges

    def forget(self) -> None:
        """Begin a new conversation."""
        if not self.is_conversation:
            reason = "without --chat" if self.chat is None else "with several samples"
            raise UserError(f":new begins a new conversation, and {reason} there is none")
        self.exchanges = []

    def room_for_prompt(self) -> int:
        """Return how many tokens a prompt may have, so that new ones have room behind it."""
        context = self.trained.model.config.max_positions
        new_tokens = self.options.max_new_tokens
        if new_tokens is None:
            # A short context is halved between the prompt and the answer. `default_new_tokens`
            # gives the same number after a prompt that just fills this room.
            new_tokens = min(NEW_TOKENS, context // 2)
        return max(1, context - new_tokens)

    def go_on(self) -> None:
        """Continue the last text. If the context has no room for it and the new tokens, only the
        end of the text is read."""
        if not self.rows:
            raise UserError(":more goes on with a text, and there is none yet")
        if len(self.rows) > 1:
            raise UserError(f":more goes on with one text, and there are {len(self.rows)}: leave "
                            "out --num-samples")
        context = self.trained.model.config.max_positions
        kept = self.room_for_prompt()
        if len(self.ids) > kept:
            say(f"note: the context (model.max_positions) is {context} tokens long: the text goes "
                f"on from its last {kept}")
        row = self.rows[0]
        # The last text may end with U+FFFD, for the first bytes of a character. The new text begins
        # with the whole character, so the U+FFFD is dropped from the answer.
        replacement = row.replacement
        row.resume()
        self.continue_text(self.ids[-kept:], self.rows)
        if self.exchanges:
            said, answered = self.exchanges[-1]
            self.exchanges[-1] = (said, answered.removesuffix(replacement) + row.text)

    def set_seed(self, number: str) -> None:
        """Draw texts as with another --seed, from the first turn on."""
        try:
            self.seed = int(number)
        except ValueError:
            raise UserError(":seed takes a whole number, such as :seed 3, not "
                            f"{number!r}") from None
        self.turn = 0

    def continue_text(self, ids: list[int], rows: list[Row]) -> None:
        """Generate in every row, and remember the rows for `go_on`."""
        seed = self.seed
        if self.turn > 0:
            seed = derive_seed(self.seed, "turn", self.turn)
        written = generate_texts(
            self.trained, [ids], rows, self.options, seed, self.decoding_step)
        self.decoding_step = written.decoding_step
        # Those of the first row: `go_on` continues a single one.
        self.ids = ids + written.new_tokens[0]
        self.rows = rows
        self.turn += 1
        self.speed.add(written.speed)


# --- text -----------------------------------------------------------------------------------------


def make_rows(
    trained: Trained, chat: Chat | None, prompts: list[str], options: argparse.Namespace
) -> list[Row]:
    """Return a row for each sample of each prompt. With `chat`, its text is the answer only."""
    rows = []
    for prompt in prompts:
        shown = prompt if chat is None else ""
        rows += [Row(shown, trained.tokenizer, options.stop) for _ in range(options.num_samples)]
    return rows


def generate_texts(
    trained: Trained, ids: list[list[int]], rows: list[Row], options: argparse.Namespace, seed: int,
    previous: NextLogits | None = None,
) -> Written:
    """Generate a continuation in every row, and print it: of a single row as it comes, of several
    at the end.

    `rows` has `num_samples` rows for each of `ids`. `previous` is the decoding step of the last
    call, which may be used again. Says on stderr if a text ends early or is longer than the
    training rows.
    """
    new_tokens = options.max_new_tokens
    if new_tokens is None:
        new_tokens = trained.default_new_tokens(max(map(len, ids)))
    batch = Batch(trained.model, ids, options.sampling, max_new_tokens=new_tokens,
                  num_samples=options.num_samples,
                  eos_ids=end_ids(trained.tokenizer, options.stop), seed=seed)
    decoding_step = make_decoding_step(batch, previous, compiled=options.compile)
    streamed = len(rows) == 1
    # On a terminal, a \r that was not printed yet: it may be the first half of a line end.
    held_back = ""
    started = time.perf_counter()
    times = []  # when `stream` yielded: once for each new token, then for each row
    with tqdm(total=len(rows) * new_tokens, desc="generate", unit="token", delay=2, leave=False,
              disable=streamed, mininterval=bar_interval()) as bar:
        for _, text in stream(batch, rows, decoding_step):
            times.append(time.perf_counter())
            bar.update(batch.n_accepted - bar.n)
            if streamed:
                text = held_back + text
                held_back = ""
                if text.endswith("\r") and is_terminal(sys.stdout):
                    held_back = "\r"
                    text = text[:-1]
                print(for_stdout(text), end="", flush=True)
    if streamed:
        print(for_stdout(held_back), flush=True)
    else:
        print_samples(rows, options.num_samples)
    note_ends(batch, rows, options)
    warning = trained.describe_excess(max(batch.lengths))
    if warning is not None:
        say(f"note: {warning}")
    return Written(batch.new_tokens(), measure_speed(batch, len(ids), started, times),
                   decoding_step)


def measure_speed(batch: Batch, n_prompts: int, started: float, times: list[float]) -> Speed:
    """Return the speed of a batch that was drawn; `times` are when its tokens came.

    Prefill reads as many tokens of every prompt as the shortest has, and draws the first token of
    the rows whose prompt is that short. The time of the first token is when prefill ended. There is
    one exception: if each of these rows begins with an end token, they give no token. The first one
    then comes from a longer prompt, some time after prefill, and nothing is measured.
    """
    drawn_by_prefill = count_first_tokens(batch)
    decoded = batch.n_accepted - drawn_by_prefill
    prefill_drew_nothing = drawn_by_prefill == 0  # all rows of the shortest prompts ended at once
    some_prompts_are_longer = max(batch.prompt_lengths) > min(batch.prompt_lengths)
    if prefill_drew_nothing and some_prompts_are_longer:
        return Speed()  # `print_rates` prints nothing of it
    prefilled = times[0]
    return Speed(prefill_tokens=min(batch.prompt_lengths) * n_prompts,
                 prefill_seconds=prefilled - started,
                 decoded_tokens=decoded, decoding_seconds=times[-1] - prefilled)


def count_first_tokens(batch: Batch) -> int:
    """Return how many of the tokens that `n_accepted` counts were drawn by prefill."""
    shortest = min(batch.prompt_lengths)
    count = 0
    for prompt_length, length in zip(batch.prompt_lengths, batch.lengths, strict=True):
        # If the first new token was an end token, it ended the row, and `n_accepted` has not
        # counted it.
        ended_at_once = length == prompt_length
        if prompt_length == shortest and not ended_at_once:
            count += 1
    return count


def print_samples(rows: list[Row], num_samples: int) -> None:
    """Print several texts, each under a heading, which counts the prompts if there are several."""
    for i, row in enumerate(rows):
        prompt, sample = divmod(i, num_samples)
        heading = f"sample {sample + 1}"
        if len(rows) > num_samples:
            heading = f"prompt {prompt + 1}, {heading}"
        print(f"=== {heading} ===\n{for_stdout(row.text)}", flush=True)


def for_stdout(text: str) -> str:
    """Return a text as it is, or without control characters if stdout is a terminal."""
    return hide_controls(text) if is_terminal(sys.stdout) else text


def note_ends(batch: Batch, rows: list[Row], options: argparse.Namespace) -> None:
    """Note on stderr how many texts the model ended, other than by what --stop asks for."""
    asked_for = {rows[0].tokenizer.special_id(stop) for stop in options.stop}
    tokens_of_rows = batch.tokens.tolist()  # with the prompts
    ended = 0
    for i, (row, tokens) in enumerate(zip(rows, batch.new_tokens(), strict=True)):
        if len(tokens) == batch.max_new_tokens or row.stopped:
            continue
        # `lengths` does not count the token that ended the row, so this is its place.
        ending_token = tokens_of_rows[i][batch.lengths[i]]
        if ending_token not in asked_for:
            ended += 1
    if ended:
        which = "the text" if len(rows) == 1 else f"{ended} of {len(rows)} texts"
        say(f"note: the model has ended {which}: {suggest_another(options)} may draw another")


def suggest_another(options: argparse.Namespace) -> str:
    """Return, in words for the user, what may draw another text."""
    if options.temperature == 0:
        return "--temperature 0.8"
    if options.top_k == 1:
        return "--top-k 2"
    if options.interactive:
        return "the same prompt again"
    return f"--seed {options.seed + 1}"


if __name__ == "__main__":
    main()
