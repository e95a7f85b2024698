#!/usr/bin/env bash
# datacruxai's contamination check never finds a reference text of fewer words than its n-gram.
#
# Versions: datacruxai 0.4.0, xxhash 4.1.0.
# Guess before the run: an example that contains a benchmark's text is flagged, those that the package brings with it by
#     all means. (Suspected from reading the source.)
# Seen: with the default of 8 words, 17 of its 60 texts are not found in an example that begins with them, among
#     them the first question of GSM8K, "Janet's ducks lay 16 eggs per day"; "Toulouse has twice as many sheep as
#     Charleston" has 8 words, and is missed because a point follows in GSM8K. A question of 7 words of one's own is found
#     if the example is that question alone, and not with an answer behind it. With `ngram_size=5`, the first two are found.
# Cause: a text that is too short stands in the index as a whole, and an example has only n-grams of 8 words to compare
#     (`_extract_ngrams` of datacruxai/contamination.py); words keep their punctuation. No issue was found.
# For gyre: it has no such check. There, take the shortest reference's number of words as `ngram_size`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile xxhash==4.1.0 datacruxai==0.4.0
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from datacruxai import check_contamination
from datacruxai._types import Example
from datacruxai.contamination import _BUILTIN_BENCHMARKS


def is_flagged(instruction, output="", **options):
    return check_contamination([Example(instruction=instruction, output=output)], **options).total_flagged == 1


texts = [text for texts in _BUILTIN_BENCHMARKS.values() for text in texts]
missed = [text for text in texts if not is_flagged(text + " and so on, with many more words behind it")]
print(f"{len(missed)} of {len(texts)} texts are missed: {missed}")
assert len(texts) == 60 and len(missed) == 17
assert set(missed) == {text for text in texts if len(text.split()) < 8}
assert all(is_flagged(text) for text in texts)

QUESTIONS = {
    "Janet": "Janet's ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes muffins for her "
             "friends every day with four.",
    "Toulouse": "Toulouse has twice as many sheep as Charleston. Charleston has 4 times as many sheep as Seattle.",
    "robe": "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total does it take?",
}
for name, question in QUESTIONS.items():
    flagged = [is_flagged(question, ngram_size=size) for size in (5, 8)]
    print(f"GSM8K's {name}: flagged with 5 words {flagged[0]}, with 8 words {flagged[1]}")
    assert flagged == [True, name == "robe"]

QUESTION = "What is the capital city of France?"
OWN = {"own": [QUESTION]}
found = [is_flagged(QUESTION, benchmarks=OWN), is_flagged(QUESTION, output="It is Paris.", benchmarks=OWN)]
print(f"a question of one's own: alone {found[0]}, with its answer {found[1]}, "
      f"with 7 words {is_flagged(QUESTION, output='It is Paris.', benchmarks=OWN, ngram_size=7)}")
assert found == [True, False] and is_flagged(QUESTION, output="It is Paris.", benchmarks=OWN, ngram_size=7)
PYTHON
