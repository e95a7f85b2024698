"""From plan.json and results/ of a study to RESULTS.md and its figures.

    python -m ablation.report runs/ablation
    python -m ablation.report studies/five

The words stand in report.md, and the numbers are filled in here. All of them are read from the
study's files, so the report can be made again anywhere. Losses are in nats per token.
"""

import io
import math
import re
import statistics
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ablation import plots, stats
from ablation.plan import best_rate, tuning_losses
from ablation.study import USED, Study
from errors import UserError, report_errors
from files import write_file
from gyre.measure import in_lengths
from gyre.wandb_log import LogConfig, log_report

UNDEFINED = "–"
NOT_MEASURED = "Not measured."


def write_report(path: Path) -> None:
    """Write RESULTS.md and the figures of the study in the folder `path`.

    Raises UserError where the runs cannot be compared, see ablation/study.py, and where there are
    none.
    """
    study = Study.load(path)
    if not study.records:
        raise UserError(f"{path} has no record of a run yet")
    for name, figure in plots.draw(study).items():
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=150)
        write_file(path / f"{name}.png", image.getvalue())
    write_file(path / "RESULTS.md", compose(study).encode())
    print(path / "RESULTS.md")


def compose(study: Study) -> str:
    """Return the report in Markdown: report.md with its fields filled in.

    Sections that are not measured are left out. A notes.md in the study's folder, such as its
    predictions, is put in as it is.
    """
    plan, last = study.plan, study.horizons[-1]
    warm_up = plan["config"][study.baseline]["optim"]["warmup_steps"] * plan["step_tokens"]
    diverged = ", ".join(plan.get("diverged", ()))
    tuned_on = ("and on a second validation text" if plan.get("second_val")
                else "but on the validation text that is reported")
    errors = [f"{arm} {study.text_error(arm, last):.3f}" for arm in study.others
              if study.paired(arm, last)]
    notes = study.path / "notes.md"
    most_seeds = max(len(study.runs(arm)) for arm in plan["arms"])
    if most_seeds > 1:
        words = {"one_seed": "", "with_intervals": ", with 95 % intervals",
                 "difference": "paired t over seeds, 95 % interval, each for itself",
                 "seeds_say": "An interval over seeds says nothing of other models and texts."}
    else:
        words = {"one_seed": f"One seed and {amount(last)} tokens of training: this shows that a "
                             "study runs, and nothing about the encodings.",
                 "with_intervals": "", "difference": "of one seed, which has no interval",
                 "seeds_say": "One seed says nothing of other seeds, models and texts."}
    fields = {
        **words,
        "name": plan["name"],
        "left_out": diverged and f"Diverged, and left out: {diverged}.",
        "base": study.baseline,
        "warm_up": amount(warm_up),
        "used": f"{USED:g}",
        "bigram": f"{plan['ngrams'][1]:.2f}",
        "tuning_seeds": ", ".join(map(str, plan["tuning_seeds"])),
        "rates": f"A learning rate is tuned for one length, on other seeds, {tuned_on}."
        if plan["grid"] else "Learning rates were not tuned for the arms.",
        "last": amount(last),
        "targets": f"{min(record['targets'] for record in study.records.values()):,}",
        "seq_len": plan["seq_len"],
        "text_errors": ", ".join(errors) or UNDEFINED,
        "folder": f"{study.path.parent.name}/{study.path.name}",
    }
    blocks = {
        "headline": headline(study),
        "arms": arms_table(study),
        "tuning": tuning_table(study),
        "contexts": context_table(study),
        "notes": notes.read_text(encoding="utf-8").strip() if notes.exists() else "",
        "command": plan["command"],
        "facts": facts(study),
    }
    template = Path(__file__).with_name("report.md").read_text(encoding="utf-8")
    filled = {name: escape(str(value)) for name, value in fields.items()} | blocks
    text = re.sub(r"\n{3,}", "\n\n", template.format_map(filled))
    return "\n\n".join(section for section in re.split(r"\n\n(?=## )", text.rstrip())
                       if NOT_MEASURED not in section) + "\n"


# --- tables ---------------------------------------------------------------------------------------


def headline(study: Study) -> str:
    """Return what a reader wants first: each arm's difference from the baseline after the first and
    the last length."""
    ends = list(dict.fromkeys((study.horizons[0], study.horizons[-1])))
    rows = [[f"{arm} − {study.baseline}",
             *(difference(study.paired(arm, tokens)) for tokens in ends)]
            for arm in study.others if study.paired(arm, ends[-1])]
    has_intervals = any(len(study.runs(arm)) > 1 for arm in study.others)
    unit = "nats per token, " + ("95 % interval over paired seeds" if has_intervals else "one seed")
    lengths = [f"after {amount(tokens)} tokens" for tokens in ends]
    return table([unit, *lengths], rows) if rows else ""


def arms_table(study: Study) -> str:
    """A row for each arm: its rate, its seeds, a loss and a difference for each length, "used"."""
    header, rows = ["arm", "learning rate", "n"], {}
    committed = study.plan.get("committed", ())
    for arm in study.plan["arms"]:
        runs = study.runs(arm).values()
        origin = ", committed" if arm in committed else ", measured here" if committed else ""
        rows[arm] = [arm + origin, ", ".join({f"{run['lr']:g}" for run in runs}), str(len(runs))]
    for tokens in study.horizons:
        header += [f"loss, {amount(tokens)}", f"minus {study.baseline}"]
        for arm, row in rows.items():
            losses = study.losses(arm, tokens).values()
            paired = None if arm == study.baseline else study.paired(arm, tokens)
            row += [with_sd(losses, ".3f"), difference(paired, len(losses))]
    for arm, row in rows.items():
        ends = map(max, study.curves(arm, "loss").values())
        row.append(span(study.tokens_until_used(arm).values(), min(ends, default=0)))
    return table([*header, "used"], [*rows.values()])


def tuning_table(study: Study) -> str:
    """The losses of every arm by learning rate."""
    losses = tuning_losses(study.plan)
    grid = sorted({lr for rates in losses.values() for lr in rates})
    rows = [[arm, *(", ".join("diverged" if loss == math.inf else f"{loss:.3f}"
                              for loss in rates.get(lr, {}).values())
                    + " *" * (lr == best_rate(rates)) for lr in grid)]
            for arm, rates in losses.items()]
    tokens = amount(study.plan["steps"]["tuning"] * study.plan["step_tokens"])
    return table([f"arm, {tokens} tokens", *(f"{lr:g}" for lr in grid)], rows)


def context_table(study: Study) -> str:
    """A row for each arm and way to slide: mean ± sd of the loss over seeds, and the standard error
    of one seed over the text, by length of the context."""
    contexts = sorted({row["context"] for record in study.records.values()
                       for row in record["context"]})
    rows = []
    for arm in study.plan["arms"]:
        for words, mode in (("", "sliding"), (", whole windows", "nonoverlapping")):
            cells = []
            for context in contexts:
                losses, errors = (
                    study.values(arm, "context", column, context=context, mode=mode).values()
                    for column in ("loss", "se"))
                cells.append(f"{with_sd(losses, '.3f')} (se {statistics.fmean(errors):.3f})"
                             if errors else UNDEFINED)
            if {*cells} != {UNDEFINED}:
                rows.append([arm + words, *cells])
    return table(["arm", *(in_lengths(c / study.plan["seq_len"]) for c in contexts)], rows)


def facts(study: Study) -> str:
    """Return when, where and with what the study was made, as YAML."""
    keys = ("tier", "dtype", "versions", "git", "calibration")
    values: dict[str, Any] = {key: study.plan[key] for key in keys if key in study.plan}
    for key in ("machine", "trained_by"):
        values[key] = [*{str(run[key]): run[key] for run in study.records.values()}.values()]
    return yaml.safe_dump(values, default_flow_style=None, sort_keys=False, width=math.inf)


# --- Markdown and numbers as text -----------------------------------------------------------------


def escape(text: str) -> str:
    return re.sub(r"([\\|*<>`])", r"\\\1", text)


def table(header: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return NOT_MEASURED
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(escape, line))} |" for line in lines)


def number(value: float, form: str = "+.3f") -> str:
    """A number, with the typographic minus (U+2212)."""
    return format(value, form).replace("-", "−")


def difference(result: stats.Paired | None, seeds: int | None = None) -> str:
    """`seeds`: the number of seeds of the arm, shown if fewer could be paired."""
    if result is None:
        return UNDEFINED
    bounds = f" [{', '.join(map(number, result.interval))}]" if result.interval else ""
    pairs = f" ({result.n} of them)" if seeds not in (None, result.n) else ""
    return f"{number(result.mean)}{bounds}{pairs}"


def with_sd(values: Iterable[float | None], form: str = ".4f") -> str:
    """Mean ± sd of the values that are defined."""
    if not (defined := [value for value in values if value is not None]):
        return UNDEFINED
    spread = f" ± {statistics.stdev(defined):{form}}" if len(defined) > 1 else ""
    return number(statistics.fmean(defined), form) + spread


def span(times: Collection[float], end: float) -> str:
    """Median, lowest and highest of waiting times; inf means not until `end`."""
    if not times:
        return UNDEFINED
    words = []
    for summary in (statistics.median, min, max):
        more = "more than " if summary(times) == math.inf else ""
        words.append(more + amount(summary([min(time, end) for time in times])))
    return words[0] if len({*words}) == 1 else f"{words[0]} ({words[1]} – {words[2]})"


def amount(tokens: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if tokens >= 0.9995 * size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:.0f}"


# --- wandb ----------------------------------------------------------------------------------------


def mirror_in_wandb(path: Path, log: LogConfig) -> None:
    """Send the figures and one table of every run to wandb, where the trainings are already."""
    study, columns = Study.load(path), ["arm", "seed", "lr", "tokens", "loss", "se", "shift"]
    rows = [[arm, seed, record["lr"], *(end[key] for key in columns[3:])]
            for (arm, seed), record in study.records.items() for end in record["horizons"]]
    log = replace(log, runs=str(path), group=path.name, job_type="report")
    log_report(log, f"{path.name}-report", study.plan, columns, rows,
               sorted(path.glob("fig_*.png")))


if __name__ == "__main__":
    with report_errors():
        write_report(*map(Path, sys.argv[1:]))
