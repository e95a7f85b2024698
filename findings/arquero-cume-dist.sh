#!/usr/bin/env bash
# arquero's cumulative distribution and quantiles tear the smallest tie apart: its first row is 1 / n.
#
# Version: arquero 8.0.0 (npm).
# Guess before the run: rank functions are those of SQL: `cume_dist` is the share of rows that are not
#     above this one, the same for equal values.
# Seen: rank and percent_rank are, and cume_dist from the second row on. The first row of the smallest
#     tie, in each group, has 1 / n: of four equal values, 0.25, 1, 1 and 1. `ntile`, which is made of it,
#     puts that row into the first of two halves, and the three equal ones into the second.
# Cause: the end of a tie is looked for if `cume < index`, which is 0 < 0 in the first row
#     (src/op/window-functions.js, `cume_dist`).
# For gyre: it has no such tables. There, take the largest `cume_dist` of each value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit arquero@8.0.0
cat > ranks.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as aq from "arquero";

const { op } = aq;

function check(values) {
  const data = aq.table({ value: [...values, ...values], group: values.map(() => "a").concat(values.map(() => "b")) });
  const rows = data.groupby("group").orderby("value").derive({
    distribution: op.cume_dist(), half: op.ntile(2), percent: op.percent_rank(), rank: op.rank(),
  }).objects().filter(row => row.group === "b");
  const n = values.length;
  const due = rows.map(row => values.filter(value => value <= row.value).length / n);
  const found = rows.map(row => row.distribution);
  rows.forEach(row => {
    const n_below = values.filter(value => value < row.value).length;
    assert(row.rank === n_below + 1 && Math.abs(row.percent - n_below / (n - 1)) < 1e-12);
  });
  console.log(`${rows.map(row => row.value)}: cume_dist ${found}, due ${due}; halves ${rows.map(row => row.half)}`);
  assert.deepEqual(found.slice(1), due.slice(1));
  assert(found[0] === 1 / n);
  return { torn: found[0] !== due[0], halves: rows.map(row => row.half) };
}

assert(!check([1, 2, 2, 3]).torn);
const { torn, halves } = check([5, 5, 5, 5]);
assert(torn);
assert.deepEqual(halves, [1, 2, 2, 2]);
assert(check([0, 0, 0, 7, 8]).torn);
JAVASCRIPT
node ranks.mjs
