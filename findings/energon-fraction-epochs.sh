#!/usr/bin/env bash
# In Energon, a data set with `repetitions: 0.5` is missing in every third epoch.
#
# Versions: megatron-energon 7.4.1, torch 2.13.0, numpy 2.4.6.
# Guess before the run: in an epochized blend, each epoch has all samples of a data set as often as
#     its `repetitions` say, which may be a fraction: of 10 samples, 5 with 0.5, 15 with 1.5 and 23
#     with 2.3. (That the epochs behind the first might not was suspected after reading the source.)
# Seen: the first epoch ends within the data set, and the next one takes what is left of it for a
#     whole pass. With 0.5, an epoch has the first half, the next one the second half, and the third
#     one nothing. With 1.5, all epochs behind the first have 10 samples for 15. With 2.3, the first
#     one has 22, as 2.3 - 2 is less than 0.3 in floating point, and all later ones 20. The length
#     is 5, 15 and 23 always, and nothing is said; whole numbers are right.
# For gyre: a batch is a function of seed and step. There, give whole numbers, or weights.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile megatron-energon==7.4.1 torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import io
import tarfile
from pathlib import Path

SAMPLES = 10
for name in ("first", "second"):
    Path(name).mkdir()
    with tarfile.open(f"{name}/000.tar", "w") as archive:
        for index in range(SAMPLES):
            text = f"{name} {index}".encode()
            entry = tarfile.TarInfo(f"{index:05d}.txt")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
for repetitions in ("0.5", "1.5", "2.3", "2"):
    Path(f"{repetitions}.yaml").write_text(f"""\
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    blend_epochized:
      - repetitions: {repetitions}
        path: ./first
      - repetitions: 1
        path: ./second
""")
PYTHON
for name in first second; do
    "$folder/env/bin/energon" prepare "$name" --num-workers 1 --split-parts 'train:.*' \
        --sample-type TextSample --field-map '{"text": "txt"}' --non-interactive >/dev/null
done
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from collections import Counter

from megatron.energon import WorkerConfig, get_savable_loader, get_train_dataset

SAMPLES, EPOCHS = 10, 6
EXPECTED = {"0.5": [5, 5, 0, 5, 5, 0], "1.5": [15] + [10] * 5, "2.3": [22] + [20] * 5,
            "2": [20] * 6}


def read_epochs(path):
    """Return the texts of each epoch, and the length that is promised for one."""
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_train_dataset(
        path, batch_size=None, worker_config=config, shuffle_buffer_size=None,
        max_samples_per_sequence=None, repeat=False)
    loader = get_savable_loader(dataset)
    return [[sample.text for sample in loader] for _ in range(EPOCHS)], len(loader)


for repetitions, expected in EXPECTED.items():
    epochs, length = read_epochs(f"{repetitions}.yaml")
    firsts = [sorted(text for text in epoch if text.startswith("first")) for epoch in epochs]
    sizes = [len(first) for first in firsts]
    seen = Counter(sum(firsts, []))
    print(f"repetitions {repetitions}: {sizes} samples in the epochs, length {length - SAMPLES}; "
          f"each sample was seen {sorted(set(seen.values()))} times in {EPOCHS} epochs")
    assert sizes == expected and length - SAMPLES == round(SAMPLES * float(repetitions))
    for epoch in epochs:
        assert sorted(text for text in epoch if text.startswith("second")) == [
            f"second {index}" for index in range(SAMPLES)]
PYTHON
