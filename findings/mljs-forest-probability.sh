#!/usr/bin/env bash
# The probabilities of mljs' random forests leave the first tree out.
#
# Version: ml-random-forest 2.1.0, ml-cart 2.1.1, ml-matrix 6.15.1 (Node.js 20).
# Guess before the run: `predictProbability(x, label)` is the share of the trees that predict the
#     label: 1 where all agree, and 1 in sum over the labels. (Suspected after reading the source.)
# Seen: the sum over the trees begins with the first tree's label instead of its vote. With n trees,
#     a label on which all agree has 1 - 1/n: 0.5 with two trees, and 0 with one. So has the sum
#     over the labels, but for a millionth of the first tree's label, which is added to each.
#     Nothing is said.
# For gyre: it has no trees. There, count the votes of `predictionValues`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-random-forest@2.1.0 ml-cart@2.1.1 ml-matrix@6.15.1
cat > fit.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { RandomForestClassifier } = createRequire(import.meta.url)("ml-random-forest");
const labels = Array.from({ length: 60 }, (_, row) => row % 3);
const x = labels.map((label, row) => [2 * label + 1.2 * Math.sin(row * row), Math.cos(row)]);

for (const nEstimators of [1, 2, 10]) {
  const options = { nEstimators, seed: 1, noOOB: true, replacement: false };
  const forest = new RandomForestClassifier(options);
  forest.train(x, labels);
  const votes = forest.predictionValues(x);
  const probabilities = [0, 1, 2].map((label) => forest.predictProbability(x, label));
  let unanimous = 0;
  labels.forEach((_, row) => {
    const trees = votes.getRow(row);
    assert(trees.length === nEstimators);
    [0, 1, 2].forEach((label) => {
      const later = trees.slice(1).filter((vote) => vote === label).length / nEstimators;
      assert(Math.abs(probabilities[label][row] - later - trees[0] / 1e6) < 1.1e-6);
    });
    if (trees.every((vote) => vote === trees[0])) {
      unanimous += 1;
      assert(Math.abs(probabilities[trees[0]][row] - (1 - 1 / nEstimators)) < 1e-5);
    }
  });
  const sum = probabilities[0][0] + probabilities[1][0] + probabilities[2][0];
  const largest = Math.max(...probabilities.flat());
  console.log(`${nEstimators} trees, which agree on ${unanimous} of 60 rows: the largest ` +
              `probability is ${largest.toFixed(3)}, and the sum of a row ${sum.toFixed(3)}`);
  assert(unanimous > 5 && Math.abs(sum - (1 - 1 / nEstimators)) < 1e-4);
}
JAVASCRIPT
node fit.mjs
