#!/usr/bin/env bash
# deck's uniform shuffle never leaves an element in its place: it knows 6 of the 24 orders of four.
#
# Version: deck 0.0.4 (npm).
# Guess before the run: `shuffle` of a list, the "uniform shuffle", gives each of the 24 orders of four elements in 4 % of
#     the runs. (Suspected from reading the source.)
# Seen: in 60,000 runs, six orders have 10,000 each, and 18 none: only the permutations of one single cycle. No element
#     is ever where it was, and a list of two is always swapped. The weighted shuffle is right, also with equal weights.
# Cause: the place to swap with is drawn from those below i, without i itself: Sattolo's algorithm (deck/index.js, `shuffle`).
#     No issue was found.
# For gyre: its permutations come from addressed numbers. There, give every element the weight 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME="$folder"
npm install --silent --no-fund --no-audit deck@0.0.4
cat > shuffle.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import deck from "deck";

const N_RUNS = 60000;
const items = ["a", "b", "c", "d"];

function count(shuffle) {
  const orders = new Map();
  for (let run = 0; run < N_RUNS; run += 1) {
    const order = shuffle().join("");
    orders.set(order, (orders.get(order) ?? 0) + 1);
  }
  const kept = items.map((item, place) => {
    const there = [...orders].filter(([order]) => order[place] === item);
    return there.reduce((sum, [, times]) => sum + times, 0) / N_RUNS;
  });
  return { orders, kept };
}

const plain = count(() => deck.shuffle(items));
const weighted = count(() => deck.shuffle({ a: 1, b: 1, c: 1, d: 1 }));
for (const [name, { orders, kept }] of Object.entries({ plain, weighted })) {
  console.log(`${name}: ${orders.size} orders, elements stay in ${kept.map(share => share.toFixed(2))} of the runs`);
}
console.log([...plain.orders].sort());
assert.equal(plain.orders.size, 6);
assert(plain.kept.every(share => share === 0));
assert([...plain.orders.values()].every(times => Math.abs(times / N_RUNS - 1 / 6) < 0.01));
assert.equal(weighted.orders.size, 24);
assert([...weighted.orders.values()].every(times => Math.abs(times / N_RUNS - 1 / 24) < 0.006));

// Each order is a single cycle: from the first place, it takes four steps to be back.
for (const order of plain.orders.keys()) {
  let place = 0;
  let steps = 0;
  do {
    place = items.indexOf(order[place]);
    steps += 1;
  } while (place !== 0);
  assert.equal(steps, 4);
}
for (let run = 0; run < 1000; run += 1) {
  assert.deepEqual(deck.shuffle([1, 2]), [2, 1]);
}
JAVASCRIPT
node shuffle.mjs
