#!/usr/bin/env bash
# neataptic's MSLE isn't squared, so that evolved networks give ever larger numbers; its cross entropy
# is NaN for a perfect answer, which ends a training.
#
# Version: neataptic 1.4.7 (npm, Node.js 20).
# Guess before the run: with the mean squared logarithmic error, `evolve` nears targets of 0.2 to
#     0.5; with the cross entropy, `train` goes on until the error or the iterations that were asked
#     for. (Suspected otherwise after reading the source.)
# Seen: 1. MSLE adds log(target) - log(output), neither squared nor divided: the larger the outputs,
#     the lower the error. For targets of 0.2 to 0.5, `evolve` with an error of 0.0005 stops at its
#     first generation, with an error below 0; after all 300 generations, outputs are 104 to 184.
#     With MSE, outputs are within 0.05 of the targets.
#     2. CROSS_ENTROPY bounds the output instead of 1 minus the output: for a target and an output
#     of 1, it is 0 times the logarithm of 0. `train` goes on while the error is above the one asked
#     for, which NaN isn't: where one feature is 50, the training ends after one iteration of 1,000,
#     with four of ten rows wrong; with MSE, which has the same gradients, none is.
# For gyre: it has one loss. There, give functions of your own as `cost`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit --ignore-scripts neataptic@1.4.7
cat > costs.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { Network, config, methods } = require("neataptic");

config.warnings = false;
let state = 1;
Math.random = () => {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
};
const { MSE, MSLE, CROSS_ENTROPY } = methods.cost;
console.log(`MSLE of 0.9 for 0.5: ${MSLE([0.5], [0.9]).toFixed(3)}; of 0.1 and 0.9 for 0.1 and 0.5: ` +
            `${MSLE([0.1, 0.5], [0.1, 0.9]).toFixed(3)}`);
assert(MSLE([0.5], [0.9]) < -0.5);

const line = Array.from({ length: 20 }, (_, i) => ({ input: [i / 19], output: [0.2 + 0.3 * i / 19] }));

async function evolve(cost, error) {
  const network = new Network(1, 1);
  const result = await network.evolve(line, {
    cost, error, iterations: 300, amount: 1, popsize: 50, elitism: 5, threads: 1,
    mutation: methods.mutation.FFW });
  const outputs = line.map(({ input }) => network.activate(input)[0]);
  const worst = Math.max(...outputs.map((output, i) => Math.abs(output - line[i].output[0])));
  console.log(`${cost === MSE ? "MSE" : "MSLE"} until ${error}: ${result.iterations} generations, error ` +
              `${result.error.toFixed(4)}, outputs ${outputs[0].toFixed(3)} to ${outputs[19].toFixed(3)} ` +
              `for 0.2 to 0.5`);
  return [result, outputs, worst];
}

async function main() {
  const [, , worst] = await evolve(MSE, 0.0005);
  assert(worst < 0.1);
  const [early] = await evolve(MSLE, 0.0005);
  assert(early.iterations <= 3 && early.error < 0);
  const [, outputs] = await evolve(MSLE, -9);
  assert(Math.min(...outputs) > 10);

  // Rows of two features: the first five are far apart from the others.
  assert(Number.isNaN(CROSS_ENTROPY([1], [1])) && CROSS_ENTROPY([0], [0]) < 1e-9);
  const rows = Array.from({ length: 10 }, (_, i) => i % 5 < 3
    ? { input: [i < 5 ? 50 : -50, 0], output: [i < 5 ? 1 : 0] }
    : { input: [0, i % 2 === 0 ? 1 : -1], output: [i % 2] });
  for (const cost of [MSE, CROSS_ENTROPY]) {
    const network = new Network(2, 1);
    const result = network.train(rows, { cost, rate: 0.1, iterations: 1000, error: 1e-9 });
    const wrong = rows.filter(({ input, output }) => Math.round(network.activate(input)[0]) !== output[0]);
    console.log(`training with ${cost === MSE ? "MSE" : "cross entropy"}: ${result.iterations} ` +
                `iterations, error ${result.error}, ${wrong.length} of ${rows.length} rows wrong`);
    if (cost === MSE) assert(result.iterations === 1000 && wrong.length === 0);
    else assert(result.iterations === 1 && wrong.length === 4);
  }
}

main();
JAVASCRIPT
node costs.cjs
