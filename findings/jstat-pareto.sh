#!/usr/bin/env bash
# jStat's mean and median of a Pareto distribution are those of another one.
#
# Version: jstat 1.9.6 (Node.js 20).
# Guess before the run: `pareto.mean` and `pareto.median` are the mean and the median of `pareto.inv` and
#     `pareto.pdf` with the same scale and shape.
# Seen: the mean is shape * scale ** shape / (shape - 1), and only right with a scale of 1: 5,062 for 22.5 with a
#     scale of 15 and a shape of 3. The median is scale * shape * 1.41 where scale * 2 ** (1 / shape) is due: 64 for
#     19, and it grows with the shape instead of falling. Density, distribution, inverse and variance are right.
# For gyre: it has no such distribution. There, take `inv(0.5, scale, shape)` and `scale * shape / (shape - 1)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit jstat@1.9.6
cat > pareto.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { jStat } = require("jstat");

const N = 1e6;
for (const [scale, shape] of [[1, 3], [1.5, 3], [15, 3], [15, 6]]) {
  // Quantiles at the middles of N equal parts stand for the distribution.
  const draws = Array.from({ length: N }, (_, i) => jStat.pareto.inv((i + 0.5) / N, scale, shape));
  const mean = draws.reduce((sum, value) => sum + value, 0) / N;
  const median = (draws[N / 2 - 1] + draws[N / 2]) / 2;
  const variance = draws.reduce((sum, value) => sum + (value - mean) ** 2, 0) / N;
  console.log(`scale ${scale}, shape ${shape}: mean ${jStat.pareto.mean(scale, shape).toFixed(2)} for ${mean.toFixed(2)}, `
    + `median ${jStat.pareto.median(scale, shape).toFixed(2)} for ${median.toFixed(2)}`);
  assert(Math.abs(mean / (scale * shape / (shape - 1)) - 1) < 0.01);
  assert(Math.abs(median / (scale * 2 ** (1 / shape)) - 1) < 0.01);
  assert(Math.abs(jStat.pareto.cdf(median, scale, shape) - 0.5) < 1e-3);
  assert(Math.abs(jStat.pareto.variance(scale, shape) / variance - 1) < 0.05);
  assert(Math.abs(jStat.pareto.mean(scale, shape) / (mean * scale ** (shape - 1)) - 1) < 0.01);
  assert(Math.abs(jStat.pareto.median(scale, shape) / (scale * shape * Math.SQRT2) - 1) < 1e-9);
}
JAVASCRIPT
node pareto.cjs
