#!/usr/bin/env bash
# wuzzy's similarities: equal words have 0.67, an empty word 3, and zeros are left out.
#
# Version: wuzzy 0.1.8 (Node.js 20).
# Guess before the run: `tanimoto` of equal words is 1; `levenshtein`, whose values go from 0 to 1 with
#     1 for equal words, is 0 between an empty word and another; `pearson` compares all keys that both
#     objects have. (Suspected after reading the source.)
# Seen: 1. `tanimoto` counts the common letters once, and divides by the lengths with all repetitions:
#     "hello" and itself have 0.67, "banana" and itself 0.33, less than "banana" and "ban" with 0.5.
#     2. `levenshtein` of an empty word is the length of the other one: in a ranking,
#     the empty entry is the best for every word, with a similarity of 6 for "banana".
#     3. `pearson` leaves out the keys for which the second object has 0: votes of 5, 4, 1, 2 and 3
#     against 0, 0, 1, 2 and 3 have a correlation of 1 instead of -0.49.
# For gyre: nothing. There, check for empty words, and take `jaccard`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit wuzzy@0.1.8
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const wuzzy = require("wuzzy");

const near = (value, expected) => Math.abs(value - expected) < 1e-9;

for (const [left, right, expected] of [["hello", "hello", 2 / 3], ["banana", "banana", 1 / 3], ["banana", "ban", 0.5],
                                       ["bear", "bear", 1]]) {
  console.log(`tanimoto of ${left} and ${right}: ${wuzzy.tanimoto(left, right).toFixed(3)}, ` +
              `jaccard ${wuzzy.jaccard(left, right).toFixed(3)}`);
  assert(near(wuzzy.tanimoto(left, right), expected) && wuzzy.jaccard(left, right) === 1);
}

for (const word of ["a", "cat", "banana"]) {
  console.log(`levenshtein of ${word} and itself: ${wuzzy.levenshtein(word, word)}, ` +
              `and an empty word: ${wuzzy.levenshtein(word, "")} and ${wuzzy.levenshtein("", word)}`);
  assert(wuzzy.levenshtein(word, word) === 1 && wuzzy.levenshtein(word, "") === word.length);
  assert(wuzzy.levenshtein("", word) === word.length);
}
assert(near(wuzzy.levenshtein("banana", "b"), 1 / 6));

function correlate(xs, ys) {
  const mean = (values) => values.reduce((sum, value) => sum + value) / values.length;
  const products = (left, right) => left.reduce((sum, x, i) => sum + (x - mean(left)) * (right[i] - mean(right)), 0);
  return products(xs, ys) / Math.sqrt(products(xs, xs) * products(ys, ys));
}

const [first, second] = [[5, 4, 1, 2, 3], [0, 0, 1, 2, 3]];
const [left, right] = [first, second].map((votes) => Object.fromEntries(votes.map((vote, i) => [`key${i}`, vote])));
const shifted = [left, right].map((votes) => Object.fromEntries(Object.entries(votes).map(([key, value]) => [key, value + 1])));
console.log(`pearson of ${first} and ${second}: ${wuzzy.pearson(left, right)}, with one more for each ` +
            `${wuzzy.pearson(...shifted).toFixed(3)}, due ${correlate(first, second).toFixed(3)}`);
assert(near(wuzzy.pearson(left, right), 1) && near(wuzzy.pearson(...shifted), correlate(first, second)));
assert(correlate(first, second) < -0.4);
JAVASCRIPT
node compare.js
