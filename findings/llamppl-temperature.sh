#!/usr/bin/env bash
# llamppl's Transformer with a temperature does not have probabilities that add up to 1.
#
# Versions: llamppl 0.2.3, numpy 2.4.6.
# Guess before the run: with `temp=2`, the log-probability of a token is that of softmax(logits / 2), as in LMContext
#     of the same package. (That it is not was suspected after reading the source.)
# Seen: log-probabilities are divided by the temperature and not normalized again. With a temperature of 2, 50 equal
#     tokens have probabilities that add up to 7.1, and those behind a sure prompt to 3.3; with 0.5, to 0.02 and
#     0.8. So weights of particles with different prompts are wrong: after a token, the flat prompt has 13 % of the
#     weight where 6 % is due. `sample` raises an error with such a temperature; `log_prob`, and so `observe`, says
#     nothing. LMContext is right.
# For gyre: its log-probabilities have no temperature. There, take LMContext.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile numpy==2.4.6
env/bin/pip install --quiet --no-compile --no-deps llamppl==0.2.3
env/bin/python -W ignore - <<'PYTHON'
import asyncio
import importlib
import site
import sys
import types
from pathlib import Path

import numpy as np

# The packages import an inference engine and torch, which these two distributions do not use.
for name in ("llamppl", "llamppl.distributions"):
    package = types.ModuleType(name)
    package.__path__ = [str(Path(folder, *name.split("."))) for folder in site.getsitepackages()]
    sys.modules[name] = package
engine = types.ModuleType("llamppl.llms")
engine.Token = engine.TokenSequence = engine.Masks = type("Unused", (), {})
sys.modules["llamppl.llms"] = engine
Transformer = importlib.import_module("llamppl.distributions.transformer").Transformer
LMContext = importlib.import_module("llamppl.distributions.lmcontext").LMContext

TOKENS = 50
logits = {"flat": np.zeros(TOKENS), "sure": 6.0 * (np.arange(TOKENS) == 0)}


def log_softmax(values):
    return values - np.log(np.exp(values - values.max()).sum()) - values.max()


class Tokenizer:
    def encode(self, text):
        return [text]

    def decode(self, tokens):
        return " ".join(tokens)


class Model:
    """A language model whose next token depends on its prompt alone."""
    tokenizer = Tokenizer()
    masks = types.SimpleNamespace(ALL_TOKENS=set(range(TOKENS)))

    async def next_token_logprobs(self, tokens):
        return log_softmax(logits[tokens[-1]])

    def next_token_logprobs_unbatched(self, tokens):
        return log_softmax(logits[tokens[-1]])


async def measure(prompt, temperature):
    """Return the probabilities of all tokens by Transformer and by LMContext, (TOKENS,) each."""
    distribution = Transformer(Model(), prompt, temp=temperature)
    found = np.exp([await distribution.log_prob(token) for token in range(TOKENS)])
    return found, np.exp(LMContext(Model(), prompt, temp=temperature).next_token_logprobs)


posterior = {}
for temperature in (1.0, 2.0, 0.5):
    for prompt in logits:
        found, context = asyncio.run(measure(prompt, temperature))
        due = np.exp(log_softmax(logits[prompt] / temperature))
        print(f"temperature {temperature}, {prompt} prompt: probabilities add up to {found.sum():.3g}, "
              f"in LMContext to {context.sum():.3g}")
        assert np.allclose(context, due)
        assert np.allclose(found, np.exp(log_softmax(logits[prompt]) / temperature))
        posterior[temperature, prompt] = found[0], due[0]
        if temperature == 1:
            assert np.allclose(found, due)
        else:
            assert abs(np.log(found.sum())) > 0.1
    shares = np.array([posterior[temperature, prompt] for prompt in logits])
    shares = shares / shares.sum(0)
    print(f"    share of the flat prompt after token 0: {shares[0, 0]:.2f}, due {shares[0, 1]:.2f}")
    assert (abs(shares[0, 0] - shares[0, 1]) > 0.01) == (temperature != 1)

try:
    asyncio.run(Transformer(Model(), "flat", temp=2.0).sample())
    raise AssertionError("sample() works")
except ValueError as error:
    print(f"sample() with temperature 2: {error}")
PYTHON
