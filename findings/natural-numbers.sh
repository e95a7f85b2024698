#!/usr/bin/env bash
# natural's classifier mixes up its words when later documents bring numbers.
#
# Version: natural 8.1.1 (Node.js 20).
# Guess before the run: `train()`, more documents and `train()` again give what one training gives, whatever the
#     words are. (That numbers might come in between was suspected after reading the source.)
# Seen: a document becomes a list of ones and zeros in the order of an object's keys, and counts are kept by
#     position. JavaScript puts keys that are whole numbers before all others. A later document with "2024", "17"
#     and "3" therefore moves every word by three places: counts of the first training belong to other words.
#     On two classes without a common word, the accuracy falls from 100 % to 37 %. With three new words that are
#     no numbers, or with one training, it stays at 100 %.
# For gyre: it classifies no texts. There, call `retrain()` instead of a second `train()`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit --ignore-scripts natural@8.1.1
cat > classify.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const natural = require("natural");

let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const LABELS = ["ham", "spam"];
const SYLLABLES = ["ba", "ko", "ru", "mi", "ta", "ne", "le", "so"];
const words = { ham: [], spam: [] };
for (let i = 0; i < 48; i += 1) {
  words[LABELS[i % 2]].push(SYLLABLES[Math.floor(i / 6)] + SYLLABLES[i % 6]);
}
assert.equal(new Set([...words.ham, ...words.spam]).size, 48);

const write = (label) => Array.from({ length: 6 }, () => words[label][Math.floor(uniform() * 24)]);
const makePairs = (n) => Array.from({ length: n }, (_, i) => [write(LABELS[i % 2]), LABELS[i % 2]]);
const training = makePairs(40);
const later = write("ham");
const test = makePairs(200);

// Train on the first documents, and then on one more with the extra tokens; return the accuracy.
function measure(tokens, method) {
  const classifier = new natural.BayesClassifier();
  training.forEach(([text, label]) => classifier.addDocument(text, label));
  if (method !== "once") classifier.train();
  classifier.addDocument([...later, ...tokens], "ham");
  if (method === "again") classifier.retrain();
  else classifier.train();
  return test.filter(([text, label]) => classifier.classify(text) === label).length / test.length;
}

for (const tokens of [["year", "month", "day"], ["2024", "17", "3"]]) {
  for (const method of ["once", "twice", "again"]) {
    const accuracy = measure(tokens, method);
    const name = { once: "one train()", twice: "two calls of train()", again: "train(), then retrain()" }[method];
    console.log(`the later document has ${tokens}; ${name}: accuracy ${accuracy}`);
    if (tokens[0] === "2024" && method === "twice") assert(accuracy < 0.6);
    else assert.equal(accuracy, 1);
  }
}
JAVASCRIPT
node classify.cjs 2> "$folder/errors" | grep accuracy || { cat "$folder/errors"; exit 1; }
