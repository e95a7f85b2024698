"""Put rows that outside/run gathered into docs/interop.md, between its two markers.

    python outside/write_table.py < ROWS
"""

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "interop.md"
START = "<!-- outside/run writes from here -->\n"
END = "<!-- outside/run writes to here -->\n"
COLUMNS = ["consumer", "version", "loads", "ids equal", "plain", "linear", "dynamic", "yarn",
           "yarn, own attention_factor", "llama3", "note"]


def main(rows: str) -> None:
    """Replace what is between the markers."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        sys.exit(f"{DOCUMENT} lacks the markers of outside/write_table.py")
    date = datetime.now(UTC).date().isoformat()
    caption = f"Run on {date}: {processor()}, {os.cpu_count()} cores, {platform.system()}, " \
              f"Python {platform.python_version()}.\n"
    header = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
    table = f"{caption}\n{header}{rows.strip()}\n"
    DOCUMENT.write_text(f"{before}{start}{table}{end}{after}", encoding="utf-8")


def processor() -> str:
    """Return the name of this machine's processor, where it is known."""
    file = Path("/proc/cpuinfo")
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main(sys.stdin.read())
