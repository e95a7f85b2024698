#!/usr/bin/env bash
# okapibm25 looks for keywords inside of words, and takes `b: 0` for 0.75.
#
# Version: okapibm25 1.4.1 (Node.js 20).
# Guess before the run: scores are BM25 of the words of the documents, with the `b` and `k1` that
#     are given. (Suspected after reading the source.)
# Seen: 1. The lengths of documents are counted in words, but a keyword is counted wherever its
#     letters stand: "art" is in "party", "start", "smart" and "cart", and a document about these
#     wins over one about art.
#     2. `b: 0` and `k1: 0` are replaced by the defaults 0.75 and 1.2: where lengths, or repeated
#     words, should not count, they do. Nothing is said.
# For gyre: it retrieves nothing. There, take a package with a tokenizer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit okapibm25@1.4.1
cat > score.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const BM25 = createRequire(import.meta.url)("okapibm25").default;

// Return BM25 of each document, where count(keyword, document) counts the keyword.
function reference(documents, keywords, b, k1, count) {
  const lengths = documents.map((document) => document.split(" ").length);
  const mean = lengths.reduce((sum, length) => sum + length) / documents.length;
  return documents.map((document, i) => keywords.reduce((sum, keyword) => {
    const found = documents.filter((other) => count(keyword, other) > 0).length;
    const idf = Math.log((documents.length - found + 0.5) / (found + 0.5) + 1);
    const frequency = count(keyword, document);
    return sum + (frequency && idf * frequency * (k1 + 1) /
                  (frequency + k1 * (1 - b + b * lengths[i] / mean)));
  }, 0));
}

function countWords(keyword, document) {
  return document.split(" ").filter((word) => word === keyword).length;
}

function countSubstrings(keyword, document) {
  return document.split(keyword).length - 1;
}

function isClose(left, right) {
  return left.every((value, i) => Math.abs(value - right[i]) < 1e-9);
}

const documents = ["modern art in old towns", "the party will start with a smart cart",
                   "rain in the north",
                   "art art art art is what they sell in their shop by the sea"];
for (const [keyword, constants, b, k1] of [
  ["art", {}, 0.75, 1.2], ["in", {}, 0.75, 1.2], ["art", { b: 0 }, 0, 1.2],
  ["rain", { k1: 0 }, 0.75, 0], ["rain", { b: 0.5, k1: 2 }, 0.5, 2]]) {
  const scores = BM25(documents, [keyword], constants);
  const due = reference(documents, [keyword], b, k1, countWords);
  const seen = reference(documents, [keyword], b || 0.75, k1 || 1.2, countSubstrings);
  console.log(`${keyword}, ${JSON.stringify(constants)}: ` +
              `${scores.map((score) => score.toFixed(2))}, where ` +
              `${due.map((score) => score.toFixed(2))} is due`);
  assert(isClose(scores, seen));
  assert(isClose(scores, due) === (keyword === "rain" && b === 0.5));
}
const scores = BM25(documents, ["art"]);
assert(scores[1] > scores[0] && countWords("art", documents[1]) === 0);
JAVASCRIPT
node score.mjs
