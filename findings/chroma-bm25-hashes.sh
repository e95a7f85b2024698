#!/usr/bin/env bash
# chroma-bm25 for JavaScript hashes the low bytes of letters: other indices than in Python, and a
# Russian word is the same as a number.
#
# Versions: @chroma-core/chroma-bm25 0.1.10 (npm, Node.js 20), chromadb 1.5.9 (PyPI), mmh3 5.2.0.
# Guess before the run: a word has the same index in both languages, as the function has one name
#     and one configuration, with which a collection is opened from either; other words have other
#     indices. (Suspected otherwise after reading the source.)
# Seen: Python hashes the word's UTF-8 by MurmurHash3; JavaScript takes `charCodeAt(i) & 0xff` of
#     each letter (src/index.ts). ASCII words agree. 14 words of French, German, Russian, Greek,
#     Chinese and Korean have other indices: what one language has indexed, the other doesn't find.
#     In JavaScript, the Russian letters from а to й are the digits: "где" and 345 are one index, and
#     "вид" and 284; so are the Chinese 国 and 都, and 日 and 工. Nothing is said.
# For gyre: it searches nothing. There, index and search from the same language, and from Python for
#     anything but English.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile mmh3==5.2.0 snowballstemmer==3.0.1
env/bin/pip install --quiet --no-compile --no-deps chromadb==1.5.9
npm install --silent --no-fund --no-audit @chroma-core/chroma-bm25@0.1.10
cat > words.json <<'JSON'
{"ascii": ["cat", "running", "dogs", "345", "284", "mp3", "ally"],
 "others": ["café", "élève", "größe", "über", "где", "вид", "москва", "слово", "λόγος", "猫", "北", "東京",
            "나라", "한국"],
 "pairs": [["где", "345"], ["вид", "284"], ["国", "都"], ["日", "工"]]}
JSON
cat > embed.mjs <<'JAVASCRIPT'
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const { ChromaBm25EmbeddingFunction } = createRequire(import.meta.url)("@chroma-core/chroma-bm25");
const { ascii, others, pairs } = JSON.parse(readFileSync("words.json"));
const texts = [...ascii, ...others, ...pairs.flat()];
const vectors = await new ChromaBm25EmbeddingFunction().generate(texts);
console.log(JSON.stringify(Object.fromEntries(texts.map((text, i) => [text, vectors[i].indices]))));
JAVASCRIPT
node embed.mjs > indices.json
env/bin/python - <<'PYTHON'
import importlib.util
import json
from pathlib import Path

# The module alone: the package imports much that isn't needed here.
root = Path(importlib.util.find_spec("chromadb").submodule_search_locations[0])
path = root / "utils/embedding_functions/schemas/bm25_tokenizer.py"
spec = importlib.util.spec_from_file_location("bm25_tokenizer", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
tokenizer = module.Bm25Tokenizer(
    module.get_english_stemmer(), module.DEFAULT_CHROMA_BM25_STOPWORDS, 40)
hasher = module.Murmur3AbsHasher()


def embed(text):
    return [hasher.hash(token) for token in tokenizer.tokenize(text)]


words = json.loads(Path("words.json").read_text())
indices = json.loads(Path("indices.json").read_text())
for word in words["ascii"]:
    assert embed(word) == indices[word] and len(indices[word]) == 1
print(f"{len(words['ascii'])} ASCII words: the same indices")
for word in words["others"]:
    print(f"{word}: {embed(word)[0]} in Python, {indices[word][0]} in JavaScript")
    assert len(embed(word)) == 1 and embed(word) != indices[word]
for first, second in words["pairs"]:
    print(f"{first} and {second}: {indices[first][0]} and {indices[second][0]} in JavaScript, "
          f"{embed(first)[0]} and {embed(second)[0]} in Python")
    assert indices[first] == indices[second] and embed(first) != embed(second)
PYTHON
