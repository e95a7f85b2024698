"""Every row of a batch is what its prompt alone would get, with the cache and without."""

import math

import pytest
import torch
from builders import KINDS, quick_for, random_tokens, sharp_model
from torch import Tensor

from errors import UserError
from model.config import RopeScaling
from model.encodings import POSITIONS
from model.generation import (
    Batch,
    choose_sampling_device,
    evaluating,
    generate,
    generate_one,
    next_logits,
)
from model.sampling import Sampling, sample, uniform

GREEDY = Sampling(temperature=0)


def make_prompt(length: int, seed: int = 0) -> list[int]:
    return random_tokens(length, seed=seed).tolist()


@torch.no_grad()
def compute_logits(model, prompt: list[int], new: list[int]) -> Tensor:
    """The logits (T, V) that each token of `new` is drawn from, without a cache.

    With dynamic scaling they depend on the length of the text before it.
    """
    if model.config.rope_scaling is None:
        return model(torch.tensor([prompt + new[:-1]]))[0, len(prompt) - 1 :]
    texts = [prompt + new[:index] for index in range(len(new))]
    return torch.cat([model(torch.tensor([text]))[:, -1] for text in texts])


def assert_each_token_is_drawn_from_its_own_text(model, prompts: list[list[int]]) -> None:
    """Draw each token again: from the logits of its row's text alone, by its own random number, and
    with a penalty for the tokens of its row."""
    # A penalty below 1 makes tokens repeat. One for the tokens of another row would show.
    sampling = Sampling(temperature=1.0, top_k=50, top_p=0.95, repetition_penalty=0.7)
    rows = generate(model, prompts, sampling, max_new_tokens=6, num_samples=2, seed=9)
    assert len({tuple(row) for row in rows}) == 6  # no two are equal, so mixed-up rows would show
    for row, new in enumerate(rows):
        prompt = prompts[row // 2]
        logits_of_new = compute_logits(model, prompt, new)
        for index, token in enumerate(new):
            seen = torch.zeros(1, 97, dtype=torch.bool)
            seen[0, prompt + new[:index]] = True
            logits = logits_of_new[index : index + 1]
            uniforms = torch.tensor([uniform(9, row % 2, index)], dtype=torch.float64)
            assert sample(logits, sampling, uniforms, seen).item() == token


@pytest.mark.parametrize("position", quick_for(KINDS, POSITIONS))
def test_each_token_is_drawn_from_its_own_text(position):
    prompts = [make_prompt(7, seed=0), make_prompt(2, seed=1), make_prompt(11, seed=2)]
    model = sharp_model(n_layers=2, position=position)
    assert_each_token_is_drawn_from_its_own_text(model, prompts)


def test_prompts_of_one_length_have_texts_of_their_own():
    prompts = [make_prompt(7, seed=seed) for seed in range(3)]
    assert_each_token_is_drawn_from_its_own_text(sharp_model(), prompts)


@pytest.mark.parametrize("longest", [11, 5])
def test_dynamic_scaling_rotates_by_the_length_of_each_text(longest):
    """Rows become longer than 9 tokens, the trained length, so there is no cache. In one case a
    prompt is already longer."""
    model = sharp_model(rope_scaling=RopeScaling("dynamic", 4, 9))
    prompts = [make_prompt(7, seed=0), make_prompt(2, seed=1), make_prompt(longest, seed=2)]
    assert_each_token_is_drawn_from_its_own_text(model, prompts)


def test_a_batch_of_the_trained_length_has_a_cache():
    model = sharp_model(rope_scaling=RopeScaling("dynamic", 4, 9))
    batch = Batch(model, [make_prompt(6)], GREEDY, max_new_tokens=3)
    assert batch.cache is not None


def assert_rows_are_those_of_the_plain_loop(model, sampling: Sampling) -> None:
    prompts = [make_prompt(7, seed=0), make_prompt(2, seed=1), make_prompt(5, seed=2)]
    rows = generate(model, prompts, sampling, max_new_tokens=6, seed=9)
    alone = [generate_one(model, prompt, sampling, max_new_tokens=6, seed=9) for prompt in prompts]
    assert rows == alone


@pytest.mark.parametrize("sampling", [
    GREEDY, Sampling(temperature=1.0), Sampling(top_p=0.9, repetition_penalty=1.5)])
def test_rows_are_those_of_the_plain_loop(sampling):
    assert_rows_are_those_of_the_plain_loop(sharp_model(), sampling)


def test_without_a_cache_rows_are_those_of_the_plain_loop():
    model = sharp_model(rope_scaling=RopeScaling("dynamic", 4, 9))
    assert_rows_are_those_of_the_plain_loop(model, GREEDY)


def test_the_plain_loop_leaves_a_model_in_training():
    model = sharp_model().train()
    generate_one(model, make_prompt(3), GREEDY, max_new_tokens=2)
    assert model.training


# --- how much is computed -------------------------------------------------------------------------


def record_calls(layer) -> list[tuple[int, int]]:
    """A list that gets (rows, tokens) of each call of a block's feed-forward."""
    calls: list[tuple[int, int]] = []
    layer.feed_forward.register_forward_pre_hook(
        lambda _, inputs: calls.append(tuple(inputs[0].shape[:2])))
    return calls


def generate_and_record(prompt_lengths: list[int], **options) -> tuple[list, list]:
    """The calls of the first block and those of the last, while prompts are continued."""
    model = sharp_model()
    first = record_calls(model.layers[0])
    last = record_calls(model.layers[-1])
    generate(model, [make_prompt(length) for length in prompt_lengths], GREEDY, **options)
    return first, last


def test_decoding_feeds_one_token_at_a_time():
    first, last = generate_and_record([7], max_new_tokens=3)
    assert first == [(1, 7), (1, 1), (1, 1)]
    assert last == [(1, 1), (1, 1), (1, 1)]


def test_a_prompt_is_read_once_for_all_its_samples():
    first, last = generate_and_record([7, 9], max_new_tokens=1, num_samples=3)
    assert first == [(2, 7), (6, 2)]
    assert last == [(2, 1), (6, 1)]


def test_a_prompt_of_one_token_is_read_once_for_each_sample():
    first, _ = generate_and_record([1], max_new_tokens=2, num_samples=3)
    assert first == [(3, 1), (3, 1)]


def test_the_rest_of_a_long_prompt_is_read_at_once():
    """First the short row draws its two tokens. Then one pass feeds what is left of the prompt."""
    first, last = generate_and_record([5, 40], max_new_tokens=2)
    assert first == [(2, 5), (2, 1), (2, 34), (2, 1)]
    assert last == [(2, 1), (2, 1), (2, 1), (2, 1)]


# --- where a row ends -----------------------------------------------------------------------------


PROMPTS = [make_prompt(7, seed=7), make_prompt(4, seed=4), make_prompt(9, seed=9)]
# Twelve tokens after each of PROMPTS, as `sharp_model()` draws them greedily.
TEXTS = [
    [55, 43, 28, 19, 29, 91, 36, 18, 5, 33, 91, 91],
    [37, 23, 15, 12, 91, 91, 91, 91, 91, 91, 91, 91],
    [37, 88, 20, 13, 50, 20, 8, 56, 37, 37, 37, 37],
]


def test_greedy_rows_are_the_likeliest_tokens():
    model = sharp_model()
    assert generate(model, PROMPTS, GREEDY, max_new_tokens=12) == TEXTS
    for prompt, text in zip(PROMPTS, TEXTS, strict=True):
        assert compute_logits(model, prompt, text).argmax(-1).tolist() == text


def test_a_row_ends_before_its_eos_and_no_other_does():
    ends = (TEXTS[0][3], TEXTS[2][7])
    rows = generate(sharp_model(), PROMPTS, GREEDY, max_new_tokens=12, eos_ids=ends)
    assert rows == [TEXTS[0][:3], TEXTS[1], TEXTS[2][:7]]


def test_a_row_ends_on_request_and_no_other_does():
    batch = Batch(sharp_model(), PROMPTS, GREEDY, max_new_tokens=12)
    drawn: list[list[int]] = [[], [], []]
    for row, token in batch.draw():
        drawn[row].append(token)
        if row == 1 and len(drawn[1]) == 5:
            batch.end(1)
    assert drawn == [TEXTS[0], TEXTS[1][:5], TEXTS[2]]
    assert batch.new_tokens() == drawn


def test_a_row_that_has_ended_may_be_ended_again():
    batch = Batch(sharp_model(), PROMPTS, GREEDY, max_new_tokens=1)
    for row, _ in batch.draw():
        batch.end(row)
        batch.end(row)
    assert batch.new_tokens() == [TEXTS[0][:1], TEXTS[1][:1], TEXTS[2][:1]]


def test_new_tokens_are_counted_without_eos():
    batch = Batch(sharp_model(), PROMPTS, GREEDY, max_new_tokens=12, eos_ids=(TEXTS[0][3],))
    counts = [batch.n_accepted for _ in batch.draw()]
    assert counts == list(range(1, 28))  # 3, 12 and 12


def test_the_longest_row_may_fill_the_context():
    """80 tokens, of which its prompt has 7."""
    rows = generate(sharp_model(n_layers=1), [make_prompt(3), make_prompt(7)], GREEDY,
                    max_new_tokens=73)
    assert [len(row) for row in rows] == [73, 73]


def test_what_the_context_cannot_hold_is_refused():
    with pytest.raises(UserError, match="7 tokens and 74 new ones make 81, .* 80 "):
        Batch(sharp_model(), [make_prompt(3), make_prompt(7)], GREEDY, max_new_tokens=74)


def test_a_prompt_of_one_token_is_in_the_singular():
    with pytest.raises(UserError, match="^a prompt of 1 token and 80 new ones make 81, "):
        Batch(sharp_model(), [make_prompt(1)], GREEDY, max_new_tokens=80)


def test_a_prompt_as_long_as_the_context_is_to_be_shortened():
    with pytest.raises(UserError, match="80 tokens leaves no room .* 80 .*: shorten the prompt$"):
        Batch(sharp_model(), [make_prompt(80)], GREEDY, max_new_tokens=1)


@pytest.mark.parametrize("prompts", [[], [[5], []]])
def test_an_empty_prompt_is_refused(prompts):
    with pytest.raises(UserError, match="the prompt is empty: give at least one token"):
        Batch(sharp_model(), prompts, GREEDY, max_new_tokens=3)


@pytest.mark.parametrize("name", ["max_new_tokens", "num_samples"])
def test_a_count_of_nothing_is_refused(name):
    options = {"max_new_tokens": 3, "num_samples": 1}
    options[name] = 0
    with pytest.raises(UserError, match=f"{name} must be at least 1, not 0"):
        Batch(sharp_model(), [[5]], GREEDY, **options)


def test_sampling_without_a_meaning_is_refused():
    with pytest.raises(UserError, match="top_k must be at least 1, not 0"):
        Batch(sharp_model(), [[5]], Sampling(top_k=0), max_new_tokens=3)


# --- steps ahead of the tokens that are read ------------------------------------------------------


def penalised_texts(steps_ahead: int, eos_ids: tuple[int, ...]) -> list[list[int]]:
    """Two samples each of PROMPTS, 20 tokens long, of which row 3 is ended after 5."""
    sampling = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.3)
    batch = Batch(sharp_model(), PROMPTS, sampling, max_new_tokens=20, num_samples=2, seed=3,
                  eos_ids=eos_ids)
    batch.steps_ahead = steps_ahead
    for row, _ in batch.draw():
        if row == 3 and batch.lengths[row] == batch.prompt_lengths[row] + 5:
            batch.end(row)
    return batch.new_tokens()


@pytest.mark.parametrize("steps_ahead", quick_for([3], [1, 3]))
def test_texts_are_the_same_if_tokens_are_read_later(steps_ahead):
    whole = penalised_texts(0, ())
    assert [len(text) for text in whole] == [20, 20, 20, 5, 20, 20]
    assert penalised_texts(steps_ahead, ()) == whole
    eos_ids = (whole[0][6], whole[5][2])
    cut = penalised_texts(0, eos_ids)
    assert len(cut[0]) <= 6
    assert len(cut[5]) <= 2
    assert penalised_texts(steps_ahead, eos_ids) == cut


@pytest.mark.parametrize("steps_ahead, steps", [(0, 4), (1, 5)])
def test_a_row_that_ends_costs_one_step_per_step_ahead(steps_ahead, steps):
    """That step was started before the end of the row was read."""
    lengths = []

    def step(model, tokens, cache):
        lengths.append(tokens.shape[1])
        return next_logits(model, tokens, cache)

    batch = Batch(sharp_model(), [PROMPTS[0]], GREEDY, max_new_tokens=12, eos_ids=(TEXTS[0][3],))
    batch.steps_ahead = steps_ahead
    assert [token for _, token in batch.draw(step)] == TEXTS[0][:3]
    assert lengths == [7] + [1] * (steps - 1)


def test_no_step_follows_the_last_token():
    """Its position may lie past the context."""
    batch = Batch(sharp_model(n_layers=1), [make_prompt(7)], GREEDY, max_new_tokens=73)
    batch.steps_ahead = 1
    assert len(list(batch.draw())) == 73


def test_tokens_are_counted_when_they_are_read():
    batch = Batch(sharp_model(), PROMPTS, GREEDY, max_new_tokens=12)
    batch.steps_ahead = 1
    counts = [batch.n_accepted for _ in batch.draw()]
    assert counts == list(range(1, 37))


def test_a_row_ended_within_a_step_gives_no_more_tokens():
    batch = Batch(sharp_model(), [PROMPTS[0], PROMPTS[0]], GREEDY, max_new_tokens=12)
    rows = []
    for row, _ in batch.draw():
        rows.append(row)
        batch.end(1)
    assert rows == [0] * 12
    assert batch.new_tokens() == [TEXTS[0], []]


@pytest.mark.parametrize("steps_ahead", [0, 1])
def test_broken_logits_are_an_error(steps_ahead):
    """The logits after the second token are broken. A step ahead feeds what is drawn from them."""
    calls = []

    def step(model, tokens, cache):
        calls.append(tokens)
        logits = next_logits(model, tokens, cache)
        if len(calls) == 3:
            logits[:] = math.nan
        return logits

    batch = Batch(sharp_model(), [PROMPTS[0]], GREEDY, max_new_tokens=12)
    batch.steps_ahead = steps_ahead
    drawn = []
    with pytest.raises(UserError, match="the logits are not finite: the model's weights are"):
        for _, token in batch.draw(step):
            drawn.append(token)
    assert drawn == TEXTS[0][:2]


def test_a_cpu_starts_no_step_ahead():
    assert Batch(sharp_model(), [[5]], GREEDY, max_new_tokens=3).steps_ahead == 0


@pytest.mark.parametrize("device, expected", [
    ("cpu", "cpu"), ("cuda:1", "cuda:1"), ("mps", "cpu"), ("xpu:0", "cpu")])
def test_tokens_are_drawn_where_float64_is(device, expected):
    assert choose_sampling_device(torch.device(device)) == torch.device(expected)


def test_random_numbers_are_those_of_their_addresses():
    """Two prompts of 2 and 5 tokens, with two samples each. A row may still read its prompt."""
    batch = Batch(sharp_model(), [[1, 2], [1, 2, 3, 4, 5]], Sampling(), max_new_tokens=50,
                  num_samples=2, seed=8)
    for position in (2, 3, 17, 18, 40, 51):
        uniforms = batch.uniforms.at(position, batch.live).tolist()
        assert uniforms[:2] == [uniform(8, 0, position - 2), uniform(8, 1, position - 2)]
        if position >= 5:
            assert uniforms[2:] == [uniform(8, 0, position - 5), uniform(8, 1, position - 5)]


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.parametrize("sampling", [
    GREEDY, Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.3)], ids=str)
def test_a_gpu_draws_the_texts_of_the_cpu(sampling):
    options = {"max_new_tokens": 20, "num_samples": 2, "seed": 3}
    expected = generate(sharp_model(), PROMPTS, sampling, **options)
    assert generate(sharp_model().cuda(), PROMPTS, sampling, **options) == expected


@pytest.mark.cuda
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.8, top_k=50)], ids=str)
def test_a_step_on_a_gpu_waits_for_nothing(sampling):
    """Here the function that computes the logits does not wait either, and all rows are due."""
    batch = Batch(sharp_model().cuda(), [PROMPTS[0]] * 2, sampling, max_new_tokens=12)
    logits = torch.randn(2, 97, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.inference_mode():
            for _ in range(3):
                batch.draw_next(lambda *_: logits, [0, 1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert batch.lengths_on_device == [10, 10]


@pytest.mark.cuda
def test_broken_logits_leave_the_gpu_usable():
    model = sharp_model().cuda()
    with torch.no_grad():
        model.norm.weight[0] = math.nan
    with pytest.raises(UserError, match="not finite"):
        generate(model, PROMPTS, Sampling(temperature=0.9, top_p=0.9), max_new_tokens=12)
    assert torch.ones(3, device="cuda").sum().item() == 3


# --- modes and types ------------------------------------------------------------------------------


def test_the_cache_has_the_dtype_of_the_weights():
    batch = Batch(sharp_model().bfloat16(), [[5]], GREEDY, max_new_tokens=3)
    assert batch.cache is not None and batch.cache.keys[0].dtype == torch.bfloat16


def test_the_cache_has_the_dtype_of_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        batch = Batch(sharp_model(), [[5]], GREEDY, max_new_tokens=3)
        assert batch.cache is not None and batch.cache.keys[0].dtype == torch.bfloat16
        assert len(list(batch.draw())) == 3


def test_the_step_computes_the_logits():
    """One that prefers token 5, whatever the text is."""
    def prefer_5(model, tokens, cache):
        logits = next_logits(model, tokens, cache)
        logits[:, 5] = 1e9
        return logits

    assert generate(sharp_model(), [[1, 2]], GREEDY, max_new_tokens=3, step=prefer_5) == [[5, 5, 5]]


def test_dropout_is_off_while_tokens_are_drawn():
    model = sharp_model(dropout=0.5).train()
    assert generate(model, [PROMPTS[0]], GREEDY, max_new_tokens=12) == [TEXTS[0]]


def test_a_model_in_training_trains_on():
    model = sharp_model(dropout=0.5).train()
    generate(model, [PROMPTS[0]], GREEDY, max_new_tokens=3)
    assert all(module.training for module in model.modules())
    model(random_tokens(2, 7)).sum().backward()  # nothing of inference mode is left behind


def test_a_model_in_evaluation_stays_in_it():
    model = sharp_model()
    generate(model, [PROMPTS[0]], GREEDY, max_new_tokens=3)
    assert not model.training


def test_the_mode_of_a_model_is_restored_after_an_error():
    model = sharp_model().train()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        assert not model.training
        _ = 1 // 0
    assert model.training


def test_a_block_that_was_in_evaluation_stays_in_it():
    model = sharp_model().train()
    model.layers[0].eval()
    with evaluating(model):
        assert not model.training
    assert not any(module.training for module in model.layers[0].modules())
    assert model.layers[1].training


def test_a_model_trains_on_after_a_text_that_is_left():
    model = sharp_model().train()
    tokens = Batch(model, [PROMPTS[0]], GREEDY, max_new_tokens=3).draw()
    next(tokens)
    assert not model.training
    tokens.close()
    assert model.training


def test_a_batch_is_drawn_once():
    """Here the closed iterator has drawn a token of row 1 and not yielded it."""
    batch = Batch(sharp_model(), [[1, 2], [3, 4]], GREEDY, max_new_tokens=3)
    drawing = batch.draw()
    next(drawing)
    drawing.close()
    with pytest.raises(ValueError, match="make another Batch"):
        next(batch.draw())


def test_the_caller_of_draw_is_not_in_inference_mode():
    batch = Batch(sharp_model(), [PROMPTS[0]], GREEDY, max_new_tokens=3)
    assert [torch.is_inference_mode_enabled() for _ in batch.draw()] == [False, False, False]


def test_a_step_runs_in_inference_mode():
    modes = []

    def step(model, tokens, cache):
        modes.append(torch.is_inference_mode_enabled())
        return next_logits(model, tokens, cache)

    generate(sharp_model(), [PROMPTS[0]], GREEDY, max_new_tokens=2, step=step)
    assert modes == [True, True]


def test_drawing_leaves_torchs_random_numbers_alone():
    model = sharp_model()
    state = torch.get_rng_state()
    generate(model, [PROMPTS[0]], Sampling(), max_new_tokens=3)
    assert torch.equal(torch.get_rng_state(), state)
