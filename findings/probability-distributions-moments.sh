#!/usr/bin/env bash
# With probability-distributions, a Poisson number is never above 10,000, whatever its mean.
#
# Version: probability-distributions 0.9.1 (Node.js 20).
# Guess before the run: `rpois`, `rchisq` and `rnbinom` have the moments of R's functions, after
#     which they are named. (Suspected after reading the source.)
# Seen: 1. `rpois(n, lambda)` from 30 on draws 10,000 times with a probability of lambda / 10,000.
#     The variance is lambda * (1 - lambda / 10,000), half of what is due for 5000; for 20,000, each
#     number is 10,000.
#     2. The non-centrality of `rchisq` is added to each number: with df 3 and ncp 10, the variance
#     is 6 instead of 46, and no number is below 10, where four in ten are. A fractional df is
#     rounded up: 0.5 has the mean of 1. `rf` draws by it.
#     3. `rnbinom` counts all hits but one as misses: with size 5 and mu 10, which it calls the
#     mean, the mean is 14, and no number is below 4. Nothing is said.
# For gyre: it draws its numbers by PyTorch. There, take @stdlib/random.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit probability-distributions@0.9.1
cat > draw.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { rchisq, rnbinom, rpois } = (() => {
  const library = createRequire(import.meta.url)("probability-distributions");
  return { rchisq: library.rchisq.bind(library), rnbinom: library.rnbinom.bind(library),
           rpois: library.rpois.bind(library) };
})();

// Print and return mean, variance and smallest number, after the mean and variance that are due.
function describe(name, numbers, dueMean, dueVariance) {
  const mean = numbers.reduce((sum, value) => sum + value) / numbers.length;
  const variance = numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0) / numbers.length;
  const smallest = Math.min(...numbers);
  console.log(`${name}: mean ${mean.toFixed(2)} for ${dueMean}, variance ${variance.toFixed(2)} ` +
              `for ${dueVariance}, smallest ${smallest.toFixed(2)}`);
  return { mean, variance, smallest };
}

function isNear(value, seen, tolerance) {
  return Math.abs(value / seen - 1) < tolerance;
}

let found = describe("rpois, lambda 20", rpois(2000, 20), 20, 20);
assert(isNear(found.mean, 20, 0.05) && isNear(found.variance, 20, 0.2));
found = describe("rpois, lambda 5000", rpois(200, 5000), 5000, 5000);
assert(isNear(found.mean, 5000, 0.01) && isNear(found.variance, 2500, 0.4));
const large = rpois(5, 20000);
describe("rpois, lambda 20000", large, 20000, 20000);
assert(large.every((value) => value === 10000));

found = describe("rchisq, df 3", rchisq(8000, 3), 3, 6);
assert(isNear(found.mean, 3, 0.1) && isNear(found.variance, 6, 0.3));
found = describe("rchisq, df 3, ncp 10", rchisq(8000, 3, 10), 13, 46);
assert(isNear(found.mean, 13, 0.05) && isNear(found.variance, 6, 0.3) && found.smallest >= 10);
found = describe("rchisq, df 0.5", rchisq(8000, 0.5), 0.5, 1);
assert(isNear(found.mean, 1, 0.1) && isNear(found.variance, 2, 0.4));

found = describe("rnbinom, size 1, mu 10", rnbinom(8000, 1, undefined, 10), 10, 110);
assert(isNear(found.mean, 10, 0.1));
found = describe("rnbinom, size 5, mu 10", rnbinom(8000, 5, undefined, 10), 10, 30);
assert(isNear(found.mean, 14, 0.05) && found.smallest >= 4);
JAVASCRIPT
node draw.mjs
