#!/usr/bin/env bash
# bunchmark's Mann-Whitney test sorts numbers as text: half of the tests of equal times are significant.
#
# Version: @bunchmark/stats 1.0.0-pre-5 (Node.js 20).
# Guess before the run: `mwu(A, B)` has the U of a comparison of all pairs, and without a difference
#     5 % of its p-values are below 0.05. (Suspected after reading the source.)
# Seen: both samples are sorted by `sort()` without a comparison, so that 10.2 comes before 9.8, and are
#     then merged as if they ascended. Where a sample has numbers of one length before the
#     point, all is well. Of 400 pairs of samples of 20 times around 10 ms, without a difference, U
#     is wrong in 399, and 52 % have p < 0.05; around 100 ms 48 %. From 20 to 90 ms, it
#     is 5 %. Two equal samples may differ: of the numbers from 8 to 17 against themselves, U is
#     54.5 instead of 50. `mwUnaive`, which the package has for comparison, is right.
# For gyre: its report has a paired test of its own. There, take `mwUnaive`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit @bunchmark/stats@1.0.0-pre-5
cat > compare.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { mwu, mwUnaive } from "@bunchmark/stats";

const N_PAIRS = 400;
const N_TIMES = 20;
let state = 7;

function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

const drawNormal = () => Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());

function countPairs(left, right) {
  let u = 0;
  for (const x of left) for (const y of right) u += x > y ? 1 : x === y ? 0.5 : 0;
  return Math.max(u, left.length * right.length - u);
}

function compare(mean, deviation) {
  const counts = { wrong: 0, seen: 0, naive: 0 };
  for (let i = 0; i < N_PAIRS; i++) {
    const [left, right] = [0, 1].map(() => Array.from({ length: N_TIMES }, () => mean + deviation * drawNormal()));
    const test = mwu(left, right);
    counts.wrong += test.U !== countPairs(left, right);
    counts.seen += test.p < 0.05;
    const naive = mwUnaive(left, right);
    assert(naive.U === countPairs(left, right));
    counts.naive += naive.p < 0.05;
  }
  console.log(`${mean} +- ${deviation} ms: U is wrong in ${counts.wrong} of ${N_PAIRS} comparisons; ` +
              `p < 0.05 in ${(100 * counts.seen / N_PAIRS).toFixed(1)} %, of mwUnaive ` +
              `in ${(100 * counts.naive / N_PAIRS).toFixed(1)} %`);
  assert(counts.naive < 0.1 * N_PAIRS);
  return counts;
}

for (const [mean, deviation] of [[10, 2], [100, 10], [1000, 100]]) {
  const { wrong, seen } = compare(mean, deviation);
  assert(wrong > 0.9 * N_PAIRS && seen > 0.4 * N_PAIRS);
}
const { wrong, seen } = compare(50, 5);
assert(wrong === 0 && seen < 0.1 * N_PAIRS);

const times = Array.from({ length: 10 }, (_, i) => 8 + i);
console.log(`8 to 17 against themselves: U ${mwu(times, times).U}, due ${countPairs(times, times)}`);
assert(mwu(times, times).U === 54.5 && countPairs(times, times) === 50);
JAVASCRIPT
node compare.mjs
