#!/usr/bin/env bash
# chonkiejs' RecursiveChunker puts spaces in place of letters behind an umlaut or a euro sign.
#
# Versions: @chonkiejs/core 0.0.11, @chonkiejs/chunk 0.9.3 (npm).
# Guess before the run: chunks differ from the text in white space only, and lie where `startIndex` says.
# Seen: with chunks of 40 characters, "Price is 5 € here. And then 7 €" comes back as "Price is 5 € h re. A d t en 7 €". Of
#     a sentence of 300 words that begins with "€", 299 letters are lost, one in each word, and as many spaces stand within
#     words; of the same sentence with "$", none is. The lengths are right, so that `startIndex` and `endIndex`
#     point at whole words. TokenChunker and SentenceChunker are right, and so is RecursiveChunker for Japanese without
#     spaces, and where a whole paragraph fits.
# Cause: words are looked for in UTF-8, and the places of bytes are used as places of characters (dist/recursive.js,
#     `text.slice` of the results of `split_offsets`). chonkie 1.7.0 for Python gives the text back (its FastChunker had such a fault: pull request 440).
# For gyre: it cuts tokens, not texts. There, take SentenceChunker.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME="$folder"
npm install --silent --no-fund --no-audit @chonkiejs/core@0.0.11 @chonkiejs/chunk@0.9.3
cat > chunks.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { RecursiveChunker, SentenceChunker, TokenChunker } from "@chonkiejs/core";

const options = { chunkSize: 40, tokenizer: "character" };
const recursive = await RecursiveChunker.create(options);
const others = [await SentenceChunker.create({ ...options, chunkOverlap: 0 }), await TokenChunker.create({ ...options, chunkOverlap: 0 })];
const squeeze = text => text.replace(/\s+/g, "");

async function join(chunker, text) {
  return (await chunker.chunk(text)).map(chunk => chunk.text).join("");
}

const price = "Price is 5 € here. And then 7 € there, for all the things that we buy. So 12 € it is in the end, or is it more? No.";
console.log((await recursive.chunk(price)).map(chunk => chunk.text));
assert((await join(recursive, price)).startsWith("Price is 5 € h re. A d t en 7 € the"));

const words = Array.from({ length: 300 }, (_, number) => `word${String(number).padStart(3, "0")}`);
for (const [sign, due] of [["$", 0], ["€", 299]]) {
  const text = `${sign}${words.join(" ")}.`;
  const chunks = await recursive.chunk(text);
  const joined = chunks.map(chunk => chunk.text).join("");
  const lost = squeeze(text).length - squeeze(joined).length;
  const whole = joined.split(/\s+/).filter(word => words.includes(word.replace(/\W/g, ""))).length;
  console.log(`"${sign}" in front: ${lost} of ${squeeze(text).length} letters are lost, ${whole} of ${words.length} words are whole`);
  assert.equal(lost, due);
  assert(due === 0 ? whole > 250 : whole < 20);
  for (const other of others) {
    assert.equal(squeeze(await join(other, text)), squeeze(text));
  }
}

for (const text of ["Grüße aus Köln. Schöne Tage für alle hier. Größe und Maß über alles. Das Ende ist schon ganz nah, später mehr."]) {
  const chunks = await recursive.chunk(text);
  console.log(chunks.map(chunk => chunk.text));
  assert(chunks[0].text.startsWith("Grüße a s K ln. Sc öne Tag"));
  assert.equal(chunks[0].startIndex, 0);
  assert(text.slice(chunks[0].startIndex, chunks[0].endIndex).startsWith("Grüße aus Köln. Schöne Tage"));
}
const japanese = "日本語のテキストです。これは二番目の文です。三番目の文もあります。最後の文はここにあります。もう一つあります。";
assert.equal(await join(recursive, japanese), japanese);
assert.equal(await join(recursive, "Grüße aus Köln."), "Grüße aus Köln.");
JAVASCRIPT
node chunks.mjs
