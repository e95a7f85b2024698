#!/usr/bin/env bash
# In mljs, the error rate of a ranking is a number of errors, and an accuracy can be 15.
#
# Version: ml-performance 0.2.0 (Node.js 20).
# Guess before the run: `getMeasure("err")` and `getMeasure("acc")` are the shares of wrong and
#     right pairs at each cutoff: between 0 and 1, and 1 in sum. (Suspected after reading the
#     source.)
# Seen: the error rate is the number of false negatives, plus the false positives divided by a count
#     of cutoffs, by a bracket in the wrong place: up to 100 for 200 pairs of which 100 belong
#     together. The accuracy is divided by the number of different scores instead of that of the
#     pairs: with scores of one decimal, it goes up to 15. Only with all scores different is it
#     right, and so are the false negative rate and the counts. Nothing is said.
# For gyre: it ranks nothing. There, compute both from the counts `tp`, `fp`, `tn` and `fn`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ml-performance@0.2.0
cat > measure.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";

const Performance = createRequire(import.meta.url)("ml-performance");
const N_PAIRS = 200;
const targets = Array.from({ length: N_PAIRS }, (_, pair) => pair % 2);
const scores = targets.map((target, pair) => 0.5 + 0.2 * target + 0.3 * Math.sin(pair * pair));

function isClose(left, right) {
  return left.every((value, i) => Math.abs(value - right[i]) < 1e-9);
}

for (const [name, values] of [["all different", scores],
                              ["of one decimal", scores.map((score) => +score.toFixed(1))]]) {
  const performance = new Performance([values], [targets], { max: true, all: true });
  const different = [...new Set(values)].sort((left, right) => right - left);
  // For each cutoff, from above all scores down to the smallest one: [wrong, false negatives, ...].
  const counts = [Infinity, ...different].map((cutoff) => {
    const wrong = values.filter((value, pair) => (value >= cutoff) !== Boolean(targets[pair]));
    const missed = values.filter((value, pair) => value < cutoff && targets[pair]);
    return [wrong.length, missed.length];
  });
  const accuracy = performance.getMeasure("acc");
  const error = performance.getMeasure("err");
  console.log(`scores ${name}: accuracies up to ${Math.max(...accuracy).toFixed(3)}, where ` +
              `${Math.max(...counts.map(([wrong]) => 1 - wrong / N_PAIRS)).toFixed(3)} is due; ` +
              `error rates up to ${Math.max(...error).toFixed(3)}`);
  assert(isClose(accuracy, counts.map(([wrong]) => (N_PAIRS - wrong) / different.length)));
  assert(isClose(error, counts.map(([wrong, missed]) => missed + (wrong - missed) /
                                                        different.length)));
  const isRight = isClose(accuracy, counts.map(([wrong]) => 1 - wrong / N_PAIRS));
  assert(isRight === (name === "all different") && Math.max(...error) === 100);
  assert(isRight || Math.max(...accuracy) > 10);
  assert(isClose(performance.getMeasure("fnr"), counts.map(([, missed]) => missed / 100)));
}
JAVASCRIPT
node measure.mjs
