#!/usr/bin/env bash
# The quantiles of npm's tdigest lie between the values where values repeat: a median of 0.1 for zeros.
#
# Version: tdigest 0.1.3 (npm, Node.js 20).
# Guess before the run: a digest has the quantiles of its values to 1 % of the ranks, whole numbers or
#     not; `percentile(p)` is, by its own comment, the smallest value that a share p does not exceed.
# Seen: of nine zeros for each one, the median is 0.1, and three quarters lie below 0.6, where 0 is
#     due for both: each p between 0.45 and 0.95 gives another number. Nine latencies of 10 ms for each
#     of 1,000 ms have a median of 109 ms and a p75 of 604 ms; `p_rank(10)` is 0.45 for 0.9. 10,000
#     whole numbers from 0 to 4 are off by up to 10 % of the ranks, those from 0 to 999 are right.
# Cause: equal values fall into one centroid without limit, "a departure from the paper" (tdigest.js,
#     `_digest`), and `_percentile` interpolates between the middles of neighbours, as if half of the
#     values of each lay above its mean. With `delta` false or `Digest` they are right; the former never
#     merges two values.
# For gyre: it sorts its values. There, take `Digest`, which begins with exact counts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit tdigest@0.1.3
cat > quantiles.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { Digest, TDigest } = require("tdigest");

const SHARES = [0.25, 0.5, 0.75, 0.85, 0.99];

function ask(digest, values) {
  for (const value of values) digest.push(value);
  digest.compress();
  return SHARES.map((share) => Number(digest.percentile(share).toFixed(3)));
}

const tenth = (usual, rare) => Array.from({ length: 1000 }, (_, i) => (i % 10 === 9 ? rare : usual));
for (const [usual, rare, seen] of [[0, 1, [0, 0.1, 0.6, 0.8, 1]], [10, 1000, [10, 109, 604, 802, 1000]]]) {
  const values = tenth(usual, rare);
  const due = [...Array(4).fill(usual), rare];
  const found = ask(new TDigest(), values);
  console.log(`nine of ${usual} for each ${rare}, quantiles ${SHARES}: ${found}, due ${due}`);
  assert(found.every((value, i) => Math.abs(value - seen[i]) <= 0.01 * rare));
  assert.deepEqual(ask(new Digest(), values), due);
  assert.deepEqual(ask(new TDigest(false), values), due);
}
const digest = new TDigest();
ask(digest, tenth(10, 1000));
console.log(`share of values up to 10: ${digest.p_rank(10)}, due 0.9`);
assert(Math.abs(digest.p_rank(10) - 0.45) < 0.01);

let state = 1;
function draw(nValues) {
  state = (state * 48271) % 2147483647;
  return Math.floor((state / 2147483647) * nValues);
}
for (const nValues of [5, 1000]) {
  const values = Array.from({ length: 10000 }, () => draw(nValues));
  const counts = new TDigest();
  ask(counts, values);
  let worst = 0;
  for (let value = 0; value < nValues; value++) {
    const due = values.filter((other) => other <= value).length / values.length;
    worst = Math.max(worst, Math.abs(counts.p_rank(value) - due));
  }
  console.log(`10,000 whole numbers below ${nValues}: ranks off by up to ${worst.toFixed(4)}`);
  assert(nValues === 5 ? worst > 0.08 : worst < 0.01);
}
JAVASCRIPT
node quantiles.cjs
