#!/usr/bin/env bash
# The exponential average of timeseries-analysis is one of two values, whatever its period.
#
# Version: timeseries-analysis 1.0.12 (Node.js 20).
# Guess before the run: `ema({period})` mixes each value into the average so far, and
#     `lwma({period})` gives the largest weight to the latest value. (Suspected after reading the
#     source.)
# Seen: 1. `ema` mixes each value into the one before instead of the average: 2 parts of this value
#     and period - 1 of the last. With a period of 20, noise keeps 91 % of its deviation, where 22 %
#     is due, and a longer period smooths less: it is the series, one step late.
#     2. `lwma` gives the largest weight to the oldest value, and none to the value itself, as `ma`
#     does: on a ramp of 1 a step with a period of 6 it is 4.33 behind, where 1.67 is due. Nothing
#     is said.
# For gyre: it smooths no such series. There, take `smoother`, or another package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit timeseries-analysis@1.0.12
cat > smooth.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const timeseries = createRequire(import.meta.url)("timeseries-analysis");

function smooth(method, period, values) {
  const series = new timeseries.main(timeseries.adapter.fromArray(values));
  return series[method]({ period }).data.map((point) => point[1]);
}

let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

function deviation(values) {
  const mean = values.reduce((sum, value) => sum + value) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
}

const noise = Array.from({ length: 5000 }, draw);
for (const [period, seen] of [[2, 0.745], [6, 0.77], [20, 0.91], [200, 0.99]]) {
  const weight = 2 / (period + 1);
  const due = [noise[0]];
  for (const value of noise.slice(1)) due.push(due.at(-1) + weight * (value - due.at(-1)));
  const found = smooth("ema", period, noise);
  found.forEach((value, i) => {
    const mixed = i < period ? noise[i] : weight * noise[i] + (1 - weight) * noise[i - 1];
    assert(Math.abs(value - mixed) < 1e-12);
  });
  const shares = [found, due].map((values) =>
    deviation(values.slice(1000)) / deviation(noise.slice(1000)));
  console.log(`ema, period ${period}: noise keeps ${shares[0].toFixed(2)} of its deviation, ` +
              `where ${shares[1].toFixed(2)} is due`);
  assert(Math.abs(shares[0] - seen) < 0.02);
}

const ramp = Array.from({ length: 50 }, (_, i) => i);
const latest = [1, 2, 3, 4, 5, 6].reduce((sum, weight) => sum + weight * (6 - weight), 0) / 21;
for (const [method, seen, due] of [["ma", 3.5, 2.5], ["lwma", 13 / 3, latest]]) {
  const lag = 49 - smooth(method, 6, ramp)[49];
  console.log(`${method}, period 6: ${lag.toFixed(2)} steps behind a ramp, where ` +
              `${due.toFixed(2)} is due`);
  assert(Math.abs(lag - seen) < 1e-9);
}
JAVASCRIPT
node smooth.mjs
