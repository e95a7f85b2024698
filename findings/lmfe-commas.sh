#!/usr/bin/env bash
# lm-format-enforcer lets objects end in a comma, and numbers in "1.e5": no JSON parser reads them.
#
# Versions: lm-format-enforcer 0.11.3, interegular 0.3.3, pydantic 2.14.4, packaging 26.4,
#     pyyaml 6.0.3.
# Guess before the run: what JsonSchemaParser lets through is JSON. (That a comma may be the last
#     character of an object was suspected after reading the source.)
# Seen: of all texts of at most 7 of the characters {}":,1 that it lets through without a schema,
#     the ones with a comma before the last brace are not JSON; all others are. So it is in each
#     object to which another key may be added: with keys that are not required, and without a list
#     of keys. Where all keys are required, there is none, nor in lists. Of numbers of at most 5
#     characters, those with an exponent behind a bare point, like 1.e1, are not JSON.
# For gyre: it decodes without a grammar. There, make all keys required, and values null instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pydantic==2.14.4 interegular==0.3.3 \
    packaging==26.4 pyyaml==6.0.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lm-format-enforcer==0.11.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import json
import re

from lmformatenforcer import JsonSchemaParser


def enumerate_texts(parser, alphabet, n_left, text=""):
    """Yield all texts of at most `n_left` characters that the parser lets through."""
    if parser.can_end():
        yield text
    if n_left:
        allowed = parser.get_allowed_characters()
        for character in alphabet:
            if character in allowed:
                yield from enumerate_texts(parser.add_character(character), alphabet, n_left - 1,
                                           text + character)


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def passes(schema, text):
    parser = JsonSchemaParser(schema)
    for character in text:
        if character not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(character)
    return parser.can_end()


for name, schema, alphabet, n, pattern in [
        ("objects without a schema", None, '{}":,1', 7, r",\}$"),
        ("numbers", {"type": "number"}, "-+.e01", 5, r"\.e"),
        ("lists", {"type": "array", "items": {"type": "integer"}}, "[],1", 6, None)]:
    texts = list(enumerate_texts(JsonSchemaParser(schema), alphabet, n))
    wrong = [text for text in texts if not is_json(text)]
    print(f"{name}: {len(texts)} texts, {len(wrong)} are not JSON: {' '.join(wrong[:8])}")
    assert len(texts) > 5
    assert bool(wrong) == bool(pattern)
    assert wrong == [text for text in texts if pattern and re.search(pattern, text)]

properties = {"loss": {"type": "number"}, "note": {"type": "string"}}
for required in [["loss"], ["loss", "note"]]:
    schema = {"type": "object", "properties": properties, "required": required}
    full = '{"loss": 1.5, "note": "low"'
    seen = [passes(schema, text) for text in ['{"loss": 1.5}', '{"loss": 1.5,}', full + "}",
                                              full + ",}"]]
    print(f"required {required}: one key passes: {seen[0]}, with a comma behind it: {seen[1]}; "
          f"both keys pass: {seen[2]}, with a comma behind them: {seen[3]}")
    assert seen == [len(required) == 1, len(required) == 1, True, False]
PYTHON
