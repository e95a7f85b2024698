#!/usr/bin/env bash
# datatrove's merged statistics count a shard whose values are all 0 as one document.
#
# Versions: datatrove 0.10.1, tldextract 5.4.0, numpy 2.4.6.
# Guess before the run: the mean of a statistic, merged from the shards, is its mean over all
#     documents. (That it is not was suspected after reading the source.)
# Seen: if a statistic adds up to 0 in a shard, its file has a plain 0, without the number of
#     documents, and the merger takes it for one document. Of 10,000 documents in 10 shards, 10
#     have bullet points, all in one shard. The merged mean is 0.0099 instead of 0.001, and the
#     number of documents 1,009. Rare properties, the ones that are worth counting, are too frequent
#     by up to the number of shards; with one shard all is well.
# For gyre: its statistics are of one process. There, compute a mean from `total` and a number of
#     documents of one's own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile datatrove==0.10.1 numpy==2.4.6 regex==2026.11.19 \
    tokenizers==0.23.3 xxhash==3.7.0 tldextract==5.4.0
TQDM_DISABLE=1 LOGURU_LEVEL=ERROR "$folder/env/bin/python" -W ignore - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.stats import LineStats, StatsMerger

N_DOCUMENTS, N_BULLETS = 10_000, 10
texts = ["- one\n- two"] * N_BULLETS + ["a line\nanother line"] * (N_DOCUMENTS - N_BULLETS)


def merged(n_shards, statistic):
    """Return mean and number of documents of a statistic, computed in shards and merged."""
    folder = Path(sys.argv[1]) / str(n_shards)
    size = N_DOCUMENTS // n_shards
    for rank in range(n_shards):
        step = LineStats(str(folder), groups_to_compute=["summary"])
        documents = [Document(text, str(i)) for i, text in
                     enumerate(texts[rank * size:(rank + 1) * size])]
        assert len(list(step.run(documents, rank, n_shards))) == size
    list(StatsMerger(str(folder), str(folder)).run(None))
    entry = json.loads((folder / "summary" / statistic / "metric.json").read_text())["summary"]
    return entry["mean"], entry["n"], entry["total"]


due = N_BULLETS / N_DOCUMENTS
for n_shards in (1, 10, 100):
    mean, n, total = merged(n_shards, "bullet_point_lines_ratio")
    line_mean, line_n, _ = merged(n_shards, "avg_line_length")
    print(f"{n_shards} shards: the mean share of bullet points is {mean:.5f} (due {due:.5f}), of "
          f"{n} documents; the line length is that of {line_n} documents")
    assert total == N_BULLETS and line_n == N_DOCUMENTS
    expected_n = N_DOCUMENTS // n_shards + n_shards - 1
    assert n == expected_n
    assert abs(mean - N_BULLETS / expected_n) < 1e-9
PYTHON
