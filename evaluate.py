"""List the runs, compare them, and measure them: loss, bits per byte, and more with --lengths.

    python evaluate.py                                       # lists the runs
    python evaluate.py small-rope-s1 small-sinusoidal-s1     # compares their losses
    python evaluate.py runs/small-* --plot loss.png
    python evaluate.py small-rope-s1 --lengths --json all.json

A run is named by its folder, or by its name if that is in runs/. Losses are mean nats per token
over the whole validation split. T is the length of the rows that a run was trained on
(data.seq_len). gyre/measure.py explains what --json writes; null is a loss without a meaning, such
as that of a learned position past the end of its table.
"""

import argparse
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from errors import UserError, report_errors, say, starting

with starting(__name__):
    from tqdm import tqdm

    from files import write_file, write_json
    from gyre import measure
    from gyre.options import Parser, RunOptions, read_config
    from gyre.rundir import RunDir


@dataclass
class Options:
    """What to measure, and where to write it."""

    lengths: bool = False
    """Measure losses by length of the context too, and what a shift of all positions costs."""
    plot: str | None = None
    """Draw the losses of the runs in training into this .png, .pdf or .svg file."""
    json: str | None = None
    """Write all that was measured into this file."""


def main(argv: list[str] | None = None) -> None:
    """List the runs, or measure them and print tables once all is measured."""
    with report_errors():
        options = parse(sys.argv[1:] if argv is None else argv)
        runs = open_runs(options.runs)
        if not runs:
            raise UserError("none of these is a run" if options.runs else "no run in runs/ yet: "
                            "make one with `python train.py --config small.yaml`")
        if not options.runs:
            print(list_runs(runs))
            return
        check_comparable(runs)
        print(tabulate_losses(results := measure_runs(runs, options)))
        if options.lengths:
            print(f"\n{tabulate_lengths(results)}")
        if options.json:
            write_json(Path(options.json), {"runs": results})
        if options.plot:
            from ablation.plots import draw_losses  # slow to import

            write_file(Path(options.plot), draw_losses(runs, plot_format(options.plot)))


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the options, checked."""
    parser = Parser(__doc__, RunOptions, Options)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="A run. Without one: list all.")
    options = parser.parse_args(argv)
    if argv and not options.runs:
        raise UserError("name the runs to measure: python evaluate.py lists them")
    if options.plot:
        plot_format(options.plot)  # refused before anything is measured
    return options


def plot_format(path: str) -> str:
    """Return the format of a figure by the suffix of its file. UserError for other formats."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--plot {path} must end in .png, .pdf or .svg")
    return suffix[1:]


def open_runs(paths: list[str], folder: str = "runs") -> list[RunDir]:
    """Return these runs in this order, or all in `folder`, the oldest first. Folders that are no
    runs, or that cannot be read, are skipped, with a message. UserError for one that is not there.
    """
    runs = []
    for path in paths or sorted(p for p in Path(folder).glob("[!.]*")
                                if p.name != "wandb" and not (p / "plan.json").exists()):
        try:
            run = RunDir.open(path, folder)
            read_config(run.path / "config.yaml")  # another revision may have written it
            runs.append(run)
        except UserError as error:
            if paths and not Path(path).exists():
                raise
            say(f"skipped: {error}")
    return runs if paths else sorted(runs, key=lambda run: run.record["created"])


def check_comparable(runs: list[RunDir]) -> None:
    """Raise UserError if losses in one table would be about different tokens."""
    reasons = {"text": "were trained on different texts: none of their numbers compare",
               "split": "hold out different parts of the text (data.val_fraction, data.second_val)",
               "tokenizer": "have different tokenizers: only bits per byte compare"}
    first = measure.data_of(runs[0].manifest, runs[0].path)
    for run in runs[1:]:
        data = measure.data_of(run.manifest, run.path)
        if different := [reasons[part] for part in reasons if data[part] != first[part]]:
            raise UserError(f"{runs[0].path} and {run.path} {different[0]}; evaluate each alone")


def measure_runs(runs: list[RunDir], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what `options` ask to measure of each run. UserError before anything is measured."""
    for run in runs if options.lengths else ():
        config = read_config(run.path / "config.yaml")
        measure.check_length(run.manifest["val"]["tokens"], config.data.seq_len)
    windows = measure.WINDOWS if options.lengths else None
    results = []
    for run in tqdm(runs, "measuring", unit="run", dynamic_ncols=True, leave=False):
        results.append(measure.measure(run, options.checkpoint, windows, options.device))
    measure.compare(results)
    return results


# --- tables ---------------------------------------------------------------------------------------


def list_runs(runs: list[RunDir]) -> str:
    """Return one row per run: what it is, how far it is, and its lowest validation loss so far."""
    rows = [["run", "encoding", "learning rate", "steps", "loss", "when"]]
    for run in runs:
        config, points = read_config(run.path / "config.yaml"), run.metrics()
        created = datetime.fromisoformat(run.record["created"]).astimezone()
        best = run.checkpoints.saved_step("best")  # a branch inherits losses of other weights
        losses = [p["val/loss"] for p in points if p["step"] == best and "val/loss" in p]
        # A resume can have taken more steps than the configuration says.
        steps = f"{(n := points[-1]['step'])} of {max(n, config.train.steps)}" if points else "-"
        rows.append([run.path.name, config.model.position, f"{config.optim.lr:g}", steps,
                     show((losses or [None])[0]), f"{created:%Y-%m-%d %H:%M}"])
    return align(rows)


def tabulate_losses(results: list[dict[str, Any]]) -> str:
    """Return one row per run of `measure.measure`, with the differences of `measure.compare`."""
    rows = [["run", "loss", "bits/byte", "difference"]]
    for result in results:
        change = (f"{result['difference']:+.4f} ± {show(result['difference_se'])}"
                  if "difference" in result else "")
        rows.append([Path(result["run"]).name, show(result["loss"]), show(result["bpb"]), change])
    if len(results) == 1:
        return align([row[:-1] for row in rows])
    text = (f"{align(rows)}\ndifference: loss minus that of {rows[1][0]} on the same text; "
            "±: its standard error, of other text\nof this kind, and not of another seed")
    if len({result["seq_len"] for result in results}) > 1:
        text += "\neach run reads windows of its own data.seq_len; longer ones have lower losses"
    return text


def tabulate_lengths(results: list[dict[str, Any]]) -> str:
    """Return one row per run of `measure.measure`."""
    contexts = [f"{mode} {measure.in_lengths(multiple)}" for multiple in measure.CONTEXTS
                for mode in ("cut", "slide")]
    rows = [["run", "encoding", "parameters", "tokens", "T", *contexts, "shift T"]]
    for result in results:
        rows.append([Path(result["run"]).name, result["config"]["model"]["position"],
                     f"{result['parameters']:,}", f"{result['tokens']:,}", str(result["seq_len"]),
                     *(show(row["loss"]) for row in result["context"]),
                     show(result["shift"], "+.4f")])
    return (f"{align(rows)}\ncut C, slide C: loss of the same targets in windows of C tokens, cut "
            "end to end or moved on by T/2;\nshift T: change of the loss when every position moves "
            "on by T; -: undefined for this encoding.")


def show(value: float | None, form: str = ".4f") -> str:
    """Return a number with four digits, or - for None."""
    return "-" if value is None else format(value, form)


def align(rows: list[list[str]]) -> str:
    """Return columns of equal width, the first one to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return "\n".join(map("  ".join, lines))


if __name__ == "__main__":
    main()
