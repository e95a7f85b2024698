#!/usr/bin/env bash
# js-stats gives chi-square probabilities of other degrees of freedom, and 1 for all with one degree.
#
# Version: js-stats 1.0.5 (Node.js 20).
# Guess before the run: chi-square probabilities are right to three digits, as those of its F and t
#     distributions are. (Suspected otherwise after reading the source.)
# Seen: whether the degrees are even is asked by `parseInt(df, 2) == df`, which reads them as a
#     binary number (src/jsstats.js): that holds for 1 only. With one degree, every value has a
#     cumulative probability of 1, so that any table of two by two is significant with p = 0. Even
#     numbers are taken for odd ones: 2 gives the probabilities of 1, and each other even number
#     those of the next odd one. A value of 5 with two degrees has p = 0.025, where 0.082 is due.
#     Odd numbers from 3 on are right.
# For gyre: it has no chi-square tests. There, take jstat.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit js-stats@1.0.5 jstat@1.9.6
cat > compare.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { ChiSquareDistribution } = require("js-stats");
const { jStat } = require("jstat");

// Some values have closed forms: with two degrees of freedom, the tail is exp(-x / 2).
assert(Math.abs(1 - jStat.chisquare.cdf(5, 2) - Math.exp(-2.5)) < 1e-9);
assert(Math.abs(1 - jStat.chisquare.cdf(5, 4) - Math.exp(-2.5) * 3.5) < 1e-9);

for (let df = 1; df <= 30; df++) {
  const seenDf = df === 2 ? 1 : df % 2 === 0 ? df + 1 : df;
  for (const value of [0.1, 0.5, 1, 5, 12, 25, 45]) {
    const found = new ChiSquareDistribution(df).cumulativeProbability(value);
    const due = jStat.chisquare.cdf(value, df);
    if (value === 5 && df < 9) {
      console.log(`${df} degrees of freedom, p of 5: ${(1 - found).toFixed(4)}, where ` +
                  `${(1 - due).toFixed(4)} is due`);
    }
    if (df === 1) assert(found === 1 && due < 1);
    else assert(Math.abs(found - jStat.chisquare.cdf(value, seenDf)) < 1e-6);
  }
}
JAVASCRIPT
node compare.cjs
