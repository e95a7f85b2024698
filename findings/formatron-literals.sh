#!/usr/bin/env bash
# Formatron takes the strings of an `enum` and the names of properties for regular expressions.
#
# Versions: formatron 0.5.0, kbnf 0.4.2, pydantic 2.11.7, jsonschema 4.26.0.
# Guess before the run: with a JSON schema, all that can be generated is valid by the schema, and
#     each value of an `enum` can be. (That strings are not escaped was suspected after reading the
#     source.)
# Seen: `enum: ["yes?", "no"]` lets "yes" and "ye" through, and not "yes?". "C++" becomes "C" or
#     "CC", "(none)" becomes "none", "v1.0" may be "v1x0", "$5" cannot be generated at all, and
#     "a|b" gives a string without a quote at its end, which is no JSON. Names of properties are the
#     same: "size?" becomes "siz". So is a `pattern` with an alternative: by "cat|dog", the value is
#     `"cat` or `dog"`. In a group, as "(cat|dog)", it is right, and so are letters, digits and
#     spaces.
# For gyre: it decodes without a grammar. There, write `[.]` for a dot, and so on, in the schema
#     that is given to formatron, and put patterns into groups.
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


def accept(properties, text):
    """Return whether the engine lets `text` through to its end, byte by byte."""
    schema = {"$id": "https://example.com/schema", "type": "object", "properties": properties,
              "$schema": "https://json-schema.org/draft/2020-12/schema",
              "required": list(properties)}
    builder = FormatterBuilder()
    builder.append_str(f"{builder.json(create_schema(schema), capture_name='json')}")
    engine = builder.build(VOCABULARY, lambda tokens: bytes(tokens).decode())._engine
    try:
        for byte in text.encode():
            engine.try_accept_new_token(byte)
    except ValueError:  # rejected
        return False
    return engine.is_finished()


def is_valid(properties, text):
    try:
        jsonschema.validate(json.loads(text), {
            "properties": properties, "additionalProperties": False, "required": list(properties)})
    except (json.JSONDecodeError, jsonschema.ValidationError):
        return False
    return True


wrong = right = 0
cases = [
    ({"enum": ["yes?", "no"]}, ['"yes?"', '"yes"', '"ye"', '"no"']),
    ({"enum": ["C", "D"]}, ['"C"', '"D"', '"E"']),
    ({"enum": ["C++"]}, ['"C++"', '"C"', '"CC"']),
    ({"enum": ["(none)"]}, ['"(none)"', '"none"']),
    ({"enum": ["v1.0"]}, ['"v1.0"', '"v1x0"']),
    ({"enum": ["$5"]}, ['"$5"']),
    ({"enum": ["a|b"]}, ['"a|b"', '"a', 'b"']),
    ({"enum": ["very good", "N/A"]}, ['"very good"', '"N/A"', '"bad"']),
    ({"type": "string", "pattern": "cat|dog"}, ['"cat"', '"dog"', '"cat', 'dog"']),
    ({"type": "string", "pattern": "(cat|dog)"}, ['"cat"', '"dog"', '"cat', 'dog"']),
]
for schema, values in cases:
    answers = []
    for value in values:
        text = '{"key":' + value + "}"
        seen, due = accept({"key": schema}, text), is_valid({"key": schema}, text)
        answers.append(f"{value} {'passes' if seen else 'is refused'}"
                       + ("" if seen == due else ", WRONG"))
        wrong += seen != due
        right += seen == due
    print(f"{schema.get('enum', schema.get('pattern'))}: {'; '.join(answers)}")
print(f"{wrong} of {wrong + right} answers are wrong")
assert wrong == 17 and right == 12

for name, text in [("size", '{"size":1}'), ("size?", '{"size?":1}'), ("size?", '{"siz":1}'),
                   ("top.k", '{"top.k":1}'), ("top.k", '{"topxk":1}')]:
    seen, due = (function({name: {"type": "integer"}}, text) for function in [accept, is_valid])
    print(f"the property {name}: {text} {'passes' if seen else 'is refused'}, "
          f"{'valid' if due else 'invalid'}")
    assert seen == (text not in ['{"size?":1}'])
PYTHON
