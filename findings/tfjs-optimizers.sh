#!/usr/bin/env bash
# In TensorFlow.js, Adadelta takes steps of the size of the gradient, and centred RMSprop gives NaN.
#
# Version: @tensorflow/tfjs-core and tfjs-backend-cpu 4.22.0 (Node.js 20).
# Guess before the run: the optimizers follow their papers to 1e-5 over 40 steps, but for where the
#     epsilon is. SGD, momentum, Nesterov, Adam, Adamax, Adagrad and RMSprop do.
# Seen: Adadelta divides by the mean square of the gradients without the newest one. The first step
#     is the whole gradient, as in SGD, and what follows is measured by that step: with a gradient
#     1000 times as large, weights move 1000 times as far, where the paper's do not move farther.
#     And centred RMSprop subtracts epsilon under the root: a weight whose first gradient is below
#     1e-3, or zero as of a token that is not in the batch, is NaN from there on.
# For gyre: it trains by AdamW and Muon. In TensorFlow.js, take none of these two.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-backend-cpu@4.22.0
cat > train.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
await tf.setBackend("cpu");

const GRADIENTS = [1, 0.2, -0.3, 0.4];
const N_STEPS = 40;
const EPSILON = 1e-7;  // what float32 backends take if none is given

function train(optimizer, scale) {
  const weight = tf.variable(tf.scalar(0), true, "weight");
  for (let step = 0; step < N_STEPS; step++) {
    optimizer.applyGradients({ weight: tf.scalar(scale * GRADIENTS[step % 4]) });
  }
  const moved = weight.dataSync()[0];
  weight.dispose();
  return moved;
}

function paperAdadelta(rate, scale) {
  let [weight, squares, updates] = [0, 0, 0];
  for (let step = 0; step < N_STEPS; step++) {
    const gradient = scale * GRADIENTS[step % 4];
    squares = 0.95 * squares + 0.05 * gradient ** 2;
    const update = Math.sqrt((updates + EPSILON) / (squares + EPSILON)) * gradient;
    updates = 0.95 * updates + 0.05 * update ** 2;
    weight -= rate * update;
  }
  return weight;
}

function paperRmsprop(rate, scale) {
  let [weight, squares, mean] = [0, 0, 0];
  for (let step = 0; step < N_STEPS; step++) {
    const gradient = scale * GRADIENTS[step % 4];
    squares = 0.9 * squares + 0.1 * gradient ** 2;
    mean = 0.9 * mean + 0.1 * gradient;
    weight -= rate * gradient / Math.sqrt(squares - mean ** 2 + EPSILON);
  }
  return weight;
}

for (const scale of [0.001, 1, 1000]) {
  const seen = train(tf.train.adadelta(0.1, 0.95, EPSILON), scale);
  const paper = paperAdadelta(0.1, scale);
  console.log(`Adadelta, gradients of ${scale}: ${seen}; by the paper ${paper}`);
  if (scale === 1) assert(seen / paper > 100);
  if (scale === 1000) assert(seen / paper > 1e5);
}
for (const scale of [1, 0.001, 0]) {
  const seen = train(tf.train.rmsprop(0.01, 0.9, 0, EPSILON, true), scale);
  const paper = paperRmsprop(0.01, scale);
  const plain = train(tf.train.rmsprop(0.01, 0.9, 0, EPSILON, false), scale);
  console.log(`centred RMSprop, gradients of ${scale}: ${seen}; by the paper ${paper}; ` +
    `not centred ${plain}`);
  assert(Number.isFinite(plain) && Number.isFinite(paper));
  if (scale === 1) assert(Math.abs(seen - paper) < 1e-4);
  else assert(Number.isNaN(seen));
}
JAVASCRIPT
node train.mjs 2> warnings.txt || { cat warnings.txt >&2; exit 1; }
