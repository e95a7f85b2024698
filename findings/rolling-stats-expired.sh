#!/usr/bin/env bash
# rolling-stats drops only half of the values that are too old, so that its mean is that of the past.
#
# Version: rolling-stats 0.2.1 (npm, Node.js 20).
# Guess before the run: calculate() is over the values of the last `duration` milliseconds; allmin is
#     the smallest value ever. (Suspected otherwise after reading the source.)
# Seen: the loop that drops old values counts steps up to a count that goes down with each
#     (`while (i++ < this.count && ...) count--`), and ends halfway. Ten values of a second ago and
#     older are still five in the next result; only after three more calls they are gone. With 1,000
#     points of 100 ms, a pause, and then 10 points of 5 ms, the mean is 98 for 5, the maximum 100
#     and the rate 51 times what is due. allmin starts at 0, and stays there for positive values;
#     minrate too.
# For gyre: it measures speed in windows of steps. There, call calculate() until its count no longer
#     changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit rolling-stats@0.2.1
cat > roll.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const RollingStats = require("rolling-stats");

const DURATION = 1000;
let now = 0;
const makeStats = () => RollingStats(5000, DURATION, () => now);

let stats = makeStats();
for (let i = 0; i < 10; i++) stats.point(100);
now = 10 * DURATION;
const counts = [1, 2, 3, 4].map(() => stats.calculate().count);
console.log(`10 values that are ten windows old: ${counts.join(", ")} of them in four results`);
assert.deepEqual(counts, [5, 2, 1, 0]);

now = 0;
stats = makeStats();
for (let i = 0; i < 1000; i++) stats.point(100);
now = 10 * DURATION;
for (let i = 0; i < 10; i++) stats.point(5);
const found = stats.calculate();
console.log(`10 values of 5 after a pause: count ${found.count}, mean ${found.mean.toFixed(1)}, ` +
            `max ${found.max}, rate ${found.rate} a second, allmin ${found.allmin}`);
assert(found.count === 505 && found.mean > 98 && found.max === 100 && found.allmin === 0);

// Without old values, all but allmin is right.
stats = makeStats();
for (const value of [3, 5, 7]) stats.point(value);
const fresh = stats.calculate();
assert(fresh.count === 3 && fresh.mean === 5 && fresh.min === 3 && fresh.max === 7);
assert(fresh.allmin === 0);
JAVASCRIPT
node roll.cjs
