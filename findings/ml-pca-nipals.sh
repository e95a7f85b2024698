#!/usr/bin/env bash
# ml-pca's NIPALS has sums of squares as eigenvalues, and its components always explain everything.
#
# Version: ml-pca 4.1.1 (Node.js 20).
# Guess before the run: eigenvalues, standard deviations and shares of the variance with `method: "NIPALS"` are the
#     first ones of SVD; `scale: true` divides by deviations with and without centering. (That none of it might hold
#     was suspected after reading the source.)
# Seen: with NIPALS, eigenvalues are n - 1 times too large: 386 for 7.9 with 50 rows, and standard deviations 7 times.
#     The shares of the variance are those of the sum of the computed components: by default there are two, which
#     explain 100 %, where 88 % is due, and one alone explains 100 % for 53 %. With `center: false`, `scale` does
#     nothing with any method. Scores are right, and so are SVD and covariance matrix.
# For gyre: it has no principal components. There, take SVD, and scale by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-pca@4.1.1
cat > components.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { PCA } = require("ml-pca");

const N = 50;
let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
const rows = Array.from({ length: N }, () => {
  const shared = normal();
  return [3 * shared + normal(), shared + normal(), 2 * normal(), normal()];
});
const close = (a, b) => Math.abs(a / b - 1) < 1e-3;
const print = (values) => values.map((value) => value.toFixed(2)).join(" ");

function varianceOf(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / N;
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (N - 1);
}

const total = [0, 1, 2, 3].reduce((sum, column) => sum + varianceOf(rows.map((row) => row[column])), 0);
const svd = new PCA(rows);
for (const options of [{}, { nCompNIPALS: 1 }, { nCompNIPALS: 3 }, { nCompNIPALS: 4 }]) {
  const pca = new PCA(rows, { method: "NIPALS", ...options });
  const scores = pca.predict(rows);
  const due = pca.getEigenvalues().map((_, index) => varianceOf(scores.getColumn(index)));
  console.log(`NIPALS ${JSON.stringify(options)}: eigenvalues ${print(pca.getEigenvalues())}, due ${print(due)}; `
    + `share ${print(pca.getCumulativeVariance())}, due ${print(svd.getCumulativeVariance())}`);
  due.forEach((value, index) => {
    assert(close(value, svd.getEigenvalues()[index]));
    assert(close(value / total, svd.getExplainedVariance()[index]));
    assert(close(pca.getEigenvalues()[index], (N - 1) * value));
    assert(close(pca.getStandardDeviations()[index], Math.sqrt((N - 1) * value)));
  });
  assert(close(pca.getCumulativeVariance().at(-1), 1));
}
assert(svd.getCumulativeVariance()[1] < 0.9);

for (const method of ["SVD", "covarianceMatrix", "NIPALS"]) {
  const [scaled, plain] = [true, false].map((scale) => new PCA(rows, { method, scale, center: false }));
  console.log(`${method}, not centred: scaled ${print(scaled.getEigenvalues())}, not scaled ${print(plain.getEigenvalues())}`);
  assert.deepStrictEqual(scaled.getEigenvalues(), plain.getEigenvalues());
}
assert(!close(new PCA(rows, { scale: true }).getEigenvalues()[0], svd.getEigenvalues()[0]));
JAVASCRIPT
node components.cjs
