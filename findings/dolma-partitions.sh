#!/usr/bin/env bash
# dolma's partitions of a deduplication draw their parts at random, each run for itself.
#
# Version: dolma 1.2.1.
# Guess before the run: with `num_partitions: 4`, four runs with `partition_index` 0 to 3, each with
#     a Bloom filter of its own, find together what one run finds: each text is in one partition.
#     (That it is not was suspected after reading the source.)
# Seen: the partition is the remainder of the first hash of the filter, and each new filter draws the
#     seeds of its hashes. So the four runs look at four random quarters: of 2,000 texts that stand
#     there twice, a third is in none of the runs, and its duplicates are never found; others are in
#     two runs or three. With one filter for all runs, all are found, but then it holds all texts,
#     and nothing is saved. With `file_partition: true`, which deals out files by fixed seeds, the
#     random quarter is taken of these files too: about three quarters of the duplicates are missed.
# For gyre: it removes no near-duplicates. There, use one run, or partition the files by hand.
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


TEXTS, PARTITIONS, FILES = 2000, 4, 16


def deduplicate(name, bloom, **options):
    """Run one deduplication; return for each text how often a duplicate of it was found."""
    folder = Path(sys.argv[1]) / name
    for number in range(FILES):  # both copies of a text are in one file
        texts = range(number, TEXTS, FILES)
        write(folder / "documents" / f"{number:02d}.json.gz",
              [{"id": str(i), "text": f"text number {i}"} for _ in range(2) for i in texts])
    config = {
        "documents": [str(folder / "documents" / "*.json.gz")],
        "work_dir": {"input": str(folder / "in"), "output": str(folder / "out")},
        "dedupe": {"name": "dedupe", "documents": {"attribute_name": "duplicate", "key": "$.text"},
                   **options},
        "bloom_filter": {"file": str(Path(sys.argv[1]) / bloom), "size_in_bytes": 2**20,
                         "read_only": False, "estimated_doc_count": 300_000,
                         "desired_false_positive_rate": 0.0},
        "processes": 1,
    }
    rust.deduper_entrypoint(json.dumps(config))
    found = [0] * TEXTS
    for path in (folder / "attributes").rglob("*.json.gz"):
        for row in read(path):
            found[int(row["id"])] += any(row["attributes"].values())
    return found


def run_all(name, shared, **options):
    found = [0] * TEXTS
    for index in range(PARTITIONS):
        bloom = f"{name}.bloom" if shared else f"{name}-{index}.bloom"
        part = deduplicate(f"{name}-{index}", bloom, num_partitions=PARTITIONS,
                           partition_index=index, **options)
        found = [old + new for old, new in zip(found, part)]
    return found


rust = load_rust()
results = {
    "one run": deduplicate("one", "one.bloom"),
    "four runs, a filter each": run_all("own", False),
    "four runs, one filter": run_all("shared", True),
    "four runs with file_partition, a filter each": run_all("files", False, file_partition=True),
}
missed = {}
for name, found in results.items():
    missed[name] = found.count(0) / TEXTS
    counts = [found.count(times) for times in range(PARTITIONS + 1)]
    print(f"{name}: of {TEXTS} duplicates, {counts[0]} are found in no run, {counts[1]} in one, "
          f"{sum(counts[2:])} in several")
never = (1 - 1 / PARTITIONS)**PARTITIONS
print(f"chance for a text to be in none of {PARTITIONS} independent quarters: {never:.2f}")
assert missed["one run"] == 0 and missed["four runs, one filter"] == 0
assert abs(missed["four runs, a filter each"] - never) < 0.1
assert max(results["four runs, a filter each"]) > 1
assert abs(missed["four runs with file_partition, a filter each"] - 0.75) < 0.1
PYTHON
