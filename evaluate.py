"""List the runs, compare them, and measure them: loss, bits per byte, and more with --lengths.

    python evaluate.py                                       # lists the runs
    python evaluate.py small-rope-s1 small-sinusoidal-s1     # compares their losses
    python evaluate.py runs/small-* --plot loss.png
    python evaluate.py small-rope-s1 --lengths --json all.json
    python evaluate.py small-rope-s1 --lengths --rope-scaling all

A run is named by its folder, or by its name where that is in runs/. Losses are mean nats per token
over the whole validation split. T is the length of the rows that a run was trained on
(data.seq_len). What --json writes is explained in gyre/measure.py; null is a loss without a
meaning, such as that of a learned position past the end of its table.
"""

import argparse
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from errors import UserError, exit_in_words, say
from files import write_file, write_json
from gyre import measure
from gyre.options import Parser, RunOptions, read_config
from gyre.rundir import RunDir
from model.position import POSITIONS


def listing(runs: list[RunDir]) -> str:
    """One row per run: what it is, how far it is, and its lowest validation loss so far."""
    rows = [["run", "encoding", "learning rate", "steps", "loss", "when"]]
    for run in runs:
        try:
            config, points = run.settings(), run.metrics()
        except UserError as error:
            say(f"skipped: {error}")
            continue
        best = run.best_point() or {}
        created = datetime.fromisoformat(run.record["created"]).astimezone()
        rows.append([
            run.path.name, config["model"]["position"], f"{config['optim']['lr']:g}",
            f"{points[-1]['step']} of {config['train']['steps']}" if points else "-",
            number(best.get("val/loss")), f"{created:%Y-%m-%d %H:%M}",
        ])
    return aligned(rows)


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
    expected, *others = [measure.data_of(run.manifest, run.path) for run in runs]
    for run, found in zip(runs[1:], others, strict=True):
        for part, reason in reasons.items():
            if found[part] != expected[part]:
                raise UserError(f"{first} and {run.path} {reason}; evaluate them one at a time")


def refuse_short(runs: list[RunDir]) -> None:
    """UserError where the validation text is too short for long contexts."""
    for run in runs:
        seq_len = read_config(run.path / "config.yaml").data.seq_len
        measure.check_length(run.manifest["val"]["tokens"], seq_len)


def refuse_scalings(runs: list[RunDir]) -> None:
    """UserError where rotations cannot be scaled, or have been."""
    models = [read_config(run.path / "config.yaml").model for run in runs]
    if not any("rope_scaling" in POSITIONS[model.position].options for model in models):
        raise UserError("--rope-scaling has no effect: none of these runs has rotations")
    for run, model in zip(runs, models, strict=True):
        if model.rope_scaling is not None:
            raise UserError(f"{run.path} was trained with model.rope_scaling "
                            f"{model.rope_scaling.type}: --rope-scaling would take it away")


def losses(results: list[dict[str, Any]]) -> str:
    """One row per run of `compare`."""
    rows = [["run", "loss", "bits/byte", "difference"]]
    rows += [[Path(found["run"]).name, number(found["loss"]), number(found["bpb"]),
              f"{found['difference']:+.4f} ± {number(found['difference_se'])}"
              if "difference" in found else ""] for found in results]
    if len(rows) == 2:
        return aligned([row[:-1] for row in rows], left=1)
    lengths = sorted({found["seq_len"] for found in results})
    return aligned(rows, left=1) + (
        f"\ndifference: loss minus that of {rows[1][0]} on the same text; ±: its standard error, "
        "of other text\nof this kind, and not of another seed"
    ) + (len(lengths) > 1) * (
        f"\neach run reads windows of its own data.seq_len ({', '.join(map(str, lengths))}), and "
        "longer ones have lower losses"
    )


def table(results: list[dict[str, Any]]) -> str:
    """One row per run; T is each run's own data.seq_len."""
    names = [measure.in_lengths(multiple) for multiple in measure.CONTEXTS]
    rows = [["run", "encoding", "parameters", "tokens", "T",
             *(f"{mode} {name}" for mode in ("cut", "slide") for name in names), "shift T"]]
    for result in results:
        seq_len = result["seq_len"]
        contexts = {(c["mode"], c["context"]): c["loss"] for c in result["context"]}
        moved = next(s["dloss"] for s in result["shift"] if s["delta"] == seq_len)
        rows.append([
            Path(result["run"]).name, result["config"]["model"]["position"],
            f"{result['parameters']:,}", f"{result['tokens']:,}", str(seq_len),
            *(number(contexts[mode, int(multiple * seq_len)])
              for mode in ("nonoverlapping", "sliding") for multiple in measure.CONTEXTS),
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
    rows = [["run", "scaling", *(f"{multiple}T" for multiple in measure.SCALED_CONTEXTS)]]
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


def aligned(rows: list[list[str]], left: int = 2) -> str:
    """Columns of equal width: the first ones to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


@dataclass
class Options:
    """What the user may ask beside the runs."""

    lengths: bool = False
    """Measure losses by position and by length too, and what a shift of all positions costs."""
    windows: int | None = None
    """With --lengths: on at most this many windows of 8T tokens, spread over the validation split.
    Unset: 32."""
    rope_scaling: Literal["all"] | None = None
    """With --lengths: compare what carries RoPE past its training length: raw, linear, ntk, yarn
    and llama3."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of matrix products."""
    plot: str | None = None
    """Draw the losses of the runs in training into this file (PNG)."""
    json: str | None = None
    """Write all that was measured into this file."""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = Parser(__doc__)
    parser.add_argument("runs", nargs="*", default=[], metavar="RUN",
                        help="A run. Without one: list all in runs/.")
    parser.add_fields(RunOptions, Options)
    options = parser.parse_args(argv)
    if options.windows is not None and options.windows < 1:
        raise UserError(f"--windows must be at least 1, not {options.windows}")
    for option in ("windows", "rope_scaling"):
        if getattr(options, option) is not None and not options.lengths:
            raise UserError(f"--{option.replace('_', '-')} has no effect without --lengths")
    for field in (*fields(Options), *fields(RunOptions)):
        if getattr(options, field.name) != field.default and not options.runs:
            raise UserError(f"--{field.name.replace('_', '-')} needs a run: python "
                            "evaluate.py lists them")
    if options.plot is not None and Path(options.plot).suffix != ".png":
        raise UserError(f"--plot {options.plot} must end in .png, the only format")
    for file in filter(None, (options.plot, options.json)):
        if Path(file).is_dir():
            raise UserError(f"{file} is a folder: name a file")
    return options


def main(argv: list[str] | None = None) -> None:
    """List, or measure and print when all of it is measured. Exits with 2 for what the user got
    wrong, 130 after Ctrl-C, 141 where nobody reads on."""
    with exit_in_words():
        options = parse(argv)
        runs = RunDir.open_all(options.runs)
        if not runs:
            raise UserError("none of these is a run" if options.runs else "no run in runs/ yet: "
                            "make one with `python train.py --config small.yaml`")
        if not options.runs:
            print(listing(runs))
            return
        refuse_mixed(runs)
        if options.lengths:
            refuse_short(runs)
        if options.rope_scaling:
            refuse_scalings(runs)
        results = measure.compare(runs, options.checkpoint, options.device, options.dtype)
        rest = lengths(runs, results, options) if options.lengths else ""
        print(losses(results) + rest)
        if options.json:
            write_json(Path(options.json), {"runs": results})
        if options.plot:
            from gyre.plot import draw_losses  # with matplotlib, which is slow to import

            drawn = draw_losses([(run.path.name, run.metrics()) for run in runs])
            write_file(Path(options.plot), drawn)
            say(f"{options.plot}: losses of {', '.join(run.path.name for run in runs)}")


def lengths(
    runs: list[RunDir], results: list[dict[str, Any]], options: argparse.Namespace
) -> str:
    """Measure the rest of every run and add it to its result; the tables of it."""
    scalings = measure.SCALINGS if options.rope_scaling is not None else ()
    windows = options.windows or measure.WINDOWS
    for run, result in tqdm([*zip(runs, results, strict=True)], "lengths", unit="run",
                            dynamic_ncols=True, leave=False):
        result |= measure.measure(run, options.checkpoint, windows, options.device, options.dtype,
                                  scalings)
    return f"\n\n{table(results)}" + (f"\n\n{scaling_table(results)}" if scalings else "")


if __name__ == "__main__":
    main()
