#!/usr/bin/env bash
# stats-analysis finds no outliers in a series with zeros.
#
# Version: stats-analysis 2.0.0 (Node.js 20).
# Guess: the default method, which "looks at the difference between adjacent points", finds the same
#     outliers if a constant is added to the series, and 100 among zeros and ones. (Written down after a
#     first run, beside the source.)
# Seen: in 0, 1, 0, 1, 0, 100, 0, 1, 0, 1 it finds none and filters nothing; with 10 added to each
#     value, 110 and its successor. In a series of thirty 5s with one 500, it is found; with a single 0
#     right before the 500, only the value behind the 500 is removed, and the 500 stays. (That it
#     removes the value behind an outlier, too, is issue 2 there.)
# Cause: `arr[i - 1] || d[0]` stands for the value before, with a fallback for the first one (stats.js).
#     A zero is falsy, and `d[0]` of a number undefined: differences behind zeros are NaN, which is no
#     outlier, and which the median sorts anywhere.
# For gyre: it filters no outliers. There, add a constant, or take outlierMethod.MAD.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit stats-analysis@2.0.0
cat > compare.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const stats = require("stats-analysis");

function indices(series) {
  const before = series.slice();
  const found = stats.indexOfOutliers(series);
  assert.deepStrictEqual(series, before);
  assert.deepStrictEqual(stats.filterOutliers(series), series.filter((_, i) => !found.includes(i)));
  return found;
}

const bits = [0, 1, 0, 1, 0, 100, 0, 1, 0, 1];
const shifted = bits.map(value => value + 10);
console.log(`${bits}: outliers at [${indices(bits)}]; with 10 added: [${indices(shifted)}]`);
assert.deepStrictEqual(indices(bits), []);
assert.deepStrictEqual(indices(shifted), [5, 6]);

const fives = Array.from({ length: 30 }, (_, i) => 5 + (i % 3));
fives[20] = 500;
const withZero = fives.slice();
withZero[19] = 0;
const withOne = fives.slice();
withOne[19] = 0.001;
console.log(`one 500 at 20: outliers at [${indices(fives)}]; with 0 before it: [${indices(withZero)}]; with 0.001: ` +
            `[${indices(withOne)}]`);
assert(indices(fives).includes(20) && indices(withOne).includes(20) && !indices(withZero).includes(20));
console.log(`by MAD: [${stats.indexOfOutliers(withZero, stats.outlierMethod.MAD)}]`);
assert(stats.indexOfOutliers(withZero, stats.outlierMethod.MAD).includes(20));
JAVASCRIPT
node compare.cjs
