#!/usr/bin/env bash
# arquero never samples the first row: one row of a table, a group or a filtered table is one of the others.
#
# Version: arquero 8.0.0 (npm).
# Guess before the run: `sample` without replacement takes each row equally often, of a table, of each group
#     and of what a filter leaves.
# Seen: `sample(1)` never takes the first row of a table, of a group or of what is left: of 60,000 samples
#     of six rows none, where 10,000 are due, and of one row for each group, never the one at its
#     head. With `sample(3)` of six, each of the first three comes in 40 % of the samples, and each of the
#     others in 60 %. With replacement or with weights, all is as due.
# Cause: the reservoir replaces row i with chance k / i, where i counts from 0, and k / (i + 1) is due
#     (src/util/sample.js, `sampleNU`), in 8.0.3, too.
# For gyre: it has no such tables. There, give equal weights.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit arquero@8.0.0
cat > sample.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as aq from "arquero";

const N_SAMPLES = 60000;
aq.seed(0.5);
const table = aq.table({ row: [0, 1, 2, 3, 4, 5], group: [..."aaabbb"], weight: [1, 1, 1, 1, 1, 1] });

function shares(name, data, size, options = {}) {
  const counts = Array(6).fill(0);
  for (let i = 0; i < N_SAMPLES; i++) {
    for (const row of data.sample(size, options).array("row")) counts[row]++;
  }
  const found = counts.map(count => count / N_SAMPLES);
  console.log(`${name}, ${size} of them, ${JSON.stringify(options)}: ${found.map(share => share.toFixed(2)).join(" ")}`);
  return found;
}
const near = (found, due) => assert(found.every((share, row) => Math.abs(share - due[row]) < 0.015));

near(shares("six rows", table, 1), [0, 0.2, 0.2, 0.2, 0.2, 0.2]);
near(shares("six rows", table, 3), [0.4, 0.4, 0.4, 0.6, 0.6, 0.6]);
near(shares("two groups", table.groupby("group"), 1), [0, 0.5, 0.5, 0, 0.5, 0.5]);
near(shares("filtered, the last three", table.filter(data => data.row >= 3), 1), [0, 0, 0, 0, 0.5, 0.5]);
near(shares("six rows", table, 1, { weight: "weight" }), Array(6).fill(1 / 6));
near(shares("six rows", table, 3, { weight: "weight" }), Array(6).fill(1 / 2));
near(shares("six rows", table, 1, { replace: true }), Array(6).fill(1 / 6));
JAVASCRIPT
node sample.mjs
