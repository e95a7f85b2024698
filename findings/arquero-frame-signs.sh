#!/usr/bin/env bash
# arquero drops the signs of a rolling frame: the rows before this one are this one and the next, too.
#
# Version: arquero 8.0.0 (npm).
# Guess before the run: `rolling(expression, frame)` takes the rows of the frame, whose entries are offsets
#     from the current row, for [-3, -1] as for [-3, 0].
# Seen: frames that hold the current row are right. [-3, -1], the three rows before, is [-3, 1], and [1, 3],
#     the three rows after, is [-1, 3]: without a word, with groups and without. In noise, the mean of
#     the three values before is correlated with the value itself by 0.47, where 0 is due.
# Cause: `frameValue` takes `Math.abs` of both entries (src/verbs/window/window.js), in 8.0.3, too.
# For gyre: it has no such tables. There, take [-2, 0] of a column that was moved by `lag`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit arquero@8.0.0
cat > frames.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as aq from "arquero";

// Mulberry32, for numbers that are the same in each run
let state = 7;
function random() {
  state = (state + 0x6D2B79F5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}

const N = 2000;
const values = Array.from({ length: N }, random);
const groups = values.map((_, row) => row % 2);
const table = aq.table({ value: values, group: groups });
const mean = numbers => numbers.length ? numbers.reduce((sum, number) => sum + number, 0) / numbers.length : undefined;

function roll(data, rowsOf, frame) {
  const found = data.derive({ mean: aq.rolling(aq.op.mean("value"), frame) }).array("mean");
  const signed = [], unsigned = [];
  for (let row = 0; row < N; row++) {
    const rows = rowsOf(row), place = rows.indexOf(row);
    const take = (start, end) => mean(rows.slice(Math.max(place + start, 0), Math.max(place + end + 1, 0)).map(r => values[r]));
    signed.push(take(...frame));
    unsigned.push(take(-Math.abs(frame[0]), Math.abs(frame[1])));
  }
  const equal = (a, b) => a.every((number, row) => number === b[row] || Math.abs(number - b[row]) < 1e-9);
  return { found, asDocumented: equal(found, signed), withoutSigns: equal(found, unsigned) };
}

function correlation(a, b) {
  const rows = a.map((_, row) => row).filter(row => a[row] !== undefined && b[row] !== undefined);
  const [x, y] = [a, b].map(list => rows.map(row => list[row]));
  const [mx, my] = [mean(x), mean(y)];
  const sum = (p, q, mp, mq) => p.reduce((total, value, row) => total + (value - mp) * (q[row] - mq), 0);
  return sum(x, y, mx, my) / Math.sqrt(sum(x, x, mx, mx) * sum(y, y, my, my));
}

const all = values.map((_, row) => row);
const own = [0, 1].map(group => all.filter(row => groups[row] === group));
for (const [name, data, rowsOf] of [["all", table, () => all], ["groups", table.groupby("group"), row => own[groups[row]]]]) {
  for (const frame of [[-3, 0], [-3, 3], [0, 3], [-3, -1], [1, 3]]) {
    const { found, asDocumented, withoutSigns } = roll(data, rowsOf, frame);
    const own = correlation(found, values);
    console.log(`${name}, frame [${frame}]: as documented ${asDocumented}, as [${-Math.abs(frame[0])}, `
      + `${Math.abs(frame[1])}] ${withoutSigns}, correlation with the value itself ${own.toFixed(2)}`);
    const holdsRow = frame[0] <= 0 && frame[1] >= 0;
    assert(asDocumented === holdsRow && withoutSigns);
    assert(own > 0.3);
  }
}
const lagged = table.derive({ value: aq.op.lag("value", 1) }).derive({ mean: aq.rolling(aq.op.mean("value"), [-2, 0]) });
const due = correlation(lagged.array("mean"), values);
console.log(`[-2, 0] of the column moved by lag: correlation ${due.toFixed(2)}`);
assert(Math.abs(due) < 0.06);
JAVASCRIPT
node frames.mjs
