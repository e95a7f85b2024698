"""Weights out of a run, and other people's weights into one.

    python export.py runs/small-rope-s1 --to hf OUT/
    python export.py runs/small-rope-s1 --to gguf OUT.gguf --dtype q8_0
    python export.py runs/small-rope-s1 --to web OUT/
    python export.py FOLDER --to run runs/NAME
    python export.py FILE.gguf --to run runs/NAME

hf is a folder for transformers, vLLM and whatever else reads that; gguf a file for llama.cpp and
its kin; web a folder with a page in which the model writes, by wllama (llama.cpp in the browser):
`python -m http.server` in that folder shows it. FOLDER is one of Hugging Face's LLaMA family, or
Meta's own with consolidated.*.pth, params.json and a tokenizer. FILE.gguf is one of llama.cpp's
llama architecture. What cannot be carried over exactly is refused by name.
"""

import interrupts  # first: from here on, Ctrl-C shows no traceback

import argparse
import math
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Literal

from errors import UserError, importing, report_errors, say

with importing(__name__):
    from files import atomic_path, refuse_stdout, require_space, writing
    from formats import gguf, hf, web
    from formats.folders import import_model
    from formats.names import Target, misreading
    from formats.run import Exported, load_for_export
    from formats.tensors import largest_value
    from gyre.checkpoint import SAFETENSORS_DTYPES, SAFETENSORS_NAMES
    from gyre.load import find_trained_length
    from gyre.parser import Parser
    from gyre.wandb_log import LogConfig
    from gyre.yaml_files import read_config

Written = Literal["hf", "gguf", "web"]  # what is made of a run
# What reads them, by the names that people try.
READERS = {"ollama": "gguf", "llama.cpp": "gguf", "llamacpp": "gguf", "lmstudio": "gguf",
           "transformers": "hf", "huggingface": "hf", "vllm": "hf",
           "mlx": "hf", "wllama": "web"}
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "q8_0": 34 / 32}  # of a weight
# The largest weight that each holds. q8_0: 127 times a scale in f16.
LARGEST = {"f16": 65_504, "q8_0": 127 * 65_504, "bf16": 255 * 2.0**120}


def main(argv: list[str] | None = None) -> None:
    """Run the command `argv`, by default that of the process. Exits 2 on bad input."""
    # As an exception, so that a half-written target is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with report_errors():
        options = parse(argv)
        source = Path(options.source)
        target = Path(options.target)
        refuse_stdout("OUT", target)
        if target.exists():
            raise UserError(f"{target} is there already: choose another place, or remove it")
        if options.to == "run":
            refuse_run(source)
            import_model(source, target)
            note_place(target)
        else:
            export_run(source, target, options.to, options.dtype)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options of a command line."""
    parser = Parser(__doc__)
    parser.add_argument("source", metavar="FROM", help="A run, whose best weights are "
                        "exported, or a folder or GGUF to import.")
    parser.add_argument("target", metavar="OUT", help="Where; it must not be there yet.")
    parser.add_argument("--to", required=True, type=read_kind, choices=["hf", "gguf", "web", "run"],
                        help="What to make.")
    parser.add_argument("--dtype", choices=list(BYTES), help="Type of all weights for hf, of the "
                        "matrices in a gguf or for web. Default: that of the run; for web, "
                        "q8_0 if all rows can be packed in it.")
    options = parser.parse_args(argv)
    if options.dtype and options.to == "run":
        raise UserError("--dtype has no effect with --to run")
    if options.dtype == "q8_0" and options.to == "hf":
        raise UserError("--dtype q8_0 is a type of gguf files: choose f32, f16 or bf16 for hf")
    if options.to == "gguf" and options.target.endswith(("/", os.sep)):
        raise UserError(f"{options.target} is the name of a folder, and a GGUF is a file: choose a "
                        f"name such as {options.target}model.gguf")
    return options


def read_kind(word: str) -> str:
    """Return the word after --to. Raises for the name of a program, with what it reads."""
    kind = READERS.get(word.lower())
    if kind is not None:
        raise argparse.ArgumentTypeError(f"{word} reads {kind}: say --to {kind}")
    return word


def refuse_run(source: Path) -> None:
    """Raise UserError if what is to be imported is a run, by its path or its name under runs/."""
    paths = [source]
    if not source.exists():  # a path that exists is meant, even if a run has this name
        paths.append(Path(LogConfig.runs, source))
    for path in paths:
        if (path / "run.json").is_file():
            raise UserError(f"{source} is a run already, which --to run cannot import: use "
                            f"--run {shlex.quote(str(path))} as it is, or export it with --to hf, "
                            "gguf or web")


def note_place(target: Path) -> None:
    """Print a note if a run was given a name without a folder, and so was not put into runs/."""
    if target.name == str(target) and Path.cwd().name != LogConfig.runs:
        say(f"note: {target} is in this folder, and evaluate.py lists those in {LogConfig.runs}/: "
            f"mkdir -p {LogConfig.runs} && mv {shlex.quote(str(target))} {LogConfig.runs}/ puts it "
            "there")


def export_run(source: Path, target: Path, to: Written, dtype: str | None) -> None:
    """Write a run in the format `to`, completely or not at all. `dtype` None: the default."""
    layout = "hf" if to == "hf" else "gguf"
    run = load_for_export(source, layout, to)
    chosen = dtype
    if chosen is None:
        chosen = web.default_dtype(run) if to == "web" else SAFETENSORS_NAMES[run.dtype].lower()
    check_reach(run, source, layout, chosen)
    parameters = sum(weight.numel() for weight in run.weights.values())
    size = int(parameters * BYTES[chosen])
    if to == "web":
        web.refuse_too_large(size)
        size += web.PACKAGES_BYTES
    require_space(target, size)
    with writing(target, "choose another place"), atomic_path(target) as staging:
        if to == "hf":
            stored_as = None if dtype is None else SAFETENSORS_DTYPES[dtype.upper()]
            hf.write_folder(run, staging, stored_as)
        elif to == "gguf":
            gguf.write_file(run, staging, chosen)
        else:
            web.write_folder(run, staging, chosen)
    after = f", after step {run.step}" if run.step > 0 else ""
    say(f"{target}: {parameters:,} parameters from {source}{after}")
    note_length(run, to)
    if to == "gguf" and chosen == "q8_0":
        note_short_rows(run)
    note = describe_use(run, target, to)
    if note is not None:
        say(note)


def check_reach(run: Exported, source: Path, layout: Target, dtype: str) -> None:
    """Raise UserError for a weight that is larger than what `dtype` holds, or not finite."""
    for name, weight in run.weights.items():
        largest = largest_value(name, weight, source)
        stays_float32 = layout == "gguf" and weight.ndim == 1
        limit = math.inf if stays_float32 else LARGEST.get(dtype, math.inf)
        if largest > limit:
            reach = f"{limit:.5g}" if dtype == "bf16" else f"{limit:,.0f}"
            wider = "f32" if largest > LARGEST["bf16"] else "bf16 or f32"
            raise UserError(f"{name} of {source} holds {largest:.5g}, and --dtype {dtype} reaches "
                            f"to {reach}: choose {wider}")


def note_length(run: Exported, to: Written) -> None:
    """Print a note if an export names a longer context than its run was trained for.

    By default that is four times the training rows. Other programs use all of it, and do not warn.
    Nor does the page of `web`, which cannot be told to use less.
    """
    trained = find_trained_length(run.run, read_config(run.run.path / "config.yaml"))
    if trained is not None and run.model.max_positions > trained:
        advice = f"tell other programs to read {trained}"
        if to == "web":
            advice = f"keep the prompt and the new text together within {trained}"
        say(f"note: it names a context of {run.model.max_positions} tokens (model.max_positions), "
            f"and was trained for {trained}: past that it may get worse, so {advice}")


def note_short_rows(run: Exported) -> None:
    """Print a note if a matrix has rows of one block of q8_0, for which llama.cpp's products on
    processors with AMX are wrong (docs/interop.md#how-exact)."""
    has_short_rows = any(weight.ndim == 2 and weight.shape[1] == web.BLOCK
                         for weight in run.weights.values())
    if has_short_rows:
        say("note: on Intel processors with AMX, llama.cpp 0.5.0 computes NaN or garbage from q8_0 "
            f"matrices whose rows have {web.BLOCK} numbers, as some have here: --dtype f16 is "
            "right there too")


def describe_use(run: Exported, target: Path, to: Written) -> str | None:
    """A line about what can be done with an export, or not; None if there is nothing to say."""
    if to == "web":
        return (f"look at it: python -m http.server --directory {shlex.quote(str(target))}, and "
                "open http://localhost:8000")
    misread = misreading(run.model, to, run.tokenizer.adds_space)
    return None if misread is None else f"note: {misread}"


if __name__ == "__main__":
    main()
