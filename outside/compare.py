"""The row of a consumer: its answers beside those of gyre.

    python outside/compare.py MADE ANSWERS NAME VERSION LOG

LOG is what the consumer printed; its last line is the reason if there are no answers.
"""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

SCALINGS = ("plain", "linear", "dynamic", "yarn", "yarn-factor", "llama3")
NOT_EXPORTED = "export.py refuses"  # what no-gguf.txt says
ANOTHER_MODEL = 1.0  # of a logit: no rounding does this
WIDTH = 70  # characters of a reason


def row(expected: dict[str, Any], answers: dict[str, Any], name: str, version: str) -> str:
    """Return the row of a consumer in Markdown."""
    asked = [kind for kind in SCALINGS if kind in expected
             and NOT_EXPORTED not in reason(answers, kind)]
    loaded = [kind for kind in asked if not reason(answers, kind)]
    ids = "–"
    for kind in asked:
        if "ids" in answers.get(kind, {}):
            pairs = zip(answers[kind]["ids"], expected["ids"], strict=True)
            same = sum(theirs == ours for theirs, ours in pairs)
            ids = f"{same} of {len(expected['ids'])}"
    cells = [name, version, f"{len(loaded)} of {len(asked)}", ids]
    for kind in SCALINGS:
        if kind not in asked:
            cells.append("–")
        elif kind not in loaded:
            cells.append("no")
        else:
            cells.append(compare(expected[kind], answers[kind]))
    notes = [answers.get("note", ""), *reasons(answers, asked)]
    cells.append("; ".join(note for note in notes if note))
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def reason(answers: dict[str, Any], kind: str) -> str:
    """Return why a model was not answered for, and nothing if it was."""
    if kind not in answers:
        return "the process ended"
    return answers[kind].get("error", "")


def reasons(answers: dict[str, Any], asked: list[str]) -> list[str]:
    """Return every reason once, behind the models that have it."""
    kinds: dict[str, list[str]] = {}
    for kind in asked:
        why = shorten(reason(answers, kind))
        if why:
            kinds.setdefault(why, []).append(kind)
    return [f"{', '.join(names)}: {why}" if len(names) < len(asked) else why
            for why, names in kinds.items()]


def compare(expected: dict[str, Any], answers: dict[str, Any]) -> str:
    """Return a cell: differences of logits and equal greedy tokens."""
    differences = []
    equal = []
    for length in ("short", "long"):
        ours = expected[length]
        theirs = answers.get(length, {})
        if "logits" in theirs:
            differences.append(largest_difference(theirs["logits"], ours["logits"]))
        if "greedy" in theirs:
            equal.append(equal_tokens(theirs["greedy"], ours["greedy"]))
    numbers = ["/".join(f"{difference:.0e}" for difference in differences),
               "/".join(str(count) for count in equal)]
    cell = "; ".join(number for number in numbers if number)
    # NaN is not below it either.
    if not all(difference <= ANOTHER_MODEL for difference in differences):
        return f"**{cell}**"
    return cell


def largest_difference(theirs: list[list[float]], ours: list[list[float]]) -> float:
    """Return the largest difference of a logit, over the positions of `ours`; NaN if one is NaN."""
    largest = 0.0
    for their_row, our_row in zip(theirs, ours, strict=True):
        for their_logit, our_logit in zip(their_row, our_row, strict=False):  # some pad
            difference = abs(their_logit - our_logit)
            if math.isnan(difference):
                return math.nan
            largest = max(largest, difference)
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
