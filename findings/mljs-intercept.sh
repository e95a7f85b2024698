#!/usr/bin/env bash
# The logistic regression of mljs has no intercept: its border always goes through the origin.
#
# Version: ml-logistic-regression 2.0.0, ml-matrix 6.15.1 (Node.js 20).
# Guess before the run: it fits weights and an intercept, as logistic regressions do, so that moving
#     all data by a constant changes no label. (Suspected after reading the source.)
# Seen: there are weights only, and no option for more. Two classes around 3 and 5, which hardly
#     overlap, get one label for all samples, and an accuracy of 0.5; around -1 and 1, nearly all
#     labels are right. Neither the documentation nor the library says so. With a column of ones all
#     is right.
# For gyre: it has no such classifier. There, add a column of ones to the data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-logistic-regression@2.0.0 ml-matrix@6.15.1
cat > fit.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const LogisticRegression = require("ml-logistic-regression");
const { Matrix } = require("ml-matrix");
const N_ROWS = 300;

// Return quantiles of the logistic distribution as noise: exact, and the same in each run.
function noise(row, scale) {
  const share = (((row * 0.618034) % 1) + 0.5 / N_ROWS) / (1 + 1 / N_ROWS);
  return scale * Math.log(share / (1 - share));
}

// Fit classes around these centres, and return the share of right labels and the labels predicted.
function fit(centres, ones) {
  const labels = Array.from({ length: N_ROWS }, (_, row) => row % centres.length);
  const rows = labels.map((label, row) => [centres[label] + noise(row, 0.15)]);
  const x = new Matrix(ones ? rows.map((row) => [...row, 1]) : rows);
  const model = new LogisticRegression({ numSteps: 3000, learningRate: 5e-3 });
  model.train(x, Matrix.columnVector(labels));
  const predicted = model.predict(x);
  const right = labels.filter((label, row) => label === predicted[row]).length / N_ROWS;
  return [right, [...new Set(predicted)].sort()];
}

for (const [centres, due, seen] of [[[-1, 1], 0.99, 0.99], [[3, 5], 0.99, 0.5],
                                    [[-5, -3], 0.99, 0.5]]) {
  const [right, found] = fit(centres, false);
  const [rightWithOnes] = fit(centres, true);
  console.log(`classes around ${centres}: accuracy ${right.toFixed(3)}, labels ${found}; ` +
              `with a column of ones ${rightWithOnes.toFixed(3)}`);
  assert(rightWithOnes >= due);
  assert(seen > 0.9 ? right >= seen : Math.abs(right - seen) < 0.01 && found.length === 1);
}
JAVASCRIPT
node fit.mjs
