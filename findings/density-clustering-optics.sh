#!/usr/bin/env bash
# In the OPTICS of density-clustering, each core distance is 0, so that `minPts` changes no plot.
#
# Version: density-clustering 1.3.0 (Node.js 20).
# Guess before the run: the reachability of a point is the larger one of its distance and of the
#     core distance, within which its predecessor has `minPts` neighbours. (Suspected after reading
#     the source.)
# Seen: core distances are searched among 0, 1, 2 and so on, and 0, which counts as "not given",
#     looks within the whole epsilon: each point that is a core point at all has a core distance of
#     0. The plots for `minPts` of 2, 5 and 10 are the same to the last bit: those of plain
#     distances. With 10, points of two normal groups have a reachability of 0.34 in the mean, where
#     0.70 is due, and a chain of single points between them 0.22, where 0.97 is due: what should
#     separate the groups is the deepest valley of the plot. Nothing is said.
# For gyre: it clusters nothing. There, take scikit-learn's OPTICS.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit density-clustering@1.3.0
cat > plot.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { OPTICS } = createRequire(import.meta.url)("density-clustering");
const EPSILON = 50;

let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}
function drawNormal() {
  return Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
}

function distance(left, right) {
  return Math.hypot(left[0] - right[0], left[1] - right[1]);
}

// Return the reachability of each point, by the definition; undefined for the first one.
function computeReachability(points, minPts) {
  const cores = points.map((point) =>  // the point itself is its first neighbour
    points.map((other) => distance(point, other)).sort((x, y) => x - y)[minPts - 1]);
  const reachability = new Array(points.length).fill(Infinity);
  const open = new Set(points.keys());
  while (open.size) {
    const next = [...open].reduce((best, i) => (reachability[i] < reachability[best] ? i : best));
    open.delete(next);
    for (const i of open) {
      const reached = Math.max(cores[next], distance(points[next], points[i]));
      reachability[i] = Math.min(reachability[i], reached);
    }
  }
  return reachability;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value) / values.length;
}

const groups = [0, 12].flatMap((x) =>
  Array.from({ length: 60 }, () => [x + drawNormal(), drawNormal()]));
const chain = Array.from({ length: 40 }, (_, i) => [2 + 8 * i / 39, 0]);
const points = [...groups, ...chain];
const parts = [["groups", 1, 120], ["chain", 120, 160]];
const plots = [2, 5, 10].map((minPts) => {
  const plot = [];
  const optics = new OPTICS();
  optics.run(points, EPSILON, minPts);
  for (const [point, reached] of optics.getReachabilityPlot()) plot[point] = reached;
  const due = computeReachability(points, minPts);
  for (const [name, start, end] of parts) {
    console.log(`minPts ${minPts}, ${name}: mean reachability ` +
                `${mean(plot.slice(start, end)).toFixed(3)}, where ` +
                `${mean(due.slice(start, end)).toFixed(3)} is due`);
  }
  if (minPts === 10) {
    const shares = plot.slice(1).filter((reached, i) => reached < 0.9 * due[i + 1]).length / 159;
    assert(shares > 0.8 && mean(plot.slice(120)) < mean(plot.slice(1, 120)));
    assert(mean(due.slice(120)) > mean(due.slice(1, 120)));
  }
  return plot;
});
assert.deepEqual(plots[1], plots[0]);
assert.deepEqual(plots[2], plots[0]);
for (const reached of plots[2].slice(1)) {  // a distance of two points, without a core distance
  assert(points.some((left) =>
    points.some((right) => Math.abs(distance(left, right) - reached) < 1e-9)));
}
JAVASCRIPT
node plot.mjs
