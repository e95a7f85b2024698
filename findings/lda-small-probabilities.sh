#!/usr/bin/env bash
# The npm package lda lists a topic's least likely words first if they are below one in a million.
#
# Version: lda 0.2.0 (Node.js 20).
# Guess before the run: the terms of a topic are its most likely ones, whatever `beta` is and however long the
#     texts are. (That they might not be was suspected after reading the source.)
# Seen: probabilities are sorted as text, where "6.9e-7" comes after "0.21". As soon as a word has less than
#     1e-6, the list begins with such words, and is cut: with beta=0.0001 every topic is empty, and with 0.000001
#     it has the words of the other topic, with 7e-9. With the default of 0.01, a topic of 10,200 words is
#     empty too. The fit itself is right.
# For gyre: it models no topics. There, give a larger beta.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit lda@0.2.0
cat > topics.cjs <<'JAVASCRIPT'
const assert = require("node:assert");
const lda = require("lda");

const ANIMALS = ["horse", "zebra", "camel", "otter", "tiger", "panda"];
const TOOLS = ["hammer", "wrench", "chisel", "shovel", "ladder", "anvil"];
let state = 1;
const uniform = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
};
const write = (n, length, words) => Array.from({ length: n }, () =>
  Array.from({ length }, () => words[Math.floor(words.length * uniform())]).join(" "));

function show(name, topics) {
  console.log(name);
  topics.forEach((topic) => console.log(`    ${topic.map((row) => `${row.term} ${row.probability}`).join(", ")}`));
}

const texts = [...write(12, 12, ANIMALS), ...write(12, 12, TOOLS)];
for (const beta of [0.01, 0.001, 0.0001, 0.000001]) {
  const topics = lda(texts, 2, 4, ["en"], 0.1, beta, 1);
  show(`beta=${beta}:`, topics);
  if (beta >= 0.001) topics.forEach((topic) => assert(topic.length === 4 && topic[3].probability > 0.05));
  if (beta === 0.0001) topics.forEach((topic) => assert(topic.length === 0));
  if (beta === 0.000001) topics.forEach((topic) => assert(topic.length && topic[0].probability < 1e-6));
}
const long = lda([...write(102, 100, ANIMALS), ...write(3, 100, TOOLS)], 2, 4, ["en"], 0.1, 0.01, 1);
show("10,200 words about animals, 300 about tools, beta=0.01:", long);
assert(long.some((topic) => topic.length === 0) && long.some((topic) => topic.length === 4));
JAVASCRIPT
node topics.cjs
