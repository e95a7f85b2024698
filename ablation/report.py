"""From plan.json, results/ and probes/ of a study to report.html, RESULTS.md and figures.

    python -m ablation.report runs/ablation
    python -m ablation.report docs/results docs/results.md

The words stand in report.md, and the numbers are filled in here; report.html is the result with the
figures inside, laid out by page.html. Everything in it is read from the study's files, so it can be
made again anywhere, after any number of runs. What there is to say about one study stands in a
NOTES.md in its folder, which the report repeats below its first sentence. Losses are in nats per
token.
"""

import base64
import html
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt

from ablation import plots, stats
from ablation.predictions import Outcome, outcomes, raw_degradation
from ablation.study import Measure, Record, Study, cell, in_lengths, past_the_end, short
from errors import UserError, exit_in_words
from files import write_file
from gyre.wandb_log import LogConfig, Table, log_to_wandb

UNDEFINED = "–"
NOT_MEASURED = "Not measured."
# Of the tables that wandb gets.
RUN_COLUMNS = ["arm", "seed", "lr", "parameters", "tokens", "tokens_per_second", "loss", "bpb",
               "init_sha256", "batches_sha256"]
DIFFERENCE_COLUMNS = ["arm", "baseline", "n", "mean", "sd", "low", "high", "p"]


def write_report(path: Path, markdown: Path | None = None) -> None:
    """Write the report about the study in the folder `path`.

    `markdown` stands for RESULTS.md where that is to be in another folder than the figures. Raises
    UserError where the runs cannot be compared; see ablation/study.py.
    """
    markdown = markdown or path / "RESULTS.md"
    study = Study.load(path)
    text = compose(study, plots.draw(study), markdown.parent)
    write_file(path / "report.html", to_html(text, path).encode())
    write_file(markdown, text.encode())


def compose(study: Study, figures: list[str], folder: Path) -> str:
    """The report in Markdown: report.md with its fields filled in.

    `figures`: the names of those there are; `folder`: where the text will stand, from where it
    links to them.
    """
    plan, record = study.plan, next(iter(study.records.values()))
    predicted = outcomes(study)
    verdicts = [outcome.verdict for outcome in predicted]
    said = {
        "name": plan["name"],
        "claim": claim(study),
        "base": study.baseline,
        "secondary": joined(study.secondary) or "no secondary arm",
        "longest": 8 * study.seq_len,
        "raw_degradation": number(raw_degradation(study), "+.4f"),
        "verdicts": joined(
            f"{verdicts.count(v)} {v}" for v in ("held", "not held", "not measured")
        ),
        "tier": "GPU" if study.tier.startswith("gpu") else "CPU",
        "data": short(record["data_sha256"]),
        "tokenizer": short(record["tokenizer_sha256"]),
        "seq_len": study.seq_len,
        "tokens": f"{study.tokens:,}",
        "folder": f"{study.path.parent.name}/{study.path.name}",
    }
    blocks = {
        "left_out": left_out(study),
        "notes": notes(study),
        "arms": arms_table(study),
        "pairing": pairing(study),
        "seeds": seeds_table(study),
        "shifts": shift_table(study),
        "contexts": table_by_context(study, "context", "mode", "windows"),
        "past_the_end": past_table(study),
        "scalings": table_by_context(study, "rope_scaling", "scaling", "scaling"),
        "probes": probe_tables(study),
        "scales": scale_table(study),
        "predictions": predictions_table(predicted),
        "attention": attention_table(study),
        "tuning": tuning_table(study),
        "threats": bullets(threats(study)),
        "fairness": fairness_table(study),
        "command": f"```\n{plan['command']}\n```",
        "facts": bullets(facts(study)),
    }
    for name in plots.FIGURES:
        link = Path(os.path.relpath(study.path / f"{name}.png", folder)).as_posix()
        blocks[name] = f"![{name}]({quote(link)})" if name in figures else NOT_MEASURED
    template = Path(__file__).with_name("report.md").read_text(encoding="utf-8")
    fields = {name: escape(str(value)) for name, value in said.items()} | blocks
    return re.sub(r"\n{3,}", "\n\n", template.format_map(fields))


def to_html(markdown: str, folder: Path) -> str:
    """One file that needs no other: the images named in the text are read from `folder`."""
    parser = MarkdownIt("js-default")  # tables, and no HTML within the text
    tokens = parser.parse(markdown)
    for image in (part for token in tokens for part in token.children or []):
        if image.type == "image":
            png = (folder / f"{image.content}.png").read_bytes()
            image.attrs["src"] = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    title = html.escape(markdown.partition("\n")[0].removeprefix("# "))
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    body = parser.renderer.render(tokens, parser.options, {})
    return Template(template).substitute(title=title, body=body)


# --- what is said ---------------------------------------------------------------------------------


def claim(study: Study) -> str:
    """The headline difference in one sentence, no stronger than its interval."""
    arm, base = study.headline
    result = study.paired(arm, base)
    if not result.n:
        return f"{arm} and {base} have no seed in common yet: nothing can be said."
    seeds = "one seed" if result.n == 1 else f"{result.n} paired seeds"
    size = f"{arm} − {base} = {number(result.mean, '+.4f')} nats per token"
    at = f"after {amount(study.tokens)} tokens at T = {study.seq_len}, {seeds}"
    if result.interval is None:
        sentence = f"{size} {at}: no interval, so no claim."
    else:
        size += f", 95 % interval {interval(result.interval)}, {at}, sign-flip p = {result.p:.3g}"
        if result.equivalent:
            sentence = (
                f"No difference of the size that matters here: {size}; the 90 % interval lies "
                f"within ±{stats.MARGIN} nats."
            )
        elif result.interval.high < 0 or result.interval.low > 0:
            which = "lower" if result.interval.high < 0 else "higher"
            sentence = f"{arm} has the {which} validation loss: {size}."
        else:
            sentence = (
                f"Undecided: {size}; the interval includes 0 and the 90 % interval is not within "
                f"±{stats.MARGIN} nats."
            )
    smoke = "Smoke tier, a check of the machinery and nothing else. "
    return smoke + sentence if study.tier == "smoke" else sentence


def left_out(study: Study) -> str:
    missing, diverged = map(joined, (study.missing, study.diverged))
    said = []
    if missing:
        said.append(f"Unfinished: {len(study.missing)} planned runs missing ({missing}).")
    if diverged:
        said.append(f"Without a final loss, and so in no mean and no difference: {diverged}.")
    return "\n\n".join(map(escape, said))


def notes(study: Study) -> str:
    """What somebody wrote about this study, in Markdown."""
    file = study.path / "NOTES.md"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def p_values(study: Study) -> dict[str, float]:
    """Sign-flip p of each arm against the baseline; those of the secondary arms Holm-corrected."""
    raw = {arm: study.paired(arm).p for arm in study.arms if arm != study.baseline}
    known = {arm: p for arm, p in raw.items() if p is not None}
    return known | stats.holm({arm: p for arm, p in known.items() if arm in study.secondary})


def by_arm(arms: Iterable[str], columns: dict[str, Callable[[str], str]]) -> str:
    """A table of these arms: by the title of a column, what it says of an arm."""
    rows = [[arm, *(said(arm) for said in columns.values())] for arm in arms]
    return table(["arm", *columns], rows)


def means(study: Study, measure: Measure, form: str = ".4f") -> Callable[[str], str]:
    """A column of means over seeds."""
    return lambda arm: number(study.mean(arm, measure), form)


def arms_table(study: Study) -> str:
    p, base = p_values(study), study.baseline

    def each(arm: str, key: str, form: str) -> str:
        return joined({record[key] for record in study.of(arm).values()}, form)

    return by_arm(study.arms, {
        "parameters": lambda arm: each(arm, "parameters", "{:,}"),
        "tokens/s": means(study, "tokens_per_second", ",.0f"),
        "learning rate": lambda arm: each(arm, "lr", "{:g}"),
        "n": lambda arm: str(len(study.losses(arm))),
        "loss, nats/token": lambda arm: over_seeds(study, arm, "loss"),
        "bits/byte": means(study, "bpb"),
        f"minus {base}, paired [95 %]": lambda arm: (
            UNDEFINED if arm == base else difference(study.paired(arm))
        ),
        "p": lambda arm: number(p.get(arm), ".3g"),
        "tokens to target": lambda arm: to_target(study, arm),
    })


def to_target(study: Study, arm: str) -> str:
    needed = sorted(study.tokens_to_target(arm).values())
    if not needed:
        return UNDEFINED
    reached = [tokens for tokens in needed if tokens < math.inf]
    median = (needed[(len(needed) - 1) // 2] + needed[len(needed) // 2]) / 2
    share = "never" if median == math.inf else f"{median / study.tokens:.2f} ({amount(median)})"
    return f"{share}, {len(reached)}/{len(needed)}"


def pairing(study: Study) -> str:
    items = []
    for arm in study.arms:
        result = study.paired(arm)
        if arm == study.baseline or result.interval is None:
            continue
        r = "undefined" if result.correlation is None else number(result.correlation, "+.2f")
        text = f"{arm} and {study.baseline}: correlation over seeds {r}"
        text += f", sd of the difference {result.sd:.4f}"
        if result.welch and not result.pairing_helps:
            text += f"; pairing buys nothing here, Welch's interval is {interval(result.welch)}"
        items.append(text)
    return f"What pairing bought:\n\n{bullets(items)}" if items else ""


def seeds_table(study: Study) -> str:
    return by_arm(study.arms, {
        f"seed {seed}": lambda arm, seed=seed: number(study.losses(arm).get(seed))
        for seed in study.seeds()
    })


def shift_table(study: Study) -> str:
    deltas = sorted(study.distinct("shift", "delta"))
    if not deltas:
        return NOT_MEASURED
    columns = {
        f"+{in_lengths(delta, study.seq_len)}":
            means(study, cell("shift", "dloss", delta=delta), "+.1e")
        for delta in deltas
    }
    largest = means(study, cell("shift", "dlogit_max", delta=deltas[-1]), ".1e")
    return by_arm(
        study.arms, columns | {f"largest change of a logit at {[*columns][-1]}": largest}
    )


def table_by_context(study: Study, source: str, kind: str, title: str) -> str:
    """Losses of each arm and kind by context length, from a table of the records."""
    contexts = sorted(study.distinct(source, "context"))
    rows = [
        [arm, name, *(
            over_seeds(study, arm, cell(source, "loss", context=context, **{kind: name}))
            for context in contexts
        )]
        for arm in study.arms
        if any(record.get(source) for record in study.of(arm).values())
        for name in study.distinct(source, kind)
    ]
    return table(["arm", title, *(in_lengths(c, study.seq_len) for c in contexts)], rows)


def past_table(study: Study) -> str:
    title = "loss at T+1 … 2T minus loss at 1 … T"
    return by_arm(study.arms, {title: lambda arm: over_seeds(study, arm, past_the_end, "+.4f")})


def probe_tables(study: Study) -> str:
    """One for each probe, with what it measures below it."""
    tables = []
    planned = dict.fromkeys([*study.arms, *(arm for _, arm, _ in study.probes)])
    for probe in sorted({name for name, *_ in study.probes}):
        records = {arm: list(study.probe(probe, arm).values()) for arm in planned}
        every = [record for found in records.values() for record in found]
        lengths = [at for at in every[0]["excess"]
                   if any(record["excess"][at] is not None for record in every)]
        timed = any(record["steps_to_90"] is not None for record in every)
        rows = []
        for arm, found in records.items():
            excess = [with_sd(record["excess"][at] for record in found) for at in lengths]
            steps = joined(record["steps_to_90"] or "never" for record in found)
            if found:
                rows.append([arm, str(len(found)), *excess, *([steps] * timed)])
        header = ["arm", "n", *(f"at {at}" for at in lengths)]
        floors = joined({record["entropy_floor"] for record in every}, "{:.4f}")
        tables += [
            table(header + ["steps to 90 %, by seed"] * timed, rows),
            f"{probe}: loss above the optimum, nats/token, mean ± sd over seeds; entropy floor "
            f"{floors}.",
        ]
    return "\n\n".join(tables)


def scale_table(study: Study) -> str:
    added = [arm for arm in study.arms if study.mean(arm, "rms_ratio") is not None]
    return by_arm(added, {
        "rms of positions": means(study, "position_rms", ".4g"),
        "rms of embeddings": means(study, "embedding_rms", ".4g"),
        "ratio": means(study, "rms_ratio", ".4g"),
        "ratio after training": means(study, "rms_ratio_trained", ".4g"),
        "loss, nats/token": lambda arm: over_seeds(study, arm, "loss"),
    })


def predictions_table(predicted: list[Outcome]) -> str:
    rows = []
    for outcome in predicted:
        checks = "; ".join(f"{what}: {measured(value)} ({m})" for what, value, m in outcome.checks)
        rows.append([outcome.name, outcome.subject, outcome.expected, checks or UNDEFINED,
                     outcome.verdict])
    return table(["", "what", "predicted", "measured", "outcome"], rows)


def attention_table(study: Study) -> str:
    rows = []
    for arm in study.arms:
        known = [r["attention_distance"] for r in study.of(arm).values()]
        layers = [
            " ".join(number(stats.mean(head), ".1f") for head in zip(*layer, strict=True))
            for layer in zip(*known, strict=True)
        ]
        if layers:
            rows.append([arm, *layers])
    return table(["arm", *(f"layer {i}" for i in range(len(rows[0]) - 1 if rows else 0))], rows)


def tuning_table(study: Study) -> str:
    tuning = study.plan["tuning"]
    if not tuning:
        return "Not tuned: every arm has the learning rate of the configuration."
    rates = sorted({float(lr) for losses in tuning.values() for lr in losses})
    rows, edges = [], []
    for arm, losses in tuning.items():
        losses = {float(lr): loss for lr, loss in losses.items()}
        chosen = study.plan["arms"][arm]["lr"]
        rows.append([arm, *(number(losses.get(lr)) + " *" * (lr == chosen) for lr in rates)])
        if chosen in (rates[0], rates[-1]):
            edges.append(arm)
    caption = "Validation loss on the tuning seed, nats/token; *: chosen for the runs above."
    if edges:
        caption += f" At the edge of the grid, so perhaps not at its best: {joined(edges)}."
    return f"{table(['arm', *(f'{lr:g}' for lr in rates)], rows)}\n\n{escape(caption)}"


def threats(study: Study) -> list[str]:
    """Those that follow from the numbers; report.md has what holds for any study of this kind."""
    items = []
    if turns := full_turns(study):
        done, pairs = turns
        items.append(
            f"At T = {study.seq_len}, {pairs - done} of {pairs} RoPE pairs complete less than one "
            "turn, so full RoPE is nearer to p-RoPE here than at scale."
        )
    if few := joined(arm for arm in study.arms if len(study.losses(arm)) < 6):
        items.append(f"Fewer than 6 seeds, so no sign-flip p below 0.05 whatever happens: {few}.")
    own, base = (study.mean(arm, "tokens_per_second") for arm in study.headline)
    if own and base:
        items.append(
            f"Arms are compared at equal tokens; at equal seconds, note that {study.headline[0]} "
            f"ran at {own / base:.2f} times the speed of {study.headline[1]}."
        )
    return items


def full_turns(study: Study) -> tuple[int, int] | None:
    """(pairs that turn at least once within T, pairs) of the rope arm."""
    for record in study.of("rope").values():
        model = record["config"]["model"]
        pairs = range(model["head_dim"] // 2)
        turns = [study.seq_len * model["theta"] ** (-2 * i / model["head_dim"]) for i in pairs]
        return sum(angle >= 2 * math.pi for angle in turns), len(pairs)
    return None


def fairness_table(study: Study) -> str:
    rows = []
    for seed in study.seeds():
        arms = [arm for arm in study.arms if (arm, seed) in study.records]
        one = study.records[arms[0], seed]
        hashes = [short(one[key]) for key in ("init_sha256", "batches_sha256")]
        rows.append([str(seed), *hashes, joined(arms)])
    return table(["seed", "initial values", "batches", "shared by"], rows)


def facts(study: Study) -> list[str]:
    """What the plan says of when, where and with what the study was made."""
    plan = study.plan
    minutes = {"spent": "minutes", "expected": "expected_minutes", "allowed": "budget_minutes"}
    known = {
        "tier": plan["tier"], "steps": plan["steps"],
        "minutes": joined(f"{plan[key]:.1f} {word}" for word, key in minutes.items()),
        "machine": plan["machine"], "versions": plan["versions"], "revision": plan["git"],
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


def measured(value: float | None) -> str:
    if value == math.inf:
        return "never"
    return number(value, ".1e" if value and abs(value) < 1e-3 else ".4f")


def interval(bounds: stats.Interval) -> str:
    return f"[{number(bounds.low, '+.4f')}, {number(bounds.high, '+.4f')}]"


def difference(result: stats.Paired) -> str:
    if not result.n:
        return UNDEFINED
    bounds = interval(result.interval) if result.interval else "(no interval)"
    return f"{number(result.mean, '+.4f')} {bounds}"


def over_seeds(study: Study, arm: str, measure: Measure, form: str = ".4f") -> str:
    return with_sd(study.values(arm, measure).values(), form)


def with_sd(values: Iterable[float | None], form: str = ".4f") -> str:
    """Mean ± sd of the values that are defined."""
    known = [value for value in values if value is not None]
    spread = stats.sd(known)
    return number(stats.mean(known), form) + ("" if spread is None else f" ± {spread:.4f}")


def joined(values: Iterable[Any], form: str = "{}") -> str:
    return ", ".join(form.format(value) for value in values if value is not None)


def amount(tokens: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:.0f}"


def flat(value: Any) -> str:
    if isinstance(value, dict):
        return joined(f"{key} {flat(part)}" for key, part in value.items() if part is not None)
    return str(value)


# --- wandb ----------------------------------------------------------------------------------------


def mirror_in_wandb(path: Path, log: LogConfig) -> None:
    """The study beside its training runs: job type eval for each measured run and probe for each
    probe, in the group of their arm; and one report, with tables of all runs and differences.

    To be called after `write_report`. Whatever wandb does, it costs one warning a run at most.
    """
    for arguments in wandb_runs(Study.load(path), log):
        if not log_to_wandb(*arguments):
            break


def wandb_runs(
    study: Study, log: LogConfig
) -> Iterator[tuple[LogConfig, str, Record, list[dict[str, Any]]]]:
    """For each run the arguments of `log_to_wandb`: where, name, config, points."""
    groups = {arm: record["config"]["log"]["group"] for (arm, _), record in study.records.items()}
    for (arm, seed), record in study.records.items():
        known = {key: record[key] for key in ("arm", "seed", "lr", "seq_len", "data_sha256")}
        where = replace(log, group=groups[arm], job_type="eval")
        yield where, f"{arm}-s{seed}-eval", known, measured_points(record)
    for (probe, arm, seed), record in study.probes.items():
        where = replace(log, group=groups.get(arm, arm), job_type="probe")
        points = [{"probe_step": step, f"probe/{probe}": value} for step, value in record["curve"]]
        yield where, f"{arm}-s{seed}-{probe}", {"arm": arm, "seed": seed, "probe": probe}, points
    p = p_values(study)
    runs = [record for arm in study.arms for record in study.of(arm).values()]
    differences = [
        {"arm": arm, "baseline": study.baseline, "n": d.n, "mean": d.mean, "sd": d.sd,
         **(asdict(d.interval) if d.interval else {}), "p": p.get(arm)}
        for arm in study.arms
        if arm != study.baseline and (d := study.paired(arm))
    ]
    point = {"runs": columns_of(runs, RUN_COLUMNS),
             "differences": columns_of(differences, DIFFERENCE_COLUMNS),
             **{file.stem: file for file in sorted(study.path.glob("fig_*.png"))}}
    where = replace(log, group=study.path.name, job_type="report")
    yield where, f"{study.path.name}-report", study.plan, [point]


def measured_points(record: Record) -> list[dict[str, float]]:
    """What evaluate.py measured of one run, each series against its own axis (wandb_log.AXES)."""
    seen = record.get("by_position") or {"position": [], "loss": []}
    points = [
        {"eval/loss": record["loss"], "eval/bpb": record.get("bpb")},
        *({"tokens_seen": position, "position/loss": loss}
          for position, loss in zip(seen["position"], seen["loss"], strict=True)),
        *({"context_length": row["context"], f"context/loss_{row['mode']}": row["loss"]}
          for row in record.get("context") or []),
        *({"offset": row["delta"], "shift/dloss": row["dloss"]}
          for row in record.get("shift") or []),
    ]
    return [{k: v for k, v in point.items() if v is not None} for point in points]


def columns_of(rows: Iterable[Record], columns: list[str]) -> Table:
    return Table(columns, [[row.get(column) for column in columns] for row in rows])


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        raise UserError("usage: python -m ablation.report runs/STUDY [RESULTS.md]")
    write_report(*map(Path, arguments))
    print(Path(arguments[0]) / "report.html")


if __name__ == "__main__":
    with exit_in_words():
        main()
