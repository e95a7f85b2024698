"""Every row of `generate` is what its prompt alone would get, with the cache and without."""

import pytest
import torch
from conftest import random_tokens, sharpened

from errors import UserError
from model.config import RopeScaling
from model.encodings import POSITIONS
from model.generation import generate
from model.sampling import Sampling, sample, uniform

GREEDY = Sampling(temperature=0)


def prompt(length: int, seed: int = 0) -> list[int]:
    return random_tokens(length, seed=seed).tolist()


@pytest.mark.parametrize("position, scaling, lengths", [
    *((position, None, (7, 2, 11)) for position in POSITIONS), ("rope", None, (7, 7, 7)),
    *(("rope", RopeScaling("dynamic", 4, 9), lengths) for lengths in ((7, 2, 11), (7, 2, 5)))])
@torch.inference_mode()
def test_each_token_is_drawn_from_its_own_text_and_number(position, scaling, lengths):
    """The number is that at its address. The penalty counts each row's prompt and tokens. Dynamic
    scaling generates without a cache where a prompt or what follows it passes the trained length,
    because frequencies change with the length then."""
    model = sharpened(position=position, rope_scaling=scaling)
    prompts = [prompt(n, seed=seed) for seed, n in enumerate(lengths)]
    sampling = Sampling(temperature=1.0, top_k=50, top_p=0.95, repetition_penalty=0.7)
    rows = generate(model, prompts, sampling, max_new_tokens=6, num_samples=2, seed=9)
    assert len(set(map(tuple, rows))) == 6
    for row, new in enumerate(rows):
        for number, token in enumerate(new):
            text = prompts[row // 2] + new[:number]
            seen = torch.zeros(1, 97, dtype=torch.bool).index_fill(1, torch.tensor(text), True)
            logits, numbers = model(torch.tensor([text]))[:, -1], [uniform(9, row % 2, number)]
            assert sample(logits, sampling, numbers, seen).item() == token


def test_forwards_and_prefill_compute_no_more_than_the_prompts_need():
    """Prefill computes a prompt once for all of its samples, and its last block for one token."""
    model, fed = sharpened(), []
    for layer in (model.layers[0], model.layers[-1]):
        layer.feed_forward.register_forward_pre_hook(lambda _, x: fed.append(tuple(x[0].shape[:2])))

    def shapes(lengths, **options):
        fed.clear()
        generate(model, [prompt(n) for n in lengths], GREEDY, **options)
        return fed[::2], fed[1::2]  # of the first block and of the last

    assert shapes([7], max_new_tokens=3) == ([(1, 7), (1, 1), (1, 1)], [(1, 1)] * 3)
    assert shapes([7, 9], max_new_tokens=1, num_samples=3) == ([(2, 7), (6, 2)], [(2, 1), (6, 1)])
    # Two tokens of the short row, the rest of the long prompt at once, one more token.
    assert shapes([5, 40], max_new_tokens=2) == ([(2, 5), (2, 1), (2, 34), (2, 1)], [(2, 1)] * 4)


def test_a_row_ends_at_eos_or_on_request_and_leaves_the_others_alone():
    model, prompts = sharpened(), [prompt(7, seed=7), prompt(4, seed=4), prompt(9, seed=9)]
    free = generate(model, prompts, GREEDY, max_new_tokens=12)
    ends = free[0][3], free[2][7]
    assert not set(ends) & {*free[0][:3], *free[1][:5], *free[2][:7]}
    calls = [[], [], []]

    def on_token(row, token):
        calls[row].append(token)
        return row == 1 and len(calls[row]) == 5

    expected = [free[0][:3], free[1][:5], free[2][:7]]
    rows = generate(model, prompts, GREEDY, max_new_tokens=12, eos_ids=ends, on_token=on_token)
    assert rows == calls == expected


def test_the_context_ends_where_it_says(monkeypatch):
    model, prompts = sharpened(n_layers=1), [prompt(3), prompt(7)]
    rows = generate(model, prompts, GREEDY, max_new_tokens=80 - 7)
    assert [len(row) for row in rows] == [80 - 7] * 2
    monkeypatch.setattr(model, "hidden_states", None)  # no compute
    with pytest.raises(UserError, match="7 tokens and 74 new ones make 81, .* 80 "):
        generate(model, prompts, GREEDY, max_new_tokens=80 - 6)


def test_the_cache_has_the_dtype_of_autocast_or_else_of_the_weights():
    generate(sharpened().bfloat16(), [prompt(7)], GREEDY, max_new_tokens=3)
    with torch.autocast("cpu", torch.bfloat16):
        generate(sharpened(), [prompt(7)], GREEDY, max_new_tokens=3)


@pytest.mark.parametrize("changes, words", [
    *(({"prompts": prompts}, "prompt is empty") for prompts in ([], [[5], []])),
    *(({name: value}, f"{name} must be {words}, not {value}") for name, value, words in (
        ("max_new_tokens", 0, "at least 1"), ("num_samples", 0, "at least 1"),
        ("top_k", 0, "at least 1"), ("top_p", 0.0, r"in \(0, 1\]"), ("min_p", 1.5, r"in \[0, 1\]"),
        ("temperature", -1.0, "at least 0"), ("repetition_penalty", 0.0, "in .*"))),
    *(({"temperature": 0, name: 1}, f"{name} has no effect at temperature 0")
      for name in ("top_k", "top_p", "min_p"))])
def test_generate_refuses_what_it_cannot_do(changes, words):
    options = {"prompts": [[5]], "max_new_tokens": 3} | changes
    sampling = Sampling(**{name: options.pop(name) for name in vars(GREEDY) if name in options})
    with pytest.raises(UserError, match=words):
        generate(sharpened(), sampling=sampling, **options)


def test_a_training_model_is_left_as_it_was():
    model = sharpened(dropout=0.5)
    expected = generate(model, [prompt(7)], GREEDY, max_new_tokens=9)
    assert not model.training
    model.train()
    state = torch.get_rng_state()
    assert generate(model, [prompt(7)], GREEDY, max_new_tokens=9) == expected
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ZeroDivisionError):
        generate(model, [prompt(7)], GREEDY, max_new_tokens=9, on_token=lambda *_: 1 // 0)
    assert model.training
    model(random_tokens(2, 7)).sum().backward()  # nothing of inference mode is left behind
