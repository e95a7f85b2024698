"""From plan.json, results/ and probes/ of a study to report.html, RESULTS.md and figures.

    python -m ablation.report runs/ablation
    python -m ablation.report docs/results docs/results.md

The report is built once, as a list of blocks, and written twice. Everything in it is read from the
study's files, so it can be made again anywhere, after any number of runs.
"""

import base64
import html
import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablation import plots, stats
from ablation.predictions import PREDICTIONS, raw_degradation
from ablation.study import (
    Study,
    distinct,
    in_lengths,
    past_the_end,
    scaled,
    shifted,
    short,
    with_context,
)
from errors import UserError, exit_in_words
from files import write_file
from gyre import rundir

UNDEFINED = "–"
LARGE_GAP = 0.3  # nats; a fair comparison of this kind has not shown more, a broken one has


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Claim:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: list[str]


@dataclass(frozen=True)
class Table:
    header: list[str]
    rows: list[list[str]]
    caption: str = ""


@dataclass(frozen=True)
class Image:
    file: Path
    caption: str


Block = Heading | Text | Code | Claim | Bullets | Table | Image


def write_report(study: Path, markdown: Path | None = None) -> None:
    """`markdown` stands for RESULTS.md where that is to be in another folder than the figures.

    Raises UserError where the runs cannot be compared; see ablation/study.py.
    """
    markdown = markdown or study / "RESULTS.md"
    loaded = Study.load(study)
    blocks = compose(loaded, plots.draw(loaded))
    title = f"Position encodings: {loaded.plan.get('name', loaded.path.name)}"
    write_file(loaded.path / "report.html", to_html(title, blocks).encode())
    write_file(markdown, to_markdown(title, blocks, markdown.parent).encode())


def log_to_wandb(study: Path, log: rundir.LogConfig) -> None:
    """The study beside its training runs: job type eval for each measured run and probe for each
    probe, in the group of their arm; and one report, with tables of all runs and differences.

    To be called after `write_report`. Whatever wandb does, it costs one warning a run at most.
    """
    loaded = Study.load(study)
    for arguments in wandb_runs(loaded, log):
        if not rundir.log_to_wandb(*arguments):
            break


def wandb_runs(study: Study, log: rundir.LogConfig) -> Iterator[tuple]:
    """For each run the arguments of `rundir.log_to_wandb`: where, name, config, points."""
    groups = {}
    for (arm, seed), record in study.records.items():
        logged = (record.get("config") or {}).get("log") or {}
        groups[arm] = logged.get("group") or arm
        known = {key: record.get(key) for key in ("arm", "seed", "lr", "seq_len", "data_sha256")}
        where = replace(log, group=groups[arm], job_type="eval")
        yield where, f"{arm}-s{seed}-eval", known, measured_points(record)
    for (probe, arm, seed), record in study.probes.items():
        where = replace(log, group=groups.get(arm, arm), job_type="probe")
        points = [{"probe_step": step, f"probe/{probe}": value} for step, value in record["curve"]]
        yield where, f"{arm}-s{seed}-{probe}", {"arm": arm, "seed": seed, "probe": probe}, points
    tables = {"runs": runs_table(study), "differences": differences_table(study)}
    figures = {file.stem: file for file in sorted(study.path.glob("fig_*.png"))}
    where = replace(log, group=study.path.name, job_type="report")
    yield where, f"{study.path.name}-report", study.plan, [tables | figures]


def measured_points(record: dict[str, Any]) -> list[dict[str, float]]:
    """What evaluate.py measured of one run, each series against its own axis (rundir.AXES)."""
    seen, contexts, shifts = (record.get(k) or {} for k in ("by_position", "context", "shift"))
    points = [{"eval/loss": record["loss"], "eval/bpb": record.get("bpb")}]
    points += [
        {"tokens_seen": position, "position/loss": loss}
        for position, loss in zip(seen.get("position", []), seen.get("loss", []), strict=True)
    ]
    points += [
        {"context_length": row["context"], f"context/loss_{row['mode']}": row["loss"]}
        for row in contexts
    ]
    points += [{"offset": row["delta"], "shift/dloss": row["dloss"]} for row in shifts]
    return [{k: v for k, v in point.items() if v is not None} for point in points]


def runs_table(study: Study) -> rundir.Table:
    columns = ["arm", "seed", "lr", "parameters", "tokens", "tokens_per_second", "loss", "bpb",
               "init_sha256", "batches_sha256"]  # fmt: skip
    rows = [
        [arm, seed, *(record.get(column) for column in columns[2:])]
        for arm in study.arms
        for seed, record in study.of(arm).items()
    ]
    return rundir.Table(columns, rows)


def differences_table(study: Study) -> rundir.Table:
    p, rows = p_values(study), []
    for arm in study.arms:
        if arm != study.baseline:
            d = study.paired(arm)
            ends = [d.interval.low, d.interval.high] if d.interval else [None, None]
            rows.append([arm, study.baseline, d.n, d.mean, d.sd, *ends, p.get(arm)])
    return rundir.Table(["arm", "baseline", "n", "mean", "sd", "low", "high", "p"], rows)


# --- what is said ---------------------------------------------------------------------------------


def compose(study: Study, figures: dict[str, Path]) -> list[Block]:
    def figure(name: str, caption: str) -> list[Block]:
        return [Image(figures[name], caption)] if name in figures else [Text("Not measured.")]

    base, length = study.baseline, study.seq_len
    return [
        Claim(claim(study)),
        *map(Text, scale_that_did_not_last(study)),
        *left_out(study),
        Heading("The arms"),
        main_table(study),
        *pairing_notes(study),
        seeds_table(study),
        Heading("Learning curves"),
        *figure(
            "fig_curves",
            f"Validation loss, and the difference from {base} at the same seed and tokens. Lines: "
            "mean over seeds; bands: lowest to highest seed. The scales leave out the first "
            "quarter of the training.",
        ),
        Heading("Paired differences"),
        *figure("fig_forest", f"Final validation loss of each arm minus {base}'s, by seed."),
        Heading("Loss against position"),
        *figure(
            "fig_position",
            f"Rows of 8T = {8 * length} tokens; a prediction sees all tokens of its row before it. "
            "Lines: mean over seeds; bands: lowest to highest seed. A line ends where the encoding "
            "is undefined.",
        ),
        Heading("Shift invariance"),
        *figure(
            "fig_shift",
            "The same windows with every position number raised by the same amount. No line: the "
            "encoding has no such positions.",
        ),
        *shift_table(study),
        Heading("More and less context than in training"),
        *context_table(study),
        Heading("RoPE past its training length, without further training"),
        *scaling_table(study),
        Heading("Probes with a known optimum"),
        *figure(
            "fig_probes",
            "P1: copy from a fixed lag through noise, one layer, against the exact entropy. P2: "
            "repeat a random segment of varying length, where the optimum is 0 on the second copy. "
            "Lines: mean over seeds; bands: lowest to highest seed.",
        ),
        *probe_table(study),
        Heading("The trap: sinusoids of amplitude 1 on small embeddings"),
        *trap(study),
        Heading("Predictions written down before the runs"),
        *predictions(study),
        Heading("How far attention looks"),
        *attention_table(study),
        Heading("Sensitivity to the learning rate"),
        *tuning_table(study),
        Heading("Threats to validity"),
        Bullets(threats(study)),
        Heading("Proof of a fair comparison"),
        *fairness(study),
        Heading("How to reproduce"),
        *reproduce(study),
    ]


def claim(study: Study) -> str:
    """The headline difference in one sentence, no stronger than its interval."""
    arm, base = study.headline
    result = study.paired(arm, base)
    if not result.n:
        return f"{arm} and {base} have no seed in common yet: nothing can be said."
    size = f"{arm} − {base} = {signed(result.mean)} nats per token"
    at = f"after {amount(study.tokens)} tokens at T = {study.seq_len}, {seeds(result.n)}"
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
            which = "lower" if result.mean < 0 else "higher"
            sentence = f"{arm} has the {which} validation loss: {size}."
        else:
            sentence = (
                f"Undecided: {size}; the interval includes 0 and the 90 % interval is not within "
                f"±{stats.MARGIN} nats."
            )
    smoke = "Smoke tier, a check of the machinery and nothing else. "
    return smoke + sentence if study.tier == "smoke" else sentence


def left_out(study: Study) -> list[Block]:
    blocks: list[Block] = []
    if study.missing:
        names = joined(study.missing)
        blocks.append(Text(f"Unfinished: {len(study.missing)} planned runs missing ({names})."))
    if study.diverged:
        names = joined(study.diverged)
        blocks.append(Text(f"Without a final loss, and so in no mean and no difference: {names}."))
    return blocks


def p_values(study: Study) -> dict[str, float]:
    """Sign-flip p of each arm against the baseline; those of the secondary arms Holm-corrected."""
    raw = {arm: study.paired(arm).p for arm in study.arms if arm != study.baseline}
    raw = {arm: p for arm, p in raw.items() if p is not None}
    return raw | stats.holm({arm: p for arm, p in raw.items() if arm in study.secondary})


def main_table(study: Study) -> Table:
    p, rows = p_values(study), []
    for arm in study.arms:
        losses = list(study.losses(arm).values())
        row = [
            arm,
            joined({r.get("parameters") for r in study.of(arm).values()}, "{:,}"),
            number(study.mean(arm, lambda r: r.get("tokens_per_second")), ",.0f"),
            joined({r["lr"] for r in study.of(arm).values()}, "{:g}"),
            str(len(losses)),
            with_sd(losses),
            number(study.mean(arm, lambda r: r.get("bpb")), ".4f"),
        ]
        if arm == study.baseline:
            row += [UNDEFINED] * 2
        else:
            result = study.paired(arm)
            row += [difference(result), number(p.get(arm), ".3g")]
        rows.append([*row, to_target(study, arm)])
    return Table(
        ["arm", "parameters", "tokens/s", "learning rate", "n", "loss, nats/token",
         "bits/byte", f"minus {study.baseline}, paired [95 %]", "p", "tokens to target"],
        rows,
        "Final validation loss, mean ± sd over n seeds. p: exact sign-flip test, two-sided, "
        f"Holm-corrected over {joined(study.secondary) or 'no secondary arm'}; with 3 seeds "
        "it cannot be below 0.25, with 5 not below 0.06. Tokens to target: what the arm needed for "
        f"the final loss of {study.baseline} at the same seed, as a share of all tokens; median, "
        "and how many seeds got there.",
    )  # fmt: skip


def to_target(study: Study, arm: str) -> str:
    needed = sorted(study.tokens_to_target(arm).values())
    if not needed:
        return UNDEFINED
    reached = [tokens for tokens in needed if tokens < math.inf]
    low, high = needed[(len(needed) - 1) // 2], needed[len(needed) // 2]
    median = (low + high) / 2
    share = "never" if median == math.inf else f"{median / study.tokens:.2f} ({amount(median)})"
    return f"{share}, {len(reached)}/{len(needed)}"


def pairing_notes(study: Study) -> list[Block]:
    items = []
    for arm in study.arms:
        result = study.paired(arm)
        if arm == study.baseline or result.interval is None:
            continue
        r = "undefined" if result.correlation is None else f"{result.correlation:+.2f}"
        text = f"{arm} and {study.baseline}: correlation over seeds {sign(r)}"
        text += f", sd of the difference {result.sd:.4f}"
        if not result.pairing_helps:
            text += f"; pairing buys nothing here, Welch's interval is {interval(result.welch)}"
        items.append(text)
    return [Text("What pairing bought:"), Bullets(items)] if items else []


def seeds_table(study: Study) -> Table:
    every = study.seeds()
    return Table(
        ["arm", *(f"seed {seed}" for seed in every)],
        [[a, *(number(study.losses(a).get(s), ".4f") for s in every)] for a in study.arms],
        "Final validation loss of every run, nats/token.",
    )


def shift_table(study: Study) -> list[Block]:
    deltas = sorted(distinct(study.records.values(), "shift", "delta"))
    if not deltas:
        return []
    length = study.seq_len
    rows = [
        [arm, *(number(study.mean(arm, lambda r, d=d: shifted(r, d)), "+.1e") for d in deltas)]
        + [number(study.mean(arm, lambda r: shifted(r, deltas[-1], "dlogit_max")), ".1e")]
        for arm in study.arms
    ]
    return [
        Table(
            ["arm", *(f"+{in_lengths(d, length)}" for d in deltas)]
            + [f"largest change of a logit at +{in_lengths(deltas[-1], length)}"],
            rows,
            f"Change of the loss, nats/token, mean over seeds. {UNDEFINED}: no such positions.",
        )
    ]


def context_table(study: Study) -> list[Block]:
    modes = distinct(study.records.values(), "context", "mode")
    contexts = sorted(distinct(study.records.values(), "context", "context"))
    if not contexts:
        return [Text("Not measured.")]
    rows = []
    for arm in study.arms:
        for mode in modes:
            cells = [
                with_sd(study.values(arm, lambda r, c=c, m=mode: with_context(r, c, m)).values())
                for c in contexts
            ]
            rows.append([arm, mode, *cells])
    return [
        Table(
            ["arm", "windows", *(in_lengths(c, study.seq_len) for c in contexts)],
            rows,
            "Loss of the same targets, nats/token, mean ± sd over seeds, predicted from windows of "
            "that many tokens: end to end, where a target sees from one token to all of its "
            "window, or sliding, where it sees nearly all. Sliding shows what windows hide whose "
            f"first half is as in training. {UNDEFINED}: undefined.",
        ),
        Table(
            ["arm", "loss at T+1 … 2T minus loss at 1 … T"],
            [
                [arm, with_sd(study.values(arm, past_the_end).values(), "+.4f")]
                for arm in study.arms
            ],
            "From loss by position: other targets, and the first positions of a row are hard for "
            "every arm, which lowers this difference for all.",
        ),
    ]


def scaling_table(study: Study) -> list[Block]:
    names = distinct(study.records.values(), "rope_scaling", "scaling")
    contexts = sorted(distinct(study.records.values(), "rope_scaling", "context"))
    if not names:
        return [Text("Not measured.")]
    rows = []
    for arm in study.arms:
        for name in names:
            cells = [
                with_sd(study.values(arm, lambda r, n=name, c=c: scaled(r, n, c)).values())
                for c in contexts
            ]
            if set(cells) != {UNDEFINED}:
                rows.append([arm, name, *cells])
    degraded = raw_degradation(study)
    note = "" if degraded is None else f" Raw rope at 4T against a window of T: {signed(degraded)}."
    return [
        Table(
            ["arm", "scaling", *(in_lengths(c, study.seq_len) for c in contexts)],
            rows,
            "Loss of the same targets, nats/token, mean ± sd over seeds, in windows of that many "
            f"tokens that slide by T. Raw: no scaling.{note}",
        )
    ]


def probe_table(study: Study) -> list[Block]:
    blocks = []
    for probe in sorted({name for name, *_ in study.probes}):
        arms = list(dict.fromkeys(arm for name, arm, _ in study.probes if name == probe))
        arms.sort(key=lambda arm: study.arms.index(arm) if arm in study.arms else 99)
        every = [record for arm in arms for record in study.probe(probe, arm).values()]
        measured = [(r.get("excess") or {}).items() for r in every]
        lengths = dict.fromkeys(at for items in measured for at, x in items if x is not None)
        timed = any(r.get("steps_to_90") is not None for r in every)
        rows = []
        for arm in arms:
            records = study.probe(probe, arm).values()
            known = [[(r.get("excess") or {}).get(length) for r in records] for length in lengths]
            cells = [with_sd([x for x in values if x is not None]) for values in known]
            steps = [r.get("steps_to_90") for r in records]
            reached = ", ".join("never" if s is None else f"{s:g}" for s in steps)
            rows.append([arm, str(len(steps)), *cells, *([reached] * timed)])
        floors = {r["entropy_floor"] for r in every if r.get("entropy_floor") is not None}
        caption = f"{probe}: loss above the optimum, nats/token, mean ± sd over seeds"
        caption += f"; entropy floor {joined(floors, '{:.4f}')}." if floors else "."
        header = ["arm", "n", *(f"at {length}" for length in lengths)]
        header += ["steps to 90 %, by seed"] * timed
        blocks.append(Table(header, rows, caption))
    return blocks


def trap(study: Study) -> list[Block]:
    shown = [arm for arm in study.arms if study.mean(arm, lambda r: r.get("rms_ratio")) is not None]
    if not shown:
        return [Text("Not measured.")]
    rows = [
        [
            arm,
            *(
                number(study.mean(arm, lambda r, k=key: r.get(k)), ".4g")
                for key in ("position_rms", "embedding_rms", "rms_ratio", "rms_ratio_trained")
            ),
            with_sd(study.losses(arm).values()),
        ]
        for arm in shown
    ]
    blocks: list[Block] = [
        Table(
            [
                "arm",
                "rms of positions",
                "rms of embeddings",
                "ratio",
                "ratio after training",
                "loss, nats/token",
            ],
            rows,
            "At initialisation, where nothing else is said. A ratio near 1 is a fair start; near "
            "35 the token is 0.08 % of what the first layer sees.",
        )
    ]
    if "sin_naive" in study.arms and "sin" in study.arms:
        cost = study.paired("sin_naive", "sin")
        text = f"The careless swap costs sin_naive − sin = {difference(cost)} nats per token."
        if "rope" in study.arms:
            flattered, fair = study.paired("rope", "sin_naive"), study.paired("rope", "sin")
            text += (
                f" A study that takes it for the baseline reports rope − sin_naive = "
                f"{difference(flattered)}; with scales that are equal at the start it is "
                f"{difference(fair)}."
            )
        blocks.append(Text(text))
    return blocks


def predictions(study: Study) -> list[Block]:
    rows = []
    for prediction in PREDICTIONS:
        verdict, checks = prediction.outcome(study)
        numbers = "; ".join(f"{what}: {measured(value)} ({v})" for what, value, v in checks)
        expected = prediction.expected(study.tier)
        rows.append([prediction.name, prediction.subject, expected, numbers or UNDEFINED, verdict])
    verdicts = [row[-1] for row in rows]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in ("held", "not held", "not measured"))
    tier = "GPU" if study.tier.startswith("gpu") else "CPU"
    return [
        Text(
            f"{counted}. Predictions for the {tier} tier, from ablation/predictions.py. One holds "
            "when all of its checks do. Means over seeds, where nothing else is said."
        ),
        Table(["", "what", "predicted", "measured", "outcome"], rows),
    ]


def attention_table(study: Study) -> list[Block]:
    rows = []
    for arm in study.arms:
        known = [r.get("attention_distance") for r in study.of(arm).values()]
        known = [layers for layers in known if layers]
        if known:
            layers = [
                [stats.mean(head) for head in zip(*layer, strict=True)]
                for layer in zip(*known, strict=True)
            ]
            rows.append([arm, *(" ".join(f"{head:.1f}" for head in heads) for heads in layers)])
    if not rows:
        return [Text("Not measured.")]
    return [
        Table(
            ["arm", *(f"layer {i}" for i in range(len(rows[0]) - 1))],
            rows,
            "Mean distance in tokens between a query and what it attends to, each head in turn, "
            "mean over seeds.",
        )
    ]


def tuning_table(study: Study) -> list[Block]:
    tuning = study.plan.get("tuning") or {}
    if not tuning:
        return [Text("Not tuned: every arm has the learning rate of the configuration.")]
    rates = sorted({float(lr) for losses in tuning.values() for lr in losses})
    rows, edges = [], []
    for arm, losses in tuning.items():
        losses = {float(lr): loss for lr, loss in losses.items()}
        chosen = study.plan["arms"].get(arm, {}).get("lr")
        cells = [number(losses.get(lr), ".4f") + " *" * (lr == chosen) for lr in rates]
        rows.append([arm, *cells])
        if chosen in (rates[0], rates[-1]):
            edges.append(arm)
    caption = "Validation loss on the tuning seed, nats/token; *: chosen for the runs above."
    if edges:
        caption += f" At the edge of the grid, so perhaps not at its best: {', '.join(edges)}."
    return [Table(["arm", *(f"{lr:g}" for lr in rates)], rows, caption)]


def threats(study: Study) -> list[str]:
    items = [
        "One text and one model size; p values over seeds do not cover the choice of data.",
        "A short horizon favours what learns fast and looks near, so ALiBi in particular.",
        "Small vocabularies make local statistics count for more than they do at scale.",
        "Nothing but the learning rate was tuned per arm, and that on one seed.",
        "The matched sinusoid has one learnable scalar more than the other arms; it is added at "
        "the input only and so is part of the values too.",
        "The size and the lag of probe P1 were fixed after trial runs of it had been seen, and how "
        "well it extrapolates swings with them: H8's claim at 4T is not blind.",
    ]
    if turns := full_turns(study):
        done, pairs = turns
        items.append(
            f"At T = {study.seq_len}, {pairs - done} of {pairs} RoPE pairs complete less than one "
            "turn, so full RoPE is nearer to p-RoPE here than at scale."
        )
    few = [arm for arm in study.arms if len(study.losses(arm)) < 6]
    if few:
        items.append(
            f"Fewer than 6 seeds, so no sign-flip p below 0.05 whatever happens: {', '.join(few)}."
        )
    gap = study.paired(*study.headline).mean
    if gap is not None and abs(gap) > LARGE_GAP:
        ratio = study.mean(study.headline[1], lambda r: r.get("rms_ratio"))
        items.append(
            f"The headline gap exceeds {LARGE_GAP} nats, more than fair comparisons have shown: "
            f"suspect the scale of the sinusoid (rms ratio {number(ratio, '.3g')})."
        )
    speeds = [study.mean(arm, lambda r: r.get("tokens_per_second")) for arm in study.headline]
    if None not in speeds:
        items.append(
            f"Arms are compared at equal tokens; at equal seconds, note that {study.headline[0]} "
            f"ran at {speeds[0] / speeds[1]:.2f} times the speed of {study.headline[1]}."
        )
    return items


def scale_that_did_not_last(study: Study) -> list[str]:
    """What a reviewer would say of a baseline whose positions and tokens were equally large at the
    start only."""
    arm, base = study.headline
    start, end = (
        study.mean(base, lambda r, k=key: r.get(k)) for key in ("rms_ratio", "rms_ratio_trained")
    )
    if end is None or 0.5 <= end <= 1.5:
        return []
    return [
        f"The scales of {base} were equal at the start only: its positions begin at "
        f"{number(start, '.2f')} of the embeddings' rms and end at {number(end, '.2f')}. So {base} "
        f"may not be the best that sinusoids can do, and the difference to {arm} may owe to it."
    ]


def full_turns(study: Study) -> tuple[int, int] | None:
    """(pairs that turn at least once within T, pairs) of the rope arm."""
    for record in study.of("rope").values():
        model = (record.get("config") or {}).get("model") or {}
        width, theta = model.get("head_dim"), model.get("theta")
        if width and theta:
            turns = [study.seq_len * theta ** (-2 * i / width) for i in range(width // 2)]
            return sum(angle >= 2 * math.pi for angle in turns), len(turns)
    return None


def fairness(study: Study) -> list[Block]:
    record = next(iter(study.records.values()))
    rows = []
    for seed in study.seeds():
        arms = [arm for arm in study.arms if (arm, seed) in study.records]
        one = study.records[arms[0], seed]
        hashes = [short(one[key]) for key in ("init_sha256", "batches_sha256")]
        rows.append([str(seed), *hashes, ", ".join(arms)])
    return [
        Text(
            f"All runs: data {short(record['data_sha256'])}, tokenizer "
            f"{short(record['tokenizer_sha256'])}, T = {study.seq_len}, {study.tokens:,} tokens. "
            "The report is refused if any of these differ, or a hash below between arms of a seed."
        ),
        Table(
            ["seed", "initial values", "batches", "shared by"],
            rows,
            "sha256 over all parameters at initialisation but those of the encoding, and over all "
            "training batches in order.",
        ),
    ]


def reproduce(study: Study) -> list[Block]:
    plan = study.plan
    command = plan.get("command")
    command = shlex.join(command) if isinstance(command, list) else command
    minutes = {"spent": "minutes", "expected": "expected_minutes", "allowed": "budget_minutes"}
    known = {word: plan[key] for word, key in minutes.items() if plan.get(key) is not None}
    facts = {
        "tier": plan.get("tier"),
        "steps": plan.get("steps"),
        "minutes": ", ".join(f"{value:.1f} {word}" for word, value in known.items()) or None,
        "machine": plan.get("machine"),
        "versions": plan.get("versions"),
        "revision": plan.get("git"),
    }
    return [
        *([Code(str(command))] if command else []),
        Bullets([f"{name}: {flat(value)}" for name, value in facts.items() if value is not None]),
        Text("This report from the records alone:"),
        Code(f"python -m ablation.report {study.path.parent.name}/{study.path.name}"),
    ]


# --- numbers as text ------------------------------------------------------------------------------


def sign(text: str) -> str:
    """With a minus as long as a plus."""
    return text.replace("-", "−")


def signed(value: float) -> str:
    return sign(f"{value:+.4f}")


def number(value: float | None, form: str) -> str:
    return UNDEFINED if value is None else sign(format(value, form))


def measured(value: float | None) -> str:
    if value is None:
        return UNDEFINED
    if value == math.inf:
        return "never"
    return sign(f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}")


def interval(bounds: stats.Interval) -> str:
    return f"[{signed(bounds.low)}, {signed(bounds.high)}]"


def difference(result: stats.Paired) -> str:
    if not result.n:
        return UNDEFINED
    bounds = interval(result.interval) if result.interval else "(no interval)"
    return f"{signed(result.mean)} {bounds}"


def with_sd(values: Iterable[float], form: str = ".4f") -> str:
    values = list(values)
    spread = stats.sd(values)
    return number(stats.mean(values), form) + ("" if spread is None else f" ± {spread:.4f}")


def joined(values: Iterable[Any], form: str = "{}") -> str:
    return ", ".join(form.format(value) for value in values if value is not None)


def seeds(n: int) -> str:
    return "one seed" if n == 1 else f"{n} paired seeds"


def amount(tokens: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:.0f}"


def flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {flat(inner)}" for key, inner in value.items() if inner is not None
        )
    return str(value)


# --- the same blocks as a page and as text --------------------------------------------------------

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111; max-width: 62rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.claim { font-size: 1.15rem; font-weight: 600; border-left: 4px solid #111; padding-left: 1rem; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; color: #444; padding-top: .4rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0;
         border-bottom: 1px solid #ccc; }
th { border-bottom: 2px solid #111; }
figure { margin: 1rem 0; } figure img { max-width: 100%; }
figcaption { font-size: .85rem; color: #444; }
pre { background: #f2f2f2; padding: .6rem; overflow-x: auto; }
"""


def to_html(title: str, blocks: list[Block]) -> str:
    """One file that needs no other."""
    title = html.escape(title)
    body = "\n".join(map(html_block, blocks))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\n"
        "</body>\n</html>\n"
    )


def html_block(block: Block) -> str:
    def cells(tag: str, row: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    match block:
        case Heading(text):
            return f"<h2>{html.escape(text)}</h2>"
        case Claim(text):
            return f'<p class="claim">{html.escape(text)}</p>'
        case Text(text):
            return f"<p>{html.escape(text)}</p>"
        case Code(text):
            return f"<pre>{html.escape(text)}</pre>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"
        case Table(header, rows, caption):
            under = f"<caption>{html.escape(caption)}</caption>" if caption else ""
            body = "\n".join(cells("td", row) for row in rows)
            return (
                f'<div class="table"><table>{under}\n<thead>{cells("th", header)}</thead>\n'
                f"<tbody>\n{body}\n</tbody></table></div>"
            )
        case Image(file, caption):
            inline = base64.b64encode(file.read_bytes()).decode()
            text = html.escape(caption)
            return (
                f'<figure><img src="data:image/png;base64,{inline}" alt="{text}">'
                f"<figcaption>{text}</figcaption></figure>"
            )


def to_markdown(title: str, blocks: list[Block], folder: Path) -> str:
    return "\n\n".join([f"# {title}", *(markdown_block(b, folder) for b in blocks)]) + "\n"


def markdown_block(block: Block, folder: Path) -> str:
    def line(row: list[str]) -> str:
        return "| " + " | ".join(escape(cell) for cell in row) + " |"

    def escape(text: str) -> str:
        return re.sub(r"([\\|*<>`])", r"\\\1", text)

    match block:
        case Heading(text):
            return f"## {escape(text)}"
        case Claim(text):
            return f"**{escape(text)}**"
        case Text(text):
            return escape(text)
        case Code(text):
            return f"```\n{text}\n```"
        case Bullets(items):
            return "\n".join(f"- {escape(item)}" for item in items)
        case Table(header, rows, caption):
            rule = "|" + " --- |" * len(header)
            table = "\n".join([line(header), rule, *map(line, rows)])
            return f"{table}\n\n{escape(caption)}" if caption else table
        case Image(file, caption):
            link = Path(os.path.relpath(file, folder)).as_posix()
            return f"![{file.stem}]({link})\n\n{escape(caption)}"


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        raise UserError("usage: python -m ablation.report runs/STUDY [RESULTS.md]")
    write_report(*map(Path, arguments))
    print(Path(arguments[0]) / "report.html")


if __name__ == "__main__":
    with exit_in_words():
        main()
