"""From a prompt to more of it: prefill, decoding, and the loop over both.

Shapes: B rows, T tokens, V vocabulary. A row is one sample of one prompt.
"""

import copy
import functools
import math
from collections.abc import Callable, Collection

import torch
from torch import Tensor

from model.kernels import compile_for_decoding
from model.sampling import Sampling, sample
from model.transformer import KVCache, Transformer, TransformerBlock, attend


def next_logits(model: Transformer, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
    """Tokens (B, T) -> logits (B, V) of what follows the last one.

    Prefill is this with a prompt, decoding is this with T = 1. In prefill the last block is
    computed for the last token alone, but for queries, keys and values.
    """
    if tokens.shape[1] == 1 or hasattr(model, "unshard"):  # a sharded block gathers in forward only
        return model.logits(model.hidden_states(tokens, cache)[:, -1])
    h, freqs_cis, mask, stop = model.inputs(tokens, cache)
    *blocks, last = model.layers
    assert isinstance(last, TransformerBlock)
    for block in blocks:
        h = block(h, freqs_cis, mask, cache)
    xq, xk, xv = last.attention.project(last.attention_norm(h), freqs_cis, cache)
    mask = None if mask is None else mask[..., -1:, :]
    attended = attend(xq[:, :, -1:], xk, xv, mask).transpose(1, 2).flatten(-2)
    h = h[:, -1:] + last.attention.wo(attended)
    h = h + last.feed_forward(last.ffn_norm(h))
    if cache is not None:
        cache.length = stop
    return model.logits(model.norm(h)[:, -1])


def prefill_samples(model: Transformer, tokens: Tensor, cache: KVCache, samples: int) -> Tensor:
    """Prefill for `samples` copies of each prompt, side by side: rows (B, T) -> logits (B, V).

    Run each prompt once and copy its keys and values.
    """
    once = copy.copy(cache)  # a view of every `samples`-th row
    once.keys, once.values = ([x[::samples] for x in xs] for xs in (cache.keys, cache.values))
    logits = next_logits(model, tokens[::samples], once)
    for x in cache.keys + cache.values:
        rows = x[:, :, : once.length].unflatten(0, (-1, samples))
        rows[:, 1:] = rows[:, :1]
    cache.length = once.length
    return logits.repeat_interleave(samples, 0)


@functools.cache
def compiled_next_logits(
    device_type: str,
) -> Callable[[Transformer, Tensor, KVCache | None], Tensor]:
    """`next_logits` for a kind of device ("cpu"), compiled; see `compile_for_decoding`."""
    return compile_for_decoding(next_logits, device_type)


@torch.inference_mode()
def generate(
    model: Transformer,
    prompts: list[list[int]],
    sampling: Sampling,
    *,
    max_new_tokens: int,
    eos_ids: Collection[int] = (),
    num_samples: int = 1,
    seed: int = 0,
    use_cache: bool = True,
    compile: bool = False,
    on_token: Callable[[int, int], bool] | None = None,
) -> list[list[int]]:
    """Continue every prompt `num_samples` times; return the new tokens of every row.

    Row `p * num_samples + s` is sample s of prompt p and does not depend on the other rows. It
    ends after `max_new_tokens`, before one of `eos_ids` (which is no part of it), or when
    `on_token(row, token)`, called as each token is drawn, returns True.

    All rows start at position 0, so they share their positions, and prompts may differ in length:
    each forward feeds what is known of all unfinished rows, up to the shortest. At first that is
    the prompts' common length (prefill, each prompt once), then one token (decode), which a longer
    row takes from its prompt and a shorter one from what it drew; once the shorter rows are done,
    it is the rest of the longer prompts. Dropout is off meanwhile. With `compile`, decoding is
    compiled, which takes up to a minute and makes one row about five times as fast on a CPU.

    Raises ValueError, before any compute, for an empty prompt, for more than the context holds, for
    a cache whose keys would go stale, for `compile` without a cache, and for options of `sampling`
    without a meaning or without an effect.
    """
    _check(model, prompts, sampling, max_new_tokens, num_samples, use_cache, compile)
    total = max(map(len, prompts)) + max_new_tokens
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
            if cache is not None and cache.length == 0 and fed.shape[1] > 1 and num_samples > 1:
                logits = prefill_samples(model, fed, cache, num_samples)
            else:
                decode = compile and fed.shape[1] == 1
                forward = compiled_next_logits(device.type) if decode else next_logits
                logits = forward(model, fed, cache)
            logits = logits.float().cpu()
            rows = slice(None) if len(due) == len(starts) else due  # all of them need no copy
            addresses = [(seed, row % num_samples, known - starts[row]) for row in due]
            drawn = sample(logits[rows], sampling, addresses, seen[rows])
            tokens[rows, known] = drawn
            if sampling.repetition_penalty != 1:
                seen[due, drawn] = True  # pairs: a slice for `due` would take every token drawn
            for row, token in zip(due, drawn.tolist(), strict=True):
                if token in eos_ids:
                    live.remove(row)
                    continue
                lengths[row] += 1
                stopped = on_token is not None and on_token(row, token)
                if stopped or lengths[row] == starts[row] + max_new_tokens:
                    live.remove(row)
    finally:
        model.train(was_training)
    return [tokens[row, starts[row] : lengths[row]].tolist() for row in range(len(starts))]


def _check(
    model: Transformer, prompts: list[list[int]], sampling: Sampling, max_new_tokens: int,
    num_samples: int, use_cache: bool, compile: bool,
) -> None:
    """Raise ValueError for what `generate` cannot do; see there."""
    temperature, penalty = sampling.temperature, sampling.repetition_penalty
    top_k, top_p, min_p = sampling.top_k, sampling.top_p, sampling.min_p
    for name, value, valid, limit in (
        ("max_new_tokens", max_new_tokens, max_new_tokens >= 1, "at least 1"),
        ("num_samples", num_samples, num_samples >= 1, "at least 1"),
        ("temperature", temperature, 0 <= temperature < math.inf, "0 or a positive number"),
        ("top_k", top_k, top_k is None or top_k >= 1, "at least 1"),
        ("top_p", top_p, top_p is None or 0 < top_p <= 1, "in (0, 1]"),
        ("min_p", min_p, min_p is None or 0 <= min_p <= 1, "in [0, 1]"),
        ("repetition_penalty", penalty, 0.01 <= penalty <= 100, "in [0.01, 100]"),
    ):
        if not valid:
            raise ValueError(f"{name} must be {limit}, not {value}")
    for name in ("top_k", "top_p", "min_p"):
        if temperature == 0 and getattr(sampling, name) is not None:
            raise ValueError(f"{name} has no effect at temperature 0")
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


def compute_dtype(model: Transformer) -> torch.dtype:
    """The dtype of the model's keys and values: autocast's where it is on, else the weights'."""
    weight = model.tok_embeddings.weight
    if torch.is_autocast_enabled(weight.device.type):
        return torch.get_autocast_dtype(weight.device.type)
    return weight.dtype
