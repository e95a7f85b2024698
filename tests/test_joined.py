"""Layers that read the same input multiply with one joined matrix when a model is loaded."""

import copy

import pytest
import torch
from builders import random_model, random_tokens, sharp_model
from torch.nn.utils.parametrizations import weight_norm

from gyre import compiled
from gyre.compiled import compile_step, find_joined, read_tensors
from model.encodings import POSITIONS
from model.generation import new_cache, next_logits
from model.packed_forms import find_part, group_matrices, join_matrices
from model.transformer import Transformer, call_each

PARTS = ["attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3"]


@pytest.fixture
def model() -> Transformer:
    return random_model(n_layers=1)


def joined_layers(model) -> list[str]:
    """The layers of a model of one block whose weights are parts of a joined matrix."""
    block = model.layers[0]
    return [name for name in PARTS if find_part(block.get_submodule(name).weight) is not None]


@pytest.mark.parametrize("position", list(POSITIONS))
def test_joined_matrices_give_the_same_logits(position):
    model = random_model(position=position)
    tokens = random_tokens(2, 9)
    with torch.inference_mode():
        expected = model(tokens)
        join_matrices(model)
        torch.testing.assert_close(model(tokens), expected)


def test_weights_with_the_same_input_lie_one_after_the_other(model):
    expected = copy.deepcopy(model.state_dict())
    join_matrices(model)
    assert joined_layers(model) == PARTS
    attention = model.layers[0].attention
    for first, second in [(attention.wq, attention.wk), (attention.wk, attention.wv)]:
        assert first.weight.data_ptr() + first.weight.nbytes == second.weight.data_ptr()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, expected[name])


def test_parts_share_the_memory_of_the_joined_matrix(model):
    join_matrices(model)
    weight = model.layers[0].attention.wk.weight
    part = find_part(weight)
    assert part is not None
    weight.data.fill_(7)
    assert part.whole.matrix[part.start : part.stop].unique().tolist() == [7]


def test_queries_and_keys_with_an_input_of_their_own_are_not_joined():
    model = random_model(n_layers=1, position="sin_qk")
    join_matrices(model)
    assert joined_layers(model) == ["feed_forward.w1", "feed_forward.w3"]


def test_joined_matrices_multiply_once_for_all_parts(model, monkeypatch):
    widths = []
    multiply = torch.nn.functional.linear

    def counted(x, weight):
        widths.append(len(weight))
        return multiply(x, weight)

    join_matrices(model)
    attention = model.layers[0].attention
    expected = sum(len(layer.weight) for layer in (attention.wq, attention.wk, attention.wv))
    x = torch.ones(1, 3, model.config.dim)
    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    with torch.no_grad():
        call_each(x, (attention.wq, attention.wk, attention.wv))
    assert widths == [expected]


def test_a_part_that_is_called_alone_sees_a_weight_that_has_changed(model):
    join_matrices(model)
    attention = model.layers[0].attention
    x = torch.ones(1, 3, model.config.dim)
    with torch.no_grad():
        call_each(x, (attention.wq, attention.wk, attention.wv))
        attention.wk.weight.data.zero_()
        assert not attention.wk(x).any()


def test_hooks_of_joined_layers_are_called(model):
    join_matrices(model)
    attention = model.layers[0].attention
    attention.wk.register_forward_hook(lambda module, inputs, out: 0 * out)
    with torch.no_grad():
        xq, xk, xv = call_each(torch.ones(1, 3, model.config.dim),
                               (attention.wq, attention.wk, attention.wv))
    assert xq.any()
    assert not xk.any()
    assert xv.any()


def test_a_hook_that_changes_the_input_of_a_joined_layer_counts(model):
    attention = model.layers[0].attention
    layers = (attention.wq, attention.wk, attention.wv)
    x = torch.ones(1, 3, model.config.dim)
    with torch.no_grad():
        expected = [attention.wq(x), attention.wk(2 * x), attention.wv(x)]
        join_matrices(model)
        attention.wk.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
        found = call_each(x, layers)
    torch.testing.assert_close(found, expected)


def test_weights_that_were_moved_are_no_parts(model):
    join_matrices(model)
    model.to(torch.bfloat16)
    assert joined_layers(model) == []


def test_a_copy_of_a_model_has_weights_of_its_own(model):
    join_matrices(model)
    other = copy.deepcopy(model)
    assert joined_layers(other) == []
    other.layers[0].attention.wq.weight.data.zero_()
    assert model.layers[0].attention.wq.weight.any()


def test_gradients_of_joined_weights_are_those_of_each_weight(model):
    tokens = random_tokens(2, 9)
    alone = copy.deepcopy(model)
    alone(tokens).square().sum().backward()
    join_matrices(model)
    model(tokens).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, alone.get_parameter(name).grad)


def test_prefill_takes_the_joined_matrices_by_the_names_of_their_parts(model):
    join_matrices(model)
    joined = find_joined(read_tensors(model))
    block = model.layers[0]
    attention = (block.attention.wq, block.attention.wk, block.attention.wv)
    feed_forward = (block.feed_forward.w1, block.feed_forward.w3)
    assert list(joined) == [tuple(f"layers.0.{name}.weight" for name in PARTS[:3]),
                            tuple(f"layers.0.{name}.weight" for name in PARTS[3:])]
    for matrix, layers in zip(joined.values(), (attention, feed_forward), strict=True):
        assert torch.equal(matrix, torch.cat([layer.weight for layer in layers]))


def joined_and_weights(model) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of each joined matrix and the weights of its names as they are now, concatenated."""
    tensors = read_tensors(model)
    pairs = []
    for names, matrix in find_joined(tensors).items():
        weights = [tensors[name] for name in names]
        pairs.append((matrix, torch.cat(weights)))
    return pairs


def test_a_matrix_that_a_weight_has_left_is_not_multiplied_with(model):
    join_matrices(model)
    query = model.layers[0].attention.wq.weight
    query.data = query.detach().clone()
    ((matrix, weights),) = joined_and_weights(model)
    assert len(matrix) == 2 * model.config.hidden_dim
    assert torch.equal(matrix, weights)


def test_a_weight_that_two_layers_share_is_in_one_joined_matrix():
    model = random_model(n_layers=2)
    first, second = (block.attention for block in model.layers)
    second.wq.weight = first.wq.weight
    join_matrices(model)
    found = joined_and_weights(model)
    assert len(found) == 3  # of the second attention, and of two feed-forward layers
    for matrix, weights in found:
        assert torch.equal(matrix, weights)


def test_a_weight_that_is_computed_is_not_joined(model):
    weight_norm(model.layers[0].attention.wq)
    join_matrices(model)
    assert joined_layers(model) == ["feed_forward.w1", "feed_forward.w3"]


def test_layers_of_other_widths_with_the_same_names_are_not_joined():
    """Those of a network that an encoding has for its own purpose."""
    model = random_model(n_layers=1)
    network = torch.nn.Module()
    network.w1 = torch.nn.Linear(1, 32, bias=False)
    network.w3 = torch.nn.Linear(32, 4, bias=False)
    model.position.network = network
    join_matrices(model)
    assert find_part(network.w1.weight) is find_part(network.w3.weight) is None
    groups = group_matrices(model)
    assert ["position.network.w1.weight"] in groups
    assert ["position.network.w3.weight"] in groups


def test_layers_of_another_kind_are_called_one_by_one():
    layers = (torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 3))
    x = torch.ones(2, 4)
    with torch.no_grad():
        found = call_each(x, layers)
        expected = [layer(x) for layer in layers]
    torch.testing.assert_close(found, expected)


def test_shapes_are_computed_without_gradients():
    """On meta, which has no autocast: asked about it, torch raises an error."""
    layers = (torch.nn.Linear(4, 4, device="meta"), torch.nn.Linear(4, 3, device="meta"))
    with torch.no_grad():
        outputs = call_each(torch.ones(2, 4, device="meta"), layers)
    assert [tuple(output.shape) for output in outputs] == [(2, 4), (2, 3)]


@pytest.mark.slow
def test_compiled_prefill_with_joined_matrices_equals_eager_prefill(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "MIN_PREFILL", 10)
    model = sharp_model(n_layers=1)
    tokens = random_tokens(1, 20)
    expected = next_logits(model, tokens, new_cache(model, 1, 21))
    join_matrices(model)
    cache = new_cache(model, 1, 21)
    step = compile_step(model, cache, prompt=20)
    assert list((tmp_path / "gyre").glob("*.pt2"))
    torch.testing.assert_close(step(model, tokens, cache), expected, rtol=1e-4, atol=1e-4)
