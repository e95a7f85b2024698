#!/usr/bin/env bash
# nltk's LEPOR rewards translations that are too long or too short.
#
# Versions: nltk 3.10.4.
# Guess before the run: the length penalty is at most 1, and lower for longer and shorter sentences,
#     as the docstring says, by equation 2 of the paper; so the score of the reference itself is 1,
#     and no other sentence has more. (That it might not be was suspected after reading the source.)
# Seen: the two cases of the equation are exchanged, so that the penalty is a bonus of up to e.
#     The reference, repeated, has a score of 1.71, where 0.38 is due. Every sentence of another
#     length scores too high: the first five words of eleven have 0.78, where 0.14 is due, and are
#     better than all eleven with three wrong ones.
# For gyre: it does not translate. There, take chrF.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile nltk==3.10.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

from nltk.translate.lepor import length_penalty, sentence_lepor

REFERENCE = "the cat sat on a mat and looked at my dog".split()


def due_penalty(reference, hypothesis):
    """Return the length penalty of equation 2 of Han, Wong and Chao (2012)."""
    r, c = len(reference), len(hypothesis)
    return math.exp(1 - r / c) if c < r else math.exp(1 - c / r)


def score(hypothesis):
    sentences = [" ".join(REFERENCE)], " ".join(hypothesis)
    return sentence_lepor(*sentences, tokenizer=str.split)[0]


wrong = REFERENCE.copy()
for place in [2, 5, 10]:
    wrong[place] = "tree"
cases = {"the reference itself": REFERENCE, "three wrong words of eleven": wrong,
         "the first five words": REFERENCE[:5], "the first ten words": REFERENCE[:10],
         "the reference, repeated": REFERENCE * 2,
         "one word too many": REFERENCE + ["there"]}
found, due = {}, {}
for name, hypothesis in cases.items():
    penalty, right = length_penalty(REFERENCE, hypothesis), due_penalty(REFERENCE, hypothesis)
    found[name] = score(hypothesis)
    due[name] = found[name] * right / penalty
    print(f"{name}: length penalty {penalty:.2f}, {right:.2f} is due; LEPOR {found[name]:.3f}, "
          f"{due[name]:.3f} is due")
    assert penalty >= 1 >= right and (penalty > 1) == (len(hypothesis) != len(REFERENCE))
assert found["the reference itself"] > 0.999 and found["the reference, repeated"] > 1.5
assert due["the reference, repeated"] < 0.7
short, three = "the first five words", "three wrong words of eleven"
assert found[short] > found[three] and due[short] < 0.5 * due[three]
limit = length_penalty(["a"] * 1000, ["a"])
print(f"one word for a thousand: length penalty {limit:.2f}")
assert limit > 2.7
PYTHON
