#!/usr/bin/env bash
# optimization-js tries the first and the last value half as often, and begins L-BFGS uphill.
#
# Version: optimization-js 1.5.0 (Node.js 20).
# Guess before the run: random search draws all integers of a range, and all categories, equally often;
#     the first step of L-BFGS goes against the gradient. (Suspected after reading the source.)
# Seen: 1. A number from the whole range is rounded, so that the first and the last value get half of
#     the others' share: of three categories 25, 50 and 25 %. So it is with integers, in
#     `dummy_minimize` and in the random starts and mutations of `rs_minimize`. Of the powers of two from 1
#     to 16, the largest batch size comes in 12.5 % of the trials.
#     2. The first direction of `minimize_L_BFGS` is the gradient, and the step is kept whatever it gives:
#     from 1, x * x is asked at 1.002 next. The curvature of that step serves for the next ones.
# For gyre: its studies have grids. There, add a category that is not used at both ends.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit optimization-js@1.5.0
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const optimization = require("optimization-js");

const N_CALLS = 20000;
let state = 1;
Math.random = () => {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
};

for (const [dimension, values] of [[optimization.Categorical(["a", "b", "c"]), ["a", "b", "c"]],
                                   [optimization.Categorical([1, 2, 4, 8, 16]), [1, 2, 4, 8, 16]],
                                   [optimization.Integer(1, 4), [1, 2, 3, 4]]]) {
  const counts = new Map(values.map((value) => [value, 0]));
  optimization.dummy_minimize(([value]) => {
    counts.set(value, counts.get(value) + 1);
    return 0;
  }, [dimension], N_CALLS);
  const shares = values.map((value) => counts.get(value) / N_CALLS);
  const due = values.map((_, i) => (i === 0 || i === values.length - 1 ? 0.5 : 1) / (values.length - 1));
  console.log(`${values}: ${shares.map((share) => (100 * share).toFixed(1))} %, ` +
              `equal shares would be ${(100 / values.length).toFixed(1)} %`);
  assert(shares.every((share, i) => Math.abs(share - due[i]) < 0.02));
}

const asked = [];
const { argument } = optimization.minimize_L_BFGS(([x]) => {
  asked.push(x);
  return x * x;
}, ([x]) => [2 * x], [1]);
console.log(`L-BFGS from 1: x * x is asked at ${asked.slice(0, 4)}`);
assert(asked[0] === 1 && asked[1] === 1.002 && Math.abs(argument[0]) < 1e-4);
JAVASCRIPT
node compare.js
