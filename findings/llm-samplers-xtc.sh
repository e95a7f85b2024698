#!/usr/bin/env bash
# The XTC sampler of llm-samplers removes a token that is sure, and so generates only wrong ones.
#
# Versions: llm-samplers 0.1.3, torch 2.13.0.
# Guess before the run: XTC removes all tokens above the threshold but the least likely of them, as
#     its author defined it and as llama.cpp does: a token that is alone above it stays, so that the
#     text remains coherent. (That all of them are removed was suspected after reading the source.)
# Seen: all tokens above the threshold are removed, always. Where one token has a probability of
#     0.99, it is never drawn, and one of the rest is: a model that knows how to count generates not
#     one right number in 200. Without XTC, or with XTC as it was defined, 98 % and more are right.
# For gyre: it has no XTC. There, do not use it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps llm-samplers==0.1.3
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from types import SimpleNamespace

import torch
from llm_samplers import TemperatureSampler, XTCSampler

VOCABULARY = 50
TOKENS = 200
torch.set_num_threads(1)


class Counter:
    """A language model that knows how to count: the next number has a probability of 0.99."""

    config = SimpleNamespace(eos_token_id=-1)

    def __init__(self, choices=1):
        self.choices = choices

    def __call__(self, ids):
        probabilities = torch.full((*ids.shape, VOCABULARY), 0.01 / (VOCABULARY - self.choices))
        for step in range(1, self.choices + 1):
            share = 0.99 * 2.0 ** (self.choices - step) / (2.0**self.choices - 1)
            probabilities.scatter_(-1, ((ids + step) % VOCABULARY)[..., None], share)
        return SimpleNamespace(logits=probabilities.log())


def reference(logits, threshold):
    """Remove the tokens above the threshold but the least likely of them."""
    probabilities = logits.softmax(-1)
    above = probabilities > threshold
    least = probabilities.masked_fill(~above, 2.0).argmin(-1, keepdim=True)
    above.scatter_(-1, least, False)
    return logits.masked_fill(above, -torch.inf)


class Reference(XTCSampler):
    """The sampler with the rule of its author in the place of that of the package."""

    def _apply_sampling(self, logits):
        return reference(logits, self.exclusion_threshold)


right = {}
for choices in [1, 2]:
    print(f"a model with {choices} good next number(s) of 50, and 0.01 for all others")
    for name, sampler in [("no XTC", TemperatureSampler()),
                          ("XTC as defined", Reference(exclusion_threshold=0.2)),
                          ("llm-samplers", XTCSampler(exclusion_threshold=0.2))]:
        torch.manual_seed(0)
        text = sampler.sample(Counter(choices), torch.tensor([[0]]), max_length=TOKENS)[0]
        steps = (text[1:] - text[:-1]) % VOCABULARY
        good = ((steps >= 1) & (steps <= choices)).float().mean().item()
        least = (steps == choices).float().mean().item()
        right[name, choices] = good
        print(f"    {name:15s} {good:.2f} of the tokens are good, {least:.2f} the last of them")
for choices in [1, 2]:
    assert right["no XTC", choices] > 0.95 and right["XTC as defined", choices] > 0.95
    assert right["llm-samplers", choices] < 0.1
PYTHON
