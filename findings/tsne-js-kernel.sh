#!/usr/bin/env bash
# The npm package tsne-js takes exp(-distance) for the neighbours of a point instead of a Gaussian.
#
# Version: tsne-js 1.0.3 (Node.js 20).
# Guess before the run: with metric "euclidean", the probabilities of neighbours are Gaussian in the distance, as
#     in the paper of t-SNE and in scikit-learn, whose API its README follows. (That they might not be was
#     suspected after reading the source.)
# Seen: distances are not squared: probabilities are exp(-distance * beta), with beta chosen for the perplexity
#     as it is due. Of three groups of 30 points, ten deviations apart, pairs of different groups have 70 times as
#     much of the probability as is due, and single neighbours a fifth more. Nothing is said.
# For gyre: it embeds nothing in a plane. There, take another package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit tsne-js@1.0.3
cat > embed.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const TSNE = require("tsne-js");

const N = 90, PERPLEXITY = 20;
let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
const rows = Array.from({ length: N }, (_, i) =>
  [0, 1, 2, 3].map((j) => normal() + (j === i % 3 ? 10 : 0)));

// Joint probabilities with the kernel exp(-beta * distance ** power), where beta has the perplexity.
function join(power) {
  const conditional = rows.map((a, i) => {
    const powers = rows.map((b) => Math.hypot(...a.map((value, j) => value - b[j])) ** power);
    let [low, high] = [0, 1e6], probabilities;
    for (let step = 0; step < 200; step += 1) {
      const beta = (low + high) / 2;
      const nearest = Math.min(...powers.filter((_, j) => j !== i));
      const values = powers.map((value, j) => (j === i ? 0 : Math.exp(-beta * (value - nearest))));
      const sum = values.reduce((left, right) => left + right);
      probabilities = values.map((value) => value / sum);
      const entropy = probabilities.reduce((total, p) => total - (p ? p * Math.log(p) : 0), 0);
      [low, high] = entropy > Math.log(PERPLEXITY) ? [beta, high] : [low, beta];
    }
    return probabilities;
  });
  return conditional.map((row, i) => row.map((p, j) => (p + conditional[j][i]) / (2 * N)));
}

const model = new TSNE({ dim: 2, perplexity: PERPLEXITY, nIter: 1, metric: "euclidean" });
model.init({ data: rows, type: "dense" });
model.run();
const found = rows.map((_, i) => rows.map((__, j) => model.P.get(i, j)));
const plain = join(1), gaussian = join(2);

const between = (joint) => joint.reduce((total, row, i) =>
  total + row.reduce((sum, p, j) => sum + (i % 3 === j % 3 ? 0 : p), 0), 0);
const nearest = (joint) => joint.reduce((total, row) => total + Math.max(...row), 0);
const difference = (a, b) => Math.max(...a.map((row, i) => Math.max(...row.map((p, j) => Math.abs(p - b[i][j])))));
for (const [name, joint] of [["tsne-js", found], ["exp(-distance)", plain], ["Gaussian", gaussian]]) {
  console.log(`${name}: pairs of different groups have ${between(joint).toExponential(1)} of the probability, ` +
              `nearest neighbours ${nearest(joint).toFixed(3)}`);
}
console.log(`largest difference from exp(-distance) ${difference(found, plain).toExponential(1)}, from the Gaussian ` +
            `${difference(found, gaussian).toExponential(1)}; largest probability ` +
            `${Math.max(...found.flat()).toExponential(1)}`);
assert(difference(found, plain) < 1e-7 && difference(found, gaussian) > 1e-4);
assert(between(found) > 20 * between(gaussian));
JAVASCRIPT
node embed.cjs
