"""From logits to tokens: the key/value cache, sampling, and the loop that joins them.

Shapes: B rows, T tokens, S cached keys, H heads, D head width, V vocabulary. A row is one sample of
one prompt.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from model.transformer import ModelConfig, Transformer, address


class KVCache:
    """The keys and values of the tokens so far, one pair of (B, H_kv, S, D) tensors per layer.

    The keys and values of a head lie side by side in memory, which is how attention reads them.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        max_length: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        shape = (batch_size, config.n_kv_heads, max_length, config.head_dim)
        self.keys, self.values = (
            [torch.empty(shape, device=device, dtype=dtype) for _ in range(config.n_layers)]
            for _ in range(2)
        )
        self.length = (
            0  # a Python int: nobody has to ask the device. `Transformer.features` moves it
        )

    def update(self, layer: int, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        """Write xk, xv (B, H_kv, T, D) behind what is there; return all of it, (B, H_kv, S + T, D).

        Raises ValueError, with nothing written, if there is no room, and for a batch or a dtype
        not the cache's: one would broadcast, the other convert all the keys at every step.
        """
        keys, values = self.keys[layer], self.values[layer]
        stop = self.length + xk.shape[2]
        if stop > keys.shape[2]:
            raise ValueError(
                f"the cache is full: {self.length} + {xk.shape[2]} tokens, room for {keys.shape[2]}"
            )
        if xk.shape[0] != keys.shape[0] or xk.dtype != keys.dtype:
            raise ValueError(
                f"the cache holds {keys.shape[0]} rows of {keys.dtype}, "
                f"not {xk.shape[0]} of {xk.dtype}"
            )
        keys[:, :, self.length : stop] = xk
        values[:, :, self.length : stop] = xv
        return keys[:, :, :stop], values[:, :, :stop]


# --- one token ---


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: the penalty first, then the others in this order (Hugging Face's)."""

    temperature: float = 0.8
    """Logits are divided by it; 0 takes the likeliest token."""
    top_k: int | None = None
    """Keep the k likeliest tokens. Unset: all."""
    top_p: float | None = None
    """Keep the smallest set of likeliest tokens whose mass reaches p. Unset: all."""
    min_p: float | None = None
    """Keep tokens at least this fraction as likely as the likeliest. Unset: all."""
    repetition_penalty: float = 1.0
    """Above 1, tokens that the row holds, prompt included, become less likely: a positive score is
    divided by it, a negative one multiplied. (CTRL, Keskar et al. 2019, arXiv:1909.05858)"""

    def __post_init__(self):
        """Raise ValueError for values without a meaning, or without an effect."""
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be 0 or a positive number, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be in [0, 1], not {self.min_p}")
        if not 0.01 <= self.repetition_penalty <= 100:
            raise ValueError(
                f"repetition_penalty must be in [0.01, 100], not {self.repetition_penalty}"
            )
        for name in ("top_k", "top_p", "min_p"):
            if self.temperature == 0 and getattr(self, name) is not None:
                raise ValueError(f"{name} has no effect at temperature 0")


def uniform(seed: int, sample: int, number: int) -> float:
    """The random number in [0, 1) that draws new token `number` of sample `sample`.

    A function of its address, not the next value of a stream: a row draws the same text alone or in
    any batch, with the cache on or off, however many rows or tokens are asked for.
    """
    return (address(seed, "sample", sample, number) >> 10) / 2**53  # 63 bits -> a float's 53


def sample(logits: Tensor, sampling: Sampling, uniforms: Tensor | None, seen: Tensor) -> Tensor:
    """Draw one token per row: logits (B, V) and a uniform number each, float64 (B,) -> ids (B,).

    Temperature 0 needs no `uniforms`. `seen`, bool (B, V), marks the tokens that the repetition
    penalty applies to. The candidates stay in the order of their ids: sorted by score, two close
    ones would swap places, and with them the token drawn, over an error in the last digit. Computed
    in float64, with the largest score at 0 so that no temperature overflows. Raises ValueError for
    logits that are not finite.
    """
    scores = logits.double()
    if sampling.repetition_penalty != 1:
        penalty = sampling.repetition_penalty
        penalised = torch.where(scores > 0, scores / penalty, scores * penalty)
        scores = torch.where(seen, penalised, scores)
    largest = scores.amax(-1, keepdim=True)
    if not largest.isfinite().all():
        raise ValueError("the logits are not finite numbers: the model's weights are broken")
    if sampling.temperature == 0:
        return scores.argmax(-1)
    scores = (scores - largest) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        # Not "everything above the k-th score", which would keep its ties.
        kept = scores.topk(sampling.top_k)
        scores = torch.full_like(scores, -math.inf).scatter(-1, kept.indices, kept.values)
    if sampling.top_p is not None and sampling.top_p < 1:
        scores = scores.masked_fill(~nucleus(scores.softmax(-1), sampling.top_p), -math.inf)
    if sampling.min_p:
        scores = scores.masked_fill(scores < math.log(sampling.min_p), -math.inf)
    cdf = scores.softmax(-1).cumsum(-1)
    # The first token whose cdf is above the target; a token without mass never is the first.
    target = uniforms[:, None] * cdf[:, -1:]
    return torch.searchsorted(cdf, target, right=True).squeeze(-1)


FIRST_CANDIDATES = 512


def nucleus(masses: Tensor, p: float) -> Tensor:
    """The smallest set of the largest masses (B, V) that reaches p, of equal ones the first: bool
    (B, V). (Holtzman et al. 2020, arXiv:1904.09751)

    512 are sorted, and more only where they do not reach p: all of a vocabulary would take longer
    than a small model.
    """
    vocabulary = masses.shape[-1]
    candidates = min(FIRST_CANDIDATES, vocabulary)
    while True:
        largest = masses.topk(candidates).values
        before = largest.cumsum(-1) - largest  # 0 for the largest, which therefore always stays
        kept = (before < p).sum(-1, keepdim=True)
        if candidates == vocabulary or (kept < candidates).all():
            break
        candidates = min(8 * candidates, vocabulary)
    least = largest.gather(-1, kept - 1)
    above, ties = masses > least, masses == least
    return above | (ties & (ties.cumsum(-1) <= kept - above.sum(-1, keepdim=True)))


# --- many tokens ---


def next_logits(model: Transformer, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
    """Tokens (B, T) -> logits (B, V) of what follows the last one.

    Prefill is this with a prompt, decoding is this with T = 1.
    """
    return model.logits(model.features(tokens, cache)[:, -1])


MAX_GRAPHS = 32  # PyTorch's own limit, 8, is not enough for one of each number of rows


@functools.cache
def compiled_next_logits(device_type: str) -> Callable[[Transformer, Tensor, KVCache], Tensor]:
    """`next_logits` for a kind of device ("cpu"), compiled once for all lengths of the cache.

    The first two calls compile, for each number of rows up to MAX_SUMMED_TOKENS, for all larger
    ones together, and for every shape and dtype of model. So does the first beyond LONGEST_SUM
    keys, and one that fills the cache or `max_positions`, which `generate` never does; up to 16
    times LONGEST_SUM no other does, for as many tokens as follow. PyTorch gives up and runs
    eagerly, with a warning, after MAX_GRAPHS in a process.
    """
    # Else dynamic=True makes a tensor of every norm's eps at every step. That, and the checks that
    # buffers have the sizes the compiler gave them, would be a good part of one row's step.
    torch._dynamo.config.specialize_float = True
    torch._dynamo.config.recompile_limit = MAX_GRAPHS
    options = {"size_asserts": False}
    if device_type == "cpu":
        # What loops read again and again, such as a normalised input by every row of a matrix, is
        # computed once if it takes more than one number to compute; by default, only if more than
        # four. That a loop reads it again torch 2.13 counts in its deterministic mode alone, which
        # does nothing else on a CPU.
        options |= {"realize_reads_threshold": 1, "deterministic": True}
    return torch.compile(next_logits, dynamic=True, options=options)


@torch.inference_mode()
def generate(
    model: Transformer,
    prompts: list[list[int]],
    sampling: Sampling,
    *,
    max_new_tokens: int,
    eos_id: int | None = None,
    num_samples: int = 1,
    seed: int = 0,
    use_cache: bool = True,
    compile: bool = False,
    on_token: Callable[[int, int], bool] | None = None,
) -> list[list[int]]:
    """Continue every prompt `num_samples` times; return the new tokens of every row.

    Row `p * num_samples + s` is sample s of prompt p and does not depend on the other rows. It
    ends after `max_new_tokens`, before `eos_id` (which is no part of it), or when
    `on_token(row, token)`, called as each token is drawn, returns True.

    All rows start at position 0, so they share their positions, and prompts may differ in length:
    each forward feeds what is known of all unfinished rows, up to the shortest. At first that is
    the prompts' common length (prefill), then one token (decode), which a longer row takes from its
    prompt and a shorter one from what it drew; once the shorter rows are done, it is the rest of
    the longer prompts. Dropout is off meanwhile. With `compile`, decoding is compiled, which takes
    up to a minute and makes one row about five times as fast on a CPU.

    Raises ValueError, before any compute, for an empty prompt, for more than the context holds, and
    for `compile` without the cache.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, not {num_samples}")
    if compile and not use_cache:
        raise ValueError("compiled decoding needs the cache: use_cache=True")
    if not prompts or not all(prompts):
        raise ValueError("the prompt is empty: there is nothing to continue")
    longest = max(map(len, prompts))
    total, limit = longest + max_new_tokens, model.config.max_positions
    if total > limit:
        raise ValueError(
            f"a prompt of {longest} tokens and {max_new_tokens} new ones make {total}, past the "
            f"context of {limit} (model.max_positions): shorten the prompt or lower max_new_tokens"
        )

    if use_cache and total > model.position.cache_limit:
        raise ValueError(
            f"{total} tokens pass {model.position.cache_limit}, beyond which this encoding's "
            "frequencies change with the length and cached keys are stale: use_cache=False"
        )

    starts = [len(prompt) for prompt in prompts for _ in range(num_samples)]
    lengths = list(starts)
    tokens = torch.zeros(len(starts), total, dtype=torch.long)
    seen = torch.zeros(len(starts), model.config.vocab_size, dtype=torch.bool)
    for row, start in enumerate(starts):
        tokens[row, :start] = torch.tensor(prompts[row // num_samples])
        seen[row, tokens[row, :start]] = True
    device = model.tok_embeddings.weight.device
    cache = None
    if use_cache:
        cache = KVCache(model.config, len(starts), total, device, compute_dtype(model))

    was_training = model.training
    model.eval()
    try:
        live = list(range(len(starts)))
        while live:
            known = min(lengths[row] for row in live)
            due = [row for row in live if lengths[row] == known]  # the others have prompt left
            # Cloned: a slice's place in `tokens` would be a reason to compile again.
            fed = tokens[:, 0 if cache is None else cache.length : known].clone().to(device)
            # The token is needed on the CPU, so it is drawn there: alike for every device.
            decode = compile and fed.shape[1] == 1
            forward = compiled_next_logits(device.type) if decode else next_logits
            logits = forward(model, fed, cache).float().cpu()
            rows = slice(None) if len(due) == len(starts) else due  # all of them need no copy
            uniforms = None
            if sampling.temperature > 0:
                uniforms = [uniform(seed, row % num_samples, known - starts[row]) for row in due]
                uniforms = torch.tensor(uniforms, dtype=torch.float64)
            drawn = sample(logits[rows], sampling, uniforms, seen[rows])
            tokens[rows, known] = drawn
            if sampling.repetition_penalty != 1:
                seen[due, drawn] = True  # pairs: a slice for `due` would take every token drawn
            for row, token in zip(due, drawn.tolist(), strict=True):
                if token == eos_id:
                    live.remove(row)
                    continue
                lengths[row] += 1
                stopped = on_token is not None and on_token(row, token)
                if stopped or lengths[row] == starts[row] + max_new_tokens:
                    live.remove(row)
    finally:
        model.train(was_training)
    return [tokens[row, starts[row] : lengths[row]].tolist() for row in range(len(starts))]


def compute_dtype(model: Transformer) -> torch.dtype:
    """The dtype of the model's keys and values: autocast's where it is on, else the weights'."""
    weight = model.tok_embeddings.weight
    if torch.is_autocast_enabled(weight.device.type):
        return torch.get_autocast_dtype(weight.device.type)
    return weight.dtype
