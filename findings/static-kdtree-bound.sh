#!/usr/bin/env bash
# static-kdtree takes `maxDistance` for a squared distance: 5 is a bound of 2.24, 0.25 one of 0.5.
#
# Version: static-kdtree 1.0.2 (Node.js 20).
# Guess before the run: `knn(point, k, maxDistance)` returns the points "within distance <
#     maxDistance", as documented, and `nn` returns -1 if there is none. (Suspected after reading
#     the source.)
# Seen: the bound is taken for the square of one, so that it is too small above 1 and too large
#     below. With 500 points and 2,000 queries, a bound of 5 leaves out 79 % of the points within
#     it, and 0.25 returns nearly four times as many as there are; `nn` finds points that are
#     farther away. `rnn`, whose radius is squared, is right, and so are both without a bound.
#     Nothing is said.
# For gyre: it looks for no neighbours. There, give the square of the distance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit static-kdtree@1.0.2
cat > query.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const createTree = createRequire(import.meta.url)("static-kdtree");
const N_POINTS = 500;
const N_QUERIES = 2000;

let state = 1;
function draw(width) {
  state = (state * 48271) % 2147483647;
  return width * state / 2147483647;
}

for (const [bound, width] of [[5, 50], [0.25, 4], [1, 10]]) {
  const points = Array.from({ length: N_POINTS }, () => [draw(width), draw(width)]);
  const tree = createTree(points.map((point) => [...point]));
  const counts = { due: 0, knn: 0, rnn: 0, nnDue: 0, nn: 0 };
  for (let query = 0; query < N_QUERIES; query++) {
    const point = [draw(width), draw(width)];
    const distances = points.map((other) => Math.hypot(other[0] - point[0], other[1] - point[1]));
    const countWithin = (limit) => distances.filter((distance) => distance < limit).length;
    const found = tree.knn(point, N_POINTS, bound);
    assert(found.length === countWithin(Math.sqrt(bound)));
    assert(found.every((index) => distances[index] < Math.sqrt(bound)));
    counts.due += countWithin(bound);
    counts.knn += found.length;
    tree.rnn(point, bound, () => { counts.rnn += 1; });
    counts.nnDue += countWithin(bound) > 0;
    counts.nn += tree.nn(point, bound) >= 0;
    const nearest = distances.indexOf(Math.min(...distances));
    assert(tree.nn(point) === nearest && tree.knn(point, 1)[0] === nearest);
  }
  console.log(`maxDistance ${bound}: ${counts.knn} points by knn, where ${counts.due} are due; ` +
              `${counts.rnn} by rnn; nn finds one in ${counts.nn} queries, where ` +
              `${counts.nnDue} are due`);
  assert(counts.rnn === counts.due);
  assert(Math.abs(counts.knn / counts.due - 1 / bound) < 0.15 / bound);
  assert(Math.sign(counts.nn - counts.nnDue) === Math.sign(1 - bound));
}
JAVASCRIPT
node query.mjs
