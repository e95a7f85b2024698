#!/usr/bin/env bash
# In mljs, the false omission rate of a confusion matrix is the false negative rate.
#
# Version: ml-confusion-matrix 2.0.0 (Node.js 20).
# Guess before the run: `getFalseOmissionRate` is the share of wrong ones among those that were not
#     given the label, FN / (FN + TN): 1 minus the negative predictive value. (Suspected after
#     reading the source.)
# Seen: it is FN / (FN + TP), the share of the label's own that were missed, as
#     `getFalseNegativeRate`. For a rare label the two are far apart: of 1,000 samples with 20 of
#     the label, of which 10 are missed, 0.01 is due, and 0.5 is what one gets. Together with the
#     negative predictive value it is 1.49 instead of 1. The other 11 rates are right. Nothing is
#     said.
# For gyre: it classifies nothing. There, take 1 minus `getNegativePredictiveValue`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-confusion-matrix@2.0.0
cat > rates.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const { ConfusionMatrix } = createRequire(import.meta.url)("ml-confusion-matrix");
for (const [tp, fn, fp, tn] of [[10, 10, 5, 975], [40, 10, 20, 30], [90, 10, 10, 90]]) {
  const matrix = new ConfusionMatrix([[tp, fn], [fp, tn]], ["yes", "no"]);
  const due = {
    getTruePositiveRate: tp / (tp + fn),
    getTrueNegativeRate: tn / (tn + fp),
    getPositivePredictiveValue: tp / (tp + fp),
    getNegativePredictiveValue: tn / (tn + fn),
    getFalseNegativeRate: fn / (fn + tp),
    getFalsePositiveRate: fp / (fp + tn),
    getFalseDiscoveryRate: fp / (fp + tp),
    getF1Score: 2 * tp / (2 * tp + fp + fn),
    getMatthewsCorrelationCoefficient: (tp * tn - fp * fn) /
      Math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
    getInformedness: tp / (tp + fn) + tn / (tn + fp) - 1,
    getMarkedness: tp / (tp + fp) + tn / (tn + fn) - 1,
  };
  for (const [name, value] of Object.entries(due)) {
    assert(Math.abs(matrix[name]("yes") - value) < 1e-12, name);
  }
  const rate = matrix.getFalseOmissionRate("yes");
  console.log(`TP ${tp}, FN ${fn}, FP ${fp}, TN ${tn}: false omission rate ${rate.toFixed(3)}, ` +
              `where ${(fn / (fn + tn)).toFixed(3)} is due; false negative rate ` +
              due.getFalseNegativeRate.toFixed(3));
  assert(Math.abs(rate - due.getFalseNegativeRate) < 1e-12);
  assert(Math.abs(rate - fn / (fn + tn)) > 0.04 || tp === tn);
}
JAVASCRIPT
node rates.mjs
