"""What is dropped is a function of its address, and looks like chance in every direction."""

import math

import pytest
import torch
from conftest import random_model

from model.dropout import compute_mask, make_dropout

KEYS = torch.tensor([3, 2**61 + 5, 7919, 0, 12345678901])
T, C = 64, 96


def deviations(x: torch.Tensor, variance: float) -> float:
    """A mean of independent numbers of mean 0, in units of its standard deviation."""
    return abs(x.double().mean().item()) / math.sqrt(variance / x.numel())


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_every_direction_of_the_mask_looks_like_chance(p):
    """Shares by place, row, position and channel, and correlations with their neighbours."""
    mask = torch.stack([compute_mask(KEYS, place, (T, C), p) for place in range(13)])
    centred, variance = mask.double() - (1 - p), p * (1 - p)  # (13, 5, T, C)
    for dim in range(4):
        assert all(deviations(part, variance) < 5 for part in centred.unbind(dim)), dim
    for shift in ((0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 1, 1),
                  (0, 0, 5, 3), (2, 1, 0, 0), (0, 0, 0, 32)):
        a = centred[shift[0] :, shift[1] :, shift[2] :, shift[3] :]
        b = centred[: 13 - shift[0], : 5 - shift[1], : T - shift[2], : C - shift[3]]
        assert deviations(a * b, variance**2) < 5, shift


def test_a_mask_stays_what_it_was():
    """Or a run that is resumed with a later version would drop other numbers."""
    bits = compute_mask(KEYS[:2], 2, (4, 8), 0.5).flatten().tolist()
    assert sum(bit << place for place, bit in enumerate(bits)) == 0x7c508b0cd3f34dc7


def test_what_stays_is_scaled_so_that_the_mean_is_kept():
    out = make_dropout(0.2, torch.zeros(5, T), KEYS)(torch.ones(5, T, C), 3)
    assert torch.equal(out, compute_mask(KEYS, 3, (T, C), 0.2) * torch.tensor(1 / 0.8))


def test_keys_fix_the_mask_of_each_row_and_without_them_every_call_drops_others():
    model, tokens = random_model(dropout=0.5).train(), torch.arange(14).view(2, 7)
    both = model(tokens, dropout_keys=KEYS[:2])
    torch.testing.assert_close(both[1:], model(tokens[1:], dropout_keys=KEYS[1:2]))
    torch.testing.assert_close(both[:, :4], model(tokens[:, :4], dropout_keys=KEYS[:2]))
    assert not torch.equal(model(tokens), model(tokens))
    assert not torch.equal(*model(tokens[:1].expand(2, -1)))  # each row has a key
    model.eval()
    assert torch.equal(model(tokens, dropout_keys=KEYS[:2]), model(tokens))


def test_each_place_of_the_model_drops_once(monkeypatch):
    """The embeddings, and each half of each block: seven calls, each with a mask of its own."""
    places = []
    monkeypatch.setattr("model.dropout.compute_mask", lambda keys, place, shape, p:
                        places.append(place) or torch.ones(shape, dtype=torch.bool))
    random_model(dropout=0.5).train()(torch.arange(14).view(2, 7))
    assert places == list(range(2 * 3 + 1))
