"""Products in int8 are close to float32's, and a row is the same alone and beside others."""

import pytest
import torch
from conftest import draw, random_model, random_tokens, sharpened

from model.generation import generate
from model.int8 import Int8Linear, quantize, to_int8
from model.sampling import Sampling

GREEDY = Sampling(temperature=0)


def test_the_largest_of_a_row_is_127_and_nothing_is_further_off_than_half_a_step():
    x = draw(7, 48) * torch.tensor([1e-30, 1e-3, 1, 1, 8, 1e3, 1e30])[:, None]
    values, scale = quantize(x)
    assert values.dtype == torch.int8 and scale.shape == (7, 1)
    assert (values.int().abs().amax(-1) == 127).all()
    assert ((x - values * scale).abs() <= 0.5001 * scale).all()
    zeros, scale = quantize(torch.zeros(2, 48))
    assert (zeros == 0).all() and (scale > 0).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (2, 7), (40,), ()])
def test_a_product_is_close_to_that_in_float32(shape):
    x, weight = draw(*shape, 48), draw(31, 48, seed=1)
    expected = torch.nn.functional.linear(x, weight)
    got = Int8Linear(weight)(x)
    assert got.shape == expected.shape and got.dtype == torch.float32
    # Steps of 3 / 127 in both, half of one at most: some 1 % of what is summed.
    assert (got - expected).square().mean().sqrt() < 0.02 * expected.square().mean().sqrt()


def test_a_row_depends_neither_on_its_neighbours_nor_on_their_number():
    x, product = draw(40, 48), Int8Linear(draw(31, 48, seed=1))
    whole = product(x)
    large = torch.cat([x[:8], 1e4 * x[8:]])
    assert torch.equal(product(large)[:8], whole[:8])
    for rows in (1, 2, 7, 8, 31, 32):
        assert torch.equal(product(x[:rows]), whole[:rows])


@pytest.mark.parametrize("tied", [False, True])
def test_every_matrix_is_int8_and_embeddings_and_norms_are_as_before(tied):
    model, plain = (random_model(tie_embeddings=tied) for _ in "ab")
    assert to_int8(model) is model
    before, after = plain.state_dict(), model.state_dict()
    matrices = {n for n in before if before[n].ndim == 2} - {"tok_embeddings.weight"}
    assert {n for n in after if after[n].dtype == torch.int8} == matrices | {"output.weight"}
    for name in set(before) - matrices:
        assert torch.equal(after[name], before[name])
    tokens = random_tokens(2, 7)
    with torch.no_grad():
        got, expected = model(tokens), plain(tokens)
    assert (got - expected).std() < 0.05 * expected.std()


@pytest.mark.slow
def test_compiled_decoding_in_int8_equals_eager():
    model = to_int8(sharpened())
    torch._dynamo.reset()
    prompts = [random_tokens(5, seed=seed).tolist() for seed in range(3)]
    eager, compiled = (
        generate(model, prompts, GREEDY, max_new_tokens=30, compile=c) for c in (False, True)
    )
    assert eager == compiled
