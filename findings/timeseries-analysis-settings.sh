#!/usr/bin/env bash
# timeseries-analysis calls the first settings that it tries the best ones, whatever their errors.
#
# Version: timeseries-analysis 1.0.12 (Node.js 20).
# Guess before the run: `regression_forecast_optimize()` returns the settings with the smallest
#     error of all that it tries, and `outliers()` leaves the series as it is. (Suspected after
#     reading the source.)
# Seen: 1. The results are sorted by a comparison that says `true` or `false`, which is never
#     negative: nothing is moved. The settings returned are the first ones, a degree of 1 and a
#     sample of 3, for each series. For a sine with noise, their squared error is 12.3, where the
#     best of the settings tried has 0.03, 450 times less.
#     2. `outliers()` standardizes the points of the series themselves: afterwards, the series has a
#     mean of 0 and a deviation of 1, and the outlier 50 is reported as 3.3. Nothing is said.
# For gyre: it forecasts nothing. There, take the best of what is printed, and work on a copy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit timeseries-analysis@1.0.12
cat > forecast.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const timeseries = createRequire(import.meta.url)("timeseries-analysis");

function load(values) {
  return new timeseries.main(timeseries.adapter.fromArray(values));
}

let state = 7;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

// Return what is said to be the best settings, and all tried settings, which the library prints.
function optimize(values) {
  const lines = [];
  const print = console.log;
  console.log = (...parts) => lines.push(parts.join(" "));
  const best = load(values).regression_forecast_optimize();
  console.log = print;
  const tried = lines.map((line) =>
    line.match(/method\((\w+)\) degree\((\d+)\) sample\((\d+)\)\s(\S+)/)).filter((match) => match)
    .map((match) => ({ MSE: Number(match[4]), method: match[1], degree: Number(match[2]),
                       sample: Number(match[3]) })).filter(({ MSE }) => !isNaN(MSE));
  return { best, tried };
}

const steps = Array.from({ length: 80 }, (_, i) => i);
for (const [name, values, worse] of [
  ["sine with noise", steps.map((i) => 100 + 10 * Math.sin(i / 5) + 0.3 * draw()), 100],
  ["ramp with noise", steps.map((i) => i + draw()), 4]]) {
  const { best, tried } = optimize(values);
  const due = tried.reduce((left, right) => (right.MSE < left.MSE ? right : left));
  console.log(`${name}: ${tried.length} settings; returned: ${best.method}, degree ` +
              `${best.degree}, sample ${best.sample}, MSE ${best.MSE.toFixed(3)}; best: ` +
              `${due.method}, degree ${due.degree}, sample ${due.sample}, MSE ` +
              due.MSE.toFixed(3));
  assert.deepEqual(best, tried[0]);
  assert(best.degree === 1 && best.sample === 3 && best.MSE > worse * due.MSE);
}

const values = [1, 2, 3, 2, 1, 2, 3, 2, 1, 50, 2, 3];
const series = load(values);
assert(series.mean() === 6);
const outliers = series.outliers();
console.log(`outliers: ${outliers.map((point) => point[1].toFixed(2))}; then the mean is ` +
            `${series.mean().toFixed(2)}, the deviation ${series.stdev().toFixed(2)}`);
assert(outliers.length === 1 && Math.abs(outliers[0][1] - 3.31) < 0.01);
assert(Math.abs(series.mean()) < 1e-9 && Math.abs(series.stdev() - 1) < 1e-9);
JAVASCRIPT
node forecast.mjs
