#!/usr/bin/env bash
# For the word error rate of npm, saying the first word again and again is no error.
#
# Version: word-error-rate 0.0.7 (Node.js 20).
# Guess before the run: `calculateEditDistance` is Levenshtein's distance in words, and the rate is
#     that divided by the longer length, as documented. (Suspected after reading the source.)
# Seen: in the first row and the first column of the table, each word that equals the first one is
#     taken for a match, so that one word matches many: "the the the cat" and "the cat" have a
#     distance of 0, where 2 is due, and so have "no" and "no no no no". Of 2,000 random pairs of
#     texts with up to 6 words out of 3, 22 % have too small a distance, and none is too large. A
#     recognizer that gets stuck at its first word has no errors. Nothing is said.
# For gyre: it recognizes no speech. There, begin both texts with a word that is in neither.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit word-error-rate@0.0.7
cat > rate.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { calculateEditDistance, wordErrorRate } =
  createRequire(import.meta.url)("word-error-rate");

// Return Levenshtein's distance of two lists of words, by its recursion.
function distance(left, right) {
  let row = Array.from({ length: right.length + 1 }, (_, column) => column);
  left.forEach((word, i) => {
    const next = [i + 1];
    right.forEach((other, j) => {
      next.push(Math.min(row[j + 1] + 1, next[j] + 1, row[j] + (word === other ? 0 : 1)));
    });
    row = next;
  });
  return row[right.length];
}

for (const [left, right, due, seen] of [
  ["the the the cat", "the cat", 2, 0], ["no", "no no no no", 3, 0],
  ["the cat sat", "the the the the cat sat", 3, 0], ["a b c", "a b b b c", 2, 2],
  ["the cat sat", "a cat sat down", 2, 2]]) {
  const found = calculateEditDistance(left, right);
  console.log(`"${left}" and "${right}": ${found} words, rate ` +
              `${wordErrorRate(left, right).toFixed(2)}, where ${due} words are due`);
  assert(distance(left.split(" "), right.split(" ")) === due && found === seen);
  assert(calculateEditDistance(`x ${left}`, `x ${right}`) === due);
}

let state = 1;
function draw(n) {
  state = (state * 48271) % 2147483647;
  return state % n;
}
function drawWords() {
  return Array.from({ length: 1 + draw(6) }, () => "abc"[draw(3)]);
}

const errors = Array.from({ length: 2000 }, () => {
  const [left, right] = [drawWords(), drawWords()];
  return calculateEditDistance(left.join(" "), right.join(" ")) - distance(left, right);
});
const share = errors.filter((error) => error === 0).length / errors.length;
console.log(`right distances: ${share.toFixed(3)}; errors from ${Math.min(...errors)} to ` +
            `${Math.max(...errors)}`);
assert(share > 0.3 && share < 0.95 && Math.max(...errors) === 0 && Math.min(...errors) <= -2);
JAVASCRIPT
node rate.mjs
