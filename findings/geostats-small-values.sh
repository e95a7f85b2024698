#!/usr/bin/env bash
# geostats has a standard deviation of 0 for shares, and makes small values 0.
#
# Version: geostats 2.1.0 (Node.js 20).
# Guess before the run: statistics of shares between 0 and 1 are right to a few digits, as those of
#     percentages are, and the values of a series stay what they are. (That they do not was suspected
#     after reading the source.)
# Seen: 1. `variance()` is rounded to two decimals, and `stddev()` is the root of that, rounded again.
#     Six rates from 1 % to 11 % have a deviation of 0, where 0.034 is due, and 3.42 in percent;
#     classes by standard deviation all have the mean as their bounds. With other rates, a
#     deviation of 0.08 is 0.1.
#     2. With the automatic precision, the decimals of a value are those behind the point of its
#     text. 5e-7 has none and 2.5e-7 has four, so that both become 0, and so does each value of a series
#     of such numbers: mean, maximum and all classes are 0.
# For gyre: it has no maps. There, multiply small numbers before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit geostats@2.1.0
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const Geostats = require("geostats");

function deviate(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
}

for (const rates of [[0.01, 0.03, 0.05, 0.07, 0.09, 0.11], [0.02, 0.18, 0.02, 0.18]]) {
  const percent = rates.map((rate) => Math.round(rate * 100));
  const seen = [new Geostats(rates).stddev(), new Geostats(percent).stddev()];
  console.log(`deviation of ${rates}: ${seen[0]}, due ${deviate(rates).toFixed(4)}; in percent ${seen[1]}`);
  assert(Math.abs(seen[1] - deviate(percent)) < 0.01);
}
const rates = [0.01, 0.03, 0.05, 0.07, 0.09, 0.11];
assert(new Geostats(rates).stddev() === 0 && deviate(rates) > 0.03);
assert(new Geostats([0.02, 0.18, 0.02, 0.18]).stddev() === 0.1);
const bounds = new Geostats(rates).getClassStdDeviation(4);
console.log(`bounds of four classes by standard deviation: ${bounds}`);
assert(bounds.every((bound) => Math.abs(bound - 0.06) < 1e-9));

const small = [2.5e-7, 5e-7, 1e-7, 7.5e-8];
const series = new Geostats(small);
console.log(`the series ${small} is ${series.serie}; mean ${series.mean()}, maximum ${series.max()}`);
assert(series.serie.every((value) => value === 0) && series.mean() === 0);
assert(new Geostats(small.map((value) => value * 1e9)).mean() === 231.25);
JAVASCRIPT
node compare.js
