"""The picture of a training in the README: what the command prints, as an SVG.

    python -m docs.draw_terminal                       writes docs/terminal.svg
    python -m docs.draw_terminal --config tiny.yaml    of another training

It trains, in a temporary folder, and takes as long as that.
"""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 110  # columns
BAR = re.compile(r"\d+%\||B/s\]|\x1b\[A")  # of a bar that goes when it is full


def train(arguments: list[str]) -> str:
    """What train.py says, which has to succeed."""
    environment = {**os.environ, "WANDB_MODE": "disabled", "COLUMNS": str(WIDTH)}
    with TemporaryDirectory() as folder:
        return subprocess.run(
            [sys.executable, ROOT / "train.py", *arguments], cwd=folder, env=environment,
            check=True, stderr=subprocess.PIPE,
        ).stderr.decode()


def shown(said: str) -> list[str]:
    """The lines as they stay on a terminal, the last state of the bar, and of several validations
    and samples the last one."""
    lines = [line.rpartition("\r")[2].rstrip() for line in said.rstrip().split("\n")]
    lines = [line for line in lines if not BAR.search(line) or line.startswith("train: 100%")]
    steps = [number for number, line in enumerate(lines) if line.startswith("step ")]
    return [*lines[: steps[0]], "...", *lines[steps[-1] :]]


def draw(command: str, lines: list[str]) -> str:
    """The SVG: no font is fetched, the characters of any monospace one fit."""
    console = Console(record=True, width=WIDTH, file=StringIO())
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    for line in lines:
        console.print(Text(line), overflow="fold")
    console.print()  # or the last line's descenders are cut
    svg = console.export_svg(title="", theme=MONOKAI, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace(
        "Fira Code", "ui-monospace, Menlo, Consolas")


def main(arguments: list[str]) -> None:
    command = " ".join(["python train.py", *arguments])
    svg = draw(command, shown(train(arguments)))
    (ROOT / "docs" / "terminal.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or ["--config", "small.yaml"])
