#!/usr/bin/env bash
# jsfive has undefined for cells of an HDF5 file that nobody has written, instead of the fill value.
#
# Version: jsfive 0.4.2 (Node.js 20), h5py 3.16.0, numpy 2.4.6.
# Guess before the run: values are those that h5py reads: a cell in a chunk that was never written has the fill
#     value of the file, 0 if none is given. (That it might not was suspected after reading the source.)
# Seen: in chunked and compressed data, such cells are undefined: a sum is NaN, `map` skips them. So are the rows
#     by which a dataset was made longer, as a training's log is before it is written; and data of which nothing
#     was written have no values at all. In a chunk that was written in part, and in contiguous data, they are
#     right. Integers above 2^53 are rounded, 9007199254740993 to an even number. Nothing is said.
# For gyre: it writes no HDF5. There, give `fillvalue` for undefined, and keep large integers as text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile h5py==3.16.0 numpy==2.4.6
cd "$folder"
npm install --silent --no-fund --no-audit jsfive@0.4.2
env/bin/python - <<'PYTHON'
import json

import h5py
import numpy as np

LAYOUTS = {"contiguous": {}, "chunked": {"chunks": (4,)}, "compressed": {"chunks": (4,), "compression": "gzip"}}
with h5py.File("data.h5", "w") as file:
    for layout, options in LAYOUTS.items():
        for fill in (None, 7):
            data = file.create_dataset(f"{layout}, fill value {fill}", (12,), "f4", fillvalue=fill, **options)
            data[4:6] = 1
        file.create_dataset(f"{layout}, empty", (4,), "f4", fillvalue=7, **options)
    longer = file.create_dataset("made longer", data=np.arange(4, dtype="f4"), chunks=(4,), maxshape=(None,))
    longer.resize((12,))
    file.create_dataset("integers", data=np.array([2**53 + 1, 2**62 + 1, -5]))
    with open("values.json", "w") as values:
        json.dump({name: [str(value) for value in data[()].tolist()] for name, data in file.items()}, values)
PYTHON
cat > read.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import fs from "node:fs";
import * as hdf5 from "jsfive";

const bytes = fs.readFileSync("data.h5");
const file = new hdf5.File(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length), "data.h5");
const due = JSON.parse(fs.readFileSync("values.json", "utf8"));
const missing = {};
for (const [name, values] of Object.entries(due)) {
  const found = Array.from(file.get(name).value);
  missing[name] = found.map((value, i) => (value === undefined ? i : -1)).filter((i) => i >= 0);
  const sum = found.reduce((a, b) => a + b, 0);
  console.log(`${name}: ${found.join(" ").replace(/  +/g, " ... ")}; ${missing[name].length} undefined, sum ${sum}; ` +
              `h5py ${values.map((value) => value.replace(".0", "")).join(" ")}`);
  assert(found.length === (/(chunked|compressed), empty/.test(name) ? 0 : values.length));
  if (name !== "integers") {
    found.forEach((value, i) => assert(value === undefined || value === Number(values[i])));
    assert(Number.isNaN(sum) === missing[name].length > 0);
  }
}
for (const fill of ["None", "7"]) {
  assert.deepStrictEqual(missing[`contiguous, fill value ${fill}`], []);
  for (const layout of ["chunked", "compressed"]) {
    assert.deepStrictEqual(missing[`${layout}, fill value ${fill}`], [0, 1, 2, 3, 8, 9, 10, 11]);
  }
}
assert(missing["contiguous, empty"].length === 4);
assert(missing["made longer"].length === 8);
const [first, second] = file.get("integers").value;
assert(first === 2 ** 53 && second === 2 ** 62 && due.integers[0] === "9007199254740993");
JAVASCRIPT
node read.mjs
