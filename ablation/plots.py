"""The figures of a study, one function each, and `draw_losses`, for any runs.

Those of a study can be read in greyscale: every arm has a line style and a marker of its own.
"""

import io
import itertools
import math
import statistics
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from ablation.study import Study, defined
from gyre.rundir import RunDir

WIDTH = 8.4  # inches, of a figure of a study
HEIGHT = 3.9  # and more if its legend has more than three rows
# Colour is an extra: dark and light alternate, and no two rows share a line style or a marker.
COLORS = ("#000000", "#0072b2", "#d55e00", "#56338c", "#009e73", "#8c8c8c", "#a6761d", "#cc79a7",
          "#3b3b3b", "#56b4e9", "#7a0019")
DASHES = ("-", "--", ":", "-.", (0, (8, 2)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (3, 3)),
          (0, (10, 3, 2, 3)), (0, (2, 1, 2, 4)), (0, (6, 1, 1, 3)))
STYLES: list[dict[str, Any]] = [
    *cycler(color=COLORS, linestyle=DASHES, marker=[*"osX^DvP<>*p"])]


def draw(study: Study) -> dict[str, Figure]:
    """Return the figures of a study by name."""
    figures = {}
    for name, paint in FIGURES.items():
        figures[name] = paint(study)
        _add_legend(figures[name])
    return figures


def gap(study: Study) -> Figure:
    """Loss along the constant rate with the floors of n-grams, and the difference from the baseline
    along it and after each cooldown, against tokens."""
    fig, (left, right) = _panels(2, against_tokens=True)
    _bands(left, study, {arm: study.curves(arm, "loss").values() for arm in study.plan.arms})
    for name, floor in zip(("unigrams", "bigrams", "trigrams"), study.plan.ngrams, strict=True):
        left.axhline(floor, color="0.5", linewidth=0.8, linestyle=(0, (2, 2)))
        left.annotate(name, (0.99, floor), xycoords=("axes fraction", "data"), fontsize=7,
                      ha="right", va="bottom", color="0.35")
    left.set(ylabel="validation loss (nats / token)", title="Loss at a constant learning rate")
    _bands(right, study, {arm: study.gaps(arm) for arm in study.others})
    _mark_ends(right, study)
    right.axhline(0, color="0.4", linewidth=0.8)
    what = study.others[0] if len(study.others) == 1 else "Each arm"
    title = textwrap.fill(f"{what} − {study.baseline}, same seed", 36)
    right.set(ylabel="difference (nats / token)", title=title)
    return fig


def mechanism(study: Study) -> Figure:
    """When a model begins to use order: what a shift by T costs, and the attention to the previous
    token of the head that has most, along the constant rate."""
    fig, (left, right) = _panels(2, against_tokens=True)
    _bands(left, study, {arm: study.curves(arm, "shift").values() for arm in study.plan.arms})
    left.set(ylabel="change of the loss (nats / token)", title="All positions moved on by T")
    _bands(right, study, {arm: _strongest_heads(study, arm) for arm in study.plan.arms})
    even = statistics.fmean(1 / length for length in range(2, study.plan.seq_len + 1))
    right.axhline(even, color="0.5", linewidth=0.8, linestyle=(0, (2, 2)))
    right.set(ylabel="share of its attention", ylim=(0, None),
              title="Previous token, the head with most")
    return fig


def context(study: Study) -> Figure:
    """Loss of the same targets against the length of the window that slides over them."""
    fig, (ax,) = _panels(1)
    _bands(ax, study, {arm: _sliding_losses(study, arm) for arm in study.plan.arms})
    seq_len = study.plan.seq_len
    ax.axvline(seq_len, color="0.3", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel=f"tokens in the window (line: T = {seq_len}, the training length)",
           ylabel="validation loss (nats / token)")
    return fig


FIGURES = {"fig_gap": gap, "fig_mechanism": mechanism, "fig_context": context}


def draw_run(ax: Axes, number: int, run: RunDir, in_bits: bool) -> None:
    """Draw the losses of one run, in the color and the dashes of its number."""
    points = run.metrics()
    label = run.path.name
    if in_bits and any("val/bpb" in point and "val/eos_share" not in point for point in points):
        label += ", EOS counted in"  # by an older version
    marked = {"linestyle": ("-", "--", "-.", ":")[number % 4], "marker": "o", "markersize": 4,
              "label": label}
    styles: dict[str, dict[str, Any]] = {
        "train/loss": {"linewidth": 0.6, "alpha": 0.35}, "val/loss": marked,
    }
    if in_bits:
        styles = {"val/bpb": marked}
    for key, style in styles.items():
        logged = [point for point in points if point.get(key) is not None]
        tokens = [point["tokens"] for point in logged]
        losses = [point[key] for point in logged]
        ax.plot(tokens, losses, color=f"C{number % 10}", **style)


def draw_losses(
    runs: list[RunDir], in_bits: bool = False, on_own_text: bool = False, format: str = "png"
) -> bytes:
    """Return a figure of validation losses (markers) and training losses (pale) against tokens.

    With `in_bits`, it has bits per byte of the validation text instead, for runs whose tokenizers
    or texts differ. With `on_own_text`, its title says that each run was measured on its own text.
    `format` is png, pdf or svg.
    """
    fig = Figure(figsize=(7, 4), layout="constrained")
    ax = fig.add_subplot()
    for number, run in enumerate(runs):
        draw_run(ax, number, run, in_bits)
    ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    ax.set_xlabel("tokens")
    title = "validation" if in_bits else "validation (markers) and training (pale)"
    if on_own_text:
        title += ", on each run's own text"
    ax.set(ylabel="bits per byte" if in_bits else "loss (nats per token)", title=title)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    image = io.BytesIO()
    fig.savefig(image, format=format, dpi=120)
    return image.getvalue()


def style(study: Study, arm: str) -> dict[str, Any]:
    """Return the style of an arm's line, by its place in the plan."""
    place = list(study.plan.arms).index(arm)
    # Where there are more arms than styles, a color comes again with another marker.
    rounds = place // len(STYLES)
    marker = STYLES[(place + rounds) % len(STYLES)]["marker"]
    return STYLES[place % len(STYLES)] | {"marker": marker}


def _strongest_heads(study: Study, arm: str) -> list[dict[int, float]]:
    """Return a curve for each seed: by training tokens, how much attention the previous token gets
    from the head that gives it most, in any layer."""
    curves = []
    for record in study.records_of(arm).values():
        curves.append({point.tokens: max(itertools.chain(*point.previous))
                       for point in record.trajectory})
    return curves


def _sliding_losses(study: Study, arm: str) -> list[dict[int, float]]:
    """Return of each seed the loss by the length of the window that slides."""
    curves = []
    for record in study.records_of(arm).values():
        sliding = [row for row in record.context if row.mode == "sliding"]
        curves.append(defined({row.context: row.loss for row in sliding}))
    return curves


def _add_legend(fig: Figure) -> None:
    """Add one legend of all lines, below the panels: a line may be missing from one of them."""
    labelled = {}
    for ax in fig.axes:
        handles, labels = ax.get_legend_handles_labels()
        labelled |= zip(labels, handles, strict=True)
    are_long = len("".join(labelled)) > 40
    inches = 0.85 + 0.068 * max(map(len, labelled), default=0)  # of a column
    columns = max(1, min(4 if are_long else 6, int(WIDTH / inches)))
    rows = math.ceil(len(labelled) / columns)
    fig.set_figheight(HEIGHT + 0.2 * max(0, rows - 3))
    fig.legend(labelled.values(), labelled.keys(), loc="outside lower center", frameon=False,
               ncols=columns, handlelength=4, fontsize=9)


def _panels(count: int, against_tokens: bool = False) -> tuple[Figure, list[Axes]]:
    fig = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = list(fig.subplots(1, count, squeeze=False)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
        if against_tokens:
            ax.set(xscale="log", xlabel="training tokens")
            ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
            ax.xaxis.set_minor_locator(ticker.NullLocator())
            ax.tick_params(axis="x", labelsize=8)
    return fig, axes


def _bands(ax: Axes, study: Study, series: Mapping[str, Iterable[Mapping[int, float]]]) -> None:
    """Draw each arm: the mean over its seeds with a marker now and then, and the range of the seeds
    around it."""
    for arm, curves in series.items():
        by_x = _common_points([curve for curve in curves if curve])
        if not by_x:
            continue
        x = list(by_x)
        look = style(study, arm)
        ax.plot(x, [statistics.fmean(y) for y in by_x.values()], label=arm, linewidth=1.5,
                markersize=5, mec="white", mew=0.5, markevery=max(1, len(x) // 8), **look)
        ax.fill_between(x, [min(y) for y in by_x.values()], [max(y) for y in by_x.values()],
                        color=look["color"], alpha=0.15, lw=0)


def _common_points(curves: list[Mapping[int, float]]) -> dict[int, list[float]]:
    """Return the values of all curves at each x that they share.

    So each mean is over the same seeds.
    """
    if not curves:
        return {}
    by_x = {}
    for x in curves[0]:
        if all(x in curve for curve in curves):
            by_x[x] = [curve[x] for curve in curves]
    return by_x


def _mark_ends(ax: Axes, study: Study) -> None:
    """Draw the difference from the baseline after each cooldown, with its interval."""
    middle = (len(study.others) - 1) / 2
    # Side by side, so that none hides another, and near their length if they are many.
    apart = min(1.05, 1.6 ** (1 / max(1, len(study.others) - 1)))
    for place, arm in enumerate(study.others):
        look = style(study, arm)
        for tokens in study.horizons:
            result = study.paired(arm, tokens)
            if result is None:
                continue
            half = None
            if result.interval is not None:
                half = result.interval[1] - result.mean
            x = tokens * apart ** (place - middle)
            ax.errorbar(x, result.mean, half, fmt=look["marker"], markersize=6, mec="white",
                        mew=0.6, color=look["color"], elinewidth=2.2, zorder=3)
