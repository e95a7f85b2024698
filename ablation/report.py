"""From plan.json and results/ of a study to RESULTS.md and its figures.

    python -m ablation.report runs/ablation
    python -m ablation.report studies/five

The words stand in report.md, and the numbers are filled in here. All of them are read from the
study's files, so the report can be made again anywhere. Losses are in nats per token.
"""

import argparse
import io
import math
import re
import shlex
import statistics
from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from itertools import combinations, starmap
from pathlib import Path
from typing import Any

from errors import UserError, importing, report_errors

with importing(__name__):
    import msgspec
    import yaml

    from ablation import plots, stats
    from ablation.plan import Losses, Plan, best_rate, list_names, tuning_losses
    from ablation.study import USED, Study
    from files import write_file
    from gyre.code import are_of_other_code
    from gyre.measure import in_lengths
    from gyre.wandb_log import LogConfig, log_report

UNDEFINED = "–"
UNCERTAIN = " †"
LEVEL = 0.05  # a smaller p-value belongs to a 95 % interval that excludes 0
MIRRORED = ("tokens", "loss", "se", "shift")  # fields of End that wandb gets


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m ablation.report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="its folder")
    with report_errors():
        write_report(parser.parse_args(argv).study)


def write_report(path: Path) -> None:
    """Write RESULTS.md and the figures of the study in the folder `path`.

    Raises UserError where the runs cannot be compared, see ablation/study.py, and where there are
    none.
    """
    study = Study.load(path)
    diverged = study.plan.diverged
    if not study.records and diverged:
        raise UserError(f"{path} has no run to report: {', '.join(diverged)} diverged; try another "
                        "study, with a smaller optim.lr")
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

    A section whose table has no rows is left out. A notes.md in the study's folder, such as its
    predictions, is put in as it is.
    """
    notes = read_notes(study.path / "notes.md")
    fields = {name: escape(words) for name, words in describe(study).items()}
    blocks = {
        "headline": headline(study),
        "arms": arms_table(study),
        "tuning": tuning_table(study),
        "contexts": context_table(study),
        "command": study.plan.command,
        "facts": facts(study),
    }
    template = Path(__file__).with_name("report.md").read_text(encoding="utf-8")
    sections = re.split(r"\n\n(?=## )", template)
    for name in ("tuning", "contexts"):
        if not blocks[name]:
            sections = [section for section in sections if f"{{{name}}}" not in section]
    before, _, after = "\n\n".join(sections).partition("{notes}")
    parts = [fill(before, fields | blocks), notes, fill(after, fields | blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Return a template with its fields filled in. Where one is empty, no paragraph is left."""
    text = template.format_map(fields)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def read_notes(file: Path) -> str:
    """Return what the user wrote about a study; "" without such a file. UserError if it is not
    UTF-8."""
    if not file.exists():
        return ""
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 ({error}): save it as UTF-8") from None


def describe(study: Study) -> dict[str, str]:
    """Return the words and numbers that stand in the sentences of report.md, by name."""
    plan = study.plan
    positions = {config["model"]["position"] for config in plan.config.values()}
    last = study.horizons[-1]
    targets = min(record.targets for record in study.records.values())
    errors = [f"{arm} {study.text_error(arm, last):.3f}" for arm in study.others
              if study.paired(arm, last)]
    return {
        **describe_seeds(study),
        "title": "Position encodings" if len(positions) > 1 else "Study",
        "name": plan.name,
        "left_out": describe_left_out(study),
        "setting": describe_setting(plan),
        "base": study.baseline,
        "warm_up": list_by_arm(study, {
            arm: amount(config["optim"]["warmup_steps"] * plan.step_tokens)
            for arm, config in plan.config.items()}),
        "final_lr": list_by_arm(study, {
            arm: describe_final_lr(config["optim"]["final_lr"])
            for arm, config in plan.config.items()}),
        "used": f"{USED:g}",
        "bigram": f"{plan.ngrams[1]:.2f}",
        "tuning_seeds": ", ".join(map(str, plan.tuning_seeds)),
        "rates": describe_rates(plan),
        "last": amount(last),
        "targets": f"{targets:,}",
        "seq_len": str(plan.seq_len),
        "text_errors": ", ".join(errors) if errors else UNDEFINED,
        "other_starts": describe_other_starts(study),
        "folder": name_folder(study.path),
    }


def name_texts(data: Mapping[str, Any]) -> list[str]:
    """Return the names of the text of a plan: its files, its address, or that of its source."""
    if data.get("files"):
        return data["files"]
    for source in ("url", "hub", "source"):
        if data.get(source):
            return [data[source]]
    return [""]


def describe_setting(plan: Plan) -> str:
    """Return what the models, the training and the text of the baseline are."""
    config = plan.config[plan.baseline]
    model = config["model"]
    optim = config["optim"]
    data = config["data"]
    text = ", ".join(Path(name).name for name in name_texts(data))
    return (f"Model of {plan.baseline}: {model['n_layers']} layers of width {model['dim']}, "
            f"{model['n_heads']} heads, a vocabulary of {data['vocab_size']}. Training: rows of "
            f"{plan.seq_len} tokens, {plan.step_tokens} tokens a step, "
            f"{optim.get('optimizer', 'adamw')}, {plan.dtype}. Text: {text}.")


def list_by_arm(study: Study, words: Mapping[str, str]) -> str:
    """Return the words of the baseline, and in brackets those of arms that have others."""
    common = words[study.baseline]
    others = [f"{own} for {arm}" for arm, own in words.items() if own != common]
    return f"{common} ({', '.join(others)})" if others else common


def describe_final_lr(final_lr: float) -> str:
    """Return what a learning rate falls to, as text."""
    return f"{final_lr:g} of the rate" if final_lr else "0"


def describe_other_starts(study: Study) -> str:
    """Return, with a space in front, which arms share only a part of the initial weights; "" for
    none."""
    kinds = {arm: record.init_kind for (arm, _), record in study.records.items()}
    common = kinds.get(study.baseline)
    others = [arm for arm in study.plan.arms if arm in kinds and kinds[arm] != common]
    if common is None or not others:
        return ""
    return (f" In {', '.join(others)}, weights of another shape, or that the encoding starts in "
            "its own way, started from other values.")


def name_folder(path: Path) -> str:
    """Return a folder as an argument of a shell command that is given where `ablation` is."""
    path = path.resolve()
    here = Path(__file__).resolve().parents[1]
    if path.is_relative_to(here):
        path = path.relative_to(here)
    return shlex.quote(path.as_posix())


def describe_left_out(study: Study) -> str:
    """Return which runs of the plan the report is without, and which do not belong together; "" for
    none."""
    plan = study.plan
    sentences = []
    n_missing = count_missing(study)
    if n_missing:
        n_planned = len(plan.arms) * len(plan.seeds)
        have = "has" if n_missing == 1 else "have"
        sentences.append(f"Unfinished: {n_missing} of the {n_planned} planned runs {have} no "
                         "record.")
    if plan.diverged:
        sentences.append(f"Diverged, and left out: {', '.join(plan.diverged)}.")
    for arm in plan.arms:
        by_code = study.code_of_encoding(arm)
        groups = [", ".join(map(str, seeds)) for seeds in by_code.values()]
        if any(starmap(are_of_other_code, combinations(by_code, 2))):
            sentences.append(f"The encoding of {arm} was changed between seeds, and its row mixes "
                             f"several: {'; '.join(groups)}.")
    return " ".join(sentences)


def describe_growth(plan: Plan) -> str:
    """Return what to make of seeds that were added to the plan, or to that of the study which this
    one is beside; "" if none were.

    One in ten: without a true difference, the interval of the first seeds or that of all excludes 0
    in 7.1 to 9.5 % of two million simulated studies that grow once (5 to 6 seeds: 7.1 %, 3 to 6:
    8.9 %, 2 to 6: 9.5 %), and in about 12 % of those that grow twice (2, 4 and 6 seeds: 12.1 %).
    """
    grown_from = plan.grown_from
    if not grown_from:  # of the other study, only growth within the seeds of this one
        grown_from = [n for n in plan.committed_grown_from or [] if n < len(plan.seeds)]
    if not grown_from:
        return ""
    before = ", then ".join(map(str, grown_from))
    noun = "seed" if before == "1" else "seeds"
    sentence = f" Planned with {before} {noun}, and grown to {len(plan.seeds)}"
    if not plan.grown_from:
        sentence = (f" The study of the committed arms was planned with {before} {noun}, and grown "
                    "later")
    n_looks = sum(n >= 2 for n in grown_from)  # one seed has no interval
    if n_looks == 0:
        return f"{sentence}."
    often = "up to one of ten" if n_looks == 1 else "more than one of ten"
    return (f"{sentence}: if the results of the first seeds decided that, a 95 % interval that "
            f"excludes 0 does so by chance in {often} such studies, and not in one of twenty.")


def describe_rates(plan: Plan) -> str:
    """Return how the study chose its learning rates."""
    if not plan.tuned.arms:
        return "This study tuned no learning rate."
    text = "but on the validation text that is reported"
    if plan.second_val:
        text = "and on a second validation text"
    return (f"A learning rate is tuned for one length, on other seeds, {text}."
            f"{describe_edges(tuning_losses(plan))}")


def describe_edges(tuned: Mapping[str, Losses]) -> str:
    """Return a sentence on the arms whose best rate is the lowest or the highest that was tried, or
    "". `tuned` has the losses of each arm."""
    at_edge: dict[str, list[str]] = {"lowest": [], "highest": []}
    for arm, losses in tuned.items():
        best = best_rate(losses)
        if len(losses) < 2:
            continue
        if best == min(losses):
            at_edge["lowest"].append(arm)
        elif best == max(losses):
            at_edge["highest"].append(arm)
    found = [f"the {edge} for {', '.join(arms)}" for edge, arms in at_edge.items() if arms]
    if not found:
        return ""
    return (f" Of the rates that were tried, the best is {' and '.join(found)}: one beyond it may "
            "be better.")


def count_missing(study: Study) -> int:
    """Return how many of the planned runs have no record and did not diverge."""
    plan = study.plan
    settled = {f"{arm}-s{seed}" for arm, seed in study.records}
    settled.update(plan.diverged or [])
    return sum(name not in settled for name in list_names(plan.arms, plan.seeds))


def describe_correction(study: Study) -> str:
    """Return what report.md says of the number of differences; "" where there is but one, or none
    that excludes 0."""
    p_values = study.p_values()
    n = len(p_values)
    if n < 2 or min(p_values.values()) >= LEVEL:
        return ""
    if find_uncertain(study):
        return (f";{UNCERTAIN}: it excludes 0, but no longer if it is corrected for the {n} "
                "differences of this table (Holm)")
    return (f"; those that exclude 0 still do if they are corrected for the {n} differences of "
            "this table (Holm)")


def describe_seeds(study: Study) -> dict[str, str]:
    """Return what report.md says of the number of seeds: intervals need two."""
    most_seeds = max(len(study.records_of(arm)) for arm in study.plan.arms)
    has_pairs = any(study.paired(arm, tokens) for arm in study.others for tokens in study.horizons)
    # While no arm has a seed in common with the baseline, there are no differences. Then only the
    # number of seeds decides what is said.
    if has_interval(study) or (not has_pairs and most_seeds > 1):
        return {
            "one_seed": "",
            "with_intervals": ", with 95 % intervals",
            "difference": "paired t over seeds, 95 % interval, each for itself"
                          + describe_correction(study),
            "seeds_say": "An interval over seeds says nothing of other models and texts."
                         + describe_growth(study.plan),
        }
    return {
        "one_seed": f"One seed and {amount(study.horizons[-1])} tokens of training: this shows "
                    "that a study runs, and nothing about the encodings.",
        "with_intervals": "",
        "difference": "of one seed, which has no interval",
        "seeds_say": "One seed says nothing of other seeds, models and texts.",
    }


# --- tables ---------------------------------------------------------------------------------------


def headline(study: Study) -> str:
    """Return what a reader wants first: each arm's difference from the baseline after the first and
    the last length."""
    lengths = list(dict.fromkeys((study.horizons[0], study.horizons[-1])))
    uncertain = find_uncertain(study)
    rows = []
    for arm in study.others:
        last = study.paired(arm, lengths[-1])
        if last is None:
            continue
        name = f"{arm} − {study.baseline}"
        if last.n < len(study.plan.seeds):
            name = f"{name}, {last.n} of {len(study.plan.seeds)} seeds"
        cells = [difference(study.paired(arm, tokens), uncertain=(arm, tokens) in uncertain)
                 for tokens in lengths]
        rows.append([name, *cells])
    seeds = "95 % interval over paired seeds" if has_interval(study) else "one seed"
    header = [f"nats per token, {seeds}", *(f"after {amount(tokens)} tokens" for tokens in lengths)]
    return table(header, rows)


def has_interval(study: Study) -> bool:
    """Return whether the difference of any arm from the baseline has an interval."""
    pairs = [study.paired(arm, tokens) for arm in study.others for tokens in study.horizons]
    return any(pair is not None and pair.interval is not None for pair in pairs)


def find_uncertain(study: Study) -> set[tuple[str, int]]:
    """Return the (arm, tokens) whose difference from the baseline excludes 0 alone, but no longer
    if it is corrected for the number of differences in the study."""
    p_values = study.p_values()
    corrected = dict(zip(p_values, stats.holm([*p_values.values()]), strict=True))
    return {key for key, p in p_values.items() if p < LEVEL <= corrected[key]}


def arms_table(study: Study) -> str:
    """A row for each arm: its rate, its seeds, a loss and a difference for each length, "used"."""
    header = ["arm", "learning rate", "n"]
    for tokens in study.horizons:
        header += [f"loss, {amount(tokens)}", f"minus {study.baseline}"]
    uncertain = find_uncertain(study)
    return table([*header, "used"], [arm_row(study, arm, uncertain) for arm in study.plan.arms])


def arm_row(study: Study, arm: str, uncertain: Set[tuple[str, int]]) -> list[str]:
    """Return the row of an arm in `arms_table`; `uncertain` is from `find_uncertain`."""
    records = study.records_of(arm).values()
    rates = {f"{record.lr:g}" for record in records}
    row = [arm + origin(study, arm), ", ".join(rates), str(len(records))]
    for tokens in study.horizons:
        losses = study.losses(arm, tokens).values()
        paired = None if arm == study.baseline else study.paired(arm, tokens)
        row += [with_sd(losses), difference(paired, len(losses), (arm, tokens) in uncertain)]
    last_tokens = [max(curve.keys()) for curve in study.curves(arm, "loss").values()]
    row.append(show_median(study.tokens_until_used(arm).values(), min(last_tokens, default=0)))
    return row


def origin(study: Study, arm: str) -> str:
    """Return where the records of an arm are from, if those of some arms are another study's."""
    committed = study.plan.committed
    if not committed:
        return ""
    return ", committed" if arm in committed else ", measured here"


def tuning_table(study: Study) -> str:
    """The losses of every arm by learning rate."""
    losses = tuning_losses(study.plan)
    grid = sorted(set().union(*losses.values()))
    rows = []
    for arm, rates in losses.items():
        best = best_rate(rates)
        row = [arm]
        for lr in grid:
            by_seed = sorted(rates.get(lr, {}).items())
            cell = ", ".join(show_tuning_loss(loss) for _, loss in by_seed)
            row.append(f"{cell} *" if lr == best else cell)
        rows.append(row)
    tokens = amount(study.plan.steps.tuning * study.plan.step_tokens)
    return table([f"arm, {tokens} tokens", *(f"{lr:g}" for lr in grid)], rows)


def show_tuning_loss(loss: float) -> str:
    """Return what a tuning run ended with as text."""
    return "diverged" if loss == math.inf else f"{loss:.3f}"


def context_table(study: Study) -> str:
    """A row for each arm and way to slide: mean ± sd of the loss over seeds, and the standard error
    of one seed over the text, by length of the context."""
    contexts: set[int] = set()
    for record in study.records.values():
        contexts.update(row.context for row in record.context)
    rows = []
    for arm in study.plan.arms:
        for words, mode in (("", "sliding"), (", whole windows", "nonoverlapping")):
            cells = [context_cell(study, arm, context, mode) for context in sorted(contexts)]
            if {*cells} != {UNDEFINED}:
                rows.append([arm + words, *cells])
    lengths = [in_lengths(context / study.plan.seq_len) for context in sorted(contexts)]
    return table(["arm", *lengths], rows)


def context_cell(study: Study, arm: str, context: int, mode: str) -> str:
    """Return the cell of an arm in `context_table`."""
    rows = study.contexts(arm, context, mode).values()
    losses = [row.loss for row in rows if row.loss is not None]
    errors = [row.se for row in rows if row.se is not None]
    if not errors:
        return UNDEFINED
    return f"{with_sd(losses)} (se {statistics.fmean(errors):.3f})"


def facts(study: Study) -> str:
    """Return when, where and with what the study was made, as YAML."""
    plan = msgspec.to_builtins(study.plan)
    keys = ("tier", "dtype", "versions", "git", "calibration")
    values = {key: plan[key] for key in keys if key in plan}
    for key in ("machine", "trained_by"):
        entries = [getattr(record, key) for record in study.records.values()]
        values[key] = [*{str(entry): entry for entry in entries}.values()]  # each of them once
    return yaml.safe_dump(values, default_flow_style=None, sort_keys=False, width=math.inf)


# --- Markdown and numbers as text -----------------------------------------------------------------


def escape(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return re.sub(r"([\\|*<>`])", r"\\\1", text)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown; "" without rows."""
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(escape, line))} |" for line in lines)


def number(value: float, form: str = "+z.3f") -> str:
    """A number, with the typographic minus (U+2212). With z, no zero has a minus."""
    return format(value, form).replace("-", "−")


def interval(low: float, high: float) -> str:
    """Return an interval as text, such as [−0.004, +0.002].

    If it excludes 0, a bound that would be rounded to 0 has more digits, so that it is seen.
    """
    excludes_zero = low > 0 or high < 0
    bounds = []
    for bound in (low, high):
        form = "+.1g" if excludes_zero and round(bound, 3) == 0 else "+z.3f"
        bounds.append(number(bound, form))
    return f"[{', '.join(bounds)}]"


def difference(result: stats.Paired | None, seeds: int | None = None,
               uncertain: bool = False) -> str:
    """Return a difference between arms as text, with its interval if it has one.

    `seeds`: the number of seeds of the arm, shown if fewer could be paired. `uncertain`: the
    interval gets a mark.
    """
    if result is None:
        return UNDEFINED
    bounds = f" {interval(*result.interval)}" if result.interval else ""
    mark = UNCERTAIN if uncertain else ""
    some_are_missing = seeds is not None and seeds != result.n
    pairs = f" ({result.n} of them)" if some_are_missing else ""
    return f"{number(result.mean)}{bounds}{mark}{pairs}"


def with_sd(values: Collection[float]) -> str:
    """Mean ± sd."""
    if not values:
        return UNDEFINED
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{spread}"


def show_median(times: Collection[float], end: float) -> str:
    """Return the median of waiting times as text, with the lowest and the highest in brackets
    unless all three look the same. inf: longer than until `end`."""
    if not times:
        return UNDEFINED
    words = []
    for summary in (statistics.median, min, max):
        more = "more than " if summary(times) == math.inf else ""
        words.append(more + amount(summary([min(time, end) for time in times])))
    return words[0] if len({*words}) == 1 else f"{words[0]} ({words[1]} – {words[2]})"


def amount(tokens: float) -> str:
    """Return a number of tokens with three digits and its unit, such as 1.05 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= 0.9995 * size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:.0f}"


# --- wandb ----------------------------------------------------------------------------------------


def mirror_in_wandb(path: Path, log: LogConfig) -> None:
    """Send the figures and one table of every run to wandb, where the trainings are already."""
    study = Study.load(path)
    rows = []
    for (arm, seed), record in study.records.items():
        for end in record.horizons:
            values = [getattr(end, name) for name in MIRRORED]
            rows.append([arm, seed, record.lr, *values])
    log = replace(log, runs=str(path), group=path.name, job_type="report")
    log_report(log, f"{path.name}-report", msgspec.to_builtins(study.plan),
               ["arm", "seed", "lr", *MIRRORED], rows, sorted(path.glob("fig_*.png")))


if __name__ == "__main__":
    main()
