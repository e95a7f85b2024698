#!/usr/bin/env bash
# Formatron drops the other bound of a number if one is 0, and refuses all between 0 and 1.
#
# Versions: formatron 0.5.0, kbnf 0.4.2, pydantic 2.11.7, jsonschema 4.26.0.
# Guess before the run: `minimum` and `maximum`, which it supports, hold together; what it cannot
#     express is an error, as `strict_schema`, on by default, says. (That they do not was suspected
#     after reading the source.)
# Seen: bounds of 0 alone are known, and the first of them decides: by "minimum": 0 and "maximum":
#     10, 999 passes, and by 0 and 1, a probability may be 7.5. Without a 0, as by 1 and 10, there
#     is an error. And a number that has such a bound begins with a digit from 1 to 9, or is 0: 0.5,
#     0.0 and 0.25e1 are refused, so of all probabilities, 0 and 1 alone can be generated.
# For gyre: it decodes without a grammar. There, give an `enum`, or a string with a pattern.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile formatron==0.5.0 kbnf==0.4.2 pydantic==2.11.7 \
    general_sam==1.0.5 jsonschema==4.26.0 frozendict==2.5.1
env/bin/python -W ignore - <<'PYTHON'
import json

import jsonschema
import kbnf
from formatron.formatter import FormatterBuilder
from formatron.schemas.json_schema import create_schema

VOCABULARY = kbnf.Vocabulary({byte: kbnf.Token(bytes([byte])) for byte in range(256)},
                             {byte: chr(byte) for byte in range(256)})


def accept(schema, text):
    """Return whether the engine lets the number `text` through as the value of a property."""
    schema = {"$id": "https://example.com/schema", "type": "object", "properties": {"key": schema},
              "$schema": "https://json-schema.org/draft/2020-12/schema", "required": ["key"]}
    builder = FormatterBuilder()
    builder.append_str(f"{builder.json(create_schema(schema), capture_name='json')}")
    engine = builder.build(VOCABULARY, lambda tokens: bytes(tokens).decode())._engine
    try:
        for byte in ('{"key":' + text + "}").encode():
            engine.try_accept_new_token(byte)
    except ValueError:  # rejected
        return False
    return engine.is_finished()


def is_valid(schema, text):
    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


cases = [
    ({"type": "number"}, ["0", "0.5", "-7.5", "0.25e1"], []),
    ({"type": "integer", "minimum": 0}, ["0", "5", "999", "-1"], []),
    ({"type": "integer", "minimum": 0, "maximum": 10}, ["0", "10", "11", "999", "-1"],
     ["11", "999"]),
    ({"type": "integer", "minimum": -5, "maximum": 0}, ["0", "-5", "-999", "1"], ["-999"]),
    ({"type": "number", "minimum": 0}, ["0", "1.5", "0.5", "0.0", "0.25e1"],
     ["0.5", "0.0", "0.25e1"]),
    ({"type": "number", "minimum": 0, "maximum": 1}, ["0", "1", "0.5", "0.99", "7.5", "100"],
     ["0.5", "0.99", "7.5", "100"]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, ["0", "1", "0.5", "7.5"],
     ["0.5", "7.5"]),
]
for schema, numbers, wrong in cases:
    seen = {number: accept(schema, number) for number in numbers}
    due = {number: is_valid(schema, number) for number in numbers}
    print(f"{schema}: " + ", ".join(
        f"{number} {'passes' if seen[number] else 'is refused'}"
        + ("" if seen[number] == due[number] else " (WRONG)") for number in numbers))
    assert [number for number in numbers if seen[number] != due[number]] == wrong
try:
    accept({"type": "integer", "minimum": 1, "maximum": 10}, "5")
    raise SystemExit("bounds without a 0 are no error")
except ValueError as error:
    print(f"from 1 to 10: {error}")

hundred = [f"{number / 100:g}" for number in range(101)]
passed = [number for number in hundred
          if accept({"type": "number", "minimum": 0, "maximum": 1}, number)]
print(f"of 0, 0.01, ..., 1, {passed} pass")
assert passed == ["0", "1"]
PYTHON
