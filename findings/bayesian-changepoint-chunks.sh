#!/usr/bin/env bash
# bayesian-changepoint reads the first 1,000 values of a series again and again, and nothing else.
#
# Version: bayesian-changepoint 1.0.1 (Node.js 20).
# Guess before the run: a jump that is found at 500 is found at 1,200 as well, in a series of 1,500
#     values. (Suspected after reading the source.)
# Seen: a series is cut into pieces of `chunkSize` values, 1,000 by default, and for each piece the
#     first one is read. A jump at 1,200 is not found; one at 500 is found twice, at 500 and at
#     1,500, where nothing is. With `chunkSize: 1500` both are found where they are. Nothing is
#     said.
# For gyre: it looks for no changes. There, give a `chunkSize` of the length of the series.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit bayesian-changepoint@1.0.1
cat > find.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const BayesianChangePoint = createRequire(import.meta.url)("bayesian-changepoint").default;

let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

// Return noise around 10, and around 110 from each other jump on.
function makeSeries(nValues, jumps) {
  return Array.from({ length: nValues }, (_, i) =>
    10 + 100 * (jumps.filter((jump) => i >= jump).length % 2) + draw());
}

for (const [nValues, jumps, chunkSize, seen] of [
  [1500, [500], 1500, [500]], [1500, [1200], 1500, [1200]],
  [1500, [1200], undefined, []], [2000, [500], undefined, [500, 1500]]]) {
  const options = chunkSize ? { chunkSize } : {};
  const detector = new BayesianChangePoint({ breakpointVerifier: () => true, ...options });
  detector.exec(makeSeries(nValues, jumps));
  const found = [...new Set(detector.breakPoints().map((point) => point.index))];
  console.log(`${nValues} values, ${JSON.stringify(options)}, jump at ${jumps}: ` +
              `found at [${found.join(", ")}]`);
  assert.deepEqual(found, seen);
}
JAVASCRIPT
node find.mjs
