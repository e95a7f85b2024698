#!/usr/bin/env bash
# talisman's symmetric Tversky index is above 1, infinite, or below 1 for equal sets.
#
# Version: talisman 1.1.4 (Node.js 20).
# Guess before the run: with `symmetric: true`, the index is that of Jimenez, Becerra and Gelbukh
#     (2013): common / (common + beta (alpha a + (1 - alpha) b)), where a and b are the smaller and the
#     larger number of elements that only one set has; 1 for equal sets. (Suspected after reading
#     the source.)
# Seen: (1 - alpha) b is computed as (alpha - 1) to the power of b. With the default parameters, equal sets of
#     four have 0.8; with alpha 0.5, "ab" and "abc" have 1.33 where 0.8 is due, "a" and "ab" with
#     beta 2 are infinitely similar, and further elements of the larger set hardly
#     count: "a" and "abcdefg" have 0.98, for 0.25. Without `symmetric`, the index is right.
# For gyre: nothing. There, leave `symmetric` out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit talisman@1.1.4
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const tversky = require("talisman/metrics/tversky");

function compute(alpha, beta, left, right) {
  const [x, y] = [new Set(left), new Set(right)];
  const common = [...x].filter((element) => y.has(element)).length;
  const [a, b] = [x.size - common, y.size - common].sort((first, second) => first - second);
  return common / (common + beta * (alpha * a + (1 - alpha) * b));
}

for (const [alpha, beta, left, right, expected] of [
  [1, 1, "abcd", "abcd", 0.8], [0.5, 1, "ab", "abc", 4 / 3], [0.5, 2, "a", "ab", Infinity],
  [0.5, 1, "a", "abcdefg", 64 / 65]]) {
  const seen = tversky({ alpha, beta, symmetric: true }, left, right);
  const due = compute(alpha, beta, left, right);
  console.log(`alpha ${alpha}, beta ${beta}, ${left} and ${right}: ${seen.toFixed(3)}, due ${due.toFixed(3)}`);
  assert(seen === expected || Math.abs(seen - expected) < 1e-12);
  assert(due <= 1 && Math.abs(due - expected) > 0.15);
}
const jaccard = tversky({}, "abcd", "bcde");
console.log(`not symmetric, abcd and bcde: ${jaccard}`);
assert(jaccard === 3 / 5);
JAVASCRIPT
node compare.js
