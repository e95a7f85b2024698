#!/usr/bin/env bash
# The second run of node-fpgrowth finds nothing, and an item named twice counts as two.
#
# Version: node-fpgrowth 1.2.1 (Node.js 20).
# Guess before the run: an FPGrowth object can mine one list of transactions after the other, and
#     the support of a set of items is the number of transactions that have it. (Suspected after
#     reading the source.)
# Seen: 1. `exec()` replaces the minimum support, a share, by the number of transactions that it
#     stands for, and takes that for a share in the next call: 0.3 of 20 transactions is 6, and then
#     120 of 20. The second call finds no set at all, with the same transactions too.
#     2. An item that a transaction names twice is counted twice, and is a set with itself: bread,
#     in two of four transactions, has a support of 4, "bread, bread" has 2, and "bread, milk" 2 for
#     1. With new objects and without repeated items, all sets are right. Nothing is said.
# For gyre: it mines no sets. There, make a new object for each run, and remove repeated items.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit node-fpgrowth@1.2.1
cat > mine.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { FPGrowth } = createRequire(import.meta.url)("node-fpgrowth");
const ITEMS = ["a", "b", "c", "d", "e"];

let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

function toTable(itemsets) {
  return Object.fromEntries(itemsets
    .map(({ items, support }) => [[...items].sort().join(" "), support]));
}

// Return all sets of items that so many transactions have, with their number.
function count(transactions, smallest) {
  const itemsets = [];
  for (let bits = 1; bits < 2 ** ITEMS.length; bits++) {
    const items = ITEMS.filter((item, i) => (bits >> i) & 1);
    const having = transactions.filter((each) => items.every((item) => each.includes(item)));
    const support = having.length;
    if (support >= smallest) itemsets.push({ items, support });
  }
  return itemsets;
}

for (const share of [0.1, 0.3]) {
  const transactions = Array.from({ length: 20 }, () =>
    ITEMS.filter((item, i) => draw() < 0.3 + 0.1 * i));
  const miner = new FPGrowth(share);
  const first = await miner.exec(transactions);
  const second = await miner.exec(transactions);
  const other = await new FPGrowth(share).exec(transactions);
  const due = count(transactions, 20 * share);
  console.log(`support ${share}: ${first.length} sets, then ${second.length}; by a new object ` +
              `${other.length}; due: ${due.length}`);
  assert(due.length > 5 && second.length === 0);
  assert.deepEqual(toTable(first), toTable(due));
  assert.deepEqual(toTable(other), toTable(due));
}

const baskets = [["bread", "bread"], ["bread", "bread", "milk"], ["milk"], ["milk"]];
const found = toTable(await new FPGrowth(0.5).exec(baskets));
console.log(`baskets: ${JSON.stringify(found)}`);
assert.deepEqual(found, { "bread": 4, "bread bread": 2, "bread milk": 2, "milk": 3 });
JAVASCRIPT
node mine.mjs
