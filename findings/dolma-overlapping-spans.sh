#!/usr/bin/env bash
# Where two spans overlap, dolma's mixer leaves the end of the second one in the text.
#
# Version: dolma 1.2.1.
# Guess before the run: a mixer that replaces the spans of two attributes leaves no character that is
#     in one of them. (That it does was suspected after reading the source.)
# Seen: at the end of a span, all spans that have begun by then are dropped, finished or not. With
#     [2, 6] and [4, 12], the characters 6 to 11 stay; so they do with [2, 6] and [2, 12], in this
#     order; with the order turned around, nothing stays. Here an address, which one tagger has found
#     in part and another one in whole, keeps its end. Repeated passages and paragraphs, taggers of
#     one's own and URLs overlap like that. Spans that touch or are nested are right.
# For gyre: it changes no text. There, merge the spans before, or run the mixer once per attribute.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps dolma==1.2.1
RUST_LOG=error "$folder/env/bin/python" - "$folder" <<'PYTHON'
import gzip
import importlib.util
import json
import sys
from pathlib import Path


def load_rust():
    """Load the Rust part of dolma without its Python package, which needs many others."""
    folder = Path(importlib.util.find_spec("dolma").origin).parent
    spec = importlib.util.spec_from_file_location("dolma", next(folder.glob("dolma.*.so")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def read(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def mix(name, text, spans):
    """Return the text, with each span of two attributes replaced by an underscore."""
    folder = Path(sys.argv[1]) / name
    write(folder / "documents" / "a.json.gz", [{"id": "0", "text": text}])
    for attribute, (start, end) in spans.items():
        write(folder / "attributes" / attribute / "a.json.gz",
              [{"id": "0", "attributes": {attribute: [[start, end, 1.0]]}}])
    rust.mixer_entrypoint(json.dumps({
        "streams": [{
            "name": "mix", "documents": [str(folder / "documents" / "*.gz")],
            "attributes": list(spans),
            "output": {"path": str(folder / "mixed"), "max_size_in_bytes": 10**9},
            "span_replacement": [{"span": f"$.attributes.{attribute}", "min_score": 0.5,
                                  "replacement": "_"} for attribute in spans],
        }],
        "work_dir": {"input": str(folder / "in"), "output": str(folder / "out")},
        "processes": 1,
    }))
    return read(next((folder / "mixed").glob("*.gz")))[0]["text"]


rust = load_rust()
LETTERS = "0123456789abcdefghij"
left = {}
for name, first, second in [("apart", (2, 6), (8, 12)), ("touching", (2, 6), (6, 12)),
                            ("nested", (2, 12), (4, 6)), ("long one first", (2, 12), (2, 6)),
                            ("overlapping", (2, 6), (4, 12)), ("short one first", (2, 6), (2, 12))]:
    result = mix(name.replace(" ", "-"), LETTERS, {"first": first, "second": second})
    covered = set(LETTERS[slice(*first)]) | set(LETTERS[slice(*second)])
    left[name] = [letter for letter in result if letter in covered]
    print(f"{name}, {first} and {second}: {result}; left of the spans: {''.join(left[name]) or '-'}")
    assert [letter for letter in LETTERS if letter not in covered] == [
        letter for letter in result if letter not in covered and letter != "_"]
assert [name for name in left if left[name]] == ["overlapping", "short one first"]
assert left["overlapping"] == left["short one first"] == list(LETTERS[6:12])

text = "Write to jane.doe@mail.example.org for more."
address = "jane.doe@mail.example.org"
start = text.index(address)
spans = {"short": (start, start + len("jane.doe@mail")), "whole": (start, start + len(address))}
result = mix("address", text, spans)
print(result)
assert result == "Write to _.example.org for more."
PYTHON
