"""Products in int8 are close to float32's, and a row is the same alone and beside others."""

import pytest
import torch
import torch.nn.functional as F
from conftest import draw, random_model, random_tokens, sharpened

from model.int8 import Int8Linear, int8_tensors, quantize, to_int8


def quantized(model):
    weights = model.state_dict()
    to_int8(model)
    model.load_state_dict({key: x for pair in weights.items()
                           for key, x in int8_tensors(model, *pair).items()}, assign=True)
    return model


def test_the_largest_of_a_row_is_127_and_nothing_is_further_off_than_half_a_step():
    x = draw(3, 48) * torch.tensor([1e-30, 1, 1e30])[:, None]
    values, scale = quantize(x)
    assert values.dtype == torch.int8 and scale.shape == (3, 1)
    assert (values.int().abs().amax(-1) == 127).all()
    assert ((x - values * scale).abs() <= 0.5001 * scale).all()
    assert (quantize(torch.zeros(2, 48))[1] > 0).all()


def test_a_product_is_close_to_float32s_and_a_row_depends_on_no_other():
    x, weight = draw(40, 48), draw(31, 48, seed=1)
    product, expected = Int8Linear(31, 48), F.linear(x, weight)
    values, scale = quantize(weight)
    product.load_state_dict({"weight": values, "scale": scale[:, 0]})
    whole = product(x)
    # Values reach 3 and steps are 3 / 127, so the error is about 1 % of what is summed.
    assert (whole - expected).square().mean().sqrt() < 0.02 * expected.square().mean().sqrt()
    assert torch.equal(product(torch.cat([x[:8], 1e4 * x[8:]]))[:8], whole[:8])
    for shape in ((4, 10), (40, 1)):
        assert torch.equal(product(x.view(*shape, 48)), whole.view(*shape, 31))


@pytest.mark.parametrize("tied", [False, True])
def test_every_matrix_is_int8_and_norms_are_as_before(tied):
    """Of more rows than are quantized at a time. A tied one is in memory once."""
    model, plain = (random_model(tie_embeddings=tied, vocab_size=600) for _ in "ab")
    quantized(model)
    before, after = plain.state_dict(), model.state_dict()
    matrices = {n for n in before if before[n].ndim == 2}
    assert (model.output.weight.data_ptr() == model.tok_embeddings.weight.data_ptr()) == tied
    assert {n for n in after if after[n].dtype == torch.int8} == matrices | {"output.weight"}
    assert all(torch.equal(after[name], before[name]) for name in set(before) - matrices)
    got, expected = model(random_tokens(2, 7)), plain(random_tokens(2, 7))
    assert (got - expected).std() < 0.05 * expected.std()
    for name in ("layers.0.feed_forward.w1.weight", "norm.weight"):
        narrow = before[name].bfloat16()  # as others store it
        one, same = (int8_tensors(model, name, weight) for weight in (narrow, narrow.float()))
        torch.testing.assert_close(one, same, rtol=0, atol=0)


def test_what_an_encoding_adds_by_hooks_is_added_in_int8_too():
    model, read = sharpened(position="sin_qk"), []
    for module in (model.tok_embeddings, model.layers[0].attention.wq):
        module.register_forward_hook(lambda _, x, y: read.append(torch.equal(y[0, 0], y[0, 1])))
    quantized(model)(torch.tensor([[5, 5, 5]]))
    assert read == [True, False]  # equal tokens at different positions
