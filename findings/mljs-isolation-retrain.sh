#!/usr/bin/env bash
# The isolation forest of mljs that is trained anew keeps scoring by its first training.
#
# Version: ml-isolation-forest 0.1.0 (Node.js 20).
# Guess before the run: a second `train()` forgets the first one, as in scikit-learn and in the
#     other packages of mljs. (Suspected after reading the source.)
# Seen: new trees are put behind the old ones, and `predict()` takes the first `nEstimators` of
#     them: after a second training on data around 100, 100 is still the anomaly, and 0, which is
#     far from all new data, is normal, with the same scores to the last bit. Only the number of
#     rows is that of the second training: with more of them, the scores of all points rise. Nothing
#     is said.
# For gyre: it finds no outliers. There, make a new forest for each training.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-isolation-forest@0.1.0
cat > train.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { IsolationForest } = createRequire(import.meta.url)("ml-isolation-forest");
const N_ESTIMATORS = 50;

let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

function makeRows(centre, nRows) {
  return Array.from({ length: nRows }, () => [0, 1].map(() => centre + draw() - draw()));
}

const points = [[0, 0], [100, 100]];
function score(...trainings) {
  const forest = new IsolationForest({ nEstimators: N_ESTIMATORS });
  const scores = trainings.map(([centre, nRows]) => {
    forest.train(makeRows(centre, nRows));
    return forest.predict(points);
  });
  console.log(`trained on ${trainings.map(([centre, nRows]) => `${nRows} rows around ${centre}`)
    .join(", then on ")}: scores of 0 and 100 ${scores.map((pair) =>
    pair.map((value) => value.toFixed(3)).join(" and ")).join(", then ")}`);
  return scores;
}

const [[zero, hundred]] = score([100, 200]);
assert(zero > hundred + 0.1);
let [first, second] = score([0, 200], [100, 200]);
assert(first[1] > first[0] + 0.1);
assert.deepEqual(second, first);
[first, second] = score([0, 200], [100, 2000]);
assert(second[0] > first[0] && second[1] > first[1] && second[1] > second[0] + 0.1);
JAVASCRIPT
node train.mjs
