#!/usr/bin/env bash
# The package outliers puts its fences around the median, and drops six times as many values.
#
# Version: outliers 0.0.3 (Node.js 20).
# Guess before the run: by the rule of Tukey, on whose description the README says that it is based, an
#     outlier lies more than 1.5 interquartile ranges below the first or above the third quartile:
#     0.7 % of Gaussian numbers. (Suspected after reading the source.)
# Seen: the distance is taken from the median instead of the quartiles. Of Gaussian numbers 4.4 % are
#     called outliers, and of exponential ones 9.8 % for 4.9 %. Evenly distributed numbers have none
#     either way. After `filter(outliers())`, Gaussian numbers have a deviation of 0.88, where 0.97 is
#     due and 1 was before.
# For gyre: nothing. There, compare with the quartiles.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit outliers@0.0.3
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const outliers = require("outliers");

const N_VALUES = 20000;
let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

function median(values) {
  const half = Math.floor(values.length / 2);
  return values.length % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Return the values between Tukey's fences.
function keep(values) {
  const sorted = [...values].sort((x, y) => x - y);
  const low = median(sorted.slice(0, Math.floor(sorted.length / 2)));
  const high = median(sorted.slice(Math.ceil(sorted.length / 2)));
  const range = 1.5 * (high - low);
  return values.filter((value) => value >= low - range && value <= high + range);
}

function deviate(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
}

for (const [name, generate, seen, due] of [
  ["Gaussian", () => Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw()), 0.044, 0.007],
  ["exponential", () => -Math.log(draw()), 0.098, 0.049], ["even", draw, 0, 0]]) {
  const values = Array.from({ length: N_VALUES }, generate);
  const kept = values.filter(outliers());
  const expected = keep(values);
  const [share, right] = [kept, expected].map((list) => 1 - list.length / N_VALUES);
  console.log(`${name}: ${(100 * share).toFixed(2)} % are outliers, due ${(100 * right).toFixed(2)} %; ` +
              `deviation of the rest ${deviate(kept).toFixed(3)}, due ${deviate(expected).toFixed(3)}`);
  assert(Math.abs(share - seen) < 0.01 && Math.abs(right - due) < 0.006);
}
JAVASCRIPT
node compare.js
