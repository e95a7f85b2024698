#!/usr/bin/env bash
# With a format, outlines-core refuses usual values, and takes a time that is no JSON.
#
# Version: outlines-core 0.2.14.
# Guess before the run: whatever a schema lets through is JSON that fits the schema, also with a "format";
#     each usual value of the format is let through. (That it is otherwise was suspected after reading the
#     regular expressions.)
# Seen: "time" has a backslash where the point belongs: 12:30:45.5 is refused, 12:30:45\.5, which is no
#     JSON, is taken. "email" takes no capital letter. "date-time" takes no offset and no
#     microseconds, which `datetime.isoformat` writes, but a year of -2026.
# For gyre: constrains no texts. There, give a "pattern" instead of a format.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile outlines_core==0.2.14
"$folder/env/bin/python" - <<'PYTHON'
import json

from outlines_core import Guide, Index, Vocabulary
from outlines_core.json_schema import build_regex_from_schema

END = 0
# One token to a printable character.
TOKENS = {chr(code): code for code in range(32, 127)}
VOCABULARY = Vocabulary(END, {character: [token] for character, token in TOKENS.items()})


def takes(schema, text):
    """Return whether a model may write `text`, token by token, and end there."""
    guide = Guide(Index(build_regex_from_schema(json.dumps(schema)), VOCABULARY))
    for character in text:
        if TOKENS[character] not in guide.get_tokens():
            return False
        guide.advance(TOKENS[character])
    return END in guide.get_tokens()


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# Values of a format, whether they are JSON, and whether they are taken.
VALUES = [
    ("time", r'"12:30:45"', True, True),
    ("time", r'"12:30:45.5"', True, False),
    ("time", r'"12:30:45\.5"', False, True),
    ("email", r'"ada@example.org"', True, True),
    ("email", r'"Ada@example.org"', True, False),
    ("date-time", r'"2026-11-30T12:30:45Z"', True, True),
    ("date-time", r'"2026-11-30T12:30:45+02:00"', True, False),
    ("date-time", r'"2026-11-30T12:30:45.123456Z"', True, False),
    ("date-time", r'"-2026-11-30T12:30:45Z"', True, True),
]
for name, text, valid, expected in VALUES:
    seen = takes({"type": "string", "format": name}, text)
    print(f"{name}: {text} is {'taken' if seen else 'refused'}, {'JSON' if is_json(text) else 'no JSON'}")
    assert is_json(text) == valid and seen == expected
PYTHON
