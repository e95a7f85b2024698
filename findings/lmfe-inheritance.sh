#!/usr/bin/env bash
# In lm-format-enforcer, a schema that extends another by allOf and $ref forgets it, or itself.
#
# Versions: lm-format-enforcer 0.11.3, interegular 0.3.3, pydantic 2.14.4, packaging 26.4,
#     pyyaml 6.0.3.
# Guess before the run: an object of `allOf: [{"$ref": base}, {own keys}]`, which is how OpenAPI
#     writes inheritance, has the keys of both, and so has one with its own keys beside `allOf` or
#     `anyOf`. (That keys might be dropped was suspected after reading the source.)
# Seen: references are not followed before schemas are merged, so that the base has no keys: its
#     keys are refused, and those that it requires are not asked for. What stands beside `allOf`
#     or `anyOf` is dropped: there, the object's own keys are refused. Each valid object of the
#     test is refused, and an invalid one passes, in silence. With the base written out inside
#     `allOf`, and with own keys beside `oneOf`, all is right.
# For gyre: it decodes without a grammar. There, write all keys into one schema.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pydantic==2.14.4 interegular==0.3.3 \
    packaging==26.4 pyyaml==6.0.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lm-format-enforcer==0.11.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import json
from copy import deepcopy

from lmformatenforcer import JsonSchemaParser


def passes(schema, value):
    """Return whether the value passes, with its keys in this order."""
    parser = JsonSchemaParser(deepcopy(schema))
    for character in json.dumps(value):
        if character not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(character)
    return parser.can_end()


def has_type(value, schema):
    return isinstance(value, {"integer": int, "string": str}[schema["type"]])


def is_valid(parts, value):
    """Return whether an object has the required keys and types of all parts."""
    return all(key in value and has_type(value[key], schema)
               for part in parts for key, schema in part["properties"].items())


base = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
own = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
reference = {"$ref": "#/$defs/Base"}
both, only_id, only_name = {"id": 1, "name": "a"}, {"id": 1}, {"name": "a"}
for name, schema, seen in [
        ("allOf, written out", {"allOf": [base, own]}, [both]),
        ("own keys beside oneOf", {**own, "oneOf": [base]}, [both]),
        ("allOf with a reference", {"allOf": [reference, own]}, [only_name]),
        ("own keys beside allOf", {**own, "allOf": [base]}, [only_id]),
        ("own keys beside allOf with a reference", {**own, "allOf": [reference]}, [only_id]),
        ("own keys beside anyOf", {**own, "anyOf": [base]}, [only_id])]:
    values = [both, dict(reversed(both.items())), only_id, only_name, {}]
    due = [value for value in values if is_valid([base, own], value)]
    passed = [value for value in values if passes({"$defs": {"Base": base}, **schema}, value)]
    print(f"{name}: {json.dumps(passed)} passes, where {json.dumps(due)} is due")
    assert due == [both, both]
    assert passed == (due if seen == [both] else seen)
PYTHON
