#!/usr/bin/env bash
# tunix computes ORPO's odds from whole texts, so that the shorter answer is the better one.
#
# Versions: google-tunix 0.1.7, jax 0.10.2, flax 0.12.8.
# Guess before the run: the odds are those of the mean log-probability of a token, as in the paper
#     (Hong et al. 2024, arXiv:2403.07691) and in trl, whose implementation the code says to follow.
# Seen: they are those of the sum over the answer. Where each token of the chosen answer has a
#     probability of 0.6 and each of the rejected one 0.3, the log odds are 1.25 in the paper. In
#     tunix they are -1.3 for 12 tokens against 4, and -15.6 for 40 against 4: the pair counts as
#     mistaken, and shortens the answers. The other part of the loss is a mean.
# For gyre: it trains on text, not on pairs. With tunix, train an export by DPO, which takes sums.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jax==0.10.2 flax==0.12.8 optax==0.2.8 \
    orbax-checkpoint==0.12.8 grain==0.2.18 qwix==0.1.8 google-metrax==0.2.4 sentencepiece==0.2.3 \
    perfetto==0.59.1 jaxtyping==0.3.11 huggingface_hub==2.4.0 pillow==13.0.0 pandas==3.1.1 \
    tqdm==4.70.1 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps google-tunix==0.1.7
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import math

import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.rl import common
from tunix.sft.dpo import dpo_trainer

P_CHOSEN = 0.6  # the probability of token 1, of which chosen answers consist
P_REJECTED = 0.3  # that of token 2
LENGTH = 40


class Unigram(nnx.Module):
    """A model whose tokens have a probability of their own, whatever comes before."""

    def __init__(self, probabilities):
        self.logits = nnx.Param(jnp.log(jnp.array(probabilities)))

    def __call__(self, input_tokens, positions, cache, attention_mask):
        logits = self.logits[...]
        return jnp.broadcast_to(logits, (*input_tokens.shape, len(logits))), None


def log_odds(log_probability):
    return log_probability - math.log1p(-math.exp(log_probability))


def measure(n_chosen, n_rejected):
    """Return ORPO's log odds of two answers to a prompt of one token, and those of the paper."""
    ids = np.zeros((2, 1 + LENGTH), np.int32)
    mask = np.zeros((2, 1 + LENGTH), bool)
    ids[0, 1:1 + n_chosen] = 1
    ids[1, 1:1 + n_rejected] = 2
    mask[0, :1 + n_chosen] = True
    mask[1, :1 + n_rejected] = True
    example = dpo_trainer.TrainExample(
        input_ids=jnp.array(ids), positions=common.build_positions_from_mask(jnp.array(mask)),
        attention_mask=common.make_causal_attn_mask(jnp.array(mask)), ref_chosen_logps=None,
        ref_rejected_logps=None, completion_mask=jnp.array(mask[:, 1:]), logits_to_keep=LENGTH)
    model = Unigram([1 - P_CHOSEN - P_REJECTED, P_CHOSEN, P_REJECTED])
    loss, seen = dpo_trainer.dpo_loss_fn(model, example, algorithm="orpo")
    odds = math.log(seen["odds_ratio"].item())
    mean = log_odds(math.log(P_CHOSEN)) - log_odds(math.log(P_REJECTED))
    total = log_odds(n_chosen * math.log(P_CHOSEN)) - log_odds(n_rejected * math.log(P_REJECTED))
    print(f"{n_chosen} tokens chosen, {n_rejected} rejected: log odds {odds:.2f}; of the mean "
          f"{mean:.2f}, of the sum {total:.2f}; loss {loss.item():.3f}")
    assert math.isclose(odds, total, abs_tol=0.02)
    return odds, mean


odds, mean = measure(1, 1)
assert math.isclose(odds, mean, abs_tol=0.02)
assert measure(12, 4)[0] < -1
assert measure(40, 4)[0] < -10
PYTHON
