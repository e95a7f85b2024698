#!/usr/bin/env bash
# fermat's correlation of a perfect line is 1 - 1/n.
#
# Version: @mathigon/fermat 1.1.24 (Node.js 20).
# Guess before the run: `correlation` of points on a line is 1 or -1, and of others that of the
#     textbook. (Suspected after reading the source.)
# Seen: the covariance is divided by n and both standard deviations by n - 1, so that each
#     correlation is (n - 1) / n of what is due: 0.5 for two points, 0.667 for three on a line, 0.9 for
#     ten. `covariance` of a series with itself is not its `variance` either.
# For gyre: nothing. There, multiply by n / (n - 1).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit @mathigon/fermat@1.1.24
cat > compare.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { correlation, covariance, variance } from "@mathigon/fermat";

function correlate(xs, ys) {
  const [meanX, meanY] = [xs, ys].map((values) => values.reduce((sum, value) => sum + value) / values.length);
  const sum = (left, right, meanLeft, meanRight) =>
    left.reduce((total, value, i) => total + (value - meanLeft) * (right[i] - meanRight), 0);
  return sum(xs, ys, meanX, meanY) / Math.sqrt(sum(xs, xs, meanX, meanX) * sum(ys, ys, meanY, meanY));
}

const noisy = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
for (const n of [2, 3, 10]) {
  const xs = Array.from({ length: n }, (_, i) => i);
  const ys = xs.map((x) => 7 - 2 * x);
  for (const other of [xs, ys, noisy.slice(0, n)]) {
    const seen = correlation(xs, other);
    const due = correlate(xs, other);
    console.log(`n = ${n}: correlation ${seen.toFixed(4)}, due ${due.toFixed(4)}`);
    assert(Math.abs(seen - due * (n - 1) / n) < 1e-9 && Math.abs(due) > 0.3);
  }
}
console.log(`1, 2, 3: covariance with itself ${covariance([1, 2, 3], [1, 2, 3]).toFixed(4)}, variance ` +
            `${variance([1, 2, 3])}`);
assert(Math.abs(covariance([1, 2, 3], [1, 2, 3]) - 2 / 3) < 1e-9 && variance([1, 2, 3]) === 1);
JAVASCRIPT
node compare.mjs
