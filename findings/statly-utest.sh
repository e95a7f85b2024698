#!/usr/bin/env bash
# statly's Mann-Whitney test takes its p-value from a binomial distribution.
#
# Version: statly 0.0.1 (Node.js 20).
# Guess: `uTest`, "a Mann-Whitney U Test", gives two separated samples of five p = 2/252, or half of it
#     for one side, and equal samples 1. (Written down after a first run, beside the source.)
# Seen: 0.031 and 0.875. The p-value is the chance of at most auc * n heads in n tosses, n being the
#     smaller sample: 20 values that are all below 20 others have 1e-6, where 1.5e-11 is due. With 10
#     values against 300, no experiment without a difference has p < 0.05, and with a difference of one
#     deviation about 10 %, where 86 % are due.
# Cause: `cdf(n, auc * n)` with n = Math.min(x, y) (statly.js). The variance of the share of pairs is (x
#     + y + 1) / (12 x y), which is 1 / (12 n) where the other sample is large, not 1 / (4 n).
# For gyre: it compares by paired tests. There, take the auc, which is right, and its variance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit statly@0.0.1
cat > compare.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { uTest } = require("statly");

function choose(n, k) {
  let result = 1;
  for (let i = 1; i <= k; i++) result *= (n - k + i) / i;
  return result;
}

for (const n of [5, 20]) {
  const low = Array.from({ length: n }, (_, i) => i);
  const { p, auc } = uTest(low, low.map(value => value + n));
  const due = 2 / choose(2 * n, n);
  console.log(`${n} values below ${n} others: p ${p.toPrecision(2)}, due ${due.toPrecision(2)}; auc ${auc}`);
  assert(auc === 0 && Math.abs(p / 2 ** -n - 1) < 1e-9 && p > 3 * due);
}
const same = uTest([1, 2, 3], [1, 2, 3]);
console.log(`equal samples: p ${same.p}`);
assert(same.p === 0.875 && same.auc === 0.5);

// 10 against 300
let state = 3;
function random() {
  state = (state + 0x6D2B79F5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
const [N_SMALL, N_LARGE, N_EXPERIMENTS] = [10, 300, 200];
for (const shift of [0, 1]) {
  let found = 0, due = 0;
  for (let experiment = 0; experiment < N_EXPERIMENTS; experiment++) {
    const small = Array.from({ length: N_SMALL }, () => normal() + shift);
    const { p, auc } = uTest(small, Array.from({ length: N_LARGE }, normal));
    const z = (auc - 0.5) / Math.sqrt((N_SMALL + N_LARGE + 1) / (12 * N_SMALL * N_LARGE));
    found += (p < 0.05) / N_EXPERIMENTS;
    due += (Math.abs(z) > 1.959964) / N_EXPERIMENTS;
  }
  console.log(`${N_SMALL} against ${N_LARGE}, shift ${shift}: p < 0.05 in ${(100 * found).toFixed(1)} %, due ` +
              `${(100 * due).toFixed(1)} %`);
  if (shift === 0) assert(found < 0.02 && due > 0.01 && due < 0.1);
  else assert(found < 0.4 && due > 0.7);
}
JAVASCRIPT
node compare.cjs
