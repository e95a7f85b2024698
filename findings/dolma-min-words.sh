#!/usr/bin/env bash
# dolma finds no duplicate at all as soon as `min_words` is given.
#
# Version: dolma 1.2.1.
# Guess before the run: with `min_words: 5`, documents and paragraphs of fewer than 5 words are left
#     alone, and longer ones are deduplicated. (That none are was suspected after reading the source.)
# Seen: none are. The code that asks the Bloom filter is in the branch for `min_words: 0`. Of ten
#     documents of 8 words, each twice, none is a duplicate with 1 or 5, and 10 with 0. Paragraphs
#     alike. The attribute files are written, with empty lists for all, or without the attribute for
#     the long documents, so that the mixer keeps everything. `min_length` works.
# For gyre: it removes no near-duplicates. There, leave `min_words` out, and give `min_length`.
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


def deduplicate(name, texts, target, **options):
    """Return the numbers of the texts that dolma calls duplicates."""
    folder = Path(sys.argv[1]) / name
    write(folder / "documents" / "a.json.gz",
          [{"id": str(i), "text": text} for i, text in enumerate(texts)])
    attribute = {"attribute_name": "duplicate"}
    if target == "documents":
        attribute["key"] = "$.text"
    config = {
        "documents": [str(folder / "documents" / "a.json.gz")],
        "work_dir": {"input": str(folder / "in"), "output": str(folder / "out")},
        "dedupe": {"name": "dedupe", target: attribute, **options},
        "bloom_filter": {"file": str(folder / "bloom.bin"), "size_in_bytes": 0, "read_only": False,
                         "estimated_doc_count": 1000, "desired_false_positive_rate": 1e-6},
        "processes": 1,
    }
    rust.deduper_entrypoint(json.dumps(config))
    rows = read(folder / "attributes" / "dedupe" / "a.json.gz")
    assert [row["id"] for row in rows] == [str(i) for i in range(len(texts))]
    return [i for i, row in enumerate(rows) if row["attributes"].get("duplicate")]


rust = load_rust()
long_texts = [f"the number of this text is {i} exactly" for i in range(10)]
short_texts = [f"text {i}" for i in range(10)]
texts = (long_texts + short_texts) * 2
for target in ("documents", "paragraphs"):
    for options in ({}, {"min_length": 10}, {"min_words": 1}, {"min_words": 5}):
        name = "-".join(["by", target, *map(str, options.values())])
        found = deduplicate(name, texts, target, **options)
        due = list(range(20, 30)) if 10 in options.values() or 5 in options.values() else list(
            range(20, 40))
        print(f"{target}, {options or 'default'}: {len(found)} duplicates of {len(texts)} texts "
              f"(due {len(due)})")
        assert found == ([] if "min_words" in options else due)
PYTHON
