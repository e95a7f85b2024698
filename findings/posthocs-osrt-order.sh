#!/usr/bin/env bash
# scikit-posthocs' test against rising means is as sure if the means fall.
#
# Versions: scikit-posthocs 0.17.1, numpy 2.4.6, scipy 1.17.1, pandas 3.1.1.
# Guess before the run: Hayter's one-sided studentized range test takes the largest rise from an
#     earlier group to a later one. Falling means give no evidence for an ordered alternative, and
#     rising ones more than Tukey's test, which has no order. (That it might not was suspected after
#     reading the source.)
# Seen: it takes absolute differences. Falling means have p = 0.000001 where 1.0 is due, means that
#     go up and down again the same as if they were sorted, and any order of the groups has one
#     p-value, that of the most different pair by Tukey's test. Of data sets with a small fall, half
#     have p < 0.05, and of those with a small rise 49 % instead of 61 %.
# For gyre: its report does not use it. There, take test_jonckheere with alternative="greater".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scikit-posthocs==0.17.1 numpy==2.4.6 \
    scipy==1.17.1 pandas==3.1.1
"$folder/env/bin/python" - <<'PYTHON'
import itertools

import numpy as np
from scikit_posthocs import posthoc_tukey, test_jonckheere, test_osrt

SIZE = 20


def statistic(samples):
    """Return Hayter's statistic: the largest rise between two groups, in standard errors."""
    samples = np.asarray(samples)
    means = samples.mean(-1)
    deviation = np.sqrt(samples.var(-1, ddof=1).mean(-1) / samples.shape[-1])
    rises = [means[..., j] - means[..., i]
             for i, j in itertools.combinations(range(samples.shape[-2]), 2)]
    return np.max(rises, 0) / deviation


generator = np.random.default_rng(0)
null = np.concatenate([statistic(generator.normal(size=(5000, 3, SIZE))) for _ in range(20)])


def reference(samples):
    """Return the share of 100,000 null samples with a statistic at least as large."""
    return np.mean(null >= statistic(samples))


def compare(kind, samples):
    p, seen, _ = test_osrt(samples)
    tukey = posthoc_tukey(samples).to_numpy().min()
    ordered, _ = test_jonckheere(samples, alternative="greater")
    due = reference(samples)
    print(f"means {kind}: statistic {seen:.2f} instead of {statistic(samples):.2f}, p = {p:.6f} "
          f"instead of {due:.6f}; Tukey {tukey:.6f}, Jonckheere {ordered:.6f}")
    assert abs(p - tukey) < 1e-9
    return p, due


high, middle, low = [list(generator.normal(mean, 1, SIZE)) for mean in [2, 1, 0]]
rising, rising_due = compare("rise", [low, middle, high])
falling, falling_due = compare("fall", [high, middle, low])
mixed, _ = compare("go up and down", [low, high, middle])
assert abs(rising - falling) < 1e-9 and abs(rising - mixed) < 1e-9
assert falling < 0.001 and rising_due < 0.001 < 0.9 < falling_due

found = {}
for slope in [0.35, -0.35]:
    hits = np.zeros(2)
    for _ in range(300):
        samples = generator.normal(size=(3, SIZE)) + slope * np.arange(3)[:, None]
        hits += [test_osrt(list(map(list, samples)))[0] < 0.05, reference(samples) < 0.05]
    found[slope] = hits / 300
    print(f"of 300 data sets with means {slope} apart, {found[slope][0]:.0%} have p < 0.05 "
          f"instead of {found[slope][1]:.0%}")
assert 0.25 < found[0.35][0] < found[0.35][1] - 0.05
assert found[-0.35][0] > 0.25 and found[-0.35][1] < 0.02
PYTHON
