"""Measure trained runs: loss, bits per byte, loss by position and by length, shift invariance.

    python evaluate.py runs/small-rope-s1
    python evaluate.py runs/ablation/*-s1 --checkpoint last
    python evaluate.py runs/small-rope-s1 --rope-scaling all

A table of all runs, and one line of JSON last, which holds everything that was measured
(gyre/measure.py). T is the length of the rows that a run was trained on (data.seq_len). Losses are
mean nats per token, and null where they have no meaning: a learned position past the end of its
table.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from errors import UserError, exit_in_words
from gyre.cli import Parser, RunOptions
from gyre.measure import CONTEXTS, SCALED_CONTEXTS, SCALINGS, WINDOWS, data_of, measure
from gyre.rundir import RunDir


def refuse_mixed(runs: list[RunDir]) -> None:
    """UserError where losses in one table would be about different tokens.

    Bits per byte do compare across tokenizers, on the same text; but no other column does.
    """
    reasons = {
        "text": "were trained on different texts: no number of one compares with the other",
        "split": "hold out different parts of the text (data.val_fraction)",
        "tokenizer": "have different tokenizers: losses per token do not compare, only bits per "
        "byte do (the text is the same)",
    }
    first = runs[0].path
    expected, *others = [data_of(run.manifest, run.path) for run in runs]
    for run, found in zip(runs[1:], others, strict=True):
        for part, reason in reasons.items():
            if found[part] != expected[part]:
                raise UserError(f"{first} and {run.path} {reason}; evaluate them one at a time")


def table(results: list[dict[str, Any]]) -> str:
    """One row per run; T is each run's own data.seq_len."""
    names = [f"{multiple:g}T".replace("0.5T", "T/2").replace("1T", "T") for multiple in CONTEXTS]
    rows = [["run", "encoding", "parameters", "tokens", "T", "loss", "bits/byte",
             *(f"{mode} {name}" for mode in ("cut", "slide") for name in names), "shift T"]]
    for result in results:
        seq_len = result["seq_len"]
        contexts = {(c["mode"], c["context"]): c["loss"] for c in result["context"]}
        moved = next(s["dloss"] for s in result["shift"] if s["delta"] == seq_len)
        rows.append([
            Path(result["run"]).name, result["config"]["model"]["position"],
            f"{result['parameters']:,}", f"{result['tokens']:,}", str(seq_len),
            number(result["loss"]), number(result["bpb"]),
            *(number(contexts[mode, int(multiple * seq_len)])
              for mode in ("nonoverlapping", "sliding") for multiple in CONTEXTS),
            number(moved, "+.4f"),
        ])
    return aligned(rows) + (
        "\n"
        "cut C, slide C: loss of the same targets in windows of C tokens, cut end to end or moved "
        "on by T/2;\n"
        "shift T: change of the loss when every position moves on by T; -: undefined for this "
        "encoding."
    )


def scaling_table(results: list[dict[str, Any]]) -> str:
    """RoPE past its training length: one row per run and scaling."""
    rows = [["run", "scaling", *(f"{multiple}T" for multiple in SCALED_CONTEXTS)]]
    for result in results:
        losses: dict[str, list[float]] = {}
        for found in result["rope_scaling"] or []:  # contexts of each scaling in ascending order
            losses.setdefault(found["scaling"], []).append(found["loss"])
        name = Path(result["run"]).name
        rows += [[name, scaling, *map(number, values)] for scaling, values in losses.items()]
    return f"{aligned(rows)}\nloss in windows of so many tokens, moved on by T/2"


def number(value: float | None, form: str = ".4f") -> str:
    """Four digits, or - where there is none."""
    return "-" if value is None else format(value, form)


def aligned(rows: list[list[str]]) -> str:
    """Columns of equal width: the first two to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


@dataclass
class Options:
    """What the user may ask beside the runs."""

    windows: int = WINDOWS
    """Measure positions, contexts and shifts on at most this many windows of 8T tokens, spread over
    the validation split. The loss is always over the whole of it."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of matrix products."""
    rope_scaling: Literal["all"] | None = None
    """Compare what carries RoPE past its training length: raw, linear, ntk, yarn and llama3."""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = Parser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="Folder of a run.")
    parser.add_fields(RunOptions, Options)
    options = parser.parse_args(argv)
    if options.windows < 1:
        raise UserError(f"--windows must be at least 1, not {options.windows}")
    return options


def main(argv: list[str] | None = None) -> None:
    """Measure, and print when all of it is measured. Exits with 2 for what the user got wrong, 130
    after Ctrl-C, 141 where nobody reads on."""
    with exit_in_words(results=True):
        options = parse(argv)
        runs = [RunDir.open(path) for path in options.runs]
        refuse_mixed(runs)
        scalings = SCALINGS if options.rope_scaling is not None else ()
        results = [
            measure(run, checkpoint=options.checkpoint, windows=options.windows,
                    device=options.device, dtype=options.dtype, scalings=scalings)
            for run in runs
        ]
        if scalings and not any(result["rope_scaling"] for result in results):
            raise UserError("--rope-scaling has no effect: none of these runs has rotations")
        print(table(results))
        if scalings:
            print(f"\n{scaling_table(results)}")
        print(json.dumps({"runs": results}, allow_nan=False))


if __name__ == "__main__":
    main()
