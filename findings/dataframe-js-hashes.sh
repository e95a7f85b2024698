#!/usr/bin/env bash
# dataframe-js takes different values for equal if their 32-bit hashes are: groups, joins and
# duplicates mix the codes A1O and A20.
#
# Version: dataframe-js 1.4.4 (npm, Node.js 20).
# Guess before the run: groupBy has a group for each value, `join` joins equal values only,
#     dropDuplicates leaves one row of each, as many as `distinct`; `min` leaves missing values out,
#     as `mean` does. (Suspected otherwise after reading the source.)
# Seen: rows are grouped by Java's hash of their JSON text (src/row.js), which is the only key. With
#     it, a letter more in front makes up for 31 less behind: "1O" and "20", "Aa" and "BB" are equal.
#     A1O with 1 and A20 with 10 are one group with 11; an inner join finds A20's rows for A1O;
#     dropDuplicates drops A20. Of 1,000 different codes of three digits and capitals, 979 groups
#     remain, of 500 of two, 453; with lower-case letters alone, all do. Nothing is said.
#     `stat.min` and `stat.max` take null and empty text for 0: the minimum of 5, null and 7 is 0,
#     with a mean of 6.
# For gyre: it has no such tables. There, group by `distinct` and `filter`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit dataframe-js@1.4.4
cat > group.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { DataFrame } = require("dataframe-js");

const sales = new DataFrame([["A1O", 1], ["A20", 10]], ["code", "amount"]);
const sums = sales.groupBy("code").aggregate((group) => group.stat.sum("amount")).toArray();
const names = new DataFrame([["A1O", "screw"]], ["code", "name"]);
const joined = names.innerJoin(sales, "code").toArray();
console.log(`sums of A1O with 1 and A20 with 10: ${JSON.stringify(sums)}; joined with the name of A1O: ` +
            JSON.stringify(joined));
assert.deepEqual(sums, [["A1O", 11]]);
assert.deepEqual(joined, [["A1O", "screw", 1], ["A1O", "screw", 10]]);
assert.deepEqual(sales.dropDuplicates("code").toArray("code"), ["A1O"]);
assert.deepEqual(sales.distinct("code").toArray("code"), ["A1O", "A20"]);

let state = 1;
function draw(letters) {
  state = (state * 48271) % 2147483647;
  return letters[Math.floor(state / 2147483647 * letters.length)];
}

const CAPITALS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const LOWER_CASE = "abcdefghijklmnopqrstuvwxyz";
for (const [letters, length, nCodes, seen] of [
  [CAPITALS, 2, 500, 453], [CAPITALS, 3, 1000, 979], [LOWER_CASE, 3, 1000, 1000]]) {
  const codes = new Set();
  while (codes.size < nCodes) codes.add(Array.from({ length }, () => draw(letters)).join(""));
  const table = new DataFrame([...codes].map((code) => [code]), ["code"]);
  const nGroups = table.groupBy("code").listGroups().length;
  console.log(`${nCodes} codes such as ${[...codes].slice(0, 3)}: ${nGroups} groups, ` +
              `${table.distinct("code").count()} distinct`);
  assert(nGroups === seen && table.dropDuplicates().count() === seen);
  assert(table.distinct("code").count() === nCodes);
}
const { min, mean } = new DataFrame([[5], [null], [7], [""]], ["x"]).stat.stats("x");
console.log(`5, null, 7 and an empty text: minimum ${min}, mean ${mean}`);
assert(min === 0 && mean === 6);
JAVASCRIPT
node group.cjs
