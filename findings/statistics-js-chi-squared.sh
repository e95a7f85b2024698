#!/usr/bin/env bash
# statistics.js counts a category's rows in both columns together, so that two yes/no columns
# always have p = 0 in its chi-squared test.
#
# Version: statistics.js 1.0.0 (npm, Node.js 20).
# Guess before the run: chiSquaredTest of two nominal columns gives Pearson's statistic, which for a
#     table of two by two is n (ad - bc)^2 / ((a + b)(c + d)(a + c)(b + d)), and one degree of
#     freedom. (Suspected otherwise after reading the source.)
# Seen: 1. The totals of both columns are kept in one dictionary under the names of the categories
#     (contingencyTable). Of two independent columns of yes and no, "yes" has the total of both
#     columns. The statistic of 200 rows is 100 to 103, with -1 degrees of freedom, for which p is 0.
#     If one column has left and right instead, all is right. So it is with ratings from 1 to 5.
#     2. A cell without rows has no key, and is left out of the sum: of 10 rows on the diagonal, the
#     statistic is 5 for 10, and p is 0.025 for 0.0016. Nothing is said.
# For gyre: it has no chi-squared tests. There, give each column names of its own, and no empty cells.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit statistics.js@1.0.0
cat > chi.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const Statistics = require("statistics.js");

let state = 1;
function draw(categories) {
  state = (state * 48271) % 2147483647;
  return categories[Math.floor(state / 2147483647 * categories.length)];
}

function test(rows) {
  return new Statistics(rows, { x: "nominal", y: "nominal" }).chiSquaredTest("x", "y");
}

// Return Pearson's statistic by its definition.
function computeStatistic(rows) {
  const count = (condition) => rows.filter(condition).length;
  let sum = 0;
  for (const x of new Set(rows.map((row) => row.x))) {
    for (const y of new Set(rows.map((row) => row.y))) {
      const expected = count((row) => row.x === x) * count((row) => row.y === y) / rows.length;
      sum += (count((row) => row.x === x && row.y === y) - expected) ** 2 / expected;
    }
  }
  return sum;
}

function report(name, rows) {
  const found = test(rows);
  const due = computeStatistic(rows);
  console.log(`${name}: ${found.PearsonChiSquared.toFixed(2)} with ${found.degreesOfFreedom} degrees ` +
              `of freedom, p ${found.significance.toFixed(4)}; the statistic due is ${due.toFixed(2)}`);
  return [found, due];
}

for (let trial = 0; trial < 20; trial++) {
  const rows = Array.from({ length: 200 }, () => ({ x: draw(["yes", "no"]), y: draw(["yes", "no"]) }));
  const renamed = rows.map(({ x, y }) => ({ x, y: y === "yes" ? "left" : "right" }));
  if (trial < 3) report(`trial ${trial}, yes and no`, rows);
  const [wrong, right] = [test(rows), test(renamed)];
  assert(wrong.significance === 0 && wrong.degreesOfFreedom === -1 && wrong.PearsonChiSquared > 90);
  assert(Math.abs(right.PearsonChiSquared - computeStatistic(rows)) < 1e-9);
  assert(right.significance > 0.001 && right.degreesOfFreedom === 1);
}
const ratings = Array.from({ length: 500 }, () => ({ x: draw([1, 2, 3, 4, 5]), y: draw([1, 2, 3, 4, 5]) }));
const [found, due] = report("two independent ratings", ratings);
assert(found.significance === 0 && found.PearsonChiSquared > 100 && due < 40);

const diagonal = Array.from({ length: 10 }, (_, i) => i < 5 ? { x: "a", y: "c" } : { x: "b", y: "d" });
const [dependent, dueOfDiagonal] = report("10 rows on the diagonal", diagonal);
assert(dueOfDiagonal === 10 && dependent.PearsonChiSquared === 5);
assert(Math.abs(dependent.significance - 0.0253) < 1e-4);
JAVASCRIPT
node chi.cjs
