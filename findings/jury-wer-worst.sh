#!/usr/bin/env bash
# jury's word error rate with two references is that of the worst sample, by its worst reference.
#
# Versions: jury 2.3.1, jiwer 3.1.0, evaluate 0.4.6, datasets 2.9.0, numpy 1.26.4.
# Guess before the run: with two references a sample, the word and character error rates are means of
#     the samples' rates, by the nearer reference, and not above those with the first reference alone.
#     (That they might not be was suspected after reading the source.)
# Seen: reduce_fn is "max" by default, as for scores, and is taken twice: over the references of a
#     sample, and over the samples. Predictions that are all equal to one of their references have 0.33.
#     Of ten predictions of which one is wrong, the rate is that one's, 1.17, where 0.12 is due; with
#     "min" it is 0, that of the best one. "mean" is right for one reference only. The "overall" counts
#     are means over all references, and fit none of them.
# For gyre: it transcribes nothing. There, take jiwer, and the least rate of each sample.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jury==2.3.1 evaluate==0.4.6 \
    datasets==2.9.0 pyarrow==15.0.2 numpy==1.26.4 pandas==2.3.3 fsspec==2023.10.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps jiwer==3.1.0 rapidfuzz==3.14.6
cd "$folder"
HF_HOME="$folder" HF_HUB_OFFLINE=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
import jiwer
from jury import load_metric

FIRST, SECOND = "the cat is on the mat", "a cat sits on the mat"
SAMPLES = 10
references = [[FIRST, SECOND]] * SAMPLES
perfect = [[FIRST]] * SAMPLES
one_wrong = [*perfect[1:], ["completely different words here and there now"]]
rates = {"wer": jiwer.wer, "cer": jiwer.cer}


def judge(name, predictions, references, reduce="max"):
    """Return the rate by jury."""
    metric = load_metric(name, compute_kwargs={"reduce_fn": reduce})
    return metric.compute(predictions=predictions, references=references)[name]["score"]


for name, rate in rates.items():
    for title, predictions in (("all right", perfect), ("one of ten wrong", one_wrong)):
        least = [
            min(rate(reference, prediction) for reference in pair)
            for (prediction,), pair in zip(predictions, references)
        ]
        due = sum(least) / SAMPLES
        found = {key: judge(name, predictions, references, key) for key in ("max", "min", "mean")}
        single = judge(name, predictions, [[first] for first, _ in references])
        default = load_metric(name).compute(predictions=predictions, references=references)
        assert default[name]["score"] == found["max"]
        rounded = {key: round(value, 3) for key, value in found.items()}
        print(f"{name}, {title}: {found['max']:.3f}, where {due:.3f} is due; with the first", end=" ")
        print(f"reference alone {single:.3f}; by reduce_fn {rounded}")
        assert found["max"] > max(single, due) + 0.2
    assert found["min"] == 0 < due
PYTHON
