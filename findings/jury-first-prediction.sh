#!/usr/bin/env bash
# jury's sacreBLEU, chrF and TER of a hundred predictions are those of the first one.
#
# Versions: jury 2.3.1, sacrebleu 2.6.0, evaluate 0.4.6, datasets 2.9.0, numpy 1.26.4.
# Guess before the run: with one prediction and one reference a sample, the scores are those of
#     sacrebleu for the same lists, and with two references a sample too.
#     (That they might not be was suspected after reading the source.)
# Seen: a list of references for each prediction is given on to sacrebleu, which takes a list of all
#     predictions for each reference, and pairs no further than the shorter list reaches. The first
#     prediction is compared with the references of all samples, the others with none: a hundred
#     predictions, of which only the first is right, have a BLEU of 1 and a TER of 0, where 0.04 and
#     0.96 are due. With two references a sample, the first two predictions count. The first may be
#     any reference of the data set, and is right too.
# For gyre: its report uses no such score. There, take sacrebleu itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jury==2.3.1 sacrebleu==2.6.0 evaluate==0.4.6 \
    datasets==2.9.0 pyarrow==15.0.2 numpy==1.26.4 pandas==2.3.3 fsspec==2023.10.0
cd "$folder"
HF_HOME="$folder" HF_HUB_OFFLINE=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
import random

import sacrebleu
from jury import Jury

NAMES = ("sacrebleu", "chrf", "ter")
SAMPLES = 100
random.seed(0)
words = "a cat dog runs sleeps under over the old red house tree and then barks at night".split()


def draw():
    """Return a random sentence."""
    return " ".join(random.choices(words, k=random.randint(6, 12)))


def judge(predictions, references):
    """Return the scores of jury: BLEU, chrF, TER."""
    scores = Jury(metrics=list(NAMES))(predictions=predictions, references=references)
    return [round(scores[name]["score"], 4) for name in NAMES]


def due(predictions, references):
    """Return the scores of sacrebleu, of the same lists."""
    streams = list(zip(*references))
    metrics = (sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER())
    return [round(metric.corpus_score(predictions, streams).score / 100, 4) for metric in metrics]


references = [[draw(), draw()] for _ in range(SAMPLES)]
single = [[first] for first, _ in references]
wrong = [draw() for _ in range(SAMPLES)]


def compare(title, predictions, references):
    """Print and return the scores of jury, and those that are due."""
    nested = [[prediction] for prediction in predictions]
    found, right = judge(nested, references), due(predictions, references)
    print(f"{title}: BLEU, chrF, TER {found}, where {right} are due")
    return found, right


first = compare("only the first is right", [single[0][0], *wrong[1:]], single)
assert first[0] == [1, 1, 0] and first[1][0] < 0.2 and first[1][2] > 0.5
foreign = compare("the first is the reference of the last", [single[-1][0], *wrong[1:]], single)
assert foreign[0] == [1, 1, 0]
rest = compare("all are right but the first", [wrong[0], *(one[0] for one in single[1:])], single)
assert rest[0][0] < 0.95 and rest[0][2] > 0.1 and rest[1][0] > 0.95
title = "two references, both of the first sample predicted first"
two = compare(title, [*references[0], *wrong[2:]], references)
assert two[0] == [1, 1, 0]
alone = compare("one prediction", wrong[:1], single[:1])
assert alone[0] == alone[1]
PYTHON
