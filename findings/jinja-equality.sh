#!/usr/bin/env bash
# In a chat template, JavaScript says that two equal lists differ, and that "1" == 1.
#
# Versions: @huggingface/jinja 0.5.11 (Node.js 20), beside Jinja2 3.1.6.
# Guess before the run: an expression of a chat template has the value that it has in Jinja2, or
#     raises an error. (That empty lists might be true there was suspected. They are false.)
# Seen: `==` and `!=` are JavaScript's. Lists and dictionaries are equal only if they are the same
#     object, so `tool_calls != []` is true of every list, also of the empty one, and a dictionary
#     is not `in` a list that has an equal one. A number equals the text that spells it, and a list
#     of one text equals that text. No error: the prompt has another branch of the template.
# For gyre: it renders with Jinja2. A template that compares lists renders otherwise in a browser;
#     there, test the length.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile Jinja2==3.1.6
npm install --silent --no-fund --no-audit @huggingface/jinja@0.5.11
env/bin/python - > cases.json <<'PYTHON'
import json

from jinja2 import Environment

MESSAGES = [{"role": "user", "content": "3", "tool_calls": []},
            {"role": "assistant", "content": ["hi"], "tool_calls": [{"name": "f"}]}]
TEMPLATES = {
    "no calls": "{% for m in messages %}{{ 'call' if m.tool_calls != [] else '-' }} {% endfor %}",
    "lists": "{{ 'same' if [1, 2] == [1, 2] else 'other' }}",
    "dictionaries": "{{ 'same' if {'a': 1} == {'a': 1} else 'other' }}",
    "in": "{{ 'in' if {'name': 'f'} in messages[1].tool_calls else 'out' }}",
    "number and text": "{{ 'same' if messages[0].content == 3 else 'other' }}",
    "list and text": "{{ 'same' if messages[1].content == 'hi' else 'other' }}",
    "one object": "{{ 'same' if messages[0] == messages[0] else 'other' }}",
    "texts": "{{ 'same' if 'a' == 'a' else 'other' }}"}
rendered = {name: Environment().from_string(text).render(messages=MESSAGES)
            for name, text in TEMPLATES.items()}
print(json.dumps({"messages": MESSAGES, "templates": TEMPLATES, "rendered": rendered}))
PYTHON
cat > render.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";
const { messages, templates, rendered } = JSON.parse(readFileSync("cases.json", "utf-8"));
const seen = {};
for (const [name, text] of Object.entries(templates)) {
  seen[name] = [rendered[name], new Template(text).render({ messages })];
  console.log(`${text}: Python "${seen[name][0]}", JavaScript "${seen[name][1]}"`);
}
assert.deepStrictEqual(seen, {
  "no calls": ["- call ", "call call "],
  "lists": ["same", "other"],
  "dictionaries": ["same", "other"],
  "in": ["in", "out"],
  "number and text": ["other", "same"],
  "list and text": ["other", "same"],
  "one object": ["same", "same"],
  "texts": ["same", "same"],
});
JAVASCRIPT
node render.mjs
