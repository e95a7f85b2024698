#!/usr/bin/env bash
# The correlation of ml-stat's matrices is the covariance.
#
# Version: ml-stat 1.3.3 (Node.js 20).
# Guess before the run: `matrix.correlation` is between -1 and 1, and `matrix.zScores` have a deviation of 1.
#     (That neither might hold was suspected after reading the source.)
# Seen: both hand the deviations' function its arguments in another order, so that each deviation is NaN, and
#     columns with such a deviation are left undivided: the correlation is the covariance, 200 for two columns
#     that are one and the same up to noise, and z-scores are centred only. With the deviations given, z-scores
#     are right.
# For gyre: it correlates nothing. There, take `array.covariance` and divide by both deviations.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-stat@1.3.3
cat > correlate.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { array, matrix } = require("ml-stat");

const rows = Array.from({ length: 50 }, (_, i) => {
  const value = i + 3 * Math.sin(i * i);
  return [value, value + Math.cos(3 * i), 0.01 * Math.sin(7 * i)];
});
const columns = [0, 1, 2].map((j) => rows.map((row) => row[j]));
const deviations = columns.map((column) => array.standardDeviation(column));
const covariance = columns.map((a) => columns.map((b) => array.covariance(a, b)));
const due = covariance.map((row, i) => row.map((value, j) => value / deviations[i] / deviations[j]));
const found = matrix.correlation(rows);
const isClose = (a, b) => Math.abs(a - b) < 1e-9 * (1 + Math.abs(b));
for (let i = 0; i < 3; i += 1) {
  console.log(`row ${i}: ${found[i].map((value) => value.toPrecision(4))}; due ` +
              `${due[i].map((value) => value.toFixed(3))}`);
  for (let j = 0; j < 3; j += 1) assert(isClose(found[i][j], covariance[i][j]));
}
assert(found[0][1] > 100 && due[0][1] > 0.99 && due[0][1] < 1);

const spreads = (scores) => [0, 1, 2].map((j) => array.standardDeviation(scores.map((row) => row[j])));
const scores = spreads(matrix.zScores(rows));
const given = spreads(matrix.zScores(rows, matrix.mean(rows), deviations));
console.log(`deviations of the z-scores: ${scores.map((value) => value.toPrecision(3))}; with deviations given ` +
            `${given.map((value) => value.toPrecision(3))}`);
scores.forEach((value, j) => assert(isClose(value, deviations[j]) && isClose(given[j], 1)));
JAVASCRIPT
node correlate.cjs
