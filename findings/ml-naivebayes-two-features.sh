#!/usr/bin/env bash
# ml-naivebayes' GaussianNB looks at two features only, however many there are.
#
# Version: ml-naivebayes 4.0.0 (npm, Node.js 20). Its issue 3 of 2016 says so of three features, and is
#     closed.
# Guess before the run: with four features, labels are those of the largest posterior, wherever the
#     difference between the classes is; each row gets one of the labels. (Suspected otherwise after
#     reading the source.)
# Seen: the sum over features ends at the length of one feature's constants, which is 2
#     (`classes[0][1].length`, src/GaussianNB.js). With classes 6 deviations apart in one of four
#     features, all rows are right if that is the first or the second, and half of them if it is
#     another. Densities are multiplied and not compared by their logarithms: 40 deviations from all
#     means, they are 0, and the label is -1. Nothing is said. (With one feature, it raises an error.)
# For gyre: it has no such classifier. There, take another package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-naivebayes@4.0.0
cat > bayes.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { GaussianNB } = require("ml-naivebayes");

const N_FEATURES = 4;
const N_ROWS = 400;
let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

function drawNormal() {
  return Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
}

// Return the label of the largest posterior for classes of equal size and deviations of 1.
function classify(row, means) {
  const distances = means.map((mean) => row.reduce((sum, x, i) => sum + (x - mean[i]) ** 2, 0));
  return distances.indexOf(Math.min(...distances));
}

for (let useful = 0; useful < N_FEATURES; useful++) {
  const labels = Array.from({ length: N_ROWS }, (_, i) => i % 2);
  const means = [0, 6].map((mean) => Array.from({ length: N_FEATURES }, (_, i) => i === useful ? mean : 0));
  const rows = labels.map((label) => means[label].map((mean) => mean + drawNormal()));
  const model = new GaussianNB();
  model.train(rows, labels);
  const share = (predictions) => predictions.filter((label, i) => label === labels[i]).length / N_ROWS;
  const found = share(model.predict(rows));
  const due = share(rows.map((row) => classify(row, means)));
  console.log(`classes differ in feature ${useful + 1} of ${N_FEATURES}: accuracy ${found.toFixed(2)}, ` +
              `by distances ${due.toFixed(2)}`);
  assert(due > 0.99 && (useful < 2 ? found > 0.99 : found < 0.6));
  if (useful === 0) {
    const far = [[-40, 0, 0, 0], [46, 0, 0, 0]];
    console.log(`rows far out on each side: labels ${model.predict(far)}, where 0 and 1 are due`);
    assert.deepEqual(model.predict(far), [-1, -1]);
  }
}
JAVASCRIPT
node bayes.cjs
