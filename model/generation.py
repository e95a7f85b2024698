"""From a prompt to its continuation: prefill, decoding, and the loop over both.

Shapes: B rows, T tokens, V vocabulary. A row is one sample of one prompt.
"""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from errors import Range, UserError, check_range, check_ranges
from model.compiled import Step, compile_step
from model.sampling import Sampling, sample, uniform
from model.transformer import KVCache, Transformer


def next_logits(model: Transformer, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
    """Tokens (B, T) -> logits (B, V) for the token after the last one.

    Prefill calls this with a prompt, decoding with T = 1.
    """
    return model.logits(model.hidden_states(tokens, cache, last_only=True)[:, -1])


def prefill_samples(
    step: Step, model: Transformer, tokens: Tensor, cache: KVCache, samples: int
) -> Tensor:
    """Prefill for `samples` adjacent copies of each prompt by `step`: (B, T) -> logits (B, V).

    Run each prompt once and copy its keys and values.
    """
    once = cache.every(samples)
    logits = step(model, tokens[::samples], once)
    for x in cache.keys + cache.values:
        rows = x[:, :, : once.length].unflatten(0, (-1, samples))
        rows[:, 1:] = rows[:, :1]
    cache.length = once.length
    return logits.repeat_interleave(samples, 0)


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
    compile: bool = False,
    on_start: Callable[[], None] = lambda: None,
    on_token: Callable[[int, int], bool] = lambda row, token: False,
) -> list[list[int]]:
    """Continue every prompt `num_samples` times and return the new tokens of every row.

    Row `p * num_samples + s` is sample s of prompt p. It does not depend on the other rows. It ends
    after `max_new_tokens`, before a token of `eos_ids`, or when `on_token(row, token)` returns
    True. `on_token` is called for every new token. Dropout is off. `compile` compiles decoding and
    long prefills (model/compiled.py), which makes a single row several times as fast on a CPU.
    `on_start` is called once all is compiled, before the first forward pass. Keys are cached,
    unless dynamic RoPE scaling would change their rotations at this length; without a cache nothing
    is compiled.

    Prompts may differ in length. All rows start at position 0, and each forward pass feeds the
    tokens that all unfinished rows have: first the length of the shortest prompt (prefill), then
    one token at a time (decode). While a short row draws tokens, a longer one still reads its
    prompt. When the short rows are done, one pass feeds what is left of the longer prompts.

    Raises UserError, before any compute, for an empty prompt, for more tokens than the context
    holds, and for options of `sampling` that have no meaning or no effect; later for logits that
    are not finite.
    """
    check_range("max_new_tokens", max_new_tokens, Range(ge=1))
    check_range("num_samples", num_samples, Range(ge=1))
    check_ranges(sampling)
    for name in ("top_k", "top_p", "min_p"):
        if sampling.temperature == 0 and getattr(sampling, name) is not None:
            raise UserError(f"{name} has no effect at temperature 0")
    if not prompts or not all(prompts):
        raise UserError("the prompt is empty: give at least one token")
    longest = max(map(len, prompts))
    total, limit = longest + max_new_tokens, model.config.max_positions
    if total > limit:
        raise UserError(
            f"a prompt of {longest} tokens and {max_new_tokens} new ones make {total}, past the "
            f"context of {limit} (model.max_positions): shorten the prompt or lower max_new_tokens"
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
    if total <= model.position.cache_limit:
        autocast = torch.is_autocast_enabled(device.type)
        dtype = torch.get_autocast_dtype(device.type) if autocast else model.norm.weight.dtype
        cache = KVCache(model.config, len(starts), total, device, dtype)

    was_training = model.training
    model.eval()
    try:
        step: Step = next_logits
        if compile and cache is not None:
            step = compile_step(next_logits, model, cache, prompt=min(starts), samples=num_samples)
        on_start()
        live = list(range(len(starts)))
        while live:
            known = min(lengths[row] for row in live)
            due = [row for row in live if lengths[row] == known]  # the others read their prompt
            # Contiguous, because the compiler would compile again for other offsets or strides.
            first = 0 if cache is None else cache.length
            fed = tokens[:, first:known].clone(memory_format=torch.contiguous_format).to(device)
            if cache is not None and cache.length == 0 and fed.shape[1] > 1 and num_samples > 1:
                logits = prefill_samples(step, model, fed, cache, num_samples)
            else:
                logits = step(model, fed, cache)
            logits = logits.float().cpu()  # drawing there gives every device the same tokens
            rows = slice(None) if len(due) == len(starts) else due  # a slice copies nothing
            numbers = (uniform(seed, row % num_samples, known - starts[row]) for row in due)
            drawn = sample(logits[rows], sampling, numbers, seen[rows])
            tokens[rows, known] = drawn
            if sampling.repetition_penalty != 1:
                seen[due, drawn] = True  # pairs (row, token): a slice would mark all rows
            for row, token in zip(due, drawn.tolist(), strict=True):
                if token in eos_ids:
                    live.remove(row)
                    continue
                lengths[row] += 1
                if on_token(row, token) or lengths[row] == starts[row] + max_new_tokens:
                    live.remove(row)
    finally:
        model.train(was_training)
    return [tokens[row, starts[row] : lengths[row]].tolist() for row in range(len(starts))]
