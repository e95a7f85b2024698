#!/usr/bin/env bash
# The Jaccard distance of the npm package science is the share of equal positions: clusters join what differs.
#
# Version: science 1.9.3 (Node.js 20).
# Guess before the run: `science.stats.distance.jaccard` is 0 for equal vectors and 1 for disjoint ones, and
#     `hcluster` with it joins the most similar vectors first. (Suspected after reading the source.)
# Seen: it counts positions with the same value, zeros too: 1 for equal vectors, and 0 for opposite ones.
#     `hcluster` joins each set first with one that shares nothing with it, and equal ones last. Of 100
#     words of which each of two sets has the first or the last five, the "distance" is 0.9. The other
#     six distances are right.
# For gyre: it clusters nothing. There, give a function of your own to `hcluster`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit science@1.9.3
cat > cluster.js <<'JAVASCRIPT'
const assert = require("node:assert");
const science = require("science");

const jaccard = science.stats.distance.jaccard;
function right(a, b) {
  const either = a.filter((x, i) => x || b[i]).length;
  return 1 - a.filter((x, i) => x && b[i]).length / either;
}

const first = Array.from({ length: 100 }, (_, i) => (i < 5 ? 1 : 0));
const last = [...first].reverse();
console.log(`equal sets: ${jaccard(first, first)}, due ${right(first, first)}`);
console.log(`5 of 100 words, none in common: ${jaccard(first, last)}, due ${right(first, last)}`);
assert(jaccard(first, first) === 1 && right(first, first) === 0);
assert(jaccard(first, last) === 0.9 && right(first, last) === 1);

// Two groups of equal sets, and nothing in common between the groups.
const sets = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]];
function list(node) {
  return node.left ? [...list(node.left), ...list(node.right)] : [sets.indexOf(node.centroid)];
}
for (const [name, distance] of [["jaccard", jaccard], ["right", right]]) {
  const root = science.stats.hcluster().distance(distance)(sets);
  const groups = [list(root.left), list(root.right)].map((group) => group.sort());
  console.log(`two clusters with ${name}:`, JSON.stringify(groups), "joined at", root.left.dist, root.dist);
  const pure = groups.filter((group) => group.length === 2 && right(sets[group[0]], sets[group[1]]) === 0);
  assert(pure.length === (name === "right" ? 2 : 0));
}
JAVASCRIPT
node cluster.js
