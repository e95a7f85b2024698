#!/usr/bin/env bash
# In lm-format-enforcer, a value that may be null has no other constraint left.
#
# Versions: lm-format-enforcer 0.11.3, interegular 0.3.3, pydantic 2.14.4, packaging 26.4,
#     pyyaml 6.0.3.
# Guess before the run: `"type": ["string", "null"]` lets null through besides what "string" does:
#     the length, the items and the keys that the schema asks for hold as before. (That they might
#     not was suspected after reading the source.)
# Seen: for a list of types, a schema is made from each type alone. A text may have any length and
#     any characters, a list any items and any number of them, and an object any keys and none of
#     those required, in silence. With `anyOf`, which pydantic writes for Optional, all is well.
# For gyre: it decodes without a grammar. There, write `anyOf` with null as the second schema.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pydantic==2.14.4 interegular==0.3.3 \
    packaging==26.4 pyyaml==6.0.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lm-format-enforcer==0.11.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import json

from lmformatenforcer import JsonSchemaParser


def passes(schema, value):
    """Return whether an object with this value passes."""
    parser = JsonSchemaParser({"type": "object", "properties": {"x": schema}, "required": ["x"]})
    for character in json.dumps({"x": value}):
        if character not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(character)
    return parser.can_end()


cases = [
    ({"type": "string", "maxLength": 3}, "low", ["much too long"]),
    ({"type": "string", "minLength": 3}, "low", [""]),
    ({"type": "string", "pattern": "[0-9]{4}"}, "2024", ["none"]),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1, 2],
     [[1, 2, 3], ["one"], [{"a": 1}]]),
    ({"type": "object", "properties": {"loss": {"type": "number"}}, "required": ["loss"]},
     {"loss": 1.5}, [{}, {"los": 1.5}, {"loss": "low"}]),
]
for schema, good, bad in cases:
    nullable = {**schema, "type": [schema["type"], "null"]}
    either = {"anyOf": [schema, {"type": "null"}]}
    for name, variant in [("plain", schema), ("type list", nullable), ("anyOf", either)]:
        passed = [value for value in bad if passes(variant, value)]
        print(f"{json.dumps(schema)}, {name}: {json.dumps(good)} passes: {passes(variant, good)}; "
              f"null: {passes(variant, None)}; of {json.dumps(bad)}, {len(passed)}")
        assert passes(variant, good) and passes(variant, None) == (name != "plain")
        assert passed == (bad if name == "type list" else [])
PYTHON
