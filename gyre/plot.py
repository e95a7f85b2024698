"""Losses as a picture. Imported where it is drawn: matplotlib is slow to import."""

import io
from collections.abc import Iterable
from itertools import cycle
from typing import Any

from matplotlib import ticker
from matplotlib.figure import Figure

LINES = ("-", "--", "-.", ":")


def draw_losses(runs: Iterable[tuple[str, list[dict[str, Any]]]]) -> bytes:
    """A PNG of validation losses (with markers) and training losses (pale) against tokens: of each
    run its name and its points."""
    fig = Figure(figsize=(7, 4), layout="constrained")
    ax = fig.add_subplot()
    for number, ((name, points), line) in enumerate(zip(runs, cycle(LINES), strict=False)):
        color = f"C{number % 10}"
        styles: dict[str, dict[str, Any]] = {
            "train/loss": {"linewidth": 0.6, "alpha": 0.35},
            "val/loss": {"linestyle": line, "marker": "o", "markersize": 4, "label": name},
        }
        for key, style in styles.items():
            xy = [(p["tokens"], p[key]) for p in points if p.get(key) is not None]
            ax.plot([x for x, _ in xy], [y for _, y in xy], color=color, **style)
    ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    ax.set(xlabel="tokens", ylabel="loss (nats per token)",
           title="validation (markers) and training (pale)")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    image = io.BytesIO()
    fig.savefig(image, format="png", dpi=120)
    return image.getvalue()
