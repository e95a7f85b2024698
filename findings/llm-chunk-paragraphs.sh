#!/usr/bin/env bash
# llm-chunk glues paragraphs together in pairs, word to word, and its last chunk has no maximum.
#
# Version: llm-chunk 0.0.1 (npm).
# Guess before the run: the chunks have all words of the text, and no chunk is longer than `maxLength` and a word.
# Seen: "alpha", "beta", "gamma", "delta" and "epsilon", a paragraph each, give "alphabeta", "gammadelta" and "epsilon".
#     Of 20 paragraphs of 100 words, 10 pairs of words are one word each, "w99w100". A paragraph of 10,889 characters gives
#     chunks of 1,004, 1,000 and 8,885 with the default `maxLength` of 1,000. With `splitter: "sentence"`, no words are
#     glued, and the last chunk has no maximum either. (An example of the README shows a last chunk of 38 for 9.)
# Cause: parts are taken two by two, as text and delimiter, and the pattern for paragraphs keeps no delimiter; what is left at
#     the end is cut once only (dist/index.js, `chunk`). No issue was found.
# For gyre: it has no retrieval. There, give `delimiters: "(\\n{2,})"`, and cut the last chunk again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME="$folder"
npm install --silent --no-fund --no-audit llm-chunk@0.0.1
cat > chunks.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { chunk } from "llm-chunk";

const short = ["alpha", "beta", "gamma", "delta", "epsilon"].join("\n\n");
console.log(chunk(short));
assert.deepEqual(chunk(short), ["alphabeta", "gammadelta", "epsilon"]);
assert.deepEqual(chunk(short, { delimiters: "(\\n{2,})" }).map(text => text.trim()), short.split("\n\n"));

const words = Array.from({ length: 2000 }, (_, number) => `w${number}`);
const paragraphs = Array.from({ length: 20 }, (_, number) => words.slice(100 * number, 100 * (number + 1)).join(" "));

function findGlued(chunks) {
  return chunks.join(" ").split(/\s+/).filter(word => word && !words.includes(word));
}

const glued = findGlued(chunk(paragraphs.join("\n\n")));
console.log(`${glued.length} pairs of words are one: ${glued}`);
assert.equal(glued.length, 10);
assert.deepEqual(glued, Array.from({ length: 10 }, (_, number) => `w${200 * number + 99}w${200 * number + 100}`));
assert.equal(findGlued(chunk(paragraphs.join("\n\n"), { splitter: "sentence" })).length, 0);

const long = words.join(" ");
for (const splitter of ["paragraph", "sentence"]) {
  const lengths = chunk(long, { splitter }).map(text => text.length);
  console.log(`${long.length} characters without a break, by ${splitter}: chunks of ${lengths}`);
  assert.deepEqual(lengths, [1004, 1000, 8885]);
}
JAVASCRIPT
node chunks.mjs
