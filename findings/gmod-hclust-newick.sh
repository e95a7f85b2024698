#!/usr/bin/env bash
# A tree of @gmod/hclust that is written in Newick's format loses all of its heights.
#
# Versions: @gmod/hclust 1.0.7, @greenelab/hclust 0.0.1 (Node.js 20).
# Guess before the run: `fromNewick(toNewick(tree))` is the tree, within the digits that are
#     written, and other programs read the heights as lengths; `clustersGivenK[k]` has k clusters,
#     as in @greenelab/hclust, whose interface this is. (Suspected after reading the source.)
# Seen: 1. The colon before a height is missing, so that it is a name by the rules of the format:
#     "((a,b)1.0000,(c,d)2.0000)10.5000". Read again, all heights are 0, the inner nodes are called
#     "1.0000", "2.0000" and "10.5000", and the tree cannot be cut anywhere.
#     `fromNewick` itself reads colons.
#     2. `clustersGivenK[k]` has k + 1 clusters, and the empty list, which stands at index 0 in the
#     other package, stands at the end.
# For gyre: it clusters nothing. There, store `treeToJSON(tree)`, and take `clustersGivenK[k - 1]`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit @gmod/hclust@1.0.7 @greenelab/hclust@0.0.1
cat > compare.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";
import * as gmod from "@gmod/hclust";

const greenelab = createRequire(import.meta.url)("@greenelab/hclust");
const data = [[0], [1], [10], [12]];

function listHeights(node) {
  return [node.height, ...(node.children ?? []).flatMap(listHeights)];
}

const { tree, clustersGivenK } = await gmod.clusterData({ data, sampleLabels: ["a", "b", "c", "d"] });
const text = gmod.toNewick(tree);
const read = gmod.fromNewick(text);
console.log(`heights ${listHeights(tree)}; written as ${text}; read as ${listHeights(read)}`);
console.log(`the root is called ${read.name}`);
assert.deepEqual(listHeights(tree), [10.5, 1, 0, 0, 2, 0, 0]);
assert.deepEqual(listHeights(read), [0, 0, 0, 0, 0, 0, 0]);
assert(read.name === "10.5000");
const standard = gmod.fromNewick("((a:0,b:0):1,(c:0,d:0):2):10.5;");
assert.deepEqual(listHeights(standard), [10.5, 1, 0, 0, 2, 0, 0]);

const other = greenelab.clusterData({ data, onProgress: () => {} }).clustersGivenK;
const count = (lists) => lists.map((clusters) => clusters.length);
console.log(`clusters at index 0, 1, 2 ...: ${count(clustersGivenK)}; of @greenelab/hclust ${count(other)}`);
assert.deepEqual(count(clustersGivenK), [1, 2, 3, 4, 0]);
assert.deepEqual(count(other), [0, 1, 2, 3, 4]);
JAVASCRIPT
node compare.mjs
