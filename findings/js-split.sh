#!/usr/bin/env bash
# The JavaScript tokenizer ignores how a Split treats its delimiter.
#
# Versions: @huggingface/tokenizers 0.2.0 (Node.js 20), beside tokenizers 0.23.3.
# Guess before the run: both libraries are by one publisher and read one tokenizer.json. Text
#     without special tokens gets the same ids.
# Seen: a Split isolates its delimiter whatever its `behavior` says. "MergedWithPrevious" and
#     "MergedWithNext" do not merge it, and "Contiguous" does not join a run of it. "Removed"
#     removes it if the pattern is a Regex, and keeps it if it is a String. No error, no warning.
# For gyre: what it writes (formats/gguf_tokenizers.py) has "isolated" only, which is right. The
#     tokenizer of somebody else's model may give other ids in a browser.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile tokenizers==0.23.3
npm install --silent --no-fund --no-audit @huggingface/tokenizers@0.2.0
env/bin/python - <<'PYTHON'
import json

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

VOCABULARY = {"a": 0, "b": 1, " ": 2, "a ": 3, " b": 4, "  ": 5}
MERGES = [("a", " "), (" ", "b"), (" ", " ")]
TEXTS = {"removed": "a b", "merged_with_previous": "a b", "merged_with_next": "a b",
         "contiguous": "a  b"}

cases = []
for kind, pattern in {"String": " ", "Regex": Regex(" ")}.items():
    for behavior, text in TEXTS.items():
        tokenizer = Tokenizer(models.BPE(vocab=VOCABULARY, merges=MERGES))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior)
        cases.append({"kind": kind, "behavior": behavior, "text": text,
                      "pieces": tokenizer.encode(text).tokens,
                      "tokenizer": json.loads(tokenizer.to_str())})
with open("cases.json", "w", encoding="utf-8") as file:
    json.dump(cases, file)
PYTHON
cat > encode.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";
const seen = {};
for (const entry of JSON.parse(readFileSync("cases.json", "utf-8"))) {
  const tokenizer = new Tokenizer(entry.tokenizer, {});
  const pieces = tokenizer.encode(entry.text).tokens;
  const name = `${entry.kind} ${entry.behavior}`;
  console.log(name, "Rust", JSON.stringify(entry.pieces), "JavaScript", JSON.stringify(pieces));
  seen[name] = [entry.pieces.join("|"), pieces.join("|")];
}
assert.deepStrictEqual(seen, {
  "String removed": ["a|b", "a| |b"],
  "String merged_with_previous": ["a |b", "a| |b"],
  "String merged_with_next": ["a| b", "a| |b"],
  "String contiguous": ["a|  |b", "a| | |b"],
  "Regex removed": ["a|b", "a|b"],
  "Regex merged_with_previous": ["a |b", "a| |b"],
  "Regex merged_with_next": ["a| b", "a| |b"],
  "Regex contiguous": ["a|  |b", "a| | |b"],
});
JAVASCRIPT
node encode.mjs
