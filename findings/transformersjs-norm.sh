#!/usr/bin/env bash
# In transformers.js, norms of odd order add the signs: the L1 norm of 1 and -1 is 0.
#
# Version: @huggingface/transformers 4.3.1 (Node.js 20), beside numpy 2.4.6.
# Guess before the run: Tensor.norm(p) and Tensor.normalize(p), which have torch's names and
#     arguments, are torch's norms: the p-th root of the sum of |x|**p.
# Seen: no absolute value is taken. That is right for an even p only. With p=1 the norm is the sum,
#     and may be negative; normalize(1) then turns the vector around, or divides by zero. With p=3 a
#     norm may be NaN. With an infinite p it is 1. No error.
# For gyre: its models make no embeddings. There, normalize with p=2.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile numpy==2.4.6
npm install --silent --no-fund --no-audit --ignore-scripts @huggingface/transformers@4.3.1
env/bin/python - > norms.json <<'PYTHON'
import json

import numpy as np

VECTORS = {"mixed": [3, 1, -2, 0.5], "negative": [-1, -2, -3, 1], "balanced": [1, -1, 2, -2]}
norms = {name: {str(p): np.linalg.norm(vector, p) for p in [1, 2, 3, 4]}
         | {"Infinity": np.linalg.norm(vector, np.inf)} for name, vector in VECTORS.items()}
print(json.dumps({"vectors": VECTORS, "norms": norms}))
PYTHON
cat > compare.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { Tensor } from "@huggingface/transformers";
const { vectors, norms } = JSON.parse(readFileSync("norms.json", "utf-8"));
const seen = {};
for (const [name, vector] of Object.entries(vectors)) {
  seen[name] = {};
  for (const [order, right] of Object.entries(norms[name])) {
    const tensor = new Tensor("float32", Float32Array.from(vector), [1, 4]);
    const norm = tensor.norm(Number(order), -1).tolist()[0];
    const unit = tensor.normalize(Number(order), -1).tolist()[0];
    console.log(`${name} ${JSON.stringify(vector)}, p = ${order}: norm ${norm.toPrecision(4)}, ` +
                `right is ${right.toPrecision(4)}; normalized [${unit}]`);
    if (order === "2" || order === "4") assert(Math.abs(norm - right) < 1e-5);
    seen[name][order] = [norm, unit[0]];
  }
}
assert.deepStrictEqual(seen.mixed["1"][0], 2.5);
assert.deepStrictEqual(seen.negative["1"], [-5, Math.fround(0.2)]);
assert.deepStrictEqual(seen.balanced["1"], [0, Infinity]);
assert(Number.isNaN(seen.negative["3"][0]));
for (const name of Object.keys(seen)) assert.strictEqual(seen[name].Infinity[0], 1);
JAVASCRIPT
node compare.mjs
