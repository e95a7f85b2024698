#!/usr/bin/env bash
# A choice in outlines never gives an answer that begins with another answer, nor a float a point.
#
# Versions: outlines 1.3.3, outlines_core 0.2.14.
# Guess before the run: all texts of a regular expression can be generated, as by re.fullmatch.
#     Between 1, 10 and 100 the model decides, and so does it whether a number goes on.
# Seen: of Literal[1, 10, 100] only 1 can be generated, of Literal["New York", "New"] only "New". A
#     float has no fraction unless one token holds the point and a digit. Two causes. The automaton
#     is made for search: it drops alternatives behind one that has matched, so "1|10" is "1", and
#     "a+?" is one a. And it reports a match one byte late. So the state after the byte that follows
#     a match looks like a match that leads nowhere, and its token is forbidden (not so in the
#     sources since December 2025, which no release has yet). Inside a JSON object nothing shows,
#     because no text matches before the last brace.
# For gyre: it generates without constraints. Who asks an export for one of several answers with
#     outlines gives answers of which none begins another, or ends each with a full stop.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile outlines==1.3.3 outlines_core==0.2.14
"$folder/env/bin/python" - <<'PYTHON'
import itertools
import re
from typing import Literal

from outlines.types.dsl import python_types_to_terms, to_regex
from outlines_core import Index, Vocabulary


def list_texts(regex, tokens, max_tokens):
    """Return all texts of at most so many tokens that the index lets a model generate."""
    index = Index(regex, Vocabulary(len(tokens), {token: [i] for i, token in enumerate(tokens)}))
    texts = set()

    def extend(state, text, n_left):
        if index.is_final_state(state):
            texts.add(text)
        for i, token in enumerate(tokens):
            if n_left > 0 and i in index.get_allowed_tokens(state):
                extend(index.get_next_state(state, i), text + token, n_left - 1)

    extend(index.get_initial_state(), "", max_tokens)
    return texts


def list_matches(regex, tokens, max_tokens):
    texts = {"".join(row) for n in range(max_tokens + 1)
             for row in itertools.product(tokens, repeat=n)}
    return {text for text in texts if re.fullmatch(regex, text)}


WORDS = ["New", " ", "York", "Jersey", "."]
CASES = [
    (Literal[1, 10, 100], list("01"), {"1"}),
    (Literal[100, 10, 1], list("01"), {"1", "10", "100"}),
    (Literal["New", "New York", "New Jersey"], WORDS, {"New"}),
    (Literal["New York", "New Jersey", "New"], WORDS, {"New"}),
    (Literal["New York", "New Jersey"], WORDS, {"New York", "New Jersey"}),
    (Literal["New.", "New York."], WORDS, {"New.", "New York."}),
]
for choices, tokens, expected in CASES:
    regex = to_regex(python_types_to_terms(choices))
    seen = list_texts(regex, tokens, 4)
    print(f"{choices}, {regex}: {sorted(seen)}")
    assert list_matches(regex, tokens, 4) == {str(choice) for choice in choices.__args__}
    assert seen == expected

regex = to_regex(python_types_to_terms(float))
for tokens, n_missing in [(["0", "7", "."], 4), (["0", "7", ".0", ".7"], 0)]:
    missing = list_matches(regex, tokens, 3) - list_texts(regex, tokens, 3)
    print(f"float, {regex}, of the tokens {tokens}: missing {sorted(missing)}")
    assert len(missing) == n_missing
assert list_texts("a+?", ["a"], 3) == {"a"}
assert list_texts("(1|10)x", ["0", "1", "x"], 3) == {"1x", "10x"}
PYTHON
