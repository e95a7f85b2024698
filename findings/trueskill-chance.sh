#!/usr/bin/env bash
# npm's trueskill takes the deviation of a skill for its variance: chances are far too sure.
#
# Version: trueskill 0.0.2 (Node.js 20).
# Guess before the run: `ChanceOfWinning` of two skills [mu, sigma] is the probability that the
#     first one is the larger, perhaps with the noise of a game on top. (Suspected after reading the
#     source.)
# Seen: sigma is given to a function that wants sigma ** 2. For the default sigma of 8.33, 5 points
#     of mu are a chance of 0.89 instead of 0.66, or 0.65 with the noise; as players play, and sigma
#     goes below 1, the chances get too small instead. For 10 points, the chance is 0.99, and 0.80
#     of 20,000 drawn pairs win. Nothing is said. The skills themselves are updated by the right
#     sigma.
# For gyre: it plays no games. There, give sigma ** 2.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit trueskill@0.0.2
cat > chance.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { AdjustPlayers, ChanceOfWinning } = createRequire(import.meta.url)("trueskill");
const SIGMA = 25 / 3;
const BETA = SIGMA / 2;

let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}
function drawNormal() {
  return Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
}

// Return the normal distribution function, by Simpson's rule.
function phi(x) {
  const n = 2000;
  let sum = 0;
  for (let i = 0; i <= n; i++) {
    const weight = i === 0 || i === n ? 1 : i % 2 ? 4 : 2;
    sum += weight * Math.exp(-((x * i / n) ** 2) / 2);
  }
  return 0.5 + x * sum / n / 3 / Math.sqrt(2 * Math.PI);
}

for (const [left, right] of [[[30, SIGMA], [25, SIGMA]], [[26, 5], [25, 5]],
                             [[26, 0.5], [25, 0.5]]]) {
  const difference = left[0] - right[0];
  const variance = left[1] ** 2 + right[1] ** 2;
  const chance = ChanceOfWinning(left, right);
  const due = phi(difference / Math.sqrt(variance));
  const withNoise = phi(difference / Math.sqrt(variance + 2 * BETA ** 2));
  console.log(`mu ${left[0]} and ${right[0]}, sigma ${left[1].toFixed(2)}: chance ` +
              `${chance.toFixed(3)}, where ${due.toFixed(3)} is due, or ${withNoise.toFixed(3)} ` +
              "with the noise of a game");
  assert(Math.abs(chance - phi(difference / Math.sqrt(left[1] + right[1]))) < 1e-3);
  assert(Math.abs(chance - due) > 0.03);
  const squared = [left, right].map(([mu, sigma]) => [mu, sigma ** 2]);
  assert(Math.abs(ChanceOfWinning(...squared) - due) < 1e-3);
}

const N_PAIRS = 20000;
let wins = 0;
for (let i = 0; i < N_PAIRS; i++) {
  const skills = [10 + SIGMA * drawNormal(), SIGMA * drawNormal()];
  wins += skills[0] > skills[1];
}
const chance = ChanceOfWinning([10, SIGMA], [0, SIGMA]);
console.log(`mu 10 and 0: chance ${chance.toFixed(2)}, wins ${(wins / N_PAIRS).toFixed(2)}`);
assert(chance > 0.97 && Math.abs(wins / N_PAIRS - 0.80) < 0.02);

const players = [{ skill: [25, SIGMA], rank: 1 }, { skill: [25, SIGMA], rank: 2 }];
AdjustPlayers(players);
assert(Math.abs(players[0].skill[1] - 7.2) < 0.1);  // about that of Python's trueskill, 7.17
JAVASCRIPT
node chance.mjs
