#!/usr/bin/env bash
# The predictions of mljs' partial least squares are not those of its own components.
#
# Version: ml-pls 4.4.1, ml-matrix 6.15.1 (Node.js 20).
# Guess before the run: predictions of the training rows are the sum of the components, a model with as many
#     components as columns is least squares, and each component adds to the explained variance. (That the
#     explained variance is that of the last one was suspected after reading the source.)
# Seen: components are right, but `predict` multiplies with P B Q', where W (P' W)^-1 B Q' is due: on correlated
#     columns, R2 is 0.913 with all four components, where 0.964 is due, less than with three. With one
#     component, 0.778 is found for 0.873. `getExplainedVariance` is the share of the last component alone: 0.0004
#     with all four, where it is 1 in sum.
# For gyre: it has no such regression. There, take `T`, `B` and `Q` for the rows of the training, or another
#     package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-pls@4.4.1 ml-matrix@6.15.1
cat > fit.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { Matrix, solve } = require("ml-matrix");
const { PLS } = require("ml-pls");

const ROWS = 60, COLUMNS = 4;
let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());

const x = [], y = [];
for (let row = 0; row < ROWS; row += 1) {
  const [a, b, c, d] = [normal(), normal(), normal(), normal()];
  x.push([a, a + 0.5 * b, b + 0.5 * c, c + 0.3 * d]);
  y.push([x[row][0] - 2 * x[row][1] + 0.5 * x[row][2] + x[row][3] + 0.3 * normal()]);
}
const mean = y.reduce((sum, [value]) => sum + value, 0) / ROWS;
const score = (predictions) => 1 - predictions.reduce((sum, value, row) => sum + (value - y[row][0]) ** 2, 0) /
  y.reduce((sum, [value]) => sum + (value - mean) ** 2, 0);

// PLS of one target on standardized columns, by deflation: the predictions of the training rows, and the shares
// of the columns' variance, for each number of components.
function fit() {
  const standardize = (rows) => {
    const matrix = new Matrix(rows).center("column");
    return matrix.divRowVector(matrix.standardDeviation("column", { mean: Array(matrix.columns).fill(0) }));
  };
  const columns = standardize(x), target = standardize(y), total = columns.norm() ** 2;
  const deviation = new Matrix(y).standardDeviation("column")[0];
  const sum = Matrix.zeros(ROWS, 1), results = [];
  let share = 0;
  for (let k = 0; k < COLUMNS; k += 1) {
    const weight = columns.transpose().mmul(target);
    const scores = columns.mmul(weight.div(weight.norm()));
    const size = scores.norm() ** 2;
    const loading = columns.transpose().mmul(scores).div(size);
    const factor = target.transpose().mmul(scores).get(0, 0) / size;
    sum.add(Matrix.mul(scores, factor));
    target.sub(Matrix.mul(scores, factor));
    share += size * loading.norm() ** 2 / total;
    columns.sub(scores.mmul(loading.transpose()));
    results.push({ predictions: sum.to1DArray().map((value) => value * deviation + mean), share });
  }
  return results;
}

const due = fit();
const ones = new Matrix(x.map((row) => [1, ...row]));
const leastSquares = score(ones.mmul(solve(ones, new Matrix(y), true)).to1DArray());
assert(Math.abs(score(due[COLUMNS - 1].predictions) - leastSquares) < 1e-9);
assert(Math.abs(due[COLUMNS - 1].share - 1) < 1e-9);

const found = due.map(({ predictions, share }, k) => {
  const model = new PLS({ latentVectors: k + 1, tolerance: 1e-9 });
  model.train(x, y);
  const r2 = score(model.predict(x).to1DArray());
  const deviation = model.stdDevY[0];
  const scaled = model.T.mmul(model.B).mmul(model.Q.transpose()).to1DArray();
  const components = scaled.map((value) => value * deviation + mean);
  console.log(`${k + 1} components: R2 ${r2.toFixed(3)} by predict, ${score(components).toFixed(3)} by its ` +
              `components, ${score(predictions).toFixed(3)} due; explained variance ` +
              `${model.getExplainedVariance().toFixed(4)}, ${share.toFixed(4)} due`);
  assert(Math.abs(score(components) - score(predictions)) < 1e-6);
  assert(score(predictions) - r2 > 0.02);
  const last = share - (k ? due[k - 1].share : 0);
  assert(Math.abs(model.getExplainedVariance() - last) < 1e-6);
  return r2;
});
console.log(`least squares: R2 ${leastSquares.toFixed(3)}`);
assert(found[3] < found[2]);
JAVASCRIPT
node fit.cjs
