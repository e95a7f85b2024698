"""The map of modules in CONTRIBUTING.md: the first line of each. Run it to write the map again."""

import argparse
from pathlib import Path

ROOT = Path(__file__).parents[1]


def draw_map() -> str:
    """Return one line for each module, by folder."""
    lines = []
    for folder in ("", "model", "data", "gyre", "formats", "ablation", "tools"):
        if folder:
            lines.append(f"{folder}/")
        for file in sorted((ROOT / folder).glob("[!_]*.py")):
            first, _, _ = file.read_text(encoding="utf-8").partition("\n")
            summary = first.strip('"')
            name = f"    {file.name}" if folder else file.name
            lines.append(f"{name:<20} {summary}")
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    file = ROOT / "CONTRIBUTING.md"
    before, start, rest = file.read_text(encoding="utf-8").partition("## Map\n\n```\n")
    after = rest[rest.index("\n```\n"):]
    file.write_text(before + start + draw_map() + after, encoding="utf-8")
