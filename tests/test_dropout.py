"""What is dropped is a function of its address, and looks like chance in every direction.

The address of a number is the key of its row, a place in the model, and a position and a channel.
"""

import math
import re

import pytest
import torch
from builders import random_model
from torch._inductor.utils import run_and_get_code

from model.dropout import compute_mask, make_dropout

KEYS = torch.tensor([3, 2**61 + 5, 7919, 0, 12345678901])
T = 64
C = 96


def deviations(x: torch.Tensor, variance: float) -> float:
    """A mean of independent numbers of mean 0, in units of its standard deviation."""
    return abs(x.double().mean().item()) / math.sqrt(variance / x.numel())


def centred_masks(p: float) -> torch.Tensor:
    """Masks of 13 places, five rows each, minus their mean: (13, 5, T, C)."""
    masks = torch.stack([compute_mask(KEYS, place, (T, C), p) for place in range(13)])
    return masks.double() - (1 - p)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("dim", [0, 1, 2, 3], ids=["place", "row", "position", "channel"])
def test_every_place_row_position_and_channel_drops_its_share(p, dim):
    for part in centred_masks(p).unbind(dim):
        assert deviations(part, p * (1 - p)) < 5


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("shift", [
    (0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 1, 1), (0, 0, 5, 3),
    (2, 1, 0, 0), (0, 0, 0, 32)])
def test_neighbours_are_dropped_independently(p, shift):
    centred = centred_masks(p)
    place, row, position, channel = shift
    later = centred[place:, row:, position:, channel:]
    earlier = centred[: 13 - place, : 5 - row, : T - position, : C - channel]
    assert deviations(later * earlier, (p * (1 - p)) ** 2) < 5


def test_a_mask_stays_what_it_was():
    """Or a run that is resumed with a later version would drop other numbers."""
    bits = compute_mask(KEYS[:2], 2, (4, 8), 0.5).flatten().tolist()
    assert sum(bit << place for place, bit in enumerate(bits)) == 0x7c508b0cd3f34dc7


def test_what_stays_is_scaled_so_that_the_mean_is_kept():
    drop = make_dropout(0.2, torch.zeros(5, T), KEYS)
    out = drop(torch.ones(5, T, C), 3)
    assert torch.equal(out, compute_mask(KEYS, 3, (T, C), 0.2) * torch.tensor(1.25))


def test_a_probability_of_nearly_1_drops_all():
    """Its threshold would be 2**31, which is negative in int32."""
    assert not compute_mask(KEYS, 0, (T, C), 1 - 1e-12).any()


# --- in a model ---

TOKENS = torch.arange(14).view(2, 7)


def test_a_row_drops_the_same_without_the_rows_beside_it():
    model = random_model(dropout=0.5).train()
    both = model(TOKENS, dropout_keys=KEYS[:2])
    torch.testing.assert_close(model(TOKENS[1:], dropout_keys=KEYS[1:2]), both[1:])


def test_a_row_drops_the_same_without_its_later_tokens():
    model = random_model(dropout=0.5).train()
    whole = model(TOKENS, dropout_keys=KEYS[:2])
    torch.testing.assert_close(model(TOKENS[:, :4], dropout_keys=KEYS[:2]), whole[:, :4])


def test_the_last_token_drops_the_same_without_the_output_of_earlier_ones():
    model = random_model(dropout=0.5).train()
    whole = model.hidden_states(TOKENS, dropout_keys=KEYS[:2])
    last = model.hidden_states(TOKENS, dropout_keys=KEYS[:2], last_only=True)
    torch.testing.assert_close(last, whole[:, -1:])


def test_without_keys_every_call_drops_other_numbers():
    model = random_model(dropout=0.5).train()
    assert not torch.equal(model(TOKENS), model(TOKENS))


def test_without_keys_every_row_drops_other_numbers():
    first, second = random_model(dropout=0.5).train()(TOKENS[:1].expand(2, -1))
    assert not torch.equal(first, second)


def test_nothing_is_dropped_in_evaluation_mode():
    model = random_model(dropout=0.5).eval()
    assert torch.equal(model(TOKENS, dropout_keys=KEYS[:2]), random_model()(TOKENS))


def test_each_place_of_the_model_drops_once(monkeypatch):
    """The embeddings, and each half of each of three blocks, each with a mask of its own."""
    places = []

    def keep_all(keys, place, shape, p):
        places.append(place)
        return torch.ones(shape, dtype=torch.bool)

    monkeypatch.setattr("model.dropout.compute_mask", keep_all)
    random_model(dropout=0.5).train()(TOKENS)
    assert places == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_the_compiler_adds_no_index_to_a_large_constant():
    """On CUDA the compiler would add in int32, where such a constant has no room, and fail."""
    torch._dynamo.reset()
    compiled = torch.compile(compute_mask)
    masks, programs = run_and_get_code(compiled, KEYS, 7, (T, C), 0.25)
    assert torch.equal(masks, compute_mask(KEYS, 7, (T, C), 0.25))
    large = r"\d{11,}L?"
    assert re.search(large, "".join(programs))  # there is one
    assert not re.search(rf"{large} \+|\+ {large}", "".join(programs))
    torch._dynamo.reset()
