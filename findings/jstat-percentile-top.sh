#!/usr/bin/env bash
# jStat's percentiles do not see the largest value.
#
# Version: jstat 1.9.6 (Node.js 20).
# Guess before the run: `percentile(values, 0.95)` is that of numpy or Excel, with interpolation between the two
#     neighbours.
# Seen: between the second largest value and the largest one, it does not interpolate: it returns the second
#     largest, and at 1 it jumps to the largest. Of 20 response times, 1 to 19 and 1,000 milliseconds, the 95th
#     percentile is 19 where 68 is due, and the 99th too, where 814 is due. With `exclusive`, the same. Percentiles
#     further below, and `quantiles(values, [p], 1, 1)`, are right.
# For gyre: it takes numpy's quantiles. There, take `quantiles(values, [p], 1, 1)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit jstat@1.9.6
cat > percentile.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { jStat } = require("jstat");

const times = [1000, ...Array.from({ length: 19 }, (_, i) => i + 1)];
const sorted = [...times].sort((a, b) => a - b);

// Return the percentile of Excel's PERCENTILE.INC (numpy's default) or PERCENTILE.EXC.
function interpolate(p, exclusive) {
  const rank = exclusive ? p * (sorted.length + 1) - 1 : p * (sorted.length - 1);
  const low = Math.floor(rank);
  return low + 1 < sorted.length ? sorted[low] + (rank - low) * (sorted[low + 1] - sorted[low]) : sorted[low];
}

const close = (a, b) => Math.abs(a - b) < 1e-9;
for (const p of [0.25, 0.5, 0.9, 0.94, 0.95, 0.99, 0.999, 1]) {
  const [found, due] = [jStat.percentile(times, p), interpolate(p, false)];
  console.log(`percentile ${p}: ${found.toFixed(2)}, due ${due.toFixed(2)}`);
  if (p > 18 / 19 && p < 1) {
    assert.equal(found, 19);
    assert(due > 60);
  } else {
    assert(close(found, due));
  }
  assert(p === 1 || close(jStat.quantiles(times, [p], 1, 1)[0], due));
}
for (const p of [0.5, 0.9, 0.92, 0.94]) {
  const [found, due] = [jStat.percentile(times, p, true), interpolate(p, true)];
  console.log(`exclusive percentile ${p}: ${found.toFixed(2)}, due ${due.toFixed(2)}`);
  assert.equal(close(found, due), p < 19 / 21);
}
JAVASCRIPT
node percentile.cjs
