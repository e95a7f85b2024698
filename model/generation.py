"""From a prompt to its continuation: prefill, decoding, and the loop over both.

Shapes: B rows, T tokens, V vocabulary. A row is one sample of one prompt: row `p * num_samples + s`
is sample s of prompt p. Read `generate_one` first: it is the loop for one row, with nothing else.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from errors import Range, UserError, check_range
from model.kernels import attention_of_any_length
from model.sampling import BROKEN, Sampling, sample, uniform
from model.transformer import KVCache, Transformer

NextLogits = Callable[..., Tensor]
"""A function like `next_logits`."""
KEY_BLOCK = 256
"""On CUDA, a cache has room for a multiple of this many keys, and graphs read multiples of it."""
UNIFORMS_AHEAD = 16
"""How many random numbers of each row are copied to the device together, one for each token."""


def next_logits(model: Transformer, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
    """Tokens (B, T) -> logits (B, V) for the token after the last one.

    Prefill calls this with a prompt, decoding with T = 1.
    """
    return model.logits(model.hidden_states(tokens, cache, last_only=True)[:, -1])


@torch.inference_mode()
def generate_one(
    model: Transformer, prompt: list[int], sampling: Sampling, *, max_new_tokens: int, seed: int = 0
) -> list[int]:
    """Continue one prompt on a CPU and return the new tokens, in the plainest way.

    `generate` and `Batch` give the same tokens. They also handle several rows, end tokens and GPUs,
    and refuse logits that are not finite. `Batch.draw` yields each token at once. The tests compare
    them with this function.
    """
    text = list(prompt)
    unread = list(prompt)
    cache = new_cache(model, 1, len(prompt) + max_new_tokens)
    with evaluating(model):
        for index in range(max_new_tokens):
            # The first pass reads the whole prompt (prefill), and each later one the token that was
            # drawn last (decode), at position `cache.length`.
            logits = next_logits(model, torch.tensor([unread]), cache)  # (1, V)
            seen = torch.zeros(1, model.config.vocab_size, dtype=torch.bool)
            seen[0, text] = True
            uniforms = torch.tensor([uniform(seed, 0, index)], dtype=torch.float64)
            token = int(sample(logits, sampling, uniforms, seen))
            text.append(token)
            unread = list(text) if cache is None else [token]
    return text[len(prompt) :]


def generate(
    model: Transformer,
    prompts: list[list[int]],
    sampling: Sampling,
    *,
    max_new_tokens: int,
    eos_ids: Collection[int] = (),
    num_samples: int = 1,
    seed: int = 0,
    step: NextLogits = next_logits,
) -> list[list[int]]:
    """Continue every prompt `num_samples` times and return the new tokens of every row.

    `Batch` explains the arguments and gives the tokens one at a time.
    """
    batch = Batch(model, prompts, sampling, max_new_tokens=max_new_tokens, eos_ids=eos_ids,
                  num_samples=num_samples, seed=seed)
    for _ in batch.draw(step):
        pass
    return batch.new_tokens()


class Batch:
    """Prompts, each in `num_samples` rows, and the tokens that are drawn after them.

    A row does not depend on the other rows. It ends after `max_new_tokens`, before a token of
    `eos_ids`, or when `end` is called for it. Keys are cached, unless dynamic RoPE scaling would
    change their rotations at this length: then `cache` is None.

    Raises UserError for an empty prompt, for more tokens than the context holds, and for options
    of `sampling` that have no meaning or no effect.
    """

    @torch.inference_mode()
    def __init__(
        self, model: Transformer, prompts: list[list[int]], sampling: Sampling, *,
        max_new_tokens: int, eos_ids: Collection[int] = (), num_samples: int = 1, seed: int = 0,
    ):
        self.model = model
        self.device = model.tok_embeddings.weight.device
        self.sampling = sampling
        self.max_new_tokens = max_new_tokens
        self.eos_ids = eos_ids
        self.num_samples = num_samples
        self.seed = seed
        check_range("max_new_tokens", max_new_tokens, Range(ge=1))
        check_range("num_samples", num_samples, Range(ge=1))
        sampling.check()
        max_length = check_lengths(model, prompts, max_new_tokens)
        self.prompt_lengths: list[int] = []
        """Tokens of the prompt of each row."""
        for prompt in prompts:
            self.prompt_lengths += [len(prompt)] * num_samples
        n_rows = len(self.prompt_lengths)
        self.full_lengths = [length + max_new_tokens for length in self.prompt_lengths]
        """Tokens of each row once all are drawn."""
        self.lengths = list(self.prompt_lengths)
        """Tokens of each row so far, those of its prompt included."""
        self.lengths_on_device = list(self.prompt_lengths)
        """The same, but with the tokens that were drawn on the device and not read yet."""
        self.live = set(range(n_rows))
        """The rows that have not ended."""
        self.n_accepted = 0
        """New tokens of all rows so far."""
        self.cache = new_cache(model, n_rows, max_length)
        self.sampling_device = choose_sampling_device(self.device)
        """Where tokens are drawn and kept."""
        self.steps_ahead = 1 if self.sampling_device.type == "cuda" else 0
        """How many steps are started before the tokens of an earlier one are read. One keeps a GPU
        busy. The texts do not depend on it: what a row draws after its end is dropped."""
        tokens = torch.zeros(n_rows, max_length, dtype=torch.long)
        seen = torch.zeros(n_rows, model.config.vocab_size, dtype=torch.bool)
        for row, start in enumerate(self.prompt_lengths):
            tokens[row, :start] = torch.tensor(prompts[row // num_samples])
            seen[row, tokens[row, :start]] = True
        self.tokens = tokens.to(self.sampling_device)
        self.seen = seen.to(self.sampling_device)
        rows = list(range(n_rows))
        self.indexed_rows = rows
        """The rows that `index_on_device` was last called with."""
        self.index = torch.tensor(rows, device=self.sampling_device)
        """The same, on the device."""
        self.uniforms = Uniforms(self.prompt_lengths, max_new_tokens, num_samples, seed,
                                 self.sampling_device)

    def draw(self, step: NextLogits = next_logits) -> Iterator[tuple[int, int]]:
        """Yield (row, token) for every new token, until all rows have ended. A batch is drawn once.

        `step` computes the logits, as `next_logits` does. Dropout is off until the iterator ends or
        is closed. Raises UserError for logits that are not finite, and ValueError for a batch that
        was drawn before. With `steps_ahead`, later steps run while the caller handles a token.

        Every pass feeds all rows up to the same position, and the rows whose text stops there draw:

        1. Prefill feeds as many tokens of each prompt as the shortest one has.
        2. Decoding feeds one token of each row. A row with a longer prompt reads on in it.
        3. When all rows that draw have ended, one pass feeds more of the longer prompts, up to the
           end of the shortest of these. Then decoding goes on.

        `due_rows` makes these three: the shortest of the rows that lack tokens are due, and a pass
        feeds all rows up to their length.
        """
        # `lengths` does not tell: an iterator that was closed may have drawn more than it yielded.
        if self.lengths_on_device != self.prompt_lengths:
            raise ValueError("these rows were drawn before: make another Batch")
        inference = torch.inference_mode()
        unread: deque[Drawn] = deque()
        with evaluating(self.model):
            while self.live:
                due = self.due_rows()
                if due:
                    with inference:  # not around `yield`, because the caller may train
                        unread.append(self.draw_next(step, due))
                # If no row is due, all tokens are drawn. Rows are live until their last token is
                # read, so some tokens are unread.
                all_drawn = not due
                if all_drawn or len(unread) > self.steps_ahead:
                    yield from self.accept(unread.popleft())

    def due_rows(self) -> list[int]:
        """Return the rows that draw next: of those that lack tokens, the ones with the fewest."""
        lengths = self.lengths_on_device
        unfinished = [row for row in sorted(self.live) if lengths[row] < self.full_lengths[row]]
        fewest = min([lengths[row] for row in unfinished], default=0)
        # The others still read their prompts.
        return [row for row in unfinished if lengths[row] == fewest]

    def draw_next(self, step: NextLogits, due: list[int]) -> "Drawn":
        """Draw a token of the rows that are due. On a GPU, do not wait until it is drawn."""
        position = self.lengths_on_device[due[0]]  # of the new token: due rows are equally long
        logits = self.compute_logits(step, position)
        drawn = self.sample_rows(logits, due, position)
        for row in due:
            self.lengths_on_device[row] += 1
        return Drawn(due, drawn)

    def accept(self, drawn: "Drawn") -> Iterator[tuple[int, int]]:
        """Yield (row, token) for the tokens of a step, except those of rows that have ended."""
        for row, token in zip(drawn.rows, drawn.read(), strict=True):
            if row not in self.live:
                continue
            if token == BROKEN:
                raise UserError("the logits are not finite: the model's weights are broken")
            if token in self.eos_ids:
                self.end(row)
                continue
            self.lengths[row] += 1
            self.n_accepted += 1
            if self.lengths[row] == self.full_lengths[row]:
                self.end(row)
            yield row, token

    def end(self, row: int) -> None:
        """End a row, if it has not ended yet."""
        self.live.discard(row)

    def new_tokens(self) -> list[list[int]]:
        """Return the tokens that were drawn so far for each row."""
        spans = zip(self.tokens.cpu(), self.prompt_lengths, self.lengths, strict=True)
        return [tokens[start:length].tolist() for tokens, start, length in spans]

    def compute_logits(self, step: NextLogits, position: int) -> Tensor:
        """Feed all tokens before `position`, or those of them that are not in the cache.

        Returns the logits (B, V) for the token at `position`, on the device where it is drawn.
        """
        cache = self.cache
        first = 0 if cache is None else cache.length
        # Contiguous, because the compiler would compile again for other strides.
        fed = self.tokens[:, first:position].clone(memory_format=torch.contiguous_format)
        fed = fed.to(self.device)
        # All samples of a prompt share its first pass. They do not share a pass of one token,
        # because a compiled step decodes only the whole batch.
        samples_share = self.num_samples > 1 and first == 0 and fed.shape[1] > 1
        with attention_of_any_length(self.device):
            if cache is not None and samples_share:
                logits = prefill_samples(step, self.model, fed, cache, self.num_samples)
            else:
                logits = step(self.model, fed, cache)
        return logits.to(self.sampling_device)

    def sample_rows(self, logits: Tensor, due: list[int], position: int) -> Tensor:
        """Draw the token at `position` of the rows that are due -> ids (len(due),)."""
        rows = self.index_on_device(due)
        uniforms = self.uniforms.zeros  # nothing reads them at temperature 0
        if self.sampling.temperature > 0:
            uniforms = self.uniforms.at(position, self.live)
        all_due = len(due) == len(self.prompt_lengths)
        if all_due:  # without a copy
            drawn = sample(logits, self.sampling, uniforms, self.seen)
        else:
            drawn = sample(logits[rows], self.sampling, uniforms[rows], self.seen[rows])
        tokens = drawn
        if self.steps_ahead > 0:
            # The next step is fed before the CPU reads and refuses BROKEN, which is not an id.
            tokens = drawn.clamp(min=0)
        if all_due:  # by one kernel
            self.tokens[:, position] = tokens
        else:
            self.tokens[rows, position] = tokens
        if self.sampling.repetition_penalty != 1:
            self.seen[rows, tokens] = True  # pairs (row, token): a slice would mark all rows
        return drawn

    def index_on_device(self, rows: list[int]) -> Tensor:
        """Return rows as an index on the device, copied only if the last call had other rows."""
        if rows != self.indexed_rows:
            self.indexed_rows = rows
            self.index = torch.tensor(rows).to(self.sampling_device, non_blocking=True)
        return self.index


class Uniforms:
    """The random numbers of a batch: one for each new token of each row.

    Those of UNIFORMS_AHEAD positions are copied to the device together.
    """

    def __init__(
        self, prompt_lengths: list[int], max_new_tokens: int, num_samples: int, seed: int,
        device: torch.device,
    ):
        self.prompt_lengths = prompt_lengths
        self.max_new_tokens = max_new_tokens
        self.num_samples = num_samples
        self.seed = seed
        self.device = device
        self.zeros = torch.zeros(len(prompt_lengths), dtype=torch.float64, device=device)
        """(B,)"""
        self.ahead = torch.empty(0, len(prompt_lengths))
        """Numbers (positions, B), from position `first` on. At first there are none."""
        self.first = 0

    def at(self, position: int, rows: Collection[int]) -> Tensor:
        """Return the numbers (B,) that draw the tokens at `position`, on the device.

        `rows` are those that have not ended. The number of another row may be 0.
        """
        if not self.first <= position < self.first + len(self.ahead):
            self.first = position
            block = [self.compute(position + i, rows) for i in range(UNIFORMS_AHEAD)]
            ahead = torch.tensor(block, dtype=torch.float64)
            self.ahead = ahead.to(self.device, non_blocking=True)
        return self.ahead[position - self.first]

    def compute(self, position: int, rows: Collection[int]) -> list[float]:
        """Return the numbers of `rows` for their tokens at `position`; 0 where none is drawn."""
        uniforms = [0.0] * len(self.prompt_lengths)
        for row in rows:
            index = position - self.prompt_lengths[row]
            if 0 <= index < self.max_new_tokens:
                uniforms[row] = uniform(self.seed, row % self.num_samples, index)
        return uniforms


class Drawn:
    """Tokens that a step has drawn, on their way to the CPU."""

    def __init__(self, rows: list[int], ids: Tensor):
        self.rows = rows
        # From a GPU, this copies to pinned memory and returns at once.
        self.ids = ids.to("cpu", non_blocking=True)
        self.copied: torch.Event | None = None
        if ids.is_cuda:
            self.copied = torch.cuda.current_stream(ids.device).record_event()

    def read(self) -> list[int]:
        """Return a token, or BROKEN, for each of `rows`."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.ids.tolist()


def choose_sampling_device(device: torch.device) -> torch.device:
    """Return where to draw tokens for a model on `device`: there, if it is sure to have float64."""
    return device if device.type in ("cpu", "cuda") else torch.device("cpu")


def check_lengths(model: Transformer, prompts: list[list[int]], max_new_tokens: int) -> int:
    """Check the lengths of prompts. Return that of the longest row, with its new tokens.

    Raises UserError for no prompt, an empty one, and more tokens than the context has room for.
    """
    if not prompts or not all(prompts):
        raise UserError("the prompt is empty: give at least one token")
    longest = max(map(len, prompts))
    total = longest + max_new_tokens
    limit = model.config.max_positions
    prompt = "a prompt of 1 token" if longest == 1 else f"a prompt of {longest} tokens"
    if longest >= limit:
        raise UserError(f"{prompt} leaves no room in the context of {limit} "
                        "(model.max_positions): shorten the prompt")
    if total > limit:  # so at least two are new
        raise UserError(
            f"{prompt} and {max_new_tokens} new ones make {total}, past the context of {limit} "
            "(model.max_positions): shorten the prompt or lower max_new_tokens")
    return total


def new_cache(model: Transformer, rows: int, length: int) -> KVCache | None:
    """Return an empty cache for rows of so many tokens.

    None with dynamic RoPE scaling, if a row becomes longer than the training rows: every token then
    changes the rotations of all keys before it.
    """
    if length > model.position.cache_limit:
        return None
    device = model.tok_embeddings.weight.device
    dtype = model.norm.weight.dtype
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    if device.type == "cuda":  # texts of similar lengths can then share CUDA graphs
        length = KEY_BLOCK * math.ceil(length / KEY_BLOCK)
    return KVCache(model.config, rows, length, device, dtype)


def prefill_samples(
    step: NextLogits, model: Transformer, tokens: Tensor, cache: KVCache, samples: int
) -> Tensor:
    """Prefill for `samples` adjacent copies of each prompt by `step`: (B, T) -> logits (B, V).

    Run each prompt once and copy its keys and values.
    """
    once = cache.every_nth(samples)
    logits = step(model, tokens[::samples], once)
    for x in cache.keys + cache.values:
        # A view (prompts, samples, H_kv, T, D)
        by_prompt = x[:, :, : once.length].unflatten(0, (-1, samples))
        by_prompt[:, 1:] = by_prompt[:, :1]
    cache.length = once.length
    return logits.repeat_interleave(samples, 0)


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """Turn the dropout of a model off within; afterwards the mode of each part is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training
