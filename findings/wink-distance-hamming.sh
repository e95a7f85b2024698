#!/usr/bin/env bash
# wink-distance finds half of all pairs of 32-bit hashes equal.
#
# Version: wink-distance 2.0.2 (Node.js 20).
# Guess before the run: `number.hamming` is the number of bits that differ, at least for numbers of
#     32 bits, as hashes of texts and pictures are compared. (Suspected after reading the source.)
# Seen: bits are counted while the difference is above 0, and in JavaScript it is negative if the
#     highest of 32 bits differs. So 0 and 4294967295, which have no bit in common, are 0 apart, and
#     2147483647 is 31 from 0. Of random pairs of hashes, whose distance is 16 in the mean, half
#     have 0, and pass for copies of each other; the others are right. Negative numbers show the same.
# For gyre: it removes no near-duplicates. There, count the bits of (x ^ y) >>> 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit wink-distance@2.0.2
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const { hamming } = require("wink-distance").number;

const N_PAIRS = 2000;
let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

const count = (x, y) => ((x ^ y) >>> 0).toString(2).replaceAll("0", "").length;

for (const [x, y, seen] of [[0, 2 ** 31 - 1, 31], [0, 2 ** 32 - 1, 0], [0, 2 ** 31, 0], [1, -1, 0]]) {
  console.log(`${x} and ${y}: ${hamming(x, y)}, due ${count(x, y)}`);
  assert(hamming(x, y) === seen && count(x, y) >= 1);
}

let zeros = 0;
let right = 0;
let mean = 0;
for (let i = 0; i < N_PAIRS; i++) {
  const [x, y] = [Math.floor(draw() * 2 ** 32), Math.floor(draw() * 2 ** 32)];
  zeros += hamming(x, y) === 0;
  right += hamming(x, y) === count(x, y);
  mean += count(x, y) / N_PAIRS;
}
console.log(`random pairs: ${(100 * zeros / N_PAIRS).toFixed(1)} % have a distance of 0, ` +
            `${(100 * right / N_PAIRS).toFixed(1)} % are right; the mean distance is ${mean.toFixed(1)}`);
assert(zeros + right === N_PAIRS && zeros > 0.4 * N_PAIRS && zeros < 0.6 * N_PAIRS && mean > 15);
JAVASCRIPT
node compare.js
