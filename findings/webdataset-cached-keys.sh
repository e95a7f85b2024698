#!/usr/bin/env bash
# WebDataset's LMDB cache loses the samples whose key another shard has too, from the second epoch on.
#
# Versions: webdataset 1.0.2, lmdb 1.7.5, numpy 2.4.6.
# Guess before the run: a stage that caches its output "allows subsequent iterations to use the cached
#     data instead of recomputing it", as its docstring says: the second epoch has the samples of the
#     first in their order. (That keys of shards collide was suspected after reading the source.)
# Seen: samples are stored by their keys, and keys are unique within a shard only. Three shards of 100
#     samples, each numbered from 0, give 300 samples in the first epoch and 100 in all later ones,
#     one of three at random where a shuffle is in front. They come in the order of their keys, so
#     that the order of the shuffle is gone, and it is the same in each epoch. Nothing is said. With
#     keys that are unique over all shards no sample is lost, but the order is. `Cached`, in memory,
#     keeps both. (Recorded publicly is that several workers share such a cache.)
# For gyre: it reads no tar files. There, write keys that are unique, and shuffle behind the cache.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile webdataset==1.0.2 lmdb==1.7.5 numpy==2.4.6 \
    braceexpand==0.1.7 pyyaml==6.0.4
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import webdataset as wds

SHARDS = 3
SAMPLES = 100


def write(name, unique):
    """Write three shards and return their names; keys are numbers from 0, unique or in each shard."""
    urls = []
    for shard in range(SHARDS):
        urls.append(f"{name}-{shard}.tar")
        with wds.TarWriter(urls[-1]) as writer:
            for sample in range(SAMPLES):
                key = sample + unique * shard * SAMPLES
                writer.write({"__key__": f"{key:06d}", "txt": f"{shard}/{sample:02d}"})
    return urls


def epochs(urls, cache):
    """Return the texts of three epochs, shuffled by a seed before they are cached."""
    dataset = wds.DataPipeline(wds.SimpleShardList(urls), wds.tarfile_to_samples(),
                               wds.shuffle(1000, initial=1000, seed=1), wds.decode(), cache)
    return [[sample["txt"] for sample in dataset] for _ in range(3)]


def show(name, given):
    counts = [len(set(texts)) for texts in given]
    print(f"{name:36s} {counts} different samples; first ones", *(texts[:3] for texts in given))


same = epochs(write("same", False), wds.LMDBCached("same-cache"))
show("LMDBCached, keys numbered by shard:", same)
assert len(set(same[0])) == SHARDS * SAMPLES
assert len(same[1]) == SAMPLES and same[1] == same[2]
assert [text.split("/")[1] for text in same[1]] == [f"{sample:02d}" for sample in range(SAMPLES)]
assert {text.split("/")[0] for text in same[1]} == {"0", "1", "2"}

unique = epochs(write("unique", True), wds.LMDBCached("unique-cache"))
show("LMDBCached, unique keys:", unique)
assert sorted(unique[0]) == unique[1] == unique[2] != unique[0]

memory = epochs(write("same", False), wds.Cached())
show("Cached, keys numbered by shard:", memory)
assert memory[0] == memory[1] == memory[2] == same[0]

fluid = wds.WebDataset(write("same", False), shardshuffle=False).decode().lmdb_cached("fluid-cache")
counts = [sum(1 for _ in fluid) for _ in range(3)]
print("WebDataset(...).lmdb_cached(...):", counts, "samples")
assert counts == [SHARDS * SAMPLES, SAMPLES, SAMPLES]
PYTHON
