"""The row of a consumer: its answers beside those of gyre.

    python outside/compare.py MADE ANSWERS NAME VERSION LOG

LOG is what the consumer printed; its last line is the reason if there are no answers.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

SCALINGS = ("plain", "linear", "dynamic", "yarn", "llama3")
WIDTH = 100  # characters of a reason


def row(expected: dict[str, Any], answers: dict[str, Any], name: str, version: str) -> str:
    """Return the row of a consumer in Markdown."""
    asked = [kind for kind in SCALINGS if kind in expected]
    loaded = [kind for kind in asked if "error" not in answers.get(kind, {"error": ""})]
    ids = "–"
    for kind in asked:
        if "ids" in answers.get(kind, {}):
            pairs = zip(answers[kind]["ids"], expected["ids"], strict=True)
            same = sum(theirs == ours for theirs, ours in pairs)
            ids = f"{same} of {len(expected['ids'])}"
    loads = f"{len(loaded)} of {len(asked)}"
    if not loaded:
        loads = compare(expected[asked[0]], answers.get(asked[0]))
    cells = [name, version, loads, ids]
    for kind in SCALINGS:
        shown = kind in asked and loaded
        cells.append(compare(expected[kind], answers.get(kind)) if shown else "–")
    cells.append(answers.get("note", ""))
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def compare(expected: dict[str, Any], answers: dict[str, Any] | None) -> str:
    """Return a cell: differences of logits and equal greedy tokens, or why there are none."""
    if answers is None:
        return "no answer: the process ended"
    if "error" in answers:
        return f"no: {shorten(answers['error'])}"
    differences = []
    equal = []
    for length in ("short", "long"):
        ours = expected[length]
        theirs = answers.get(length, {})
        if "logits" in theirs:
            differences.append(f"{largest_difference(theirs['logits'], ours['logits']):.0e}")
        if "greedy" in theirs:
            equal.append(str(equal_tokens(theirs["greedy"], ours["greedy"])))
    parts = [" / ".join(numbers) for numbers in (differences, equal) if numbers]
    return "; ".join(parts) if parts else "–"


def largest_difference(theirs: list[list[float]], ours: list[list[float]]) -> float:
    """Return the largest difference of a logit, over the positions of `ours`."""
    largest = 0.0
    for their_row, our_row in zip(theirs, ours, strict=True):
        pairs = zip(their_row, our_row, strict=False)  # some pad the vocabulary
        largest = max(largest, *(abs(a - b) for a, b in pairs))
    return largest


def equal_tokens(theirs: list[int], ours: list[int]) -> int:
    """Return how many tokens are equal before the first that is not."""
    equal = 0
    for a, b in zip(theirs, ours, strict=False):
        if a != b:
            break
        equal += 1
    return equal


def shorten(reason: str) -> str:
    """Return a reason that fits into a cell."""
    words = " ".join(reason.split())
    words = words.replace(os.environ.get("OUTSIDE_MADE", "/nowhere"), "")
    return words if len(words) <= WIDTH else f"{words[:WIDTH]}..."


def main(made: Path, file: Path, name: str, version: str, log: Path) -> None:
    """Print the row."""
    expected = json.loads((made / "expected.json").read_text(encoding="utf-8"))
    if file.is_file():
        answers = json.loads(file.read_text(encoding="utf-8"))
        print(row(expected, answers, name, version))
        return
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line for line in lines if line.strip()]
    reason = shorten(said[-1]) if said else "it printed nothing"
    print(f"| {name} | {version} | no: {reason} |{' |' * (len(SCALINGS) + 2)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5]))
