"""The figures of a study. Readable in greyscale: every arm has a line style and a marker of its
own, and what is beyond the training length is marked by a line and by words."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

from ablation import stats
from ablation.study import Study, curve, distinct, in_lengths, shifted
from files import write_file

# Colour is an extra: dark and light alternate, and no two rows share a line style or a marker.
STYLES = [
    dict(color="#000000", linestyle="-", marker="o"),
    dict(color="#0072b2", linestyle="--", marker="s"),
    dict(color="#d55e00", linestyle=":", marker="X"),
    dict(color="#56338c", linestyle="-.", marker="^"),
    dict(color="#009e73", linestyle=(0, (8, 2)), marker="D"),
    dict(color="#8c8c8c", linestyle=(0, (1, 1)), marker="v"),
    dict(color="#a6761d", linestyle=(0, (5, 1, 1, 1, 1, 1)), marker="P"),
    dict(color="#cc79a7", linestyle=(0, (3, 3)), marker="<"),
    dict(color="#3b3b3b", linestyle=(0, (10, 3, 2, 3)), marker=">"),
    dict(color="#56b4e9", linestyle=(0, (2, 1, 2, 4)), marker="*"),
    dict(color="#7a0019", linestyle=(0, (6, 1, 1, 3)), marker="p"),
]
DPI = 150
MARGIN_GREY = "0.88"


def draw(study: Study) -> dict[str, Path]:
    """Write every figure the study has data for; {name: file}."""
    files = {}
    for name, figure in {
        "fig_curves": curves,
        "fig_forest": forest,
        "fig_position": position,
        "fig_shift": shift,
        "fig_probes": probes,
    }.items():
        file = study.path / f"{name}.png"
        if drawn := figure(study):
            image = io.BytesIO()
            drawn.savefig(image, format="png", dpi=DPI)
            write_file(file, image.getvalue())
            files[name] = file
        else:
            file.unlink(missing_ok=True)  # of an earlier report, before its data was removed
    return files


def styles(arms: Iterable[str]) -> dict[str, dict[str, Any]]:
    return {arm: STYLES[i % len(STYLES)] for i, arm in enumerate(arms)}


def curves(study: Study) -> Figure:
    """Validation loss against tokens, and the same as differences from the baseline by seed."""
    fig, (left, right) = _panels(2)
    style, runs = styles(study.arms), study.records
    losses, gaps = {}, {}
    for arm in study.arms:
        seeds = study.of(arm)
        losses[arm] = _aligned([curve(record) for record in seeds.values()])
        if arm != study.baseline:
            pairs = [
                _aligned([curve(record), curve(runs[study.baseline, seed])])
                for seed, record in seeds.items()
                if (study.baseline, seed) in runs
            ]
            gaps[arm] = _aligned(
                [(x, np.subtract(*rows).tolist()) for x, rows in pairs if len(rows) == 2]
            )
    for ax, series in ((left, losses), (right, gaps)):
        for arm, (x, rows) in series.items():
            _band(ax, x, rows, style[arm], arm)
        # what is before a quarter of the training would flatten the rest
        late = [
            y
            for x, rows in series.values()
            for row in rows
            for at, y in zip(x, row, strict=True)
            if at >= study.tokens / 4
        ]
        if ax is right:
            ax.axhline(0, color="0.4", linewidth=0.8)
            late.append(0.0)
        if late:
            room = 0.06 * (max(late) - min(late)) or 0.01
            ax.set_ylim(min(late) - room, max(late) + room)
        ax.set_xlabel("training tokens")
        ax.xaxis.set_major_formatter(ticker.EngFormatter())
    left.set(ylabel="validation loss (nats / token)", title="Loss")
    right.set(
        ylabel="difference (nats / token)", title=f"Difference from {study.baseline}, same seed"
    )
    _legend_below(fig, left)
    return fig


def forest(study: Study) -> Figure | None:
    """Paired differences of the final loss: every seed, the mean, its interval."""
    arms = [arm for arm in study.arms if arm != study.baseline and study.paired(arm).n]
    if not arms:
        return None
    fig = Figure(figsize=(7.4, 1.3 + 0.42 * len(arms)), layout="constrained")
    ax = fig.add_subplot()
    ax.axvspan(-stats.MARGIN, stats.MARGIN, color=MARGIN_GREY, zorder=0)
    ax.axvline(0, color="0.4", linewidth=0.8)
    for row, arm in enumerate(reversed(arms)):
        result = study.paired(arm)
        seeds = list(result.differences.values())
        ax.plot(seeds, [row] * len(seeds), "o", color="0.35", markersize=4, alpha=0.7, mew=0)
        text = f"{result.mean:+.4f}"
        if result.interval:
            low, high = result.interval.low, result.interval.high
            ax.plot([low, high], [row - 0.25] * 2, "|-", color="black", markersize=8)
            text += f"  [{low:+.4f}, {high:+.4f}]"
        else:
            text += "  no interval"
        ax.plot(result.mean, row - 0.25, "D", color="black", markersize=5)
        ax.annotate(
            f"{text}  n = {result.n}".replace("-", "−"), (1.01, row - 0.12),
            xycoords=("axes fraction", "data"), va="center", fontsize=8,
        )  # fmt: skip
    ax.set_yticks(range(len(arms)), list(reversed(arms)))
    ax.set_ylim(-0.7, len(arms) - 0.5)
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
    style, drawn = styles(study.arms), False
    for arm in study.arms:
        rows = []
        for record in study.of(arm).values():
            if table := record.get("by_position"):
                rows.append(curve({"curve": zip(table["position"], table["loss"], strict=True)}))
        x, y = _aligned(rows)
        _band(ax, x, y, style[arm], arm)
        drawn |= bool(x)
    if not drawn:
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
    deltas = sorted(distinct(study.records.values(), "shift", "delta"))
    if not deltas:
        return None
    fig, (ax,) = _panels(1)
    style = styles(study.arms)
    for arm in study.arms:
        rows = []
        for record in study.of(arm).values():
            changes = [(i, shifted(record, delta)) for i, delta in enumerate(deltas)]
            rows.append(curve({"curve": changes}))
        _band(ax, *_aligned(rows), style[arm], arm)
    ax.set_xticks(range(len(deltas)), [in_lengths(d, study.seq_len) for d in deltas])
    ax.set_yscale("symlog", linthresh=1e-4)
    _plain_symlog(ax, 1e-4)
    ax.axhspan(-1e-4, 1e-4, color=MARGIN_GREY, zorder=0)
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
    fig, axes = _panels(len(names) + ("P1" in names))
    arms = list(dict.fromkeys([*study.arms, *(arm for _, arm, _ in study.probes)]))
    style = styles(arms)
    for ax, name in zip(axes, names, strict=False):
        for arm in arms:
            x, rows = _aligned([curve(record) for record in study.probe(name, arm).values()])
            _band(ax, x, rows, style[arm], arm)
        ax.axhline(0, color="0.4", linewidth=0.8)
        ax.set(xlabel="step", title=name, ylabel="loss above the optimum (nats / token)")
    if "P1" in names:
        ax = axes[-1]
        lengths = list(
            dict.fromkeys(
                length
                for (name, *_), record in study.probes.items()
                if name == "P1"
                for length in record.get("excess") or {}
            )
        )
        for arm in arms:
            rows = [
                curve({"curve": [(i, r["excess"].get(name)) for i, name in enumerate(lengths)]})
                for r in study.probe("P1", arm).values()
                if r.get("excess")
            ]
            _band(ax, *_aligned(rows), style[arm], arm)
        ax.axhline(0, color="0.4", linewidth=0.8)
        ax.set_xticks(range(len(lengths)), lengths)
        ax.set(xlabel="row length (T: as trained)", title="P1 past its training length")
        ax.set_ylabel("loss above the optimum (nats / token)")
    _legend_below(fig, axes[-1] if "P1" in names else axes[0])
    return fig


def _panels(count: int) -> tuple[Figure, list[Any]]:
    fig = Figure(figsize=(7.4 if count < 3 else 10.4, 3.9), layout="constrained")
    axes = list(fig.subplots(1, count, squeeze=False)[0])
    for ax in axes:
        _tidy(ax)
    return fig, axes


def _tidy(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="both", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def _aligned(
    series: list[tuple[list[float], list[float]]],
) -> tuple[list[float], list[list[float]]]:
    """The series, cut to the x they all have: a mean over other seeds at other x is no curve."""
    series = [(x, y) for x, y in series if len(x)]
    if not series:
        return [], []
    common = sorted(set.intersection(*(set(x) for x, _ in series)))
    tables = [dict(zip(x, y, strict=True)) for x, y in series]
    return common, [[table[x] for x in common] for table in tables]


def _band(ax: Any, x: Any, rows: list[list[float]], style: dict[str, Any], label: str | None):
    """Mean over seeds with a marker now and then, and the range of the seeds around it."""
    if not len(x):
        return
    values = np.array(rows)
    ax.plot(
        x, values.mean(0), label=label, linewidth=1.5, markersize=5, mec="white", mew=0.5,
        markevery=max(1, len(x) // 8), **style,
    )  # fmt: skip
    if len(rows) > 1:
        ax.fill_between(x, values.min(0), values.max(0), color=style["color"], alpha=0.15, lw=0)


def _plain_symlog(ax: Any, threshold: float) -> None:
    ax.yaxis.set_major_locator(ticker.SymmetricalLogLocator(base=10, linthresh=threshold))
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f"{v:g}".replace("-", "−")))


def _legend_below(fig: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(
        handles, labels, loc="outside lower center", ncols=6 if len(labels) <= 6 else 4,
        frameon=False, handlelength=4, fontsize=9,
    )  # fmt: skip
