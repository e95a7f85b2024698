#!/usr/bin/env bash
# The npm package mann-whitney-utest compares U with its own z-score.
#
# Version: mann-whitney-utest 1.0.5 (Node.js 20).
# Guess before the run: `significant` is a test at 5 %: without a difference it says yes in 5 % of the cases,
#     and with a large one it says yes. (That it does neither was suspected after reading the source.)
# Seen: "critical value" is |z|, and a result is called significant if the smaller U, a number of pairs, is
#     less than that. [1, 2] and [3, 4], which are as far apart in a third of all cases, are significant. Two
#     groups of 50 that differ by 2 deviations, with z = 7.8 and p = 1e-14, are not: U would have to be below 8
#     of 2,500. U and z are right.
# For gyre: it tests seeds in pairs. There, compare `criticalValue` with 1.96.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit mann-whitney-utest@1.0.5
cat > compare.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const mannWhitney = require("mann-whitney-utest");

const RUNS = 2000;
let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
const draw = (size, shift) => Array.from({ length: size }, () => normal() + shift);

for (const [size, shift] of [[2, 0], [3, 0], [4, 0], [10, 0], [50, 0], [50, 1], [50, 2]]) {
  let yes = 0, byZ = 0;
  for (let run = 0; run < RUNS; run += 1) {
    const samples = [draw(size, 0), draw(size, shift)];
    const u = mannWhitney.test(samples);
    // U counted pair by pair, and its z-score (there are no ties).
    const pairs = samples[0].reduce((sum, a) => sum + samples[1].filter((b) => a > b).length, 0);
    assert(u[0] === pairs && u[1] === size * size - pairs);
    const z = Math.abs(pairs - size * size / 2) / Math.sqrt(size * size * (2 * size + 1) / 12);
    assert(Math.abs(mannWhitney.criticalValue(u, samples) - z) < 1e-9);
    assert(mannWhitney.significant(u, samples) === Math.min(...u) < z);
    yes += mannWhitney.significant(u, samples);
    byZ += z > 1.96;
  }
  console.log(`two groups of ${size}, ${shift} deviations apart: significant in ${(100 * yes / RUNS).toFixed(1)} %; ` +
              `|z| is above 1.96 in ${(100 * byZ / RUNS).toFixed(1)} %`);
  if (size === 2) assert(yes / RUNS > 0.25);
  if (size === 3) assert(yes / RUNS > 0.15);
  if (size >= 10) assert(yes / RUNS < 0.02);
  if (shift === 2) assert(byZ === RUNS && yes < RUNS / 50);
}
console.log(`[1, 2] and [3, 4]: ${mannWhitney.significant(mannWhitney.test([[1, 2], [3, 4]]), [[1, 2], [3, 4]])}`);
assert(mannWhitney.significant([0, 4], [[1, 2], [3, 4]]));
JAVASCRIPT
node compare.cjs
