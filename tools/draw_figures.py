"""The figures of docs/positions.md.

    python -m tools.draw_figures        writes docs/figures/*.png

Every curve and every cell comes from the functions that models use (but for one misprint, shown as
such), so a figure is wrong where the code is. All are readable in greyscale, and the same code
draws the same bytes.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import matplotlib.style
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from torch import Tensor

from errors import report_errors
from gyre.parser import Parser
from model.config import ModelConfig, RopeScaling, ScalingType
from model.position import ALiBi, Sinusoidal, sinusoid
from model.rope import apply_rotary_emb, precompute_freqs_cis, rope_frequencies, scaled_frequencies

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
WIDTH = 128  # model width C of the ablation on a CPU,
HEAD = 32  # its head width D
LENGTH = 128  # and its training length
SINUSOIDS: tuple[Any, ...] = ("naive", "vaswani", "matched")
PAIRS = range(0, HEAD // 2, 3)  # the pairs that are named
STYLE = {"font.size": 8, "axes.titlesize": 8, "legend.fontsize": 7, "legend.frameon": False,
         "lines.linewidth": 1.2, "lines.markersize": 3.5, "image.cmap": "gray",
         "axes.spines.top": False, "axes.spines.right": False}
LINES: list[dict[str, Any]] = [*cycler(
    color=["black", "0.35", "0.55", "0.2", "0.65"], linestyle=["-", "--", "-.", ":", "-"],
    marker=[*"os^vx"])]
EDGE = {"color": "0.5", "linewidth": 0.8}  # of a length that the text speaks of


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, the same at every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


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


def heat(ax: Axes, values: Tensor, x: str, y: str, label: str, title: str = "",
         **limits: Any) -> None:
    """A labelled heat map of values (rows, columns), black at vmin and white at vmax."""
    image = ax.imshow(values.numpy(), aspect="auto", interpolation="nearest", **limits)
    ax.set(xlabel=x, ylabel=y, title=title)
    ax.figure.colorbar(image, ax=ax, label=label)


def rope_turns(left: Axes, middle: Axes, right: Axes) -> None:
    """Frequency and angle by pair of a head of 128, and one vector at several positions."""
    frequencies = rope_frequencies(128)
    left.plot(frequencies, color="black")
    left.set(xlabel="pair i", ylabel="frequency (radians per token)", title="D = 128")
    for position, line in zip((0, 1, 4, 8), LINES, strict=False):
        middle.plot(position * frequencies, **line, markevery=8, label=f"position {position}")
    middle.set(xlabel="pair i", ylabel="angle (radians)", title="D = 128")
    middle.legend()
    vector = torch.tensor([1.0, 0.0]).repeat(1, 6, 1, 4)  # each pair of a head of 8 points right
    turned, _ = apply_rotary_emb(vector, vector, precompute_freqs_cis(8, 6))
    for position, (x, y, slow_x, slow_y, *_) in enumerate(turned[0, :, 0].tolist()):
        right.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->"})
        right.annotate("", (0.55 * slow_x, 0.55 * slow_y), (0, 0),
                       arrowprops={"arrowstyle": "->", "color": "0.6"})
        right.text(1.15 * x, 1.15 * y, str(position), ha="center", va="center")
    right.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal", xticks=[], yticks=[],
              xlabel="first channel of a pair", ylabel="second channel",
              title="pairs 0 (black) and 1, D = 8,\nat positions 0 to 5")


def rope_angles(left: Axes, right: Axes) -> None:
    """How far each pair has turned by position, and the cosines that a model sees."""
    end = 8 * LENGTH
    positions = torch.arange(1, end)
    turns = torch.outer(positions, rope_frequencies(HEAD)) / (2 * math.pi)
    for pair in PAIRS:
        left.loglog(positions, turns[:, pair], color="black")
        left.text(end * 1.1, turns[-1, pair].item(), f"pair {pair}", va="center")
    left.axhline(1, **EDGE)
    left.text(1.1, 1.3, "one turn")
    left.axvline(LENGTH, **EDGE)
    left.text(LENGTH / 1.1, 3e-5, "training ends", ha="right")
    left.set(xlabel="position (tokens)", ylabel="angle (turns)")
    table = precompute_freqs_cis(HEAD, LENGTH)
    heat(right, table.real.T, "position (tokens)", "pair i", "cosine of the angle")


def position_similarity(*axes: Axes) -> None:
    """Scores of all pairs of positions, of sinusoids and of RoPE."""
    table = sinusoid(WIDTH, LENGTH)
    weights = draw(WIDTH, WIDTH)
    ones = torch.ones(1, HEAD)
    query = draw(1, HEAD, seed=1)
    key = draw(1, HEAD, seed=2)
    panels = {
        "sinusoid rows: inner product / (C/2)": table @ table.T / (WIDTH / 2),
        "sinusoid rows through a random W: p W p' / C": table @ weights @ table.T / WIDTH,
        "RoPE: ones as query and as key / D": scores(ones, ones, LENGTH)[0] / HEAD,
        "RoPE: a random query, a random key / D": scores(query, key, LENGTH)[0] / HEAD,
    }
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        heat(ax, values, "key position (tokens)", "query position (tokens)", "score", title)


def score_decay(left: Axes, right: Axes) -> None:
    """RoPE's score by distance: of equal pairs, of a key that is aimed, and of random pairs."""
    end = 2 * LENGTH
    aim = 60
    for width, color in ((HEAD, "0.6"), (128, "black")):
        mean = precompute_freqs_cis(width, end).real.mean(dim=1)  # mean_i cos(r theta_i)
        left.plot(mean, color=color, label=f"mean score, D = {width}")
    table = sinusoid(128, end)
    left.plot(range(0, end, 8), (table @ table[0])[::8] / 64, "o", color="black", fillstyle="none",
              label="rows of a sinusoid, C = 128")
    # RoFormer's section 3.4.3: by summation in parts, |score| <= this, which starts at 32.5.
    bound = precompute_freqs_cis(128, end).cumsum(dim=1).abs().mean(dim=1)
    left.plot(bound / bound[0], ":", color="black", label="RoFormer's bound / 32.5, D = 128")

    query = draw(1, HEAD, seed=3)
    key = query @ rotation_matrix(HEAD, aim).T  # at distance `aim` RoPE turns it onto the query
    aimed = scores(query, key, LENGTH)[0, :, 0] / query.norm() ** 2
    right.plot(aimed, color="black", label=f"a key aimed at distance {aim}")
    queries, keys = draw(2, 200, HEAD, seed=4)
    norms = queries.norm(dim=-1, keepdim=True) * keys.norm(dim=-1, keepdim=True)
    by_distance = scores(queries, keys, LENGTH)[:, :, 0] / norms
    low, high = by_distance.quantile(torch.tensor([0.05, 0.95]), dim=0)
    right.plot(by_distance.mean(dim=0), "--", color="0.3", label="200 normal pairs: mean")
    right.fill_between(range(LENGTH), low, high, color="0.85", label="their middle 90 %")
    for ax, title in ((left, "equal pairs"), (right, "other queries and keys")):
        ax.set(xlabel="distance (tokens)", ylabel="score / norms", title=title)
        ax.axhline(0, **EDGE)
        ax.set_ylim(-0.5, 1.5)
        ax.legend(loc="upper right")


def rope_layouts(*axes: Axes) -> None:
    """The rotation matrix of Meta's layout and of Hugging Face's, and the permutation between."""
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
    for ax, (title, matrix, rows, columns) in zip(axes, panels, strict=True):
        ax.imshow((matrix != 0).numpy(), cmap="Greys", vmin=0, vmax=4)
        ax.set(title=title, xlabel="channel", ylabel="channel")
        ax.set_xticks(range(head_dim), map(str, columns))
        ax.set_yticks(range(head_dim), map(str, rows))
        for i, j in matrix.nonzero().tolist():
            pair = rows[i] // 2
            if matrix is permutation:
                text = "1"
            elif i == j:
                text = f"c{pair}"  # a cosine
            elif matrix[i, j] < 0:
                text = f"-s{pair}"  # a sine
            else:
                text = f"s{pair}"
            ax.text(j, i, text, ha="center", va="center")


def sinusoid_table(left: Axes, right: Axes) -> None:
    """The sinusoid's table, and the one of a formula that is often printed."""
    dim = 16
    end = 64
    positions = torch.arange(end, dtype=torch.float64)
    angles = positions * 10000 ** (-2 * positions / dim)
    misprint = torch.stack((angles.sin(), angles.cos()), dim=-1).repeat(1, dim // 2)
    for ax, table, title in ((left, sinusoid(dim, end), "sin, cos of m / 10000^(2t/C)"),
                             (right, misprint, "misprinted: of m / 10000^(2m/C)")):
        heat(ax, table, "column", "position m (tokens)", "value", title, vmin=-1, vmax=1)


def sinusoid_scale(left: Axes, right: Axes) -> None:
    """What each way of adding sinusoids does to new embeddings, by width."""
    widths = [32 * 2**k for k in range(8)]
    tokens = 64
    for kind, line in zip(SINUSOIDS, LINES, strict=False):
        ratios = []
        cosines = []
        for width in widths:
            config = ModelConfig(dim=width, position="sinusoidal", sinusoid=kind,
                                 max_positions=tokens)
            encoding = Sinusoidal(config)
            embeddings = encoding.embedding_std * draw(2, tokens, width, seed=width)
            with torch.no_grad():
                x = encoding.embed(embeddings, 0)
                added = encoding.embed(torch.zeros_like(embeddings), 0)
            scaled = x - added
            ratios.append(added.square().mean().sqrt() / scaled.square().mean().sqrt())
            cosines.append(torch.cosine_similarity(x[0], x[1], dim=-1).mean())
        left.loglog(widths, ratios, **line, label=kind)
        right.semilogx(widths, cosines, **line)
    left.axhspan(0.5, 1.5, color="0.9")
    left.set(xlabel="model width C (channels)", ylabel="rms(position) / rms(token)")
    right.set(xlabel="model width C (channels)", ylim=(0, 1.05),
              ylabel="cosine of two tokens at one position")
    left.legend()


def alibi_bias(left: Axes, right: Axes) -> None:
    """ALiBi's bias by distance, and how far each head sees."""
    distance = torch.arange(8 * LENGTH)
    encoding = ALiBi(ModelConfig(n_heads=4, position="alibi"))
    biases = encoding.bias(distance[-1:], distance)[:, 0].flip(-1)  # (H, distance)
    for head, (values, line) in enumerate(zip(biases, LINES, strict=False)):
        plain: dict[str, Any] = {**line, "marker": ""}
        label = f"head {head}, slope 1/{-1 / values[1]:g}"
        left.plot(distance[:LENGTH], values[:LENGTH], **plain, label=label)
        right.semilogx(distance + 1, values.softmax(dim=0).cumsum(dim=0), **plain)
    left.set(xlabel="distance (tokens)", ylabel="bias (logits)", ylim=(-12, 0.5))
    right.axvline(LENGTH, **EDGE)
    right.text(LENGTH * 1.1, 0.03, "training ends")
    right.set(xlabel="the nearest n tokens of 1024",
              ylabel="their share of the attention,\nequal content")
    left.legend()


def rope_scaling(small: Axes, stretch: Axes, large: Axes) -> None:
    """What each way of scaling RoPE does to the wavelengths, in a small model and in LLaMA 3."""
    toy = (HEAD, 1e4, LENGTH, 4.0)
    llama = (128, 5e5, 8192, 8.0)
    for ax, (head_dim, theta, trained, factor) in ((small, toy), (stretch, toy), (large, llama)):
        unscaled = rope_frequencies(head_dim, theta)
        unit = torch.tensor(2 * math.pi) if ax is small else unscaled
        for kind, line in zip(get_args(ScalingType), LINES, strict=True):
            # dynamic alone reads the length of the text, and has the paper's form at factor 1.
            length = int(factor / 2 * trained)
            scaling = RopeScaling(kind, 1.0 if kind == "dynamic" else factor, trained)
            scaled = scaled_frequencies(scaling, length, head_dim, theta)
            label = "dynamic, in a text of sL/2 tokens" if kind == "dynamic" else kind
            ax.semilogy(unit / scaled, **line, markevery=max(head_dim // 32, 1), label=label)
        title = f"D = {head_dim}, theta {theta:g},\nL = {trained}, s = {factor:g}"
        ax.set(xlabel="pair i", title=title)
    small.semilogy(2 * math.pi / rope_frequencies(HEAD), color="0.8", label="unscaled")
    for length in (LENGTH, 4 * LENGTH):
        small.axhline(length, **EDGE)
        small.text(15.5, length, f"{length} tokens", ha="right", va="bottom")
    small.set_ylabel("wavelength (tokens per turn)")
    for ax, ticks in ((stretch, (1, 2, 4)), (large, (1, 2, 4, 8))):
        ax.set_yticks(ticks, map(str, ticks))
        ax.minorticks_off()
        ax.set_ylabel("wavelength / unscaled")
    small.figure.legend(*small.get_legend_handles_labels(), loc="outside lower center", ncols=6)


# File name -> (what draws it, width and height in inches, rows and columns of its panels).
FIGURES: dict[str, tuple[Callable[..., None], tuple[float, float], tuple[int, int]]] = {
    "rope_turns": (rope_turns, (8.4, 2.8), (1, 3)),
    "rope_angles": (rope_angles, (7, 2.8), (1, 2)),
    "position_similarity": (position_similarity, (7, 5.2), (2, 2)),
    "score_decay": (score_decay, (7, 3), (1, 2)),
    "rope_layouts": (rope_layouts, (7, 2.6), (1, 3)),
    "rope_scaling": (rope_scaling, (8.4, 3), (1, 3)),
    "sinusoid_table": (sinusoid_table, (7, 2.8), (1, 2)),
    "sinusoid_scale": (sinusoid_scale, (7, 2.8), (1, 2)),
    "alibi_bias": (alibi_bias, (7, 2.8), (1, 2)),
}


def draw_all(folder: Path) -> Iterator[Path]:
    """Draw every figure into `folder`; yields the files, in the order of FIGURES."""
    with matplotlib.style.context(["default", STYLE]):
        for name, (paint, size, panels) in FIGURES.items():
            figure = Figure(size, dpi=130, layout="constrained")
            paint(*figure.subplots(*panels).flat)
            file = folder / f"{name}.png"
            # No version of the software in the file, so that the same picture is the same bytes.
            figure.savefig(file, metadata={"Software": None}, pil_kwargs={"optimize": True})
            yield file


if __name__ == "__main__":
    with report_errors():
        Parser(__doc__).parse_args()  # it takes none
        for file in draw_all(FOLDER):
            print(file)
