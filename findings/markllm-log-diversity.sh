#!/usr/bin/env bash
# MarkLLM's log diversity cannot fall below 3.5: shares of repeated n-grams are divided by 100.
#
# Versions: markllm 0.1.5.
# Guess before the run: the log diversity of a text is -log(1 - d), where d is the product of the
#     shares of n-grams that are not repeats, for n = 2, 3 and 4: 0 for a word that is repeated over
#     and over, and 20, the limit, for a text without a repeat. (That it is not was suspected after
#     reading the source.)
# Seen: the share of repeats is taken for a percentage: 1 - share / 100, though it is between 0 and
#     1. So d is 0.97 at least. A word repeated 200 times has 3.5, where 0 is due, a text that says
#     everything four times 3.8 for 0.0, and one with a few repeats 8.1 for 3.5. Between texts
#     without a loop the difference is about log(100); loops, which are what it is to find, hardly
#     lower a mean. (The program of a paper from which it stems divides in the same way, with the
#     multiplication by 100 as a comment; other programs do not.)
# For gyre: it marks no texts. There, compute d by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile --no-deps markllm==0.1.5
env/bin/python -W ignore - <<'PYTHON'
import importlib
import math
import random
import site
import sys
import types
from pathlib import Path

# The module imports torch, sacrebleu and a client, which this analyzer does not use.
for name in ["torch", "sacrebleu", "markllm.utils.openai_utils"]:
    sys.modules[name] = types.ModuleType(name)
sys.modules["markllm.utils.openai_utils"].OpenAIAPI = None
package = types.ModuleType("markllm")
package.__path__ = [str(Path(folder) / "markllm") for folder in site.getsitepackages()]
sys.modules["markllm"] = package
module = importlib.import_module("markllm.evaluation.tools.text_quality_analyzer")

LIMIT = math.exp(-20)


def log_diversity(text, divisor=1):
    words = text.split()
    product = 1.0
    for n in [2, 3, 4]:
        ngrams = [tuple(words[start:start + n]) for start in range(len(words) - n + 1)]
        product *= 1 - (1 - len(set(ngrams)) / len(ngrams)) / divisor
    return -math.log(max(1 - product, LIMIT))


random.seed(0)
vocabulary = [f"word{number}" for number in range(400)]
weights = [1 / (1 + rank) for rank in range(400)]
text = " ".join(random.choices(vocabulary, weights, k=200))
cases = {"no repeats": " ".join(vocabulary[:200]), "a few repeats": text,
         "everything four times": " ".join(vocabulary[:50] * 4), "one word": "word " * 200}
analyzer = module.LogDiversityAnalyzer()
seen = {name: analyzer.analyze(case) for name, case in cases.items()}
due = {name: log_diversity(case) for name, case in cases.items()}
for name, case in cases.items():
    print(f"{name}: {seen[name]:.2f}, where {due[name]:.2f} is due")
    assert math.isclose(seen[name], log_diversity(case, divisor=100), abs_tol=1e-9)
assert seen["no repeats"] == due["no repeats"] == 20
assert seen["one word"] > 3.5 and due["one word"] < 0.001
assert seen["everything four times"] > 3.7 and due["everything four times"] < 0.05

texts = [" ".join(random.choices(vocabulary, weights, k=200)) for _ in range(100)]
loops = texts[:70] + ["word " * 200] * 30
means = [sum(map(function, corpus)) / 100 for corpus in [texts, loops]
         for function in [analyzer.analyze, log_diversity]]
print(f"100 texts: {means[0]:.2f} ({means[1]:.2f} is due); with 30 loops among them "
      f"{means[2]:.2f}, {1 - means[2] / means[0]:.0%} less ({means[3]:.2f}, {1 - means[3] / means[1]:.0%} less, is "
      "due)")
assert 1 - means[2] / means[0] < 0.2 < 0.28 < 1 - means[3] / means[1]
PYTHON
