#!/usr/bin/env bash
# simhash-js compares decimal digits as if they were hexadecimal, and hashes the end of a long text.
#
# Version: simhash-js 1.0.0 (Node.js 20).
# Guess before the run: `hammingDistance` of two hashes is the number of bits that differ,
#     `similarity` is the share of the set bits that both have, and each part of a text has a vote
#     in its hash. (Suspected after reading the source.)
# Seen: 1. `hash()` returns a number, and both functions read its decimal digits as hexadecimal
#     ones. Of 200 random texts, copies with one changed letter have fewer than 2 different bits in
#     the mean, and a distance of 15, where half of 32 bits is that of unrelated texts.
#     2. With hexadecimal strings, which the comments ask for, the distance is exactly twice as
#     large as it should be: a shift by 32 bits is none in JavaScript, and all bits are counted
#     twice.
#     3. A text is cut into pieces of four characters. With up to 128 pieces, all of them vote. Of
#     129 pieces, only the one whose hash is the last in the alphabet is used, instead of all but
#     that one: two texts of 516 characters that share this piece and nothing else have equal
#     hashes.
#     4. The hash of a text of up to four letters is nearly always 0.
# For gyre: it removes no near-duplicates. There, count the bits of `x ^ y`, and give `maxFeatures`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit simhash-js@1.0.0
cat > compare.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { Comparator, Jenkins, SimHash } = createRequire(import.meta.url)("simhash-js");
const N_TEXTS = 200;
const simhash = new SimHash();

let state = 1;
function draw(n) {
  state = (state * 48271) % 2147483647;
  return state % n;
}
function drawText(length) {
  return Array.from({ length }, () => "abcdefghijklmnopqrstuvwxyz"[draw(26)]).join("");
}

function countBits(value) {
  return (value >>> 0).toString(2).replaceAll("0", "").length;
}

const sums = { due: 0, seen: 0, unrelated: 0 };
for (let i = 0; i < N_TEXTS; i++) {
  const text = drawText(300);
  const place = draw(300);
  const copy = text.slice(0, place) + "A" + text.slice(place + 1);
  const [x, y, z] = [text, copy, drawText(300)].map((each) => simhash.hash(each));
  const due = countBits(x ^ y);
  const asDigits = countBits(parseInt(String(x), 16) ^ parseInt(String(y), 16));
  const seen = Comparator.hammingDistance(x, y);
  assert(typeof x === "number" && seen === 2 * asDigits);
  assert(Comparator.hammingDistance(x.toString(16), y.toString(16)) === 2 * due);
  sums.due += due / N_TEXTS;
  sums.seen += seen / N_TEXTS;
  sums.unrelated += countBits(x ^ z) / N_TEXTS;
}
console.log(`texts with one other letter: ${sums.due.toFixed(2)} bits differ, the distance is ` +
            `${sums.seen.toFixed(2)}; unrelated texts: ${sums.unrelated.toFixed(2)} bits differ`);
console.log(`distance of 9 and 10: ${Comparator.hammingDistance(9, 10)}, of "9" and "a": ` +
            `${Comparator.hammingDistance("9", "a")}, where 2 is due`);
assert(sums.due < 2 && sums.seen > 10 && sums.unrelated > 10);

const shorts = Array.from({ length: N_TEXTS }, () => simhash.hash(drawText(4)));
const zeros = shorts.filter((hash) => hash === 0).length;
console.log(`${zeros} of ${N_TEXTS} texts of four letters have the hash 0`);
assert(zeros > 0.9 * N_TEXTS);

// Return two texts of so many pieces that share one piece and nothing else.
function makePair(nPieces) {
  const pieces = Array.from({ length: nPieces }, () => drawText(4));
  const hash = (piece) => new Jenkins().hash32(piece);
  const kept = pieces.reduce((last, piece) => (hash(piece) > hash(last) ? piece : last));
  const others = [];
  while (others.length < nPieces - 1) {
    const piece = drawText(4);
    if (!pieces.includes(piece) && hash(piece) < hash(kept)) others.push(piece);
  }
  return [pieces.join(""), [...others, kept].join("")];
}

for (const nPieces of [128, 129]) {
  const pairs = Array.from({ length: 20 }, () => makePair(nPieces));
  const equal = pairs.filter(([left, right]) => simhash.hash(left) === simhash.hash(right));
  console.log(`${nPieces} pieces, of which one is common: ${equal.length} of 20 pairs have equal ` +
              "hashes");
  assert(equal.length === (nPieces === 128 ? 0 : 20));
}
JAVASCRIPT
node compare.mjs
