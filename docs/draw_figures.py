"""The figures of docs/positions.md, drawn from model/position.py itself.

    python -m ablation.figures        writes docs/figures/*.png

Nothing here computes an encoding a second time (but for one misprint, shown as such): every curve
and every cell comes from the functions that models use, so no figure is right where the code is
wrong. All are readable in greyscale, and the same code draws the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib.style
import torch
from matplotlib.figure import Figure
from torch import Tensor

from model.config import INIT_STD, ModelConfig
from model.position import ALiBi, Sinusoidal, sinusoid
from model.rope import (
    RopeScaling,
    apply_rotary_emb,
    precompute_freqs_cis,
    rope_frequencies,
    scaled_frequencies,
)

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "figures"
WIDTH = 128  # model width C of the ablation on CPU,
HEAD = 32  # its head width D
LENGTH = 128  # and its training length
STYLE = {"font.size": 8, "axes.titlesize": 8, "legend.fontsize": 7, "legend.frameon": False,
         "lines.linewidth": 1.2, "lines.markersize": 3.5, "image.cmap": "gray",
         "axes.spines.top": False, "axes.spines.right": False}  # fmt: skip
LINES = [{"color": color, "linestyle": style, "marker": marker}
         for color, style, marker in (("black", "-", "o"), ("0.35", "--", "s"), ("0.55", "-.", "^"),
                                      ("0.2", ":", "v"), ("0.65", "-", "x"))]  # fmt: skip


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, the same at every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mean_score(head_dim: int, end: int) -> Tensor:
    """The score of equal pairs at distances 0 .. end-1, per unit of norm: mean_i cos(r theta_i)."""
    return precompute_freqs_cis(head_dim, end).real.mean(dim=1)


def scores(queries: Tensor, keys: Tensor, end: int) -> Tensor:
    """Each query with its key at all pairs of positions 0 .. end-1: (N, D), (N, D) -> (N, T, T)."""
    xq, xk = (x[:, None, None].expand(-1, end, 1, -1) for x in (queries, keys))
    xq, xk = apply_rotary_emb(xq, xk, precompute_freqs_cis(queries.shape[-1], end))
    return xq[:, :, 0] @ xk[:, :, 0].mT


def rotation_matrix(head_dim: int, position: int) -> Tensor:
    """R(position): what `apply_rotary_emb` does to each unit vector, as columns."""
    units = torch.eye(head_dim)[:, None, None]
    row = precompute_freqs_cis(head_dim, position + 1)[position:]
    return apply_rotary_emb(units, units, row)[0][:, 0, 0].T


def heat(fig: Figure, ax, values: Tensor, x: str, y: str, label: str, **kwargs) -> None:
    """A labelled heat map of values (rows, columns)."""
    image = ax.imshow(values.numpy(), aspect="auto", interpolation="nearest", **kwargs)
    ax.set(xlabel=x, ylabel=y)
    fig.colorbar(image, ax=ax, label=label)


def rope_frequency(fig: Figure) -> None:
    left, right = fig.subplots(1, 2)
    for theta, line in zip((100.0, 1e3, 1e4, 5e5), LINES, strict=False):
        frequencies = rope_frequencies(HEAD, theta)
        label = f"theta {theta:g}" + (", the default" if theta == 1e4 else "")
        left.semilogy(frequencies, **line, label=label)
        right.semilogy(2 * math.pi / frequencies, **line)
    right.axhline(LENGTH, color="0.5", linewidth=0.8)
    right.text(15.5, LENGTH / 1.2, f"{LENGTH} tokens", ha="right", va="top")
    left.set(xlabel="pair i", ylabel="frequency (radians per token)", xticks=range(0, 16, 3))
    right.set(xlabel="pair i", ylabel="wavelength (tokens per turn)", xticks=range(0, 16, 3))
    left.legend()


def rope_angles(fig: Figure) -> None:
    left, right = fig.subplots(1, 2)
    end = 8 * LENGTH
    positions = torch.arange(1, end)
    turns = torch.outer(positions, rope_frequencies(HEAD)) / (2 * math.pi)
    for pair in range(0, HEAD // 2, 3):
        left.loglog(positions, turns[:, pair], color="black")
        left.text(end * 1.1, turns[-1, pair], f"pair {pair}", va="center")
    left.axhline(1, color="0.5", linewidth=0.8)
    left.text(1.1, 1.3, "one turn")
    left.axvline(LENGTH, color="0.5", linewidth=0.8)
    left.text(LENGTH / 1.1, 3e-5, "training ends", ha="right")
    left.set(xlabel="position (tokens)", ylabel="angle (turns)")
    table = precompute_freqs_cis(HEAD, LENGTH)
    heat(fig, right, table.real.T, "position (tokens)", "pair i", "cosine of the angle")


def position_similarity(fig: Figure) -> None:
    axes = fig.subplots(2, 2)
    table = sinusoid(WIDTH, LENGTH)
    product = table @ table.T / (WIDTH / 2)
    mixed = table @ draw(WIDTH, WIDTH) @ table.T / WIDTH
    distance = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs()
    panels = {
        "sinusoid rows: inner product / (C/2)": product,
        "sinusoid rows through a random W: p W p' / C": mixed,
        "RoPE: mean score of equal pairs": mean_score(HEAD, LENGTH)[distance],
        "RoPE: a random query, a random key / D": scores(
            draw(1, HEAD, seed=1), draw(1, HEAD, seed=2), LENGTH
        )[0] / HEAD,
    }  # fmt: skip
    for ax, (title, values) in zip(axes.flat, panels.items(), strict=True):
        ax.set_title(title)
        heat(fig, ax, values, "key position (tokens)", "query position (tokens)", "score")


def score_decay(fig: Figure) -> None:
    left, right = fig.subplots(1, 2)
    end = 2 * LENGTH
    left.plot(mean_score(HEAD, end), color="0.6", label=f"mean score, D = {HEAD}")
    left.plot(mean_score(128, end), color="black", label="mean score, D = 128")
    # RoFormer's section 3.4.3: by summation in parts, |score| <= constant * this.
    bound = precompute_freqs_cis(128, end).cumsum(dim=1).abs().mean(dim=1)
    left.plot(
        bound / bound[0], ":", color="black", label="RoFormer's bound, D = 128, up to a factor"
    )
    left.set(xlabel="distance (tokens)", ylabel="score / norms", title="equal pairs")

    aim = 60
    query = draw(1, HEAD, seed=3)
    key = query @ rotation_matrix(HEAD, aim).T  # what turning back by `aim` lays onto the query
    right.plot(scores(query, key, LENGTH)[0, :, 0] / query.norm() ** 2, color="black",
               label=f"a key aimed at distance {aim}")  # fmt: skip
    queries, keys = draw(2, 200, HEAD, seed=4)
    norms = queries.norm(dim=-1, keepdim=True) * keys.norm(dim=-1, keepdim=True)
    by_distance = scores(queries, keys, LENGTH)[:, :, 0] / norms
    low, high = by_distance.quantile(torch.tensor([0.05, 0.95]), dim=0)
    right.plot(by_distance.mean(dim=0), "--", color="0.3", label="200 normal pairs: mean")
    right.fill_between(range(LENGTH), low, high, color="0.85", label="their middle 90 %")
    right.set(xlabel="distance (tokens)", ylabel="score / norms", title="other queries and keys")
    for ax in (left, right):
        ax.axhline(0, color="0.5", linewidth=0.8)
        ax.set_ylim(-0.5, 1.5)
        ax.legend(loc="upper right")


def rope_layouts(fig: Figure) -> None:
    head_dim = 8
    interleaved = list(range(head_dim))
    halves = interleaved[0::2] + interleaved[1::2]
    rotation = rotation_matrix(head_dim, 1)
    permutation = torch.eye(head_dim)[halves]
    panels = [
        ("interleaved (Meta, here): R", rotation, interleaved, interleaved),
        ("the row permutation: P", permutation, halves, interleaved),
        ("halves (Hugging Face): P R P'", permutation @ rotation @ permutation.T, halves, halves),
    ]
    for ax, (title, matrix, rows, columns) in zip(fig.subplots(1, 3), panels, strict=True):
        ax.imshow((matrix != 0).numpy(), cmap="Greys", vmin=0, vmax=4)
        ax.set(title=title, xlabel="channel", ylabel="channel")
        ax.set_xticks(range(head_dim), columns)
        ax.set_yticks(range(head_dim), rows)
        for i, j in matrix.nonzero().tolist():
            sign = "-" if matrix[i, j] < 0 else ""
            text = f"c{rows[i] // 2}" if i == j else f"{sign}s{rows[i] // 2}"
            ax.text(j, i, "1" if matrix is permutation else text, ha="center", va="center")


def sinusoid_table(fig: Figure) -> None:
    left, right = fig.subplots(1, 2)
    dim, end = 16, 64
    positions = torch.arange(end, dtype=torch.float64)
    angles = positions * 10000 ** (-2 * positions / dim)
    misprint = torch.stack((angles.sin(), angles.cos()), dim=-1).repeat(1, dim // 2)
    for ax, title, table in ((left, "sin, cos of m / 10000^(2t/C)", sinusoid(dim, end)),
                             (right, "misprinted: of m / 10000^(2m/C)", misprint)):  # fmt: skip
        ax.set_title(title)
        heat(fig, ax, table, "column", "position m (tokens)", "value", vmin=-1, vmax=1)


def sinusoid_scale(fig: Figure) -> None:
    left, right = fig.subplots(1, 2)
    widths = [32 * 2**k for k in range(8)]
    tokens = 64
    for scaling, line in zip(("naive", "vaswani", "matched"), LINES, strict=False):
        ratios, cosines = [], []
        for width in widths:
            encoding = Sinusoidal(
                ModelConfig(dim=width, position="sinusoidal", sinusoid=scaling,
                            max_positions=tokens)
            )  # fmt: skip
            embeddings = INIT_STD * draw(2, tokens, width, seed=width)
            rows = encoding.at(0, tokens)
            with torch.no_grad():
                x = encoding.embed(embeddings, rows)
                added = encoding.embed(torch.zeros_like(embeddings), rows)
            ratios.append(added.square().mean().sqrt() / (x - added).square().mean().sqrt())
            cosines.append(torch.cosine_similarity(x[0], x[1], dim=-1).mean())
        left.loglog(widths, ratios, **line, label=scaling)
        right.semilogx(widths, cosines, **line)
    left.axhspan(0.5, 1.5, color="0.9")
    left.set(xlabel="model width C (channels)", ylabel="rms(position) / rms(token)")
    right.set(xlabel="model width C (channels)", ylim=(0, 1.05),
              ylabel="cosine of two tokens at one position")  # fmt: skip
    left.legend()


def alibi_bias(fig: Figure) -> None:
    left, right = fig.subplots(1, 2)
    distance = torch.arange(8 * LENGTH)
    encoding = ALiBi(ModelConfig(n_heads=4, position="alibi"))
    biases = encoding.bias(distance[-1:], distance)[:, 0].flip(-1)  # (H, distance)
    for head, (bias, line) in enumerate(zip(biases, LINES, strict=False)):
        line = {**line, "marker": ""}
        label = f"head {head}, slope 1/{-1 / bias[1]:g}"
        left.plot(distance[:LENGTH], bias[:LENGTH], **line, label=label)
        share = bias.softmax(dim=0).cumsum(dim=0)
        right.semilogx(distance + 1, share, **line)
    left.set(xlabel="distance (tokens)", ylabel="bias (logits)", ylim=(-12, 0.5))
    right.axvline(LENGTH, color="0.5", linewidth=0.8)
    right.text(LENGTH * 1.1, 0.03, "training ends")
    right.set(xlabel="the nearest n tokens of 1024",
              ylabel="their share of the attention,\nequal content")  # fmt: skip
    left.legend()


def rope_scaling(fig: Figure) -> None:
    small, stretch, large = fig.subplots(1, 3)

    def paint(ax, head_dim: int, theta: float, trained: int, factor: float, unit: Tensor) -> None:
        for name, line in zip(("linear", "ntk", "dynamic", "yarn", "llama3"), LINES, strict=True):
            # dynamic alone reads the length of the text, and has the paper's form at factor 1.
            length = int(factor / 2 * trained)
            scaling = RopeScaling(name, 1.0 if name == "dynamic" else factor, trained)
            scaled = scaled_frequencies(scaling, length, head_dim, theta)
            label = "dynamic, in a text of sL/2 tokens" if name == "dynamic" else name
            ax.semilogy(unit / scaled, **line, markevery=max(head_dim // 32, 1), label=label)
        title = f"D = {head_dim}, theta {theta:g},\nL = {trained}, s = {factor:g}"
        ax.set(xlabel="pair i", title=title)

    toy = (HEAD, 1e4, LENGTH, 4.0)
    paint(small, *toy, unit=torch.tensor(2 * math.pi))
    small.semilogy(2 * math.pi / rope_frequencies(HEAD), color="0.8", label="unscaled")
    for length in (LENGTH, 4 * LENGTH):
        small.axhline(length, color="0.5", linewidth=0.8)
        small.text(15.5, length, f"{length} tokens", ha="right", va="bottom")
    small.set_ylabel("wavelength (tokens per turn)")

    paint(stretch, *toy, unit=rope_frequencies(HEAD))
    paint(large, 128, 5e5, 8192, 8.0, unit=rope_frequencies(128, 5e5))
    for ax, ticks in ((stretch, (1, 2, 4)), (large, (1, 2, 4, 8))):
        ax.set_yticks(ticks, map(str, ticks))
        ax.minorticks_off()
        ax.set_ylabel("wavelength / unscaled")
    fig.legend(*small.get_legend_handles_labels(), loc="outside lower center", ncols=6)


FIGURES: dict[str, tuple[Callable[[Figure], None], tuple[float, float]]] = {
    "rope_frequencies": (rope_frequency, (7, 2.8)),
    "rope_angles": (rope_angles, (7, 2.8)),
    "position_similarity": (position_similarity, (7, 5.2)),
    "score_decay": (score_decay, (7, 3)),
    "rope_layouts": (rope_layouts, (7, 2.6)),
    "rope_scaling": (rope_scaling, (8.4, 3)),
    "sinusoid_table": (sinusoid_table, (7, 2.8)),
    "sinusoid_scale": (sinusoid_scale, (7, 2.8)),
    "alibi_bias": (alibi_bias, (7, 2.8)),
}


def draw_all(folder: Path) -> list[Path]:
    """Draw every figure into `folder`; returns the files, in the order of FIGURES."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.style.context(["default", STYLE]):
        for name, (paint, size) in FIGURES.items():
            figure = Figure(size, dpi=130, layout="constrained")
            paint(figure)
            file = folder / f"{name}.png"
            # No version of the software in the file, so that the same picture is the same bytes.
            figure.savefig(file, metadata={"Software": None}, pil_kwargs={"optimize": True})
            files.append(file)
    return files


if __name__ == "__main__":
    for file in draw_all(FOLDER):
        print(file)
