#!/usr/bin/env bash
# umap-js ignores labels that are numbers, and takes a target weight of 0 for 0.5.
#
# Version: umap-js 1.4.0 (Node.js 20).
# Guess before the run: with `setSupervisedProjection(labels, { targetMetric: "l1" })` or "l2", which its types
#     offer, labels are numbers with distances, as in umap-learn; a `targetWeight` of 0 gives them the smallest
#     weight. (That neither might hold was suspected after reading the source.)
# Seen: with "l1" and "l2", the map is that without labels, bit for bit. A `targetWeight` of 0 is the default of
#     0.5, bit for bit: points of a class are at 0.62 of the mean distance, where a weight of 0.01 has 0.96 and no
#     labels 1.00. So a series of weights from 0 to 1 starts in its middle. Nothing is said.
# For gyre: it embeds nothing in a plane. There, give classes instead of numbers, and 1e-6 for 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit umap-js@1.4.0
cat > embed.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { UMAP } = require("umap-js");

const makeGenerator = (state) => () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const uniform = makeGenerator(7);
const rows = Array.from({ length: 90 }, () => Array.from({ length: 4 }, uniform));
const labels = rows.map((_, i) => i % 3);

function embed(options) {
  const umap = new UMAP({ random: makeGenerator(1), nEpochs: 200, nNeighbors: 10 });
  if (options) umap.setSupervisedProjection(labels, options);
  return umap.fit(rows);
}

// Return the mean distance of points with the same label, relative to that of all points.
function measure(points) {
  const [inside, all] = [[], []];
  points.forEach((a, i) => points.slice(0, i).forEach((b, j) => {
    const distance = Math.hypot(a[0] - b[0], a[1] - b[1]);
    all.push(distance);
    if (labels[i] === labels[j]) inside.push(distance);
  }));
  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return average(inside) / average(all);
}

const plain = embed();
const half = embed({ targetWeight: 0.5 });
console.log(`no labels: ${measure(plain).toFixed(2)}`);
for (const options of [{ targetMetric: "l1" }, { targetMetric: "l2" }, { targetMetric: "l2", targetWeight: 0.9 }]) {
  const points = embed(options);
  console.log(`${JSON.stringify(options)}: ${measure(points).toFixed(2)}`);
  assert.deepStrictEqual(points, plain);
}
for (const targetWeight of [0, 0.01, 0.5, 0.9]) {
  const points = embed({ targetWeight });
  console.log(`target weight ${targetWeight}: ${measure(points).toFixed(2)}`);
  if (targetWeight === 0) assert.deepStrictEqual(points, half);
  if (targetWeight === 0.01) assert(measure(points) > 0.85);
  if (targetWeight === 0.5) assert(measure(points) < 0.75);
}
JAVASCRIPT
node embed.cjs
