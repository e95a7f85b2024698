#!/usr/bin/env bash
# In transformers-cfg, "at least 3" is 1, 3, 5 and so on, and "at most 2" is never none.
#
# Versions: transformers-cfg 0.2.7.
# Guess before the run: `x{3,}` are three or more of x, `x{,2}` and `x{0,2}` none, one or two, as in
#     llama.cpp and in regular expressions. (Not suspected for `{1,}`, where all strings of three
#     letters were compared with a regular expression; for the others, after reading the source.)
# Seen: the rule for `x{n,}` begins with n - 1 of x, and goes on with itself or with one x: it takes
#     1, n, 2n - 1, 3n - 2 and so on. `x{3,}` takes 1, and not 4, `x{2,}` takes 1, and `x{1,}` and
#     `x{0,}` exactly one. An upper bound without a lower one, or with 0, does not take the empty
#     text, so that "[" digit{0,3} "]" cannot be empty. `{n}`, `{n,m}` from 1 on, `*`, `+` and `?`
#     are right.
# For gyre: it decodes without a grammar. There, write `x x x+` for "at least 3", and `(x{1,2})?`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile --no-deps transformers-cfg==0.2.7 termcolor==3.3.0
env/bin/python -W ignore - <<'PYTHON'
import re
import site
import sys
import types
from pathlib import Path

# The package imports torch and transformers, which a recognizer of strings does not use.
package = types.ModuleType("transformers_cfg")
package.__path__ = [str(Path(folder) / "transformers_cfg") for folder in site.getsitepackages()]
sys.modules["transformers_cfg"] = package
from transformers_cfg.parser import parse_ebnf  # noqa: E402
from transformers_cfg.recognizer import StringRecognizer  # noqa: E402


def recognize(grammar, text):
    parsed = parse_ebnf(grammar)
    recognizer = StringRecognizer(parsed.grammar_encoding, parsed.symbol_table["root"])
    return recognizer._accept_string(text)


LENGTHS = range(13)
cases = {"*": None, "+": None, "?": None, "{2}": None, "{1,3}": None, "{2,4}": None,
         "{3,}": [1, 3, 5, 7, 9, 11], "{4,}": [1, 4, 7, 10], "{2,}": list(range(1, 13)),
         "{1,}": [1], "{0,}": [1], "{,2}": [1, 2], "{0,2}": [1, 2]}
for operator, wrong in cases.items():
    seen = [length for length in LENGTHS if recognize(f'root ::= "a"{operator}', "a" * length)]
    pattern = "a" + operator.replace("{,", "{0,")
    due = [length for length in LENGTHS if re.fullmatch(pattern, "a" * length)]
    print(f"a{operator}: takes {seen} of a" + ("" if seen == due else f"; {due} is due"))
    assert seen == (due if wrong is None else wrong)
    assert (seen == due) == (wrong is None)

grammar = 'root ::= "[" digit{0,3} "]"\ndigit ::= [0-9]'
print("brackets around {0,3} digits: " + ", ".join(
    f"{text} {'passes' if recognize(grammar, text) else 'is refused'}"
    for text in ["[]", "[1]", "[123]", "[1234]"]))
assert [recognize(grammar, text) for text in ["[]", "[1]", "[123]"]] == [False, True, True]
grammar = 'root ::= word{3,}\nword ::= [a-z]+ " "'
print("three words or more: " + ", ".join(
    f"{len(text.split())} {'pass' if recognize(grammar, text) else 'are refused'}"
    for text in ["a ", "a b ", "a b c ", "a b c d ", "a b c d e "]))
assert recognize(grammar, "a ") and not recognize(grammar, "a b c d ")
grammar = 'root ::= word word word+\nword ::= [a-z]+ " "'
assert [recognize(grammar, "a " * n) for n in range(6)] == [False, False, False, True, True, True]
PYTHON
