"""Products in int8 are close to float32's, and a row is the same alone and beside others."""

import pytest
import torch
import torch.nn.functional as F
from builders import randn, random_model, random_tokens, sharp_model
from torch import Tensor

from model import kernels
from model.int8 import Int8Linear, int8_tensors, quantize, to_int8
from model.transformer import Transformer


def quantized(model: Transformer) -> Transformer:
    """The same model with its weights in int8."""
    weights = model.state_dict()
    to_int8(model)
    tensors = {}
    for name, weight in weights.items():
        tensors |= int8_tensors(model, name, weight)
    model.load_state_dict(tensors, assign=True)
    return model


# --- numbers ---

ROWS = randn(3, 48) * torch.tensor([1e-30, 1, 1e30])[:, None]


def test_the_largest_of_a_row_becomes_127():
    values, scale = quantize(ROWS)
    assert values.dtype == torch.int8
    assert scale.shape == (3, 1)
    assert values.int().abs().amax(-1).tolist() == [127, 127, 127]


def test_no_number_is_further_off_than_half_a_step():
    values, scale = quantize(ROWS)
    assert ((ROWS - values * scale).abs() <= 0.5001 * scale).all()


def test_rows_of_zeros_stay_zeros():
    values, scale = quantize(torch.zeros(2, 48))
    assert (values * scale).tolist() == torch.zeros(2, 48).tolist()
    assert (scale > 0).all()


# --- products ---

X = randn(40, 48)
WEIGHT = randn(31, 48, seed=1)


def int8_linear() -> Int8Linear:
    """The product with WEIGHT."""
    product = Int8Linear(31, 48)
    values, scale = quantize(WEIGHT)
    product.load_state_dict({"weight": values, "scale": scale[:, 0]})
    return product


def test_a_product_is_close_to_float32s():
    """Values reach 3 and steps are 3 / 127, so the error is about 1 % of what is summed."""
    expected = F.linear(X, WEIGHT)
    error = int8_linear()(X) - expected
    assert error.square().mean().sqrt() < 0.02 * expected.square().mean().sqrt()


def test_a_row_of_a_product_depends_on_no_other():
    product = int8_linear()
    others_larger = torch.cat([X[:8], 1e4 * X[8:]])
    assert torch.equal(product(others_larger)[:8], product(X)[:8])


@pytest.mark.parametrize("shape", [(4, 10), (40, 1)])
def test_a_product_is_the_same_for_every_batch_shape(shape):
    product = int8_linear()
    assert torch.equal(product(X.view(*shape, 48)), product(X).view(*shape, 31))


def test_a_product_of_one_input_is_close_to_float32s(monkeypatch):
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: True)
    values, scale = quantize(WEIGHT[:, :1])
    product = Int8Linear(31, 1)
    product.load_state_dict({"weight": values, "scale": scale[:, 0]})
    expected = F.linear(X[:, :1], WEIGHT[:, :1])
    torch.testing.assert_close(product(X[:, :1]), expected, rtol=1e-5, atol=0)


# --- models ---


@pytest.mark.parametrize("tied", [False, True])
def test_every_matrix_becomes_int8(tied):
    model = quantized(random_model(tie_embeddings=tied))
    kinds = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    plain = random_model(tie_embeddings=False).state_dict()
    expected = {name for name, tensor in plain.items() if tensor.ndim == 2}
    assert {name for name in kinds if kinds[name] == torch.int8} == expected


def test_norms_stay_as_they_were():
    model = random_model()
    weight = randn(48)
    model.norm.weight.data = weight
    assert torch.equal(quantized(model).norm.weight, weight)


@pytest.mark.parametrize("tied", [False, True])
def test_tied_matrices_are_in_memory_once(tied):
    model = quantized(random_model(tie_embeddings=tied))
    shared = model.output.weight.data_ptr() == model.tok_embeddings.weight.data_ptr()
    assert shared == tied


@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_close_to_float32s(tied):
    """Of a vocabulary of more rows than are quantized at a time."""
    sizes = {"tie_embeddings": tied, "vocab_size": 600}
    expected = random_model(**sizes)(random_tokens(2, 7))
    logits = quantized(random_model(**sizes))(random_tokens(2, 7))
    assert (logits - expected).std() < 0.05 * expected.std()


def test_every_row_of_a_large_matrix_is_quantized():
    """Of more rows than are quantized at a time. A lost one hardly shows in all logits."""
    model = to_int8(random_model(tie_embeddings=False, vocab_size=1030))
    weight = torch.arange(1.0, 1031)[:, None].expand(-1, 48)
    tensors = int8_tensors(model, "output.weight", weight)
    assert (tensors["output.weight"] == 127).all()
    assert torch.equal(tensors["output.scale"], torch.arange(1.0, 1031) / 127)


@pytest.mark.parametrize("name", ["layers.0.feed_forward.w1.weight", "norm.weight"])
def test_bfloat16_weights_are_quantized_as_float32s(name):
    """Other programs store weights in bfloat16."""
    model = random_model()
    narrow = model.state_dict()[name].bfloat16()
    to_int8(model)
    tensors = int8_tensors(model, name, narrow)
    torch.testing.assert_close(tensors, int8_tensors(model, name, narrow.float()), rtol=0, atol=0)


def test_int8_models_keep_the_hooks_of_encodings():
    model = sharp_model(position="sin_qk")
    outputs: list[Tensor] = []
    for module in (model.tok_embeddings, model.layers[0].attention.wq):
        module.register_forward_hook(lambda _, inputs, output: outputs.append(output[0]))
    quantized(model)(torch.tensor([[5, 5]]))
    embedded, queries = outputs
    assert torch.equal(embedded[0], embedded[1])
    assert not torch.equal(queries[0], queries[1])  # equal tokens at different positions
