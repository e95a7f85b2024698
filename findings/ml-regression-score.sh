#!/usr/bin/env bash
# The score of ml-regression's models has an r2 of 1 for predictions that are wrong everywhere.
#
# Version: ml-regression 6.3.0 (Node.js 20).
# Guess before the run: `score(x, y).r2` is 1 - SSE / SST, as in scikit-learn, and below 0 for predictions that are
#     worse than the mean. (It was suspected that it is the square of `r`.)
# Seen: it is the square of the correlation of predictions and targets, which no shift, scale or sign changes. On
#     targets in the reverse order, and on ten times as large ones with 500 added, a line has an r2 of 0.99, where -3
#     and -270 are due. On the data of a fit by least squares both are equal. `chi2` is divided by the targets, so it
#     is negative for negative ones. `rmsd` is right.
# For gyre: it measures loss. There, look at `rmsd` on other data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-regression@6.3.0
cat > score.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { SimpleLinearRegression, PolynomialRegression } = require("ml-regression");

const sum = (values) => values.reduce((total, value) => total + value, 0);
const x = [0, 1, 2, 3, 4, 5];
const noise = [0.3, -0.2, 0.1, 0.4, -0.5, 0.2];
const y = x.map((value, i) => 2 * value + 1 + noise[i]);
const cases = {
  "of the fit": y,
  "reversed": [...y].reverse(),
  "times 10, plus 500": y.map((value) => 10 * value + 500),
  "negative": y.map((value) => value - 20),
};

for (const model of [new SimpleLinearRegression(x, y), new PolynomialRegression(x, y, 1)]) {
  const predictions = x.map((value) => model.predict(value));
  for (const [name, targets] of Object.entries(cases)) {
    const score = model.score(x, targets);
    const mean = sum(targets) / targets.length;
    const errors = sum(targets.map((target, i) => (target - predictions[i]) ** 2));
    const r2 = 1 - errors / sum(targets.map((target) => (target - mean) ** 2));
    console.log(`targets ${name}: r2 ${score.r2.toFixed(3)}, due ${r2.toFixed(3)}; chi2 ${score.chi2.toFixed(2)}; `
      + `rmsd ${score.rmsd.toFixed(2)}`);
    assert(Math.abs(score.r2 - score.r ** 2) < 1e-9);
    assert(Math.abs(score.rmsd - Math.sqrt(errors / x.length)) < 1e-9);
    assert(score.r2 > 0.95);
    if (name === "of the fit") assert(Math.abs(score.r2 - r2) < 1e-9);
    else assert(r2 < -1);
    assert.equal(score.chi2 < 0, name === "negative");
  }
}
JAVASCRIPT
node score.cjs
