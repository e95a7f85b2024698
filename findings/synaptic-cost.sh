#!/usr/bin/env bash
# The cost function of a synaptic training changes no weight; with cross-validation, neither does shuffling.
#
# Version: synaptic 1.1.4 (Node.js 20).
# Guess before the run: `cost` in `train` is what is minimized: with MSE, gradients have the factor of the sigmoid's
#     derivative; `shuffle` shuffles the training rows with `crossValidate` as well. (That neither might hold was
#     suspected after reading the source.)
# Seen: weights after 50 epochs with MSE, CROSS_ENTROPY, BINARY or a cost that is always 1 are equal, bit for bit:
#     gradients are always those of the cross entropy, also with the default, MSE. The cost only decides what is
#     reported and when to stop. With `crossValidate`, `shuffle` leaves the training rows in their order, so that
#     weights are equal bit for bit, while the caller's array is shuffled in place.
# For gyre: it has one loss. There, use sigmoids at the end for probabilities only, and shuffle by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit synaptic@1.1.4
cat > train.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { Architect, Trainer } = require("synaptic");

let state;
Math.random = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const RATE = 0.3;
const rows = Array.from({ length: 20 }, (_, i) => ({
  input: [(i % 5) / 4, (i % 4) / 3], output: [(i % 5) * (i % 4) > 3 ? 1 : 0] }));

// Train a network from the same weights; return the result of the training and the outputs.
function train(options) {
  state = 1;
  const network = new Architect.Perceptron(2, 3, 1);
  const set = [...rows];
  const result = new Trainer(network).train(set, { rate: RATE, iterations: 50, error: 1e-9, ...options });
  return { error: result.error, outputs: rows.map(({ input }) => network.activate(input)[0]), set };
}

const costs = { ...Trainer.cost, one: () => 1 };
const plain = train({});
for (const [name, cost] of Object.entries(costs)) {
  const { error, outputs } = train({ cost });
  console.log(`cost ${name}: error ${error.toFixed(4)}, outputs ${outputs.slice(0, 3).map((v) => v.toFixed(4))}`);
  assert.deepStrictEqual(outputs, plain.outputs);
}
assert(Math.abs(train({ cost: costs.CROSS_ENTROPY }).error - plain.error) > 0.01);

// One step of a single neuron on one row: the change of the bias shows the gradient.
state = 1;
const neuron = new Architect.Perceptron(1, 1, 1);
neuron.setOptimize(false);
const output = neuron.activate([0])[0];
const unit = neuron.neurons().at(-1).neuron;
const before = unit.bias;
neuron.propagate(RATE, [1]);
const [found, entropy] = [unit.bias - before, RATE * (1 - output)];
console.log(`a step of the bias: ${found.toFixed(4)}; cross entropy ${entropy.toFixed(4)}, `
  + `squared error ${(RATE * 2 * (1 - output) * output * (1 - output)).toFixed(4)}`);
assert(Math.abs(found - entropy) < 1e-9);

const validate = { testSize: 0.4, testError: 1e-9 };
const [ordered, shuffled] = [false, true].map((shuffle) => train({ crossValidate: validate, shuffle }));
assert.deepStrictEqual(ordered.outputs, shuffled.outputs);
assert.deepStrictEqual(ordered.set, rows);
assert.notDeepStrictEqual(shuffled.set, rows);
assert.notDeepStrictEqual(train({ shuffle: true }).outputs, plain.outputs);
console.log("with cross-validation, outputs with and without shuffle are equal");
JAVASCRIPT
node train.cjs
