#!/usr/bin/env bash
# The npm package sdbscan counts only neighbours that it has not visited yet.
#
# Version: sdbscan 0.3.3 (Node.js 20).
# Guess before the run: clusters are those of DBSCAN, up to points at the border of two. (That they might not
#     be was suspected after reading the source.)
# Seen: a region, which a point needs for being a core point, is made of points that are not visited: the later
#     a point's turn, the fewer neighbours it has. The numbers 0 to 9 with a distance of 1 and a minimum of 3 are
#     ten times noise, where one cluster is due; in other orders, they are 1 to 3 clusters. Of two normal groups
#     of 100 points, with a distance of 1 and a minimum of 10, 33 points are noise instead of 11. Nothing is said.
# For gyre: it clusters nothing. There, take another package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit sdbscan@0.3.3
cat > cluster.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const sdbscan = require("sdbscan");

let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
const shuffle = (rows) => {
  const result = [...rows];
  for (let i = result.length - 1; i > 0; i -= 1) {
    const j = Math.floor((i + 1) * uniform());
    [result[i], result[j]] = [result[j], result[i]];
  }
  return result;
};

// The sizes of DBSCAN's clusters, largest first, and the number of points that are noise.
function cluster(points, epsilon, minimum) {
  const isNear = (a, b) => Math.hypot(...a.map((value, i) => value - b[i])) <= epsilon;
  const neighbours = points.map((a) => points.map((_, j) => j).filter((j) => isNear(a, points[j])));
  const labels = points.map(() => -1);
  const sizes = [];
  points.forEach((_, start) => {
    if (labels[start] >= 0 || neighbours[start].length < minimum) return;
    const queue = [start];
    labels[start] = sizes.length;
    sizes.push(1);
    while (queue.length) {
      for (const j of neighbours[queue.pop()]) {
        if (labels[j] < 0) {
          labels[j] = sizes.length - 1;
          sizes[sizes.length - 1] += 1;
          if (neighbours[j].length >= minimum) queue.push(j);
        }
      }
    }
  });
  return [sizes.sort((a, b) => b - a), labels.filter((label) => label < 0).length];
}

function compare(name, points, epsilon, minimum) {
  const result = sdbscan(points, epsilon, minimum);
  const found = [result.clusters.map((row) => row.data.length).sort((a, b) => b - a), result.noise.length];
  const due = cluster(points.map((point) => [point].flat()), epsilon, minimum);
  const show = ([sizes, noise]) => `clusters of ${sizes.join(", ") || "none"}, ${noise} of noise`;
  console.log(`${name}: ${show(found)}; due ${show(due)}`);
  return [found, due];
}

const line = Array.from({ length: 10 }, (_, i) => i);
const [found, due] = compare("0 to 9", line, 1, 3);
assert.deepStrictEqual([found, due], [[[], 10], [[10], 0]]);
const counts = new Set();
for (let run = 0; run < 50; run += 1) {
  const points = shuffle(line);
  counts.add(sdbscan(points, 1, 3).clusters.length);
  assert.deepStrictEqual(cluster(points.map((point) => [point]), 1, 3)[0], [10]);
}
console.log(`in 50 other orders: ${[...counts].sort()} clusters`);
assert(counts.size >= 3);

const groups = Array.from({ length: 200 }, (_, i) => [10 * (i % 2) + normal(), normal()]);
for (const [epsilon, minimum] of [[0.8, 5], [1, 5], [1, 10], [1.2, 20]]) {
  const [theirs, ours] = compare(`two groups, ${epsilon} and ${minimum}`, groups, epsilon, minimum);
  assert(ours[0].length === 2 && theirs[1] > 1.5 * ours[1]);
}
JAVASCRIPT
node cluster.cjs
