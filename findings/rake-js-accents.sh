#!/usr/bin/env bash
# rake-js cuts words at accents in the languages that it supports, and a word's score lacks its frequency.
#
# Version: rake-js 0.1.1 (Node.js 20); @simonjb/rake-js 0.1.2 has the same source.
# Guess before the run: Spanish keywords are words of the text, and a word's score is its degree divided
#     by its frequency, as in the paper that the README links. (Suspected after reading the source.)
# Seen: letters other than a to z, ä, ö, ü and ß count as punctuation, which ends the phrase, and letters
#     alone are removed: of "la situación económica", the keyword is "situaci", and "montañas" is "monta
#     as". The README lists Spanish, Italian, Portuguese and Swedish. The degree is divided by the number
#     of different words beside the word, not by how often it occurs: a word that is alone ten times
#     scores 10 for 1, and the words of a phrase that occurs once 1 for its length. For the abstract
#     that the paper takes as its example, "linear diophantine equations", second with 8.5, is not among
#     the keywords, and "systems" and "solutions", with 1 there, are first.
# For gyre: nothing. There, strip the accents before, and for German or English only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit rake-js@0.1.1
cat > extract.js <<'JAVASCRIPT'
const assert = require("node:assert");
const rake = require("rake-js").default;
const WordMatrix = require("rake-js/dist/lib/data_structures/word_matrix").default;

const spanish = "La situación económica de la región mejoró. La población española crece en las montañas.";
let keywords = rake(spanish, { language: "spanish" });
console.log(spanish, keywords);
const words = spanish.toLowerCase().match(/\p{L}+/gu);
assert(keywords.includes("situaci"));
assert(keywords.every((phrase) => phrase.split(" ").some((word) => !words.includes(word))));
const german = "Die schöne Straße führt über eine große Brücke.";
keywords = rake(german, { language: "german" });
console.log(german, keywords);
assert(keywords.every((phrase) => german.toLowerCase().includes(phrase)));

// Ten times a word alone, and once a phrase of three words, in which each word has a degree of 3.
const matrix = new WordMatrix(["water", "a", "b", "c"]);
for (let i = 0; i < 10; i++) matrix.process(["water"]);
matrix.process(["a", "b", "c"]);
const scores = matrix.calculateScores();
console.log("scores of the words:", scores, "due: 1 and three times 3");
assert(scores.water === 10 && scores.a === 1);

const abstract = "Compatibility of systems of linear constraints over the set of natural numbers. Criteria of " +
  "compatibility of a system of linear Diophantine equations, strict inequations, and nonstrict inequations are " +
  "considered. Upper bounds for components of a minimal set of solutions and algorithms of construction of minimal " +
  "generating sets of solutions for all types of systems are given. These criteria and the corresponding algorithms " +
  "for constructing a minimal supporting set of solutions can be used in solving all the considered types of " +
  "systems and systems of mixed types.";
keywords = rake(abstract, { language: "english" });
console.log("keywords of the paper's example:", keywords);
assert(keywords[0] === "systems" && keywords[1] === "solutions");
assert(!keywords.includes("linear diophantine equations") && !keywords.includes("linear constraints"));
JAVASCRIPT
node extract.js
