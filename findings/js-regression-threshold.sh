#!/usr/bin/env bash
# js-regression computes its threshold of shifted rows: nearly all negatives lie above it.
#
# Version: @kobra-dev/js-regression 1.0.12 (Node.js 20).
# Guess before the run: `threshold`, with which the documentation compares probabilities, is the
#     smallest one of a positive row of the training, as its code says, so that at least each
#     positive is found. (Suspected after reading the source.)
# Seen: the rows already begin with the 1 of the intercept, and another one is put in front: each
#     feature is multiplied by the weight of the next one, and the last is left out. With two
#     features of which one has a positive and one a negative weight, it is 2e-5 or 2e-6 for 0.1 or
#     0.2: 90 or 95 % of the rows are called positive, where half are, and 60 or 55 % of the labels
#     are right, where 98 % are due, and are right with 0.5. Nothing is said.
# For gyre: it has no such classifier. There, compare with 0.5.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit @kobra-dev/js-regression@1.0.12
cat > fit.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { LogisticRegression } =
  createRequire(import.meta.url)("@kobra-dev/js-regression");

let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}
function drawNormal() {
  return Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
}

// Return rows of two features and a label, which makes the first one larger, the second smaller.
function makeRows(order) {
  return Array.from({ length: 400 }, (_, row) => {
    const label = row % 2;
    const features = [3 * label - 1.5 + drawNormal(), 1.5 - 3 * label + drawNormal()];
    return [features[order[0]], features[order[1]], label];
  });
}

function sigmoid(value) {
  return 1 / (1 + Math.exp(-value));
}

for (const order of [[0, 1], [1, 0]]) {
  const [rows, test] = [makeRows(order), makeRows(order)];
  const model = new LogisticRegression({ alpha: 0.1, iterations: 2000 });
  const { theta } = model.fit(rows);
  const positives = rows.filter((row) => row[2] === 1);
  const smallest = Math.min(...positives.map((row) => model.transform(row.slice(0, 2))));
  const shifted = Math.min(...positives.map((row) =>
    sigmoid(theta[0] + theta[1] + theta[2] * row[0])));
  assert(Math.abs(model.threshold - shifted) < 1e-12);
  const probabilities = test.map((row) => model.transform(row.slice(0, 2)));
  const summaries = [0.5, smallest, model.threshold].map((threshold) => {
    const labels = probabilities.map((value) => (value >= threshold ? 1 : 0));
    const right = labels.filter((label, row) => label === test[row][2]).length / test.length;
    const called = labels.filter((label) => label === 1).length / test.length;
    return { threshold, right, called };
  });
  for (const [name, { threshold, right, called }] of
    [["0.5", summaries[0]], ["smallest", summaries[1]], ["threshold", summaries[2]]]) {
    console.log(`columns ${order}, ${name} (${threshold.toExponential(1)}): right ` +
                `${right.toFixed(3)}, called positive ${called.toFixed(3)}`);
  }
  assert(summaries[0].right > 0.95 && summaries[1].right > 0.95);
  assert(summaries[2].right < 0.7 && summaries[2].called > 0.8 && smallest > 0.05);
}
JAVASCRIPT
node fit.mjs
