#!/usr/bin/env bash
# The regression trees of mljs make no split that leaves no error: a step becomes its mean.
#
# Version: ml-cart 2.1.1, ml-matrix 6.15.1 (Node.js 20).
# Guess before the run: a regression tree learns a step function exactly, by one split, as each CART
#     does, and the better a split is, the sooner it is made. (Suspected after reading the source.)
# Seen: what is called the gain of a split is the squared error that it leaves, and a split is made
#     only if that is above 0. One step from 1 to 3 is predicted as 2 everywhere; of four steps, two
#     and two have one value; a flag of 0 and 1 that a column copies is predicted as its mean. With
#     a thousandth of noise, the same steps are learned. No option helps. Nothing is said.
# For gyre: it has no trees. There, add a little noise to the values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-cart@2.1.1 ml-matrix@6.15.1
cat > fit.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { DecisionTreeRegression } = createRequire(import.meta.url)("ml-cart");
const N_ROWS = 80;
const rows = Array.from({ length: N_ROWS }, (_, row) => row);

// Return the predictions for the rows of training.
function fit(x, y) {
  const tree = new DecisionTreeRegression();
  tree.train(x, y);
  return tree.predict(x);
}

function largestError(predicted, values) {
  return Math.max(...values.map((value, row) => Math.abs(predicted[row] - value)));
}

function levels(predicted) {
  return [...new Set(predicted.map((value) => value.toFixed(2)))].join(" ");
}

const columns = rows.map((row) => [row / N_ROWS]);
const flags = rows.map((row) => [(row * 37) % 11, row % 2]);
for (const [name, x, y, seen] of [
  ["one step", columns, rows.map((row) => (row < 40 ? 1 : 3)), rows.map(() => 2)],
  ["four steps", columns, rows.map((row) => Math.floor(row / 20)),
   rows.map((row) => (row < 40 ? 0.5 : 2.5))],
  ["a copied flag", flags, rows.map((row) => row % 2), rows.map(() => 0.5)]]) {
  const noisy = y.map((value, row) => value + 0.001 * Math.sin(row * row));
  const exact = fit(x, y);
  const error = largestError(fit(x, noisy), noisy);
  console.log(`${name}, ${levels(y)}: predicted ${levels(exact)}; with noise, the largest error ` +
              `is ${error.toFixed(4)}`);
  assert(largestError(exact, seen) < 1e-9);
  assert(error < 0.003);
}
JAVASCRIPT
node fit.mjs
