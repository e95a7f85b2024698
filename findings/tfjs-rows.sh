#!/usr/bin/env bash
# In TensorFlow.js, all rows of a batch are sampled with the same random numbers.
#
# Version: @tensorflow/tfjs-core and tfjs-backend-cpu 4.22.0 (Node.js 20).
# Guess before the run: `multinomial` draws from the softmax of its logits, for each row of a batch
#     by itself, as `torch.multinomial` and `tf.random.categorical` do.
# Seen: the CPU backend begins the generator anew for each row, with a seed and without one. Eight
#     samples of one prompt, made in a batch, are one text eight times: 40 tokens of a bigram model
#     of 50 tokens with a temperature of 1. Alone they are eight texts. Each row by itself has the
#     right distribution, so the mean over a batch is right and its deviation is not: the mean of 64
#     rows deviates as one row does, 8 times as much as it should.
# For gyre: each sample draws by its own seed. In TensorFlow.js, flatten what `multinomial` gets, or
#     draw row by row, or add Gumbel noise (`randomUniform`) and take the largest.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-backend-cpu@4.22.0
cat > sample.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
await tf.setBackend("cpu");

const VOCABULARY = 50;
const model = tf.randomNormal([VOCABULARY, VOCABULARY], 0, 1, "float32", 1);

function generate(nRows, seed) {
  let tokens = tf.zeros([nRows], "int32");
  const columns = [];
  for (let step = 0; step < 40; step++) {
    const logits = tf.gather(model, tokens);
    const stepSeed = seed === undefined ? undefined : seed + step;
    tokens = tf.reshape(tf.multinomial(logits, 1, stepSeed), [-1]);
    columns.push(Array.from(tokens.dataSync()));
  }
  return columns[0].map((_, row) => columns.map((column) => column[row]).join(" "));
}

const counts = {};
for (const seed of [undefined, 1]) {
  counts[`a batch of 8, seed ${seed}`] = new Set(generate(8, seed)).size;
}
const alone = Array.from({ length: 8 }, () => generate(1)[0]);
counts["8 batches of 1, seed undefined"] = new Set(alone).size;
for (const [name, n] of Object.entries(counts)) console.log(`${name}: ${n} different texts of 8`);
assert.deepStrictEqual(Object.values(counts), [1, 1, 8]);

// Two rows with other logits share the numbers too; each has its own distribution.
const logits = tf.log(tf.tensor2d([[0.5, 0.5], [0.2, 0.8]]));
const [fair, biased] = tf.multinomial(logits, 20000, 1).arraySync();
const zeros = (row) => row.filter((token) => token === 0).length / row.length;
const impossible = biased.filter((token, i) => token === 0 && fair[i] === 1).length;
console.log(`token 0 in ${zeros(fair)} and ${zeros(biased)} of 20000 draws (0.5 and 0.2 are right); ` +
  `in the second row and not in the first: ${impossible}, where 2000 are right`);
assert(Math.abs(zeros(fair) - 0.5) < 0.02 && Math.abs(zeros(biased) - 0.2) < 0.02);
assert.strictEqual(impossible, 0);

const means = Array.from({ length: 400 }, () =>
  tf.mean(tf.multinomial(tf.zeros([64, 2]), 1)).dataSync()[0]);
const deviation = Math.sqrt(means.reduce((sum, mean) => sum + (mean - 0.5) ** 2, 0) / 400);
console.log(`the mean of 64 fair rows deviates by ${deviation.toFixed(3)}; right is 0.0625`);
assert(deviation > 0.45);
JAVASCRIPT
node sample.mjs 2> warnings.txt || { cat warnings.txt >&2; exit 1; }
