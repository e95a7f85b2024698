#!/usr/bin/env bash
# ml-roc-multiclass never finds a model worse than 0.5: areas below are turned over, one by one.
#
# Version: ml-roc-multiclass 0.2.0 (Node.js 20).
# Guess before the run: `getAuc` is the area under the curve that `getRocCurve` returns, below 0.5 for a model that
#     ranks the wrong way round, and 0.5 on average for noise. (That it might not be was suspected after reading the
#     source.)
# Seen: an area below 0.5 is replaced by 1 minus itself, for each pair of classes by itself. A model that ranks
#     everything the wrong way round has 1. Noise has 0.64 on average with 30 samples of five classes, where 0.50
#     is due. Four classes in the order c, d, a, b, which is right for two pairs of six, have 1 too. Nothing is
#     said. (R's pROC turns areas over as well, and prints that it does.)
# For gyre: it measures no such areas. There, integrate the curves of `getRocCurve`, which are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-roc-multiclass@0.2.0
cat > area.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { getRocCurve, getAuc } = require("ml-roc-multiclass");

let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Return the mean over pairs of classes of P(later class has the larger score), in order of appearance.
function countPairs(targets, scores) {
  const classes = [...new Set(targets)];
  const areas = [];
  classes.forEach((low, i) => classes.slice(i + 1).forEach((high) => {
    const wins = [];
    targets.forEach((a, j) => targets.forEach((b, k) => {
      if (a === low && b === high) wins.push(scores[k] > scores[j] ? 1 : scores[k] === scores[j] ? 0.5 : 0);
    }));
    areas.push(average(wins));
  }));
  return average(areas);
}

// Return the mean area under the curves of the package, by the trapezoidal rule.
const integrate = (curves) => average(curves.map(({ sensitivities: y, specificities: x }) =>
  x.slice(1).reduce((sum, value, i) => sum + 0.5 * (value - x[i]) * (y[i + 1] + y[i]), 0)));

const compare = (targets, scores) => {
  const curves = getRocCurve(targets, scores);
  assert(Math.abs(integrate(curves) - countPairs(targets, scores)) < 1e-9);
  return [getAuc(curves), integrate(curves)];
};

for (const [name, scores] of [["right", [0, 1, 2, 3, 4, 5]], ["reversed", [5, 4, 3, 2, 1, 0]]]) {
  const [found, due] = compare(["no", "no", "no", "yes", "yes", "yes"], scores);
  console.log(`${name}: ${found}, due ${due}`);
  assert.equal(found, 1);
  assert.equal(due, name === "right" ? 1 : 0);
}
const labels = Array.from({ length: 30 }, (_, i) => "abcde"[i % 5]);
const pairs = Array.from({ length: 300 }, () => compare(labels, labels.map(uniform)));
const [found, due] = [0, 1].map((index) => average(pairs.map((pair) => pair[index])));
console.log(`noise with five classes: ${found.toFixed(2)}, due ${due.toFixed(2)}`);
assert(Math.abs(due - 0.5) < 0.03);
assert(found > 0.6);
const levels = { a: 2, b: 3, c: 0, d: 1 };
const classes = Array.from({ length: 40 }, (_, i) => "abcd"[i % 4]);
const [mixed, mixedDue] = compare(classes, classes.map((name) => levels[name]));
console.log(`order c, d, a, b: ${mixed}, due ${mixedDue.toFixed(2)}`);
assert.equal(mixed, 1);
assert(mixedDue < 0.4);
JAVASCRIPT
node area.cjs
