#!/usr/bin/env bash
# spline-interpolator's smoothing spline jumps to the raw value at its last point.
#
# Version: spline-interpolator 1.0.0 (npm, Node.js 20).
# Guess before the run: with lambda < 1, the curve is a smoothing spline at both ends, so that the
#     curve of the mirrored data is the mirrored curve; the maximum of a straight line is its higher
#     end. (Suspected otherwise after reading the source.)
# Seen: at the last x, `interpolate` gives the last y as it is in the data, and next to it the
#     spline's: 0.70 and 0.98 for a line with noise of 0.3, which the spline smooths to less than
#     0.02 at the first point. The curve drawn by `curve` ends with that jump. `max` and `range` leave
#     out the last point: the range of the line from 0 to 1 is 0 to 0.99, of its mirror 0.01 to 1.
# For gyre: it draws means of seeds without splines. There, ask for a bit less than the last x.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit spline-interpolator@1.0.0
cat > smooth.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const SplineInterpolator = require("spline-interpolator");

const N_POINTS = 21;
const xs = Array.from({ length: N_POINTS }, (_, i) => i / (N_POINTS - 1));
const ys = xs.map((x, i) => x + (i % 2 === 0 ? -0.3 : 0.3));
for (const lambda of [1, 0.9, 0.5, 0.1]) {
  const spline = new SplineInterpolator(xs, ys, lambda);
  const mirrored = new SplineInterpolator(xs.map((x) => 1 - x), ys, lambda);
  const [last, before] = [spline.interpolate(1), spline.interpolate(1 - 1e-9)];
  const [due, first] = [mirrored.interpolate(0), spline.interpolate(0)];
  console.log(`lambda ${lambda}: ${last.toFixed(3)} at 1 and ${before.toFixed(3)} just before, ` +
              `${due.toFixed(3)} by the mirrored data; ${first.toFixed(3)} at 0`);
  assert(Math.abs(before - due) < 1e-6 && last === ys[N_POINTS - 1]);
  assert(lambda === 1 ? Math.abs(last - due) < 1e-12 : due - last > 0.25);
  // Everywhere else the two curves agree.
  for (const x of [0.05, 0.33, 0.5, 0.98]) {
    assert(Math.abs(spline.interpolate(x) - mirrored.interpolate(1 - x)) < 1e-9);
  }
  const curve = spline.curve(101);
  if (lambda < 1) assert(Math.abs(curve[100][1] - curve[99][1]) > 5 * Math.abs(curve[99][1] - curve[98][1]));
}
const line = new SplineInterpolator(xs, xs);
const falling = new SplineInterpolator(xs, xs.map((x) => 1 - x));
const show = (range) => range.map((value) => value.toFixed(2)).join(" to ");
console.log(`range of a line from 0 to 1: ${show(line.range())}, from 1 to 0: ${show(falling.range())}`);
assert(show(line.range()) === "0.00 to 0.99" && show(falling.range()) === "0.01 to 1.00");
JAVASCRIPT
node smooth.cjs
