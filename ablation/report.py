"""From plan.json, results/ and probes/ of a study to report.html, RESULTS.md and figures.

    python -m ablation.report runs/ablation
    python -m ablation.report docs/results docs/results.md

The words stand in report.md, and the numbers are filled in here; report.html is the result with the
figures inside, laid out by page.html. Everything in it is read from the study's files, so it can be
made again anywhere, after any number of runs. Losses are in nats per token.
"""

import base64
import html
import math
import os
import re
import statistics
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt
from tqdm import tqdm

from ablation import plots, stats
from ablation.plan import (
    BASELINE,
    PROBED,
    best_rate,
    lowest,
    next_rates,
    stage_steps,
    tuning_losses,
)
from ablation.predictions import outcomes
from ablation.study import BY_CONTEXT, USED, Record, Study, aligned, at_horizon, cell
from errors import UserError, exit_in_words
from files import write_file
from gyre.measure import in_lengths
from gyre.wandb_log import LogConfig, Table, log_to_wandb
from model.rope import rope_frequencies

UNDEFINED = "–"
NOT_MEASURED = "Not measured."
WHOLE = ", whole windows", "context", {"mode": "nonoverlapping"}  # beside BY_CONTEXT
RUN_COLUMNS = ["arm", "seed", "lr", "tokens", "loss", "se", "shift"]  # of the table in wandb


def write_report(path: Path, markdown: Path | None = None) -> None:
    """Write the report about the study in the folder `path`.

    `markdown` stands for RESULTS.md where that is to be in another folder than the figures. Raises
    UserError where the runs cannot be compared; see ablation/study.py.
    """
    markdown = markdown or path / "RESULTS.md"
    study = Study.load(path)
    text = compose(study, plots.draw(study), markdown.parent)
    write_file(path / "report.html", to_html(text, markdown.parent).encode())
    write_file(markdown, text.encode())


def compose(study: Study, figures: list[str], folder: Path) -> str:
    """The report in Markdown: report.md with its fields filled in, without the sections that are
    not measured yet.

    `figures`: the names of those there are; `folder`: where the text will stand, from where it
    links to them.
    """
    warm_up = max((record["config"]["optim"]["warmup_steps"]
                   for record in study.records.values()), default=0) * study.plan["step_tokens"]
    secondary = joined(study.planned_others[1:])
    treated = (study.plan["treatment"] or BASELINE) != BASELINE  # the probes' sin is the plain one
    said = {
        "name": study.plan["name"],
        "claim": claim(study),
        "base": study.baseline,
        "corrected": secondary and f"; p Holm-corrected over {secondary}, within one length",
        "of_sin": "sin is the matched one here. " * treated,
        "warm_up": amount(warm_up),
        "used": f"{USED:g}",
        "bigram": number(study.bigram, ".2f"),
        "last": amount(study.horizons[-1]),
        "targets": f"{min((r['targets'] for r in study.records.values()), default=0):,}",
        "seq_len": study.seq_len,
        "folder": f"{study.path.parent.name}/{study.path.name}",
    }
    blocks = {
        "left_out": left_out(study),
        "arms": arms_table(study),
        "tuning": tuning_table(study),
        "contexts": context_table(study),
        "control": control(study),
        "probes": probe_table(study),
        "predictions": predictions_table(study),
        "threats": bullets(threats(study)),
        "command": f"```\n{study.plan['command']}\n```",
        "facts": bullets(facts(study)),
    }

    def shown(image: re.Match) -> str:
        link = Path(os.path.relpath(study.path / f"{image[2]}.png", folder)).as_posix()
        return f"![{image[1]}]({quote(link)})" if image[2] in figures else NOT_MEASURED

    template = Path(__file__).with_name("report.md").read_text(encoding="utf-8")
    template = re.sub(r"!\[(.*)\]\((.*)\)", shown, template)
    fields = {name: escape(str(value)) for name, value in said.items()} | blocks
    text = re.sub(r"\n{3,}", "\n\n", template.format_map(fields))
    return "\n\n".join(section for section in re.split(r"\n\n(?=## )", text.rstrip())
                       if NOT_MEASURED not in section) + "\n"


def to_html(markdown: str, folder: Path) -> str:
    """One file that needs no other: images are read from where the text, in `folder`, links to."""
    parser = MarkdownIt("js-default")  # tables, and no HTML within the text
    tokens = parser.parse(markdown)
    for image in (part for token in tokens for part in token.children or []):
        if image.type == "image":
            png = (folder / unquote(str(image.attrs["src"]))).read_bytes()
            image.attrs["src"] = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    title = html.escape(markdown.partition("\n")[0].removeprefix("# "))
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    body = parser.renderer.render(tokens, parser.options, {})
    return Template(template).substitute(title=title, body=body)


# --- what is said ---------------------------------------------------------------------------------


def claim(study: Study) -> str:
    """Up to three sentences: the difference after the first and the last length, and how many
    tokens it takes to leave the bigrams behind. None is stronger than its numbers."""
    smoke = "A check of the machinery and nothing else. " if study.plan["tier"] == "smoke" else ""
    head, base = study.planned_others[0], study.baseline
    compared = {tokens: result for tokens in study.horizons
                if (result := study.paired(head, tokens))}
    if not compared:
        return f"{smoke}{head} and {base} share no seed yet."
    first, last = min(compared), max(compared)
    said = [f"{difference(compared[tokens], None)} nats per token after {amount(tokens)} tokens"
            for tokens in dict.fromkeys((first, last))]
    n = compared[last].n
    seeds = f"{n} paired seeds, 95 % intervals" if n > 1 else "one seed"
    sentences = [
        f"{head} − {base} is {' and '.join(said)} ({seeds}).",
        f"Tokens until the loss is {USED:g} nats below what bigrams reach: "
        f"{joined(f'{arm} {until_used(study, arm)}' for arm in study.arms)}.",
    ]
    peak = max(compared, key=lambda tokens: abs(compared[tokens].mean))
    if len(compared) > 2 and peak != last and compared[peak].mean:
        left = compared[last].mean / compared[peak].mean
        what = f"{left:.0%} of that is left" if left > 0 else "has another sign"
        sentences.append(f"Of the lengths measured, the difference is largest after {amount(peak)} "
                         f"tokens, and {what} after {amount(last)}.")
    return smoke + " ".join(sentences)


def left_out(study: Study) -> str:
    """How far the study is, where it is not finished, and which runs diverged."""
    plan, said = study.plan, []
    runs = sum(len(study.awaited(arm)) for arm in plan["arms"])
    probes = sum(len(of["arms"]) * len(of["seeds"]) for of in plan["probes"].values())
    if len(study.records) < runs or len(study.probes) < probes:
        counts = joined(f"{arm} {len(study.of(arm))}" for arm in plan["arms"])
        said.append(f"Run so far, of {len(plan['seeds'])} seeds: {counts}; and {len(study.probes)} "
                    f"of {probes} probes.")
    if diverged := plan.get("diverged"):
        said.append(f"Diverged, and left out: {joined(diverged)}.")
    return escape(" ".join(said))


def arms_table(study: Study) -> str:
    """A row for each arm, a loss and a difference for each length."""
    header, base = ["arm", "learning rate", "n"], study.baseline
    for tokens in study.horizons:
        header += [f"loss, {amount(tokens)}", f"minus {base}"]
    adjusted = {tokens: p_values(study, tokens) for tokens in study.horizons}
    rows = []
    for arm in study.arms:
        rates = joined(sorted({record["lr"] for record in study.of(arm).values()}), "{:g}")
        row = [arm, rates, str(len(study.of(arm)))]
        for tokens in study.horizons:
            row += [with_sd(study.values(arm, at_horizon(tokens, "loss")).values(), ".3f"),
                    UNDEFINED if arm == base else
                    difference(study.paired(arm, tokens), adjusted[tokens].get(arm),
                               len(study.of(arm)))]
        rows.append([*row, until_used(study, arm)])
    return table([*header, "used"], rows)


def p_values(study: Study, tokens: int) -> dict[str, float]:
    """p of each arm against the baseline; of all but the first Holm-corrected, over all that are
    planned: where one is not run yet, as if it did not differ."""
    known = {arm: result.p for arm in study.others
             if (result := study.paired(arm, tokens)) and result.p is not None}
    adjusted = stats.holm({arm: known.get(arm, 1.0) for arm in study.planned_others[1:]})
    return {arm: adjusted.get(arm, p) for arm, p in known.items()}


def tuning_table(study: Study) -> str:
    plan, said = study.plan, []
    for stage in plan["tuned"]:
        losses = tuning_losses(plan, stage)
        if not losses:
            continue
        grid = sorted({lr for of in losses.values() for lr in of})
        best = {arm: best_rate(of) for arm, of in losses.items()
                if not next_rates(plan["grid"], plan["tuning_seeds"], of)}
        rows = [[arm, *(", ".join("diverged" if loss is None else f"{loss:.3f}"
                                  for loss in of.get(lr, {}).values())
                        + " *" * (lr == best.get(arm)) for lr in grid)]
                for arm, of in losses.items()]
        tokens = amount(stage_steps(plan, stage) * plan["step_tokens"])
        said += [table([f"{stage}, {tokens} tokens", *(f"{lr:g}" for lr in grid)], rows)]
        if stage == "treatments" and best.keys() == losses.keys():
            means = joined(f"{arm} {lowest(of):.3f}" for arm, of in losses.items())
            chosen = plan["treatment"]
            stands = f". In all that follows from them {plan['treatments'][0]} is {chosen}"
            said += [escape(f"Treatments of the sinusoid at their best rates: {means}"
                            f"{stands if chosen else ''}.")]
    if said:
        seeds = joined(plan["tuning_seeds"])
        said += [f"Validation loss by seed ({seeds}), none of which is reported; \\*: the rate "
                 "chosen."]
    return "\n\n".join(said) or NOT_MEASURED


def context_table(study: Study) -> str:
    contexts = sorted({row["context"] for record in study.records.values()
                       for row in record["context"]})
    rows = []
    for arm in study.arms:
        for words, source, which in (*BY_CONTEXT, WHOLE):
            losses = [with_error(study, arm, source, context=context, **which)
                      for context in contexts]
            if any(loss != UNDEFINED for loss in losses):
                rows.append([arm + words, *losses])
    return table(["arm", *(in_lengths(c / study.seq_len) for c in contexts)], rows)


def control(study: Study) -> str:
    """A sentence where an arm without an encoding gets below the bigrams too."""
    for arm in study.arms:
        without = study.plan["arms"][arm].get("model.position") == "none"
        if without and max(study.tokens_until_used(arm).values()) < math.inf:
            return escape(f" {arm}, which has no encoding, gets there too, as a causal mask tells "
                          "some order: what an encoding adds is its lead over that.")
    return ""


def with_error(study: Study, arm: str, source: str, **which: Any) -> str:
    """Loss in a row of a table, mean ± sd over seeds, and the standard error of one of them over
    the text."""
    loss = with_sd(study.values(arm, cell(source, "loss", **which)).values(), ".3f")
    error = study.mean(arm, cell(source, "se", **which))
    return UNDEFINED if error is None else f"{loss} (se {error:.3f})"


def probe_table(study: Study) -> str:
    rows = []
    probed = {arm for _, arm, _ in study.probes}
    for arm in (arm for arm in PROBED if arm in probed):
        copies, repeats = (study.probe(probe, arm).values() for probe in ("P1", "P2"))
        excess = [with_sd(record["excess"].get(at) for record in copies)
                  for at in ("T", "2T", "4T")]
        steps = [math.inf if r["steps_to_90"] is None else r["steps_to_90"] for r in repeats]
        rows.append([arm, *excess, span(steps, min((r["steps"] for r in repeats), default=0))])
    return table(["arm", "P1 at T", "P1 at 2T", "P1 at 4T", "P2: steps to 90 %"], rows)


def predictions_table(study: Study) -> str:
    rows = [[prediction.what, measured(value), verdict]
            for prediction, value, verdict in outcomes(study)]
    return table(["predicted", "measured", "outcome"], rows) if rows else NOT_MEASURED


def threats(study: Study) -> list[str]:
    """The five that matter."""
    of_rope = []
    for record in [*study.of("rope").values()][:1]:
        model = record["config"]["model"]
        turns = study.seq_len * rope_frequencies(model["head_dim"], model["theta"]) / (2 * math.pi)
        of_rope = [f"At T = {study.seq_len}, {int((turns < 1).sum())} of {len(turns)} RoPE pairs "
                   "complete less than one turn, so full RoPE is nearer to p-RoPE here than at "
                   "scale."]
    last, treatments = study.horizons[-1], study.plan["treatments"]
    only = "An interval over seeds says nothing of other models and texts."
    head, base = study.planned_others[0], study.baseline
    if study.paired(head, last) and (error := study.text_error(head, last)):
        only += (f" From one stretch of this text to another, {head} − {base} after "
                 f"{amount(last)} tokens has a standard error of {error:.3f}.")
    tuned = "No learning rate is tuned"
    if study.plan["grid"]:
        best = (f", and {treatments[0]} is the best of {len(treatments)} treatments"
                if treatments else "")
        tuned = (f"The learning rate is tuned{best}: for one length, with other seeds, but on the "
                 "validation text that is reported")
    own = joined(arm for arm, overlay in study.plan["arms"].items()
                 if any(key.startswith("optim.") for key in overlay))
    return [
        only,
        f"At most {amount(last)} tokens: whether the rest of a gap closes is not known.",
        f"{tuned}. Other settings of training are those of all arms"
        f"{f', but for what {own} says of them' if own else ''}.",
        *of_rope,
        "Tokens until used are read at a constant rate, where every loss is higher than after a "
        "cooldown.",
    ]


def facts(study: Study) -> list[str]:
    """What the plan and the records say of when, where and with what the study was made."""
    plan = study.plan
    machines, trained_by = (
        "; ".join(dict.fromkeys(flat(record[key]) for record in study.records.values()))
        for key in ("machine", "trained_by")
    )
    known = {
        "tier": plan["tier"], "minutes": f"{plan['minutes']:.0f}",
        "machines": machines or flat(plan["machine"]), "dtype": plan["dtype"],
        "versions at the start": plan["versions"], "revision at the start": plan["git"],
        "runs were trained by": trained_by or None,
    }
    return [f"{name}: {flat(value)}" for name, value in known.items() if value is not None]


# --- Markdown and numbers as text -----------------------------------------------------------------


def escape(text: str) -> str:
    return re.sub(r"([\\|*<>`])", r"\\\1", text)


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)


def table(header: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return NOT_MEASURED
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(escape, line))} |" for line in lines)


def number(value: float | None, form: str = ".4f") -> str:
    """With a minus as long as a plus."""
    return UNDEFINED if value is None else format(value, form).replace("-", "−")


def measured(value: float | stats.Paired | None) -> str:
    if isinstance(value, stats.Paired):
        return difference(value, None)
    if value is None or math.isnan(value):
        return UNDEFINED
    return number(value, ".3f")


def interval(ends: tuple[float, float]) -> str:
    return f"[{joined(number(end, '+.3f') for end in ends)}]"


def difference(result: stats.Paired | None, p: float | None, seeds: int | None = None) -> str:
    """`seeds`: of the arm, which may have more than the pairs that this rests on."""
    if result is None:
        return UNDEFINED
    bounds = f" {interval(result.interval)}" if result.interval else ""
    pairs = f" ({result.n} of them)" if seeds not in (None, result.n) else ""
    return f"{number(result.mean, '+.3f')}{bounds}{pairs}" + ("" if p is None else f", p {p:.2g}")


def with_sd(values: Iterable[float | None], form: str = ".4f") -> str:
    """Mean ± sd of the values that are defined."""
    known = [value for value in values if value is not None]
    spread = stats.sd(known)
    return number(stats.mean(known), form) + ("" if spread is None else f" ± {spread:{form}}")


def until_used(study: Study, arm: str) -> str:
    ends = [max(curve) for curve in study.curves(arm, "loss").values() if curve]
    return span(study.tokens_until_used(arm).values(), min(ends, default=0))


def span(times: Collection[float], end: float) -> str:
    """Median, lowest and highest of times until something happens; inf: not up to `end`."""
    if not times:
        return UNDEFINED
    low, high = statistics.median_low(times), statistics.median_high(times)
    known = [min(value, end) for value in (low if high == math.inf else (low + high) / 2,
                                           min(times), max(times))]
    words = [f"more than {amount(value)}" if more == math.inf else amount(value)
             for value, more in zip(known, (high, min(times), max(times)), strict=True)]
    if len({*words}) == 1:
        return words[0]
    return f"{words[0]} ({words[1]} – {words[2]})"


def joined(values: Iterable[Any], form: str = "{}") -> str:
    return ", ".join(form.format(value) for value in values if value is not None)


def amount(tokens: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:.0f}"


def flat(value: Any) -> str:
    if isinstance(value, dict):
        return joined(f"{key} {flat(part)}" for key, part in value.items() if part is not None)
    return str(value)


# --- wandb ----------------------------------------------------------------------------------------


def mirror_in_wandb(path: Path, log: LogConfig) -> bool:
    """The study beside its training runs: job type eval for each arm and seed, probe for each
    probe, in the group of their arm; and one report, with the differences as curves.

    To be called after `write_report`. Returns whether wandb took all: a failure is one warning.
    """
    runs = list(wandb_runs(Study.load(path), log))
    bar = tqdm(runs, "wandb", unit="run", dynamic_ncols=True, leave=False, disable=None)
    return all(log_to_wandb(*arguments) for arguments in bar)


def wandb_runs(
    study: Study, log: LogConfig
) -> Iterator[tuple[LogConfig, str, Record, list[dict[str, Any]]]]:
    """For each run the arguments of `log_to_wandb`: where, name, config, points."""
    name = study.path.name
    for (arm, seed), record in study.records.items():
        known = {key: record[key] for key in ("arm", "seed", "lr", "seq_len", "data_sha256")}
        where = replace(log, group=record["config"]["log"]["group"], job_type="eval")
        yield where, f"{arm}-s{seed}-eval", known, measured_points(record)
    for (probe, arm, seed), record in study.probes.items():
        where = replace(log, group=f"{name}/{probe}/{arm}", job_type="probe")
        points = [{"x": step, f"probe/{probe}": value} for step, value in record["curve"]]
        yield where, f"{arm}-s{seed}-{probe}", {"arm": arm, "seed": seed, "probe": probe}, points
    rows = [[arm, seed, record["lr"], *(end[key] for key in RUN_COLUMNS[3:])]
            for (arm, seed), record in study.records.items() for end in record["horizons"]]
    points = [*delta_points(study), {
        "x": study.horizons[-1], "runs": Table(RUN_COLUMNS, rows),
        **{file.stem: file for file in sorted(study.path.glob("fig_*.png"))},
    }]
    yield replace(log, group=name, job_type="report"), f"{name}-report", study.plan, points


def delta_points(study: Study) -> list[dict[str, float]]:
    """Mean differences from the baseline along the constant rate, each against tokens."""
    return [{"x": tokens, f"delta/{arm}": statistics.fmean(gaps)} for arm in study.others
            for tokens, gaps in aligned(study.gaps(arm)).items()]


def measured_points(record: Record) -> list[dict[str, float]]:
    """What was measured of one arm and seed: against training tokens, the tokens that a prediction
    sees, the length of the context, and how far positions are moved."""
    seen = record["by_position"]
    points = [
        *({"x": end["tokens"], "val/cooled": end["loss"]} for end in record["horizons"]),
        *({"x": position, "position/loss": loss}
          for position, loss in zip(seen["position"], seen["loss"], strict=True)),
        *({"x": row["context"], f"context/loss_{row['mode']}": row["loss"]}
          for row in record["context"]),
        *({"x": row["delta"], "shift/dloss": row["dloss"]} for row in record["shift"]),
    ]
    return [{k: v for k, v in point.items() if v is not None} for point in points]


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        raise UserError("usage: python -m ablation.report runs/STUDY [RESULTS.md]")
    write_report(*map(Path, arguments))
    print(Path(arguments[0]) / "report.html")


if __name__ == "__main__":
    with exit_in_words():
        main()
