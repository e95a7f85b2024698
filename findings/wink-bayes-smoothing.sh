#!/usr/bin/env bash
# wink's naive Bayes without smoothing counts a word that a label never had as certain.
#
# Version: wink-naive-bayes-text-classifier 2.2.1 (npm, Node.js 20).
# Guess before the run: with a smoothingFactor of 0, which is allowed, a word that one label has only
#     speaks for that label, as it does with 0.001. (Suspected otherwise after reading the source.)
# Seen: the logarithm of a frequency of 0 is replaced by 0, that of 1 (`logLikelihood`). A word is thus
#     worth more to a label the less it was there. A text of words that one label has only is
#     "unknown". Of 100 messages, half of whose words are of one of two topics, and half of both, 100
#     have the label of the other topic, where all are right with 0.001. Nothing is said.
# For gyre: it classifies no texts. There, give a small number instead of 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit wink-naive-bayes-text-classifier@2.2.1
cat > classify.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const makeClassifier = require("wink-naive-bayes-text-classifier");

const TOPICS = {
  sport: "ball goal team player match score referee league".split(" "),
  food: "bread cheese wine soup salt spoon pepper oven".split(" "),
};
const SHARED = "the a today we they was good very".split(" ");
let state = 1;
function draw(words) {
  state = (state * 48271) % 2147483647;
  return words[Math.floor(state / 2147483647 * words.length)];
}

// Return a text of words of the topic and of words that all topics have.
function makeText(topic) {
  return Array.from({ length: 8 }, (_, i) => draw(i % 2 === 0 ? TOPICS[topic] : SHARED)).join(" ");
}

const names = Object.keys(TOPICS);
const train = Array.from({ length: 100 }, (_, i) => [makeText(names[i % 2]), names[i % 2]]);
const test = Array.from({ length: 100 }, (_, i) => [makeText(names[i % 2]), names[i % 2]]);
for (const smoothingFactor of [1, 0.001, 0]) {
  const classifier = makeClassifier();
  classifier.defineConfig({ considerOnlyPresence: false, smoothingFactor });
  classifier.definePrepTasks([(text) => text.split(" ")]);
  for (const [text, topic] of train) classifier.learn(text, topic);
  classifier.consolidate();
  const count = (condition) => test.filter(
    ([text, topic]) => condition(classifier.predict(text), topic)).length;
  const right = count((found, topic) => found === topic);
  const other = count((found, topic) => found !== topic && found !== "unknown");
  const [first] = classifier.computeOdds("goal team");
  console.log(`smoothing ${smoothingFactor}: ${right} % right, ${other} % of the other topic; ` +
              `"goal team" is ${first[0]} with ${first[1].toFixed(1)}`);
  if (smoothingFactor > 0) assert(right === 100 && first[0] === "sport");
  else assert(other > 90 && first[0] === "unknown");
}
JAVASCRIPT
node classify.cjs
