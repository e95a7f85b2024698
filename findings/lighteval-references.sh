#!/usr/bin/env bash
# In lighteval, corpus chrF, chrF++ and TER compare the first text with the references of all texts.
#
# Versions: lighteval 0.13.0, sacrebleu 2.6.0, nltk 3.9.1, numpy 2.4.6, torch 2.13.0.
# Guess before the run: `chrf`, `chrf++` and `ter` are sacrebleu's numbers for the same texts and
#     references, as `bleu` is, and their order does not matter. (That they might not be was
#     suspected after reading the source.)
# Seen: each text has its own list of references, and these lists go to sacrebleu as if each were
#     one set of references for all texts. As each has one entry, only the first text is scored, by
#     the best of all references. A model that repeats one right sentence for every source has a
#     chrF of 100 and a TER of 0 if this sentence comes first, where 20 and 95 are due; one that is
#     right but for the first text, which is empty, has a chrF of 0 instead of 91. BLEU has a line
#     of its own that turns the references around.
# For gyre: it does not translate. There, give the texts to sacrebleu.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile lighteval==0.13.0 sacrebleu==2.6.0 \
    torch==2.13.0 numpy==2.4.6
HF_HOME="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import sacrebleu
from lighteval.metrics.metrics import Metrics
from lighteval.metrics.sample_preparator import GenerativeCorpusMetricInput

DUE = {"chrf": sacrebleu.CHRF(), "chrf_plus": sacrebleu.CHRF(word_order=2), "ter": sacrebleu.TER()}
REFERENCES = ["the cat sat on the mat", "two dogs ran through our park",
              "birds fly south in winter", "she reads a good book", "it will rain again tomorrow",
              "he lost his keys at work", "we eat bread for breakfast"]


def measure(name, texts, references):
    """Return lighteval's corpus score and sacrebleu's."""
    items = [GenerativeCorpusMetricInput(golds=[reference], preds=[text])
             for text, reference in zip(texts, references)]
    seen = Metrics[name].value.corpus_level_fn.compute_corpus(items)
    return round(seen, 1), round(DUE[name].corpus_score(texts, [references]).score, 1)


repeated = [REFERENCES[0]] * len(REFERENCES)
first_empty = [""] + REFERENCES[1:]
last_empty = REFERENCES[:-1] + [""]
results = {}
for label, texts in [("first sentence repeated", repeated), ("first text empty", first_empty),
                     ("last text empty", last_empty)]:
    for name in DUE:
        results[label, name] = measure(name, texts, REFERENCES)
        seen, due = results[label, name]
        print(f"{label}, {name}: {seen}, due {due}")
for (label, name), (seen, due) in results.items():
    if label == "first text empty":
        assert seen == (0.0 if name != "ter" else 92.1) and abs(seen - due) > 70
    else:
        assert seen == (100.0 if name != "ter" else 0.0) and abs(seen - due) > 12

# Every text is right, and the first one is not that of the first reference: nothing is missed.
shifted = REFERENCES[1:] + REFERENCES[:1]
seen, due = measure("chrf", shifted, REFERENCES)
print(f"right texts, each one row too early: chrf {seen}, due {due}")
assert seen == 100.0 and due < 25
PYTHON
