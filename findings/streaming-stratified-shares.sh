#!/usr/bin/env bash
# mosaicml-streaming's "stratified" batches have other shares than the streams, and each rank its own.
#
# Versions: mosaicml-streaming 0.13.0, torch 2.13.0.
# Guess before the run: with `batching_method="stratified"`, "every global batch respects dataset mixing exactly", as the
#     documentation says: ten streams of one size have 10 % each, and each rank has a mixture. (Suspected from
#     reading the source.)
# Seen: in batches of 16, six streams have 12.5 % and four 6.25 %, in each batch of each epoch. An epoch ends when the
#     six are used up, after 80 % of its length: half of the samples of the four are left out; for batches of 12 it is
#     60 %. With two ranks and two streams, rank 0 has one stream only and rank 1 the other one, so that the loss of
#     rank 0 is that of one stream; with 70 % and 30 %, rank 0 still sees one stream. With "random", each rank has both.
# Cause: the share of a stream in a batch is rounded once for all batches, and a global batch is put together stream by
#     stream and cut into ranks in that order (streaming/base/batching/stratified.py). A warning says that "some
#     batches" are dropped if the rest of a stream does not fill a batch, which is not the case here. No issue was found.
# For gyre: it has one stream. There, take "random"; on one rank, also batches in which all shares are whole.
set -euo pipefail
folder=$(mktemp -d)
trap '[ $? = 0 ] || tail -n 20 "$folder/errors.txt" >&2; rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 Brotli==1.2.1 catalogue==2.0.10 \
    python-snappy==0.7.3 requests==2.34.2 tqdm==4.70.1 xxhash==4.1.0 zstd==1.5.7.2 pillow==13.0.0 filelock==4.3.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps mosaicml-streaming==0.13.0
cd "$folder"
export HOME="$folder" TMPDIR="$folder" OMP_NUM_THREADS=1
cat > stubs.py <<'PYTHON'
"""Stand-ins for packages that streaming imports and that are not used here."""
import importlib.machinery
import sys
import types


class Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Stub:
    def find_spec(self, name, path=None, target=None):
        unused = name.split(".")[0] in {"transformers", "torchvision"}
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if unused else None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Stub())
PYTHON
cat > one.py <<'PYTHON'
import stubs
from collections import Counter

from streaming import MDSWriter, Stream, StreamingDataset

N_STREAMS, N_SAMPLES = 10, 160
for stream in range(N_STREAMS):
    with MDSWriter(out=f"ten/{stream}", columns={"stream": "int"}) as writer:
        for _ in range(N_SAMPLES):
            writer.write({"stream": stream})


def count_streams(batch_size, method):
    """Return how many batches two epochs have, and the shares of the streams; all batches must be alike if stratified."""
    streams = [Stream(local=f"ten/{stream}") for stream in range(N_STREAMS)]
    data = StreamingDataset(streams=streams, batch_size=batch_size, batching_method=method, shuffle=True, num_canonical_nodes=1)
    epochs = [[sample["stream"] for sample in data] for _ in range(2)]
    assert len(data) == N_STREAMS * N_SAMPLES
    for samples in epochs:
        batches = [Counter(samples[start:start + batch_size]) for start in range(0, len(samples), batch_size)]
        assert method == "random" or all(batch == batches[0] for batch in batches)
    counts = Counter(epochs[0] + epochs[1])
    return len(epochs[0]), [counts[stream] / sum(counts.values()) for stream in range(N_STREAMS)]


for batch_size, method in [(16, "stratified"), (12, "stratified"), (20, "stratified"), (16, "random")]:
    length, shares = count_streams(batch_size, method)
    print(f"{method}, batches of {batch_size}: {length} of {N_STREAMS * N_SAMPLES} samples; shares {[f'{share:.2%}' for share in shares]}")
    if method == "random" or batch_size == 20:
        assert length == N_STREAMS * N_SAMPLES and set(shares) == {0.1}
    else:
        n_more = batch_size - N_STREAMS
        assert sorted(shares) == [1 / batch_size] * (N_STREAMS - n_more) + [2 / batch_size] * n_more
        assert length == N_SAMPLES // 2 * batch_size
PYTHON
cat > ranks.py <<'PYTHON'
import stubs
import sys
from collections import Counter

import torch.distributed as dist
from streaming import Stream, StreamingDataset

BATCH_SIZE = 10
method, *names = sys.argv[1:]
dist.init_process_group("gloo")
streams = [Stream(local=f"two/{name}") for name in names]
data = StreamingDataset(streams=streams, batch_size=BATCH_SIZE, batching_method=method, shuffle=True, num_canonical_nodes=1)
counts = Counter(sample["stream"] for sample in data)
with open(f"{method}-{names[0]}-{dist.get_rank()}.txt", "w") as file:
    file.write(" ".join(str(counts[name] / sum(counts.values())) for name in names))
dist.barrier()
dist.destroy_process_group()
PYTHON
cat > write.py <<'PYTHON'
import stubs
from streaming import MDSWriter

for name, size in {"one": 400, "other": 400, "large": 700, "small": 300}.items():
    with MDSWriter(out=f"two/{name}", columns={"stream": "str"}) as writer:
        for _ in range(size):
            writer.write({"stream": name})
PYTHON
cat > check.py <<'PYTHON'
for method, names, due in [("stratified", ("one", "other"), [[1, 0], [0, 1]]), ("stratified", ("large", "small"), [[1, 0], [0.4, 0.6]]),
                           ("random", ("one", "other"), None)]:
    shares = [[float(share) for share in open(f"{method}-{names[0]}-{rank}.txt").read().split()] for rank in range(2)]
    for rank in range(2):
        print(f"{method}, rank {rank}: {shares[rank][0]:.0%} {names[0]} and {shares[rank][1]:.0%} {names[1]}")
    assert shares == due if due else all(0.4 < share < 0.6 for rank in shares for share in rank)
PYTHON
export PYTHONWARNINGS=ignore PATH="$folder/env/bin:$PATH"
python one.py 2> errors.txt
python write.py 2>> errors.txt
for arguments in "stratified one other" "stratified large small" "random one other"; do
    torchrun --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0 ranks.py $arguments 2>> errors.txt
done
python check.py
