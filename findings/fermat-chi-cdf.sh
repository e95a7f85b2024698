#!/usr/bin/env bash
# fermat's chi-square probabilities are negative, or the same for all values of a unit interval.
#
# Version: @mathigon/fermat 1.1.24 (Node.js 20).
# Guess before the run: `Random.chiCDF(x, k)` is the distribution function of chi-square with k
#     degrees of freedom, or what is missing from 1, to a few digits. (Suspected after reading the
#     source.)
# Seen: it is what is missing from 1, with an integral by steps of a whole unit, however far x is
#     between them. With 2 degrees of freedom, all values from 4 to 5 have -0.166, where 0.135 to 0.082
#     is due, and all of more than 3 are negative; with 1, all are -Infinity. With 3, the
#     critical value 7.81 has 0.13 for 0.05. From 4 on they are right within 0.02.
# For gyre: nothing. There, take another library for tests of significance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit @mathigon/fermat@1.1.24
cat > compare.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { Random } from "@mathigon/fermat";

// Return the probability of more than x, by the trapezoidal rule in the square root of x.
function integrate(x, degrees) {
  const density = (root) => Math.pow(root, degrees - 1) * Math.exp(-root * root / 2);
  const [steps, far] = [200000, 40];
  const sum = (from, to) => {
    const width = (to - from) / steps;
    let total = (density(from) + density(to)) / 2;
    for (let i = 1; i < steps; i++) total += density(from + i * width);
    return total * width;
  };
  return sum(Math.sqrt(x), far) / sum(0, far);
}

for (const [degrees, values] of [[1, [0.5, 3.84]], [2, [0.5, 1.5, 4.2, 4.9, 5.99]], [3, [2.37, 7.81]],
                                 [4, [3.36, 9.49]], [10, [9.34, 18.31]]]) {
  for (const value of values) {
    const seen = Random.chiCDF(value, degrees);
    const due = integrate(value, degrees);
    console.log(`${degrees} degrees of freedom, ${value}: ${seen.toFixed(4)}, due ${due.toFixed(4)}`);
    if (degrees === 1) assert(seen === -Infinity);
    if (degrees === 2 && value > 4) assert(seen < -0.1 && due > 0.04);
    if (degrees === 2) assert(Math.abs(due - Math.exp(-value / 2)) < 1e-6);
  }
}
assert(Random.chiCDF(4.2, 2) === Random.chiCDF(4.9, 2));
JAVASCRIPT
node compare.mjs
