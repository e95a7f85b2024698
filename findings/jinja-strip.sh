#!/usr/bin/env bash
# Chat templates in JavaScript: strip("\n") removes spaces too.
#
# Versions: @huggingface/jinja 0.5.11 (Node.js 20), beside Jinja2 3.1.6.
# Guess before the run: strip, lstrip and rstrip with characters do in JavaScript what they do in
#     Python, or raise. Published templates use them to cut a reasoning part off an answer.
# Seen: the argument is ignored in silence. All white space goes, so code that follows the
#     reasoning loses the indentation of its first line.
# For gyre: formats/chat.py renders with Jinja2, as the authors of a template do. Ids of a prompt
#     that was rendered in a browser may differ from gyre's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile jinja2==3.1.6
npm install --silent --no-fund --no-audit @huggingface/jinja@0.5.11
cat > cases.json <<'JSON'
{"answer": "<think>\nsum\n</think>\n\n    return a + b\n",
 "templates": ["{{ answer.split('</think>')[-1].lstrip('\\n') }}",
               "{{ answer.split('</think>')[-1].rstrip('b\\n') }}",
               "{{ 'xxaxx'.strip('x') }}"]}
JSON
cat > render.mjs <<'JAVASCRIPT'
import { readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";
const cases = JSON.parse(readFileSync("cases.json", "utf-8"));
const render = (source) => new Template(source).render({ answer: cases.answer });
const texts = cases.templates.map(render);
console.log(JSON.stringify(texts));
JAVASCRIPT
node render.mjs > javascript.json
env/bin/python - <<'PYTHON'
import json

import jinja2

with open("cases.json", encoding="utf-8") as file:
    cases = json.load(file)
with open("javascript.json", encoding="utf-8") as file:
    javascript = json.load(file)
python = [jinja2.Template(source, keep_trailing_newline=True).render(answer=cases["answer"])
          for source in cases["templates"]]
for source, here, there in zip(cases["templates"], python, javascript, strict=True):
    print(f"{source}\n    Jinja2: {here!r}\n    JavaScript: {there!r}")

assert python == ["    return a + b\n", "\n\n    return a + ", "a"]
assert javascript == ["return a + b\n", "\n\n    return a + b", "xxaxx"]
PYTHON
