"""The figures of a study, one function each. Readable in greyscale: every arm has a line style and
a marker of its own, and the training length is marked by a line and by words."""

import io
import itertools
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablation import stats
from ablation.study import Curve, Study, cell, curve, defined, in_lengths
from files import write_file

# Colour is an extra: dark and light alternate, and no two rows share a line style or a marker.
STYLES: list[dict[str, Any]] = [
    {"color": color, "linestyle": line, "marker": marker}
    for color, line, marker in [
        ("#000000", "-", "o"),
        ("#0072b2", "--", "s"),
        ("#d55e00", ":", "X"),
        ("#56338c", "-.", "^"),
        ("#009e73", (0, (8, 2)), "D"),
        ("#8c8c8c", (0, (1, 1)), "v"),
        ("#a6761d", (0, (5, 1, 1, 1, 1, 1)), "P"),
        ("#cc79a7", (0, (3, 3)), "<"),
        ("#3b3b3b", (0, (10, 3, 2, 3)), ">"),
        ("#56b4e9", (0, (2, 1, 2, 4)), "*"),
        ("#7a0019", (0, (6, 1, 1, 3)), "p"),
    ]
]
DPI = 150
GREY = "0.88"  # of a band of differences that do not matter


def draw(study: Study) -> list[str]:
    """Write NAME.png into the study's folder for every figure it has data for; the names."""
    names = []
    for name, figure in FIGURES.items():
        file = study.path / f"{name}.png"
        if drawn := figure(study):
            image = io.BytesIO()
            drawn.savefig(image, format="png", dpi=DPI)
            write_file(file, image.getvalue())
            names.append(name)
        else:
            file.unlink(missing_ok=True)  # of an earlier report, before its data was removed
    return names


def curves(study: Study) -> Figure:
    """Validation loss against tokens, and the same as differences from the baseline by seed."""
    fig, (left, right) = _panels(2)
    losses = {arm: [curve(r) for r in study.of(arm).values()] for arm in study.arms}
    base = {seed: curve(record) for seed, record in study.of(study.baseline).items()}
    gaps = {
        arm: [_minus(curve(r), base[seed]) for seed, r in study.of(arm).items()
              if seed in base and arm != study.baseline]
        for arm in study.arms
    }
    for ax, series, shown in ((left, losses, []), (right, gaps, [0.0])):
        for x, rows in _bands(ax, series):
            # What is before a quarter of the training would flatten the rest.
            late = np.array(x) >= study.tokens / 4
            shown.extend(rows[:, late].flat)
        if shown:
            room = 0.06 * (max(shown) - min(shown)) or 0.01
            ax.set_ylim(min(shown) - room, max(shown) + room)
        ax.set_xlabel("training tokens")
        ax.xaxis.set_major_formatter(ticker.EngFormatter())
    right.axhline(0, color="0.4", linewidth=0.8)
    left.set(ylabel="validation loss (nats / token)", title="Loss")
    right.set(
        ylabel="difference (nats / token)", title=f"Difference from {study.baseline}, same seed"
    )
    _legend_below(fig, left)
    return fig


def forest(study: Study) -> Figure | None:
    """Paired differences of the final loss: every seed, the mean, its interval."""
    results = {arm: study.paired(arm) for arm in study.arms if arm != study.baseline}
    results = {arm: result for arm, result in reversed(results.items()) if result.n}
    if not results:
        return None
    fig = Figure(figsize=(7.4, 1.3 + 0.42 * len(results)), layout="constrained")
    ax = fig.add_subplot()
    ax.axvspan(-stats.MARGIN, stats.MARGIN, color=GREY, zorder=0)
    ax.axvline(0, color="0.4", linewidth=0.8)
    for row, result in enumerate(results.values()):
        seeds = list(result.differences.values())
        ax.plot(seeds, [row] * len(seeds), "o", color="0.35", markersize=4, alpha=0.7, mew=0)
        mean = statistics.fmean(seeds)
        text = f"{mean:+.4f}"
        if result.interval:
            low, high = result.interval.low, result.interval.high
            ax.plot([low, high], [row - 0.25] * 2, "|-", color="black", markersize=8)
            text += f"  [{low:+.4f}, {high:+.4f}]"
        else:
            text += "  no interval"
        ax.plot(mean, row - 0.25, "D", color="black", markersize=5)
        ax.annotate(
            f"{text}  n = {result.n}".replace("-", "−"), (1.01, row - 0.12),
            xycoords=("axes fraction", "data"), va="center", fontsize=8,
        )
    ax.set_yticks(range(len(results)), list(results))
    ax.set_ylim(-0.7, len(results) - 0.5)
    ax.set_xlabel(
        f"final validation loss minus {study.baseline}'s, same seed (nats / token; left is better)"
    )
    ax.set_title(
        f"dots: seeds; diamond and line: mean and 95 % interval; grey: within ±{stats.MARGIN}",
        fontsize=8,
    )
    _tidy(ax)
    return fig


def position(study: Study) -> Figure | None:
    """Loss by position in rows of eight times the training length."""
    fig, (ax,) = _panels(1)
    series = {
        arm: [
            defined(zip(table["position"], table["loss"], strict=True))
            for record in study.of(arm).values()
            if (table := record.get("by_position"))
        ]
        for arm in study.arms
    }
    if not _bands(ax, series):
        return None
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_xlabel("tokens of the row that the prediction sees (first of each bucket)")
    ax.set_ylabel("validation loss (nats / token)")
    ax.axvline(study.seq_len, color="0.3", linewidth=1)
    ax.axvspan(study.seq_len, ax.get_xlim()[1], color="0.94", zorder=0)
    ax.margins(x=0)
    ax.set_title(
        f"right of the line: more tokens than training rows had (T = {study.seq_len})", fontsize=8
    )
    _legend_below(fig, ax)
    return fig


def shift(study: Study) -> Figure | None:
    """What happens to the loss when every position number grows by the same amount."""
    deltas = sorted(study.distinct("shift", "delta"))
    if not deltas:
        return None
    fig, (ax,) = _panels(1)
    measures = [cell("shift", "dloss", delta=delta) for delta in deltas]
    series = {
        arm: [defined(enumerate(m(record) for m in measures)) for record in study.of(arm).values()]
        for arm in study.arms
    }
    _bands(ax, series)
    ax.set_xticks(range(len(deltas)), [in_lengths(d, study.seq_len) for d in deltas])
    ax.set_yscale("symlog", linthresh=1e-4)
    ax.yaxis.set_major_locator(ticker.SymmetricalLogLocator(base=10, linthresh=1e-4))
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f"{v:g}".replace("-", "−")))
    ax.axhspan(-1e-4, 1e-4, color=GREY, zorder=0)
    ax.set(
        xlabel=f"added to every position (T = {study.seq_len}, the training length)",
        ylabel="change of the loss (nats / token)",
    )
    ax.set_title("grey: |change| ≤ 1e-4, linear inside it and logarithmic outside", fontsize=8)
    _legend_below(fig, ax)
    return fig


def probes(study: Study) -> Figure | None:
    """The probes' learning curves, and P1 at lengths that were not trained."""
    names = sorted({probe for probe, *_ in study.probes})
    if not names:
        return None
    arms = list(dict.fromkeys([*study.arms, *(arm for _, arm, _ in study.probes)]))
    excess = {arm: [r["excess"] for r in study.probe("P1", arm).values()] for arm in arms}
    lengths = list(dict.fromkeys(at for rows in excess.values() for row in rows for at in row))
    fig, axes = _panels(len(names) + bool(lengths))
    for ax, name in zip(axes, names, strict=False):
        _bands(ax, {arm: [curve(r) for r in study.probe(name, arm).values()] for arm in arms})
        ax.set(xlabel="step", title=name)
    if lengths:
        series = {
            arm: [defined(enumerate(row.get(at) for at in lengths)) for row in rows]
            for arm, rows in excess.items()
        }
        _bands(axes[-1], series)
        axes[-1].set_xticks(range(len(lengths)), lengths)
        axes[-1].set(xlabel="row length (T: as trained)", title="P1 past its training length")
    for ax in axes:
        ax.axhline(0, color="0.4", linewidth=0.8)
        ax.set_ylabel("loss above the optimum (nats / token)")
    _legend_below(fig, axes[-1])
    return fig


FIGURES = {"fig_curves": curves, "fig_forest": forest, "fig_position": position,
           "fig_shift": shift, "fig_probes": probes}


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    fig = Figure(figsize=(7.4 if count < 3 else 10.4, 3.9), layout="constrained")
    axes = list(fig.subplots(1, count, squeeze=False)[0])
    for ax in axes:
        _tidy(ax)
    return fig, axes


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="both", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def _minus(a: Curve, b: Curve) -> Curve:
    """The difference of two curves at the x that both have."""
    x, rows = _aligned([a, b])
    return x, (rows[0] - rows[1]).tolist() if len(rows) == 2 else []


def _aligned(series: list[Curve]) -> tuple[list[float], np.ndarray]:
    """The x that all curves share, and y (curves, x); curves without a point are left out."""
    tables = [dict(zip(x, y, strict=True)) for x, y in series if x]
    shared = sorted(set.intersection(*map(set, tables))) if tables else []
    return shared, np.array([[table[x] for x in shared] for table in tables])


def _bands(
    ax: Axes, series: Mapping[str, list[Curve]]
) -> list[tuple[list[float], np.ndarray]]:
    """Draw each arm: the mean over its seeds with a marker now and then, and the range of the seeds
    around it. Over the x that all its seeds have: elsewhere it would be a mean over other seeds.

    Returns x and y (seeds, x) of each arm that has a point.
    """
    drawn = []
    for style, (arm, runs) in zip(itertools.cycle(STYLES), series.items(), strict=False):
        x, rows = _aligned(runs)
        if not x:
            continue
        ax.plot(
            x, rows.mean(0), label=arm, linewidth=1.5, markersize=5, mec="white", mew=0.5,
            markevery=max(1, len(x) // 8), **style,
        )
        if len(rows) > 1:
            low, high = rows.min(0), rows.max(0)
            ax.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)
        drawn.append((x, rows))
    return drawn


def _legend_below(fig: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(
        handles, labels, loc="outside lower center", ncols=6 if len(labels) <= 6 else 4,
        frameon=False, handlelength=4, fontsize=9,
    )
