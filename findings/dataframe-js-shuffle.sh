#!/usr/bin/env bash
# dataframe-js shuffles three rows into one order only, and never puts the last row first or last.
#
# Version: dataframe-js 1.4.4 (npm, Node.js 20).
# Guess before the run: `shuffle` gives each of the orders equally often, `sample(0.1)` of 10 rows
#     each row in a tenth of the cases, `bisect` each row to the smaller part equally often.
#     (Suspected otherwise after reading the source.)
# Seen: each row in turn is put where the rows before it are cut, and the two pieces change places;
#     a cut is never outside (src/dataframe.js). Two rows stay as they are, three always become 2, 3,
#     1, and four have 2 of 24 orders. The last row is never first or last: sample(0.1) of 10 rows
#     never has it, and the 20 % of bisect(0.8) have it in 12 % of the cases.
# For gyre: it shuffles by addressed randomness. There, sort by random numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit dataframe-js@1.4.4
cat > shuffle.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { DataFrame } = require("dataframe-js");

const N_TRIALS = 5000;
let state = 1;
Math.random = () => {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
};

function makeTable(nRows) {
  return new DataFrame(Array.from({ length: nRows }, (_, i) => [i + 1]), ["row"]);
}

for (const [nRows, seen] of [[2, ["12"]], [3, ["231"]], [4, ["1423", "3142"]]]) {
  const orders = new Set();
  for (let i = 0; i < N_TRIALS; i++) orders.add(makeTable(nRows).shuffle().toArray("row").join(""));
  console.log(`${nRows} rows: orders ${[...orders].sort().join(" and ")}`);
  assert.deepEqual([...orders].sort(), seen);
}
const [sampled, smaller] = [Array(11).fill(0), Array(11).fill(0)];
for (let i = 0; i < N_TRIALS; i++) {
  for (const row of makeTable(10).sample(0.1).toArray("row")) sampled[row] += 1 / N_TRIALS;
  for (const row of makeTable(10).bisect(0.8)[1].toArray("row")) smaller[row] += 1 / N_TRIALS;
}
const show = (shares) => shares.slice(1).map((share) => share.toFixed(2)).join(" ");
console.log(`sample(0.1), share of each row: ${show(sampled)}`);
console.log(`second part of bisect(0.8): ${show(smaller)}`);
assert(sampled[10] === 0 && sampled.slice(1, 10).every((share) => share > 0.09));
assert(smaller[10] < 0.15 && smaller.slice(1, 10).every((share) => share > 0.17));
JAVASCRIPT
node shuffle.cjs
