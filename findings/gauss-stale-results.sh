#!/usr/bin/env bash
# gauss returns the sample deviation and the mean of values that a vector had before.
#
# Version: gauss 0.2.12 (Node.js 20).
# Guess before the run: a Vector is an array, and may change. `mean()`, `stdev()` and
#     `sample.stdev()` are those of its present values, whatever has been asked before. (That they
#     are not was suspected after reading the source.)
# Seen: each result is kept, and all of them share one copy of the values that says for which values
#     they hold.
#     1. `push` adds to the copy, and brings sum and variance up to date, but not the sample variance:
#     in a loop that pushes measurements, `sample.stdev()` has the value of the second measurement for
#     ever, 1.4 for 35.1 after eight.
#     2. A value that is replaced, or taken away by `pop`, makes the copy differ. Whichever result
#     is asked for first renews it, and makes the others valid again: with 100 in place of 1, the
#     mean of 1, 2 and 3 stays 2 if the deviation was asked first.
#     3. The sum of two vectors is filled the same way: asked for its mean and then for its
#     deviation, it has a deviation of NaN; the other way round it is right.
# For gyre: nothing. There, make a new Vector for each change.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit gauss@0.2.12
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const { Vector } = require("gauss");

const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function deviate(values, freedom) {
  const mean = average(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - freedom));
}

const times = [20, 22, 21, 80, 85, 90, 95, 100];
const growing = new Vector([times[0]]);
for (const time of times.slice(1)) {
  growing.push(time);
  const seen = growing.sample.stdev();
  const due = deviate(times.slice(0, growing.length), 1);
  console.log(`${growing.length} times: sample deviation ${seen.toFixed(2)}, due ${due.toFixed(2)}`);
  assert(Math.abs(seen - Math.SQRT2) < 1e-9);
  assert(Math.abs(growing.mean() - average(times.slice(0, growing.length))) < 1e-9);
}
assert(deviate(times, 1) > 30);

const replaced = new Vector([1, 2, 3]);
replaced[0] = 100;
const deviation = replaced.stdev();
console.log(`100, 2, 3: deviation ${deviation.toFixed(2)}, mean ${replaced.mean()}, due ${average([100, 2, 3])}`);
assert(Math.abs(deviation - deviate([100, 2, 3], 0)) < 1e-9 && replaced.mean() === 2);
const popped = new Vector([1, 2, 3, 100]);
popped.pop();
popped.stdev();
console.log(`1, 2, 3 after pop(): mean ${popped.mean()}, due 2`);
assert(popped.mean() === 106 / 3);

const sums = [1, 2].map(() => new Vector([1, 2, 3]).add([10, 20, 30]));
const first = sums[0].stdev();
sums[1].mean();
console.log(`11, 22, 33: deviation ${first.toFixed(2)}; asked after the mean ${sums[1].stdev()}`);
assert(Math.abs(first - deviate([11, 22, 33], 0)) < 1e-9 && Number.isNaN(sums[1].stdev()));
JAVASCRIPT
node compare.js
