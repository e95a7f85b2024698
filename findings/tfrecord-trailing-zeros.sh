#!/usr/bin/env bash
# The package tfrecord drops the zeros at the end of bytes, if a feature has more than one value.
#
# Versions: tfrecord 1.14.6, numpy 2.4.6, protobuf 7.36.2, crc32c 2.9.post0.
# Guess before the run: a feature of bytes comes back as it was written, with one value and with
#     several. An index leaves the records in the order of the file. (That it might not was suspected
#     after reading the source.)
# Seen: a single value is right. Several become a NumPy array of fixed-width strings, which ends each
#     value at its last byte that is not 0: a mask of 0 and 1 that ends in zeros is shorter, and one of
#     zeros is empty. TensorFlow's own reader has no such rule. With an index and without workers,
#     the file is read from a random record on, other ones each time, by NumPy's global generator.
# For gyre: it reads no such files. There, write each value as a feature of its own, and end it by a
#     byte that is not 0; give no index to read in order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tfrecord==1.14.6 numpy==2.4.6 protobuf==7.36.2 \
    crc32c==2.9.post0
cd "$folder"
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import tfrecord
from tfrecord.example_pb2 import Example
from tfrecord.tools.tfrecord2idx import create_index

COUNT, LENGTH = 20, 8
generator = np.random.default_rng(0)
masks = generator.integers(0, 2, (COUNT, 2, LENGTH), dtype=np.uint8)
masks[0, 1] = 0

writer = tfrecord.TFRecordWriter("masks.tfrecord")
for number, pair in enumerate(masks):
    writer.write({"first": (pair[0].tobytes(), "byte"), "number": (number, "int"),
                  "both": ([mask.tobytes() for mask in pair], "byte")})
writer.close()

shorter = 0
for number, record in enumerate(tfrecord.tfrecord_loader("masks.tfrecord", None)):
    assert record["number"][0] == number
    assert record["first"] == masks[number, 0].tobytes()
    for mask, value in zip(masks[number], record["both"]):
        assert value == mask.tobytes().rstrip(b"\0")
        shorter += len(value) < LENGTH
    if number < 3:
        print(f"record {number}: one value {list(record['first'])}, two values "
              f"{[list(value) for value in record['both']]}, written {masks[number].tolist()}")
print(f"{shorter} of {2 * COUNT} masks are shorter than written")
assert shorter == np.sum(masks[:, :, -1] == 0) and shorter > COUNT / 2

# The file itself has all bytes.
view = next(tfrecord.reader.tfrecord_iterator("masks.tfrecord"))
stored = Example.FromString(bytes(view)).features.feature["both"].bytes_list.value
assert list(stored) == [mask.tobytes() for mask in masks[0]]

create_index("masks.tfrecord", "masks.index")
np.random.seed(0)
starts = set()
for _ in range(20):
    order = [int(record["number"][0])
             for record in tfrecord.tfrecord_loader("masks.tfrecord", "masks.index")]
    assert order == [(order[0] + i) % COUNT for i in range(COUNT)]
    starts.add(order[0])
print(f"with an index, 20 passes begin at the records {sorted(starts)}")
assert len(starts) > 5
PYTHON
