#!/usr/bin/env bash
# AlaSQL numbers rows without the order that is asked for, and adds up windows without their parts.
#
# Version: alasql 4.19.1 (npm, Node.js 20).
# Guess before the run: ROW_NUMBER, SUM and AVG with OVER (PARTITION BY ... ORDER BY ...) give what SQL
#     says: numbers in the order of the window, and running sums. (Nothing was read before.)
# Seen: ROW_NUMBER() OVER (PARTITION BY author ORDER BY loss DESC) counts rows as they come: the row
#     numbered 1 is the first one of each author, not that of the highest loss, and where the authors
#     alternate each row is numbered 1. SUM(tokens) OVER (ORDER BY step) is the total in each row. A
#     window reads the columns of the result: without `author` among them, each row has the sum of
#     all authors, and without `tokens` each sum is 0. No error.
# Cause: the ORDER BY of a window is parsed and read nowhere. Windows are filled in after the columns
#     were selected, from `res[i][column]`; row numbers begin anew whenever the value of the row before
#     differs (dist/alasql.fs.js, "Handle window aggregate functions"). Windows came with its issue
#     2408, which is closed.
# For gyre: it has no SQL. There, ask for windows of duckdb.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit --ignore-scripts alasql@4.19.1
cat > windows.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const alasql = require("alasql");

const SORTED = [["ann", 1, 3, 10], ["ann", 2, 5, 20], ["bob", 3, 2, 30], ["bob", 4, 7, 40]]
  .map(([author, step, loss, tokens]) => ({ author, step, loss, tokens }));
const ALTERNATING = [0, 2, 1, 3].map((i) => SORTED[i]);

function query(rows, columns, name, due) {
  const found = alasql(`SELECT ${columns} AS ${name} FROM ?`, [rows]).map((row) => row[name]);
  console.log(`SELECT ${columns}: ${found}, due ${due}`);
  return String(found);
}

const numbered = "author, ROW_NUMBER() OVER (PARTITION BY author ORDER BY loss DESC)";
assert.equal(query(SORTED, numbered, "place", [2, 1, 2, 1]), "1,2,1,2");
assert.equal(query(ALTERNATING, numbered, "place", [2, 2, 1, 1]), "1,1,1,1");
const best = alasql(`SELECT author, loss FROM (SELECT loss, ${numbered} AS place FROM ?) WHERE place = 1`,
                    [SORTED]);
console.log("highest loss of each author:", JSON.stringify(best), "due 5 and 7");
assert.deepEqual(best.map((row) => row.loss), [3, 2]);

const running = "step, tokens, SUM(tokens) OVER (ORDER BY step)";
assert.equal(query(SORTED, running, "added", [10, 30, 60, 100]), "100,100,100,100");

const sums = "SUM(tokens) OVER (PARTITION BY author)";
const due = [30, 30, 70, 70];
assert.equal(query(SORTED, `author, tokens, ${sums}`, "added", due), "30,30,70,70");
assert.equal(query(SORTED, `step, tokens, ${sums}`, "added", due), "100,100,100,100");
assert.equal(query(SORTED, `author, step, ${sums}`, "added", due), "0,0,0,0");
JAVASCRIPT
node windows.cjs
