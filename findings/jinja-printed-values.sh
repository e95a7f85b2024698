#!/usr/bin/env bash
# What a chat template prints of None, True or a dictionary is another text in JavaScript.
#
# Versions: @huggingface/jinja 0.5.11 (Node.js 20), beside Jinja2 3.1.6.
# Guess, written down after a first look: a value that a template prints has the text that Jinja2 gives it, which
#     was in the training data, or raises an error.
# Seen: an assistant's message with tool calls has None as its content: "None" in Python, nothing in JavaScript.
#     Arguments of a call are {'metric': True, 'unit': None} or {"metric": true, "unit": null}, and line by line
#     "True" or "true". -7 % 3 is 2 or -1, so that turns that are counted from a difference of indices may change
#     sides; `int` of -3.5 is -3 or -4; `capitalize` and `title` leave the letters behind the first one as they are.
#     No error is raised. Behind `tojson`, all is alike.
# Cause: `toString` of each value class is JavaScript's or JSON, and null values render as nothing; `%` and `Math.floor`
#     are used as they are (dist/index.js).
# For gyre: it renders with Jinja2. For browsers, a template writes `tojson` and tests `content` before it prints it.
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

CALL = {"name": "weather", "arguments": {"city": "Oslo", "metric": True, "unit": None, "days": 2}}
CONTEXT = {"messages": [{"role": "user", "content": "Rain?"},
                        {"role": "assistant", "content": None, "tool_calls": [CALL]}]}
CALLS = "{% for call in messages[1].tool_calls %}"
TEMPLATES = {
    "content": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    "arguments": CALLS + "{{ call.arguments }}{% endfor %}",
    "lines": CALLS + "{% for key, value in call.arguments.items() %}{{ key }}: {{ value }}; {% endfor %}{% endfor %}",
    "joined": CALLS + "{{ call.arguments.values() | join(', ') }}{% endfor %}",
    "concatenated": "{{ 'strict: ' ~ messages[1].tool_calls[0].arguments.metric }}",
    "remainder": "{{ (1 - messages | length * 4) % 3 }}",
    "int": "{{ (0 - 3.5) | int }}",
    "capitalize": "{{ 'iPhone' | capitalize }} {{ 'iPhone' | title }}",
    "tojson": CALLS + "{{ call.arguments | tojson }}{% endfor %}",
    "more tojson": "{{ messages[1].content | tojson }} {{ [true, none, 'a'] | tojson }}",
    "text": "{{ messages[0].content }} {{ messages | length }} {{ 7 / 2 }} {{ 7 // 2 }} {{ ['a', 1] | join(', ') }}",
}
environment = Environment()
environment.filters["tojson"] = json.dumps  # as transformers does
print(json.dumps({"context": CONTEXT, "cases": [
    [name, template, environment.from_string(template).render(CONTEXT)] for name, template in TEMPLATES.items()]}))
PYTHON
cat > render.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";

const { context, cases } = JSON.parse(readFileSync("cases.json", "utf8"));
const found = {};
for (const [name, template, python] of cases) {
  const javascript = new Template(template).render(context);
  console.log(`${name}: ${python === javascript ? "equal" : `${python} | ${javascript}`}`);
  found[name] = [python, javascript];
}
const equal = Object.keys(found).filter(name => found[name][0] === found[name][1]);
assert.deepEqual(equal, ["tojson", "more tojson", "text"]);
assert.deepEqual(found.content, ["<user>Rain?<assistant>None", "<user>Rain?<assistant>"]);
assert.deepEqual(found.remainder, ["2", "-1"]);
assert.deepEqual(found.int, ["-3", "-4"]);
assert(found.arguments[1].startsWith('{"city": "Oslo", "metric": true, "unit": null'));
JAVASCRIPT
node render.mjs
