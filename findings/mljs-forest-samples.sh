#!/usr/bin/env bash
# With `maxSamples`, the random forests of mljs draw nothing: each tree has the first rows only.
#
# Version: ml-random-forest 2.1.0, ml-cart 2.1.1, ml-matrix 6.15.1 (Node.js 20).
# Guess before the run: `maxSamples: 0.5` draws half as many samples for each tree, out of all, as
#     the documentation says and as in scikit-learn. (Suspected after reading the source.)
# Seen: the data are cut after `maxSamples` rows before the first tree, in the order in which they
#     are given. Where rows are sorted by label, as those of iris are, the last labels are not known
#     to the forest: with three classes that lie far apart, the accuracy is 0.67 with half of the
#     rows, and 0.33 with a third of them. It has, label by label, the predictions of a forest that
#     never got the other rows. Shuffled, or without `maxSamples`, all is right. Nothing is said.
# For gyre: it has no trees. There, shuffle the rows, or leave `maxSamples` out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-random-forest@2.1.0 ml-cart@2.1.1 ml-matrix@6.15.1
cat > fit.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { RandomForestClassifier } = createRequire(import.meta.url)("ml-random-forest");
const N_ROWS = 90;
const sortedLabels = Array.from({ length: N_ROWS }, (_, row) => Math.floor(row / 30));
const shuffledLabels = Array.from({ length: N_ROWS }, (_, row) => row % 3);

// Return the features of a label: two columns around 10 times the label.
function makeRow(label, row) {
  return [10 * label + Math.sin(row * row), 10 * label + Math.cos(row * row * row)];
}

// Train on the first rows, and predict all of them.
function fit(labels, maxSamples, nRows = N_ROWS) {
  const x = labels.map(makeRow);
  const forest = new RandomForestClassifier({ nEstimators: 10, seed: 1, noOOB: true, maxSamples });
  forest.train(x.slice(0, nRows), labels.slice(0, nRows));
  return forest.predict(x);
}

for (const [maxSamples, nRows, seen] of [[undefined, N_ROWS, 1], [0.5, 45, 2 / 3],
                                         [30, 30, 1 / 3]]) {
  const right = [sortedLabels, shuffledLabels].map((labels) => {
    const predicted = fit(labels, maxSamples);
    return predicted.filter((label, row) => label === labels[row]).length / N_ROWS;
  });
  console.log(`maxSamples ${maxSamples}: accuracy ${right[0].toFixed(3)} with sorted rows, ` +
              `${right[1].toFixed(3)} with shuffled ones`);
  assert(Math.abs(right[0] - seen) < 1e-9 && right[1] === 1);
  assert.deepEqual(fit(sortedLabels, maxSamples), fit(sortedLabels, undefined, nRows));
}
JAVASCRIPT
node fit.mjs
