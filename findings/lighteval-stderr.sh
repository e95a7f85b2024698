#!/usr/bin/env bash
# lighteval's bootstrapped standard errors are too small by the root of the number of resamples.
#
# Versions: lighteval 0.13.0, sacrebleu 2.6.0, nltk 3.9.1, numpy 2.4.6, torch 2.13.0.
# Guess before the run: the standard error of a metric that is not a mean is the deviation of its
#     bootstrap resamples: for the root of a mean of squares, that of the delta method within 10 %,
#     and more resamples do not change it. (That they do was suspected after reading the source.)
# Seen: it is this deviation divided by the root of the number of resamples, which is the error of
#     the resamples' mean. With 1,000 resamples, the default, it is 32 times too small: of 30
#     evaluations of 400 documents each, the true value is within two standard errors in none,
#     where 28 are due. Perplexity, bits per byte, F1, MCC, BLEU, chrF and TER are such metrics;
#     those whose function is called "mean" are right.
# For gyre: its report resamples the seeds. There, multiply such an error by the root of
#     `bootstrap_iters`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile lighteval==0.13.0 sacrebleu==2.6.0 \
    torch==2.13.0 numpy==2.4.6
HF_HOME="$folder" LIGHTEVAL_DISABLE_TQDM=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
from lighteval.metrics.metrics import Metrics
from lighteval.metrics.sample_preparator import PerplexityCorpusMetricInput
from lighteval.metrics.utils.stderr import get_stderr_function

N_DOCUMENTS = 400
N_BYTES = 1000
BITS_PER_BYTE = Metrics.bits_per_byte.value.corpus_level_fn.compute_corpus


def bits_per_byte(documents):
    return BITS_PER_BYTE(documents)


def draw(generator):
    """Return documents of equal length whose bits per byte have mean 1 and deviation 0.2."""
    bits = generator.normal(1.0, 0.2, N_DOCUMENTS)
    return [PerplexityCorpusMetricInput(logprobs=-b * N_BYTES * math.log(2), weights=N_BYTES)
            for b in bits]


generator = np.random.default_rng(0)
documents = draw(generator)
values = [-d.logprobs / N_BYTES / math.log(2) for d in documents]
due = np.std(values, ddof=1) / math.sqrt(N_DOCUMENTS)
errors = {n: get_stderr_function(bits_per_byte, n)(documents) for n in [10, 100, 1000]}
for n, error in errors.items():
    print(f"{n} resamples: standard error {error:.6f}, due {due:.6f}: {due / error:.1f} times")
assert 2 < due / errors[10] < 6
assert 8 < due / errors[100] < 12.5
assert 29 < due / errors[1000] < 35
mean_error = get_stderr_function(np.mean)(values)
print(f"as the mean of the documents' values: {mean_error:.6f}")
assert abs(mean_error / due - 1) < 1e-9

n_covered = 0
for _ in range(30):
    documents = draw(generator)
    error = get_stderr_function(bits_per_byte, 1000)(documents)
    n_covered += abs(bits_per_byte(documents) - 1) < 2 * error
print(f"the true value is within two standard errors in {n_covered} of 30 evaluations, due 28")
assert n_covered < 8
PYTHON
