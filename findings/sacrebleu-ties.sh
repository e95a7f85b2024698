#!/usr/bin/env bash
# sacrebleu calls two systems that differ in one sentence of 200 significantly different, p = 0.001.
#
# Version: sacrebleu 2.6.0.
# Guess before the run: two files that are the same differ with p = 1 in both paired tests. If one
#     sentence of 200 is better, both swaps of it are as far apart as what was seen: p = 1 as well.
#     If 3 are, p is 1/4, because 2 of the 8 ways to swap them are as far apart.
# Seen: in all three cases p = 1 / (trials + 1), the smallest there is: 0.001 for 1,000 trials. Trials
#     that are exactly as far apart as what was seen are not counted (`stats > real_difference`).
#     That is nothing where many sentences differ. Where 3 do, of equal quality, two of the 8 ways
#     to share them out between the systems are significant. The bootstrap says 0.001 for two equal
#     files too, and 0.09 for one better sentence.
# For gyre: it does not use this. Of two checkpoints that write nearly the same, count the sentences
#     that differ: with fewer than 6 of them, no p is below 0.03.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sacrebleu==2.6.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import itertools
import logging
import random

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

logging.getLogger("sacrebleu").setLevel(logging.ERROR)
N_SENTENCES = 200
N_TRIALS = 1000
SMALLEST = 1 / (N_TRIALS + 1)
words = "the cat sat on a mat and the dog ran to it quickly over there".split()
generator = random.Random(0)
references = [" ".join(generator.choices(words, k=12)) for _ in range(N_SENTENCES)]


def damage(sentence):
    """Return the sentence with two words changed."""
    changed = sentence.split()
    for _ in range(2):
        changed[generator.randrange(12)] = generator.choice(words)
    return " ".join(changed)


damaged = [damage(sentence) for sentence in references]
places = [i for i in range(N_SENTENCES) if damaged[i] != references[i]]


def repair(chosen):
    """Return the damaged sentences, with those at the chosen places as in the reference."""
    return [references[i] if i in chosen else damaged[i] for i in range(N_SENTENCES)]


def compare(first, second, test, metric=BLEU):
    """Return the p-value of sacrebleu for the difference between two systems."""
    metrics = {"metric": metric(references=[references])}
    systems = [("first", first), ("second", second)]
    _, scores = PairedTest(systems, metrics, None, test_type=test, n_samples=N_TRIALS)()
    return list(scores.values())[-1][1].p_value


for n_better in [0, 1, 2, 3]:
    exact = min(1, 2 / 2**n_better)
    better = repair(places[:n_better])
    p = {test: compare(damaged, better, test) for test in ["ar", "bs"]}
    print(f"{n_better} of {N_SENTENCES} sentences better: by randomization p = {p['ar']:.4f}, exactly "
          f"{exact}; by bootstrap {p['bs']:.4f}")
    assert p["ar"] == SMALLEST
    assert (p["bs"] == SMALLEST) == (n_better == 0)
for metric in [BLEU, CHRF]:
    assert compare(damaged, repair(places[:1]), "ar", metric) == SMALLEST

n_significant = 0
for sides in itertools.product([0, 1], repeat=3):
    first = repair([place for place, side in zip(places, sides) if side == 0])
    second = repair([place for place, side in zip(places, sides) if side == 1])
    p = compare(first, second, "ar")
    n_significant += p < 0.05
    print(f"3 sentences differ, {sum(sides)} of them better in the second system: p = {p:.4f}")
print(f"{n_significant} of 8 are significant at 0.05; exactly, no p is below 0.25")
assert n_significant == 2
PYTHON
