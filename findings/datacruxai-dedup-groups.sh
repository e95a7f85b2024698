#!/usr/bin/env bash
# datacruxai's groups of near-duplicates point at other examples once exact duplicates were removed before.
#
# Versions: datacruxai 0.4.0, datasketch 2.0.0.
# Guess before the run: the `groups` of `dedup(exact=True, fuzzy=True)` are "lists of indices in the original dataset", as
#     documented: the texts of a group are alike. (Suspected from reading the source.)
# Seen: of 20 pairs of near-duplicates behind three copies of one text, 19 of the groups name two texts that have nothing
#     in common. Whoever keeps the first of each group of the original data loses 19 single texts, and keeps all pairs of
#     near-duplicates. The lists `originals` and `duplicates` are right, and so are the groups of either step alone.
# Cause: the second step counts in what the first one left, and its groups are appended as they are
#     (datacruxai/dedup.py, `dedup`). No issue was found.
# For gyre: it removes no near-duplicates. There, use `originals`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 xxhash==4.1.0 datasketch==2.0.0 datacruxai==0.4.0
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import random

from datacruxai import dedup, exact_dedup, fuzzy_dedup
from datacruxai._types import Example

random.seed(0)


def make_text(n_words=40):
    return " ".join("".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(n_words))


repeated = make_text()
texts = [repeated] * 3
for _ in range(20):
    text = make_text()
    texts += [text, text + " and", make_text(), make_text()]
examples = [Example(instruction=text) for text in texts]


def is_alike(first, second):
    """Return whether two texts share most of their words."""
    first, second = set(first.split()), set(second.split())
    return len(first & second) / len(first | second) > 0.9


def count_alike(groups, texts):
    return sum(all(is_alike(texts[group[0]], texts[index]) for index in group) for group in groups)


result = dedup(examples, exact=True, fuzzy=True)
exact, fuzzy = exact_dedup(examples), fuzzy_dedup(examples)
for name, found in {"exact": exact, "fuzzy": fuzzy, "both": result}.items():
    print(f"{name}: {len(found.groups)} groups, in {count_alike(found.groups, texts)} the texts are alike; {found.n_unique} are kept")
assert len(exact.groups) == count_alike(exact.groups, texts) == 1
assert len(fuzzy.groups) == count_alike(fuzzy.groups, texts) == 21
assert len(result.groups) == 21 and count_alike(result.groups, texts) == 2
assert len(result.originals) == result.n_unique == fuzzy.n_unique == 1 + 20 * 3

# The groups are right in the list that the first step left.
left = [example.instruction for example in exact.originals]
assert count_alike(result.groups[1:], left) == 20

removed = {index for group in result.groups for index in group[1:]}
kept = [text for index, text in enumerate(texts) if index not in removed]
lost = [text for text in texts if not any(is_alike(text, other) for other in kept)]
n_pairs = sum(is_alike(first, second) for place, first in enumerate(kept) for second in kept[:place])
print(f"by the groups: {len(lost)} texts are lost, {n_pairs} pairs of near-duplicates are kept")
assert len(lost) == 19 and n_pairs == 20
PYTHON
