#!/usr/bin/env bash
# kalman-filter's asymptoticGain is not the gain that its filter ends with, but a smaller one.
#
# Version: kalman-filter 2.3.0 (npm, Node.js 20).
# Guess before the run: `asymptoticGain()` is the gain of the filter after many steps, which for a
#     random walk has a closed form. (Suspected otherwise after reading the source.)
# Seen: the covariance after the correction is taken for the predicted one, from which a gain is
#     made. With equal noise of the walk and of the sensor, the gain is 0.382, where the filter has
#     0.618 (the golden ratio less 1) after 1,000 steps; with a walk of ten times the variance it is
#     0.478 for 0.916. With those fixed gains, the mean squared error of 100,000 estimates is 0.85
#     for 0.61, and 4.0 for 0.92. `asymptoticStateCovariance()` is right.
# For gyre: it filters nothing. There, call `getGain` for a state of 1,000 predictions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit kalman-filter@2.3.0
cat > gain.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const { KalmanFilter } = require("kalman-filter");

const N_STEPS = 100000;
let state = 1;
function draw() {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}

function drawNormal() {
  return Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
}

// Return the mean squared error of estimates with a fixed gain, for a random walk.
function measureError(gain, walk, sensor) {
  let [place, estimate, sum] = [0, 0, 0];
  for (let i = 0; i < N_STEPS; i++) {
    place += Math.sqrt(walk) * drawNormal();
    estimate += gain * (place + Math.sqrt(sensor) * drawNormal() - estimate);
    sum += (place - estimate) ** 2;
  }
  return sum / N_STEPS;
}

for (const [walk, sensor, seen] of [[0.1, 10, 0.0869], [1, 1, 0.382], [10, 1, 0.478]]) {
  const filter = new KalmanFilter({
    observation: { name: "sensor", sensorDimension: 1, sensorCovariance: [sensor] },
    dynamic: { name: "constant-position", covariance: [walk] },
  });
  let predicted;
  let previousCorrected = filter.getInitState();
  for (let i = 0; i < 1000; i++) {
    predicted = filter.predict({ previousCorrected });
    previousCorrected = filter.correct({ predicted, observation: [0] });
  }
  const last = filter.getGain({ predicted })[0][0];
  const variance = (walk + Math.sqrt(walk ** 2 + 4 * walk * sensor)) / 2;
  const due = variance / (variance + sensor);
  const found = filter.asymptoticGain()[0][0];
  const errors = [found, due].map((gain) => measureError(gain, walk, sensor).toFixed(3));
  console.log(`variances ${walk} and ${sensor}: asymptotic gain ${found.toFixed(4)}, of the filter ` +
              `${last.toFixed(4)}, by the formula ${due.toFixed(4)}; squared errors with the first ` +
              `and the last: ${errors.join(" and ")}`);
  assert(Math.abs(last - due) < 1e-9 && Math.abs(found - seen) < 1e-3);
  const covariance = filter.asymptoticStateCovariance()[0][0];
  assert(Math.abs(covariance - variance * sensor / (variance + sensor)) < 1e-3);
}
JAVASCRIPT
node gain.cjs
