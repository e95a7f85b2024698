"""Each faster form equals its plain one, with gradients, and is used when kernels.py says."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from builders import randn, random_model

from gyre.step import summed_loss
from model import decoding_forms, kernels, packed_forms, shared_forms, training_forms
from model.rope import apply_rotary_emb, precompute_freqs_cis
from model.transformer import Linear, attend, call_each, gate, linear, rms_norm

# --- each form equals the plain one ---------------------------------------------------------------


def plain_attend(xq, xk, xv):
    """`attend` in its plain form: (B, H, T, D), causal."""
    return attend.__wrapped__(xq, xk, xv, None)


def gradients(form, *inputs):
    """The output of a form, and its gradient for each of the inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = form(*leaves)
    out.backward(randn(1, *out.shape, seed=9)[0].to(out.dtype))
    return [out.detach(), *(x.grad for x in leaves)]


def assert_equals_plain(form, plain, *shapes):
    """Values and gradients. Processors add in different orders: up to 1.7e-6 apart, of numbers
    around 1."""
    inputs = [2 * randn(*shape, seed=number) for number, shape in enumerate(shapes)]
    torch.testing.assert_close(gradients(form, *inputs), gradients(plain, *inputs), rtol=1e-5,
                               atol=4e-5)


@pytest.mark.parametrize("length, n_kv_heads", [
    (2, 2), (128, 6), (129, 1),  # lengths around a block of 128 queries
    (300, 2), (519, 2)])  # several blocks, of which the last is not full
def test_attention_by_products_is_attention(length, n_kv_heads):
    assert_equals_plain(training_forms.attend_by_products, plain_attend, (2, 6, length, 8),
                        (2, n_kv_heads, length, 8), (2, n_kv_heads, length, 8))


@pytest.mark.parametrize("length, n_kv_heads", [
    (1, 2), (64, 6), (65, 1),  # lengths around the smallest block
    (300, 2), (511, 3)])  # two blocks, alike and one smaller
def test_attention_by_blocks_is_attention(length, n_kv_heads):
    assert_equals_plain(training_forms.attend_by_blocks, plain_attend, (2, 6, length, 8),
                        (2, n_kv_heads, length, 8), (2, n_kv_heads, length, 8))


@pytest.mark.parametrize("length, n_kv_heads", [(1, 2), (64, 6), (65, 1), (130, 2)])
def test_attention_by_two_products_is_attention(length, n_kv_heads):
    assert_equals_plain(packed_forms.attend_by_two_products, plain_attend, (2, 6, length, 8),
                        (2, n_kv_heads, length, 8), (2, n_kv_heads, length, 8))


@pytest.mark.parametrize("form", [decoding_forms.attend_by_sums, decoding_forms.attend_one_query])
@pytest.mark.parametrize("length, n_kv_heads", [
    (9, 1), (31, 2),  # sums that are not cut into parts
    (32, 2), (55, 6)])  # 15 parts of 2 keys with 2 left over, and of 3 with 10
def test_attention_of_one_query_is_attention(form, length, n_kv_heads, monkeypatch):
    monkeypatch.setattr(decoding_forms, "LONGEST_SUM", 31)
    assert_equals_plain(form, plain_attend, (2, 6, 1, 8), (2, n_kv_heads, length, 8),
                        (2, n_kv_heads, length, 8))


def attend_by_definition(xq, xk, xv):
    """Causal attention of xq (B, H, T, D) over xk (B, H_kv, S, D) and xv (B, H_kv, S, D_v)."""
    group = xq.shape[1] // xk.shape[1]
    scores = xq @ xk.repeat_interleave(group, dim=1).mT / xq.shape[-1] ** 0.5
    hidden = torch.ones(xq.shape[2], xk.shape[2]).triu(1 + xk.shape[2] - xq.shape[2]).bool()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return weights @ xv.repeat_interleave(group, dim=1)


@pytest.mark.parametrize("form, length", [
    (plain_attend, 1), (plain_attend, 31), (training_forms.attend_by_products, 129),
    (training_forms.attend_by_blocks, 129), (packed_forms.attend_by_two_products, 129),
    (shared_forms.attend_repeated_heads, 31), (decoding_forms.attend_by_sums, 1),
    (decoding_forms.attend_one_query, 1),
    (lambda q, k, v: decoding_forms.attend_by_scores(q, k, v, torch.zeros(1, 1, 1, 129)), 1)])
def test_values_may_be_narrower_than_keys(form, length):
    n_keys = 129 if length == 1 else length
    assert_equals_plain(form, attend_by_definition, (2, 6, length, 16), (2, 2, n_keys, 16),
                        (2, 2, n_keys, 8))


def test_narrower_values_keep_the_fused_kernel():
    """It refuses values of another width than that of queries and keys."""
    xq = randn(2, 6, 31, 16)
    xk = randn(2, 2, 31, 16, seed=1)
    xv = randn(2, 2, 31, 8, seed=2)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        found = plain_attend(xq, xk, xv)
    torch.testing.assert_close(found, attend_by_definition(xq, xk, xv))


@pytest.mark.parametrize("form", [decoding_forms.attend_by_sums, decoding_forms.attend_by_scores])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@pytest.mark.parametrize("heads", [1, 6])  # one mask for all heads, or one for each
def test_attention_of_one_query_with_a_mask_is_attention(heads, n_kv_heads, form):
    mask = randn(1, heads, 1, 31, seed=5)
    mask[..., 20:] = -torch.inf
    assert_equals_plain(lambda q, k, v: form(q, k, v, mask),
                        lambda q, k, v: attend.__wrapped__(q, k, v, mask),
                        (2, 6, 1, 8), (2, n_kv_heads, 31, 8), (2, n_kv_heads, 31, 8))


MASKS = {
    "causal": None,
    "visible keys": torch.ones(5, 9, dtype=torch.bool).tril(4),
    "bias": torch.ones(5, 9).tril(4).log() + 2 * randn(1, 6, 5, 9, seed=5),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_attention_with_repeated_heads_is_attention(kind, n_kv_heads):
    mask = MASKS[kind]
    length = 5 if mask is None else 9
    assert_equals_plain(lambda *qkv: shared_forms.attend_repeated_heads(*qkv, mask),
                        lambda *qkv: attend.__wrapped__(*qkv, mask),
                        (2, 6, 5, 8), (2, n_kv_heads, length, 8), (2, n_kv_heads, length, 8))


def test_a_bias_makes_attention_with_repeated_heads_float32():
    """Under autocast too: its result is rounded once."""
    narrow = [randn(2, heads, length, 8, seed=length).bfloat16()
              for heads, length in ((6, 5), (2, 9), (2, 9))]
    wide = [x.float() for x in narrow]
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(
            lambda *qkv: shared_forms.attend_repeated_heads(*qkv, MASKS["bias"]), *narrow)
    expected = attend.__wrapped__(*wide, MASKS["bias"])
    assert torch.equal(found[0], expected.bfloat16())


@pytest.mark.parametrize("shape", [(8, 1), (2, 3), (4,), ()])
def test_a_product_by_sums_is_a_product(shape):
    assert_equals_plain(decoding_forms.linear_by_sums, F.linear, (*shape, 48), (31, 48))


BYTES = torch.arange(-128, 128).to(torch.int8).view(4, 64)  # every int8 number


def test_words_hold_every_int8_number():
    inputs = torch.eye(64)
    found = packed_forms.linear_by_words(inputs, BYTES.view(torch.float32))
    assert torch.equal(found, BYTES.float().T)


@pytest.mark.parametrize("shape", [(8, 1), (2, 3), (4,), ()])
def test_a_product_by_words_is_a_product(shape):
    x = randn(*shape, 64)
    found = packed_forms.linear_by_words(x, BYTES.view(torch.float32))
    torch.testing.assert_close(found, F.linear(x, BYTES.float()), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("converted", [64, 192, 1000])  # 1, 3 and all 4 rows of the weight
def test_a_product_by_float_weights_is_a_product(converted, monkeypatch):
    monkeypatch.setattr(packed_forms, "CONVERTED", converted)
    x = randn(2, 3, 64)
    scale = randn(4, seed=1)
    found = packed_forms.int8_by_float_weights(x, BYTES, scale)
    torch.testing.assert_close(found, F.linear(x, BYTES.float()) * scale, rtol=1e-5, atol=1e-3)


def products_packed(x, *weights):
    """The products of x with each of the weights, which are packed as one matrix."""
    matrix = packed_forms.pack_matrices(weights, len(x))
    products = packed_forms.GroupedProducts([weights], [matrix])
    return [products.multiply(x, weight) for weight in weights]


def test_packed_products_are_products():
    """Both add in float32, in other orders."""
    x = randn(9, 1, 48)
    first = randn(31, 48, seed=1)
    second = randn(17, 48, seed=2)
    found = products_packed(x, first, second)
    expected = [F.linear(x, first), F.linear(x, second)]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.skipif("AVX512" not in torch.backends.cpu.get_cpu_capability(),
                    reason="oneDNN emulates bfloat16, or refuses it")
def test_packed_bfloat16_products_are_rounded_once():
    x = randn(9, 1, 48).bfloat16()
    weight = randn(31, 48, seed=1).bfloat16()
    (found,) = products_packed(x, weight)
    expected = F.linear(x.float(), weight.float())
    # A number of bfloat16 is up to 2**-8 of its size away from the next one.
    torch.testing.assert_close(found.float(), expected, rtol=2**-8, atol=1e-4)


def test_packed_products_follow_their_input():
    """Of another x they are computed anew, though the matrix is the same."""
    weight = randn(31, 48, seed=1)
    products = packed_forms.GroupedProducts([[weight]], [packed_forms.pack_matrices([weight], 9)])
    first = products.multiply(randn(9, 48), weight)
    second = products.multiply(2 * randn(9, 48), weight)
    torch.testing.assert_close(second, 2 * first, rtol=1e-5, atol=2e-5)


def test_matrices_that_read_the_same_are_joined():
    model = random_model(n_layers=1, tie_embeddings=False)
    assert packed_forms.group_matrices(model) == [
        ["layers.0.attention.wq.weight", "layers.0.attention.wk.weight",
         "layers.0.attention.wv.weight"],
        ["layers.0.attention.wo.weight"],
        ["layers.0.feed_forward.w1.weight", "layers.0.feed_forward.w3.weight"],
        ["layers.0.feed_forward.w2.weight"],
        ["output.weight"],
    ]


def test_a_tied_output_matrix_of_floats_is_in_no_group():
    groups = packed_forms.group_matrices(random_model(n_layers=1, tie_embeddings=True))
    assert groups[-1] == ["layers.0.feed_forward.w2.weight"]


def assert_bitwise_plain(form, plain, *inputs):
    """Values and gradients."""
    found = gradients(form, *inputs)
    expected = gradients(plain, *inputs)
    for tensor, plain_tensor in zip(found, expected, strict=True):
        assert torch.equal(tensor, plain_tensor)


def test_a_norm_of_few_tensors_is_a_norm_bitwise():
    """Beside a residual stream too, to whose gradient its own is added."""
    def beside(norm):
        return lambda x, weight: x + norm(x, weight, 1e-5)

    assert_bitwise_plain(beside(training_forms.rms_norm_of_few_tensors),
                         beside(rms_norm.__wrapped__), randn(3, 7, 48), randn(48, seed=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gate_of_few_tensors_is_a_gate_bitwise(dtype):
    assert_bitwise_plain(training_forms.gate_of_few_tensors, gate.__wrapped__,
                         randn(3, 7, 48).to(dtype), randn(3, 7, 48, seed=1).to(dtype))


def test_a_gate_keeps_nothing_after_its_gradient():
    """What it has read would else be kept until the end of the backward pass."""
    x = randn(3, 48).requires_grad_()
    gated = training_forms.gate_of_few_tensors(x, randn(3, 48, seed=1))
    gated.sum().backward()
    assert gated.grad_fn.read is None


@pytest.mark.parametrize("onednn", [True, False])
def test_a_product_with_a_gate_is_that_product_bitwise(onednn):
    def multiply_plainly(x, y, weight):
        product = gate.__wrapped__(x, y)
        form = kernels.choose_product(product, weight) or F.linear
        return form(product, weight)

    with kernels.products_by_onednn(onednn):
        assert_bitwise_plain(lambda x, y, weight: linear(gate(x, y), weight), multiply_plainly,
                             randn(3, 7, 48), randn(3, 7, 48, seed=1), randn(31, 48, seed=2))


def call_each_in_bfloat16(form):
    """A function of x that adds up squares of what three layers compute from it, under autocast.

    The gradients from the first and the third cancel each other. The second is far smaller, so the
    order in which the three are added decides how it is rounded. x is multiplied by 1 first,
    because autocast itself converts a leaf only once.
    """
    weight = randn(31, 48)
    layers = [make_layer(weight), make_layer(randn(7, 48, seed=1) / 300), make_layer(weight)]

    def add_up(leaf):
        x = leaf * 1
        with torch.autocast("cpu", torch.bfloat16):
            first, second, third = form(x, layers)
            return first.square().sum() + second.square().sum() - third.square().sum()

    return add_up


def make_layer(weight):
    """The model's layer of a matrix (O, I)."""
    layer = Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = torch.nn.Parameter(weight.clone())
    return layer


def test_layers_called_on_one_copy_are_these_layers_bitwise():
    assert_bitwise_plain(call_each_in_bfloat16(training_forms.call_each_on_one_copy),
                         call_each_in_bfloat16(call_each.__wrapped__), randn(3, 5, 48, seed=3))


def test_weights_of_layers_called_on_one_copy_have_the_same_gradients():
    found = [make_layer(randn(31, 48)), make_layer(randn(7, 48, seed=1))]
    expected = [make_layer(randn(31, 48)), make_layer(randn(7, 48, seed=1))]
    x = randn(3, 5, 48, seed=3).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        for out in training_forms.call_each_on_one_copy(x, found):
            out.sum().backward(retain_graph=True)  # all of them share the node of the copy
        for out in call_each.__wrapped__(x, expected):
            out.sum().backward()
    for layer, plain_layer in zip(found, expected, strict=True):
        assert torch.equal(layer.weight.grad, plain_layer.weight.grad)


def test_layers_called_on_one_copy_have_second_derivatives():
    def second_derivative(form):
        x = randn(3, 48, seed=3).requires_grad_()
        loss = call_each_in_bfloat16(form)(x)
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    assert torch.equal(second_derivative(training_forms.call_each_on_one_copy),
                       second_derivative(call_each.__wrapped__))


def test_layers_called_on_one_copy_keep_one_input():
    layers = [make_layer(randn(31, 48)), make_layer(randn(7, 48, seed=1))]
    x = randn(3, 5, 48, seed=3).requires_grad_()
    kept = set()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.add((tensor.data_ptr(), tensor.numel())), lambda packed: packed
    ), torch.autocast("cpu", torch.bfloat16):
        training_forms.call_each_on_one_copy(x, layers)
    assert sorted(size for _, size in kept) == [7 * 48, 3 * 5 * 48, 31 * 48]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loss_by_chunks_is_the_loss_bitwise(dtype, monkeypatch):
    # Chunks of four tokens, and one token in the last.
    monkeypatch.setattr(training_forms, "LOSS_CHUNK", 4 * 50)
    y = torch.arange(21).view(3, 7)
    y[1, 2:4] = -100
    assert_bitwise_plain(lambda logits: training_forms.loss_by_chunks(logits * 1, y),
                         lambda logits: summed_loss.__wrapped__(logits * 1, y),
                         randn(3, 7, 50).to(dtype))


def test_a_chunk_of_a_large_vocabulary_is_one_token(monkeypatch):
    monkeypatch.setattr(training_forms, "LOSS_CHUNK", 4)
    chunks = training_forms.cut_into_chunks(torch.zeros(1, 3, 5), torch.zeros(1, 3))
    assert [len(y) for _, y in chunks] == [1, 1, 1]


def test_a_loss_by_chunks_has_one_backward_pass():
    """It overwrites the logits by their gradient."""
    logits = randn(3, 7, 50).requires_grad_() * 1
    loss = training_forms.loss_by_chunks(logits, torch.zeros(3, 7, dtype=torch.long))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("outputs", [31, 97])  # the weight's gradient is computed in two ways
def test_a_product_by_onednn_is_a_product(outputs):
    assert_equals_plain(shared_forms.onednn_product, F.linear, (3, 7, 48), (outputs, 48))


def test_an_embedding_in_order_is_an_embedding():
    """Bitwise: both add in one order."""
    tokens = torch.arange(600).view(3, 200) % 7
    weight = randn(7, 48)
    found = gradients(lambda w: training_forms.embed_in_order(tokens, w), weight)
    assert all(map(torch.equal, found, gradients(lambda w: F.embedding(tokens, w), weight)))


def test_a_rotation_in_reals_is_a_rotation():
    table = precompute_freqs_cis(8, 7)

    def in_reals(xq, xk):
        return torch.cat(shared_forms.rotate_in_reals(xq, xk, torch.view_as_real(table)), dim=2)

    def plain(xq, xk):
        return torch.cat(apply_rotary_emb(xq, xk, table), dim=2)

    assert_equals_plain(in_reals, plain, (2, 7, 6, 8), (2, 7, 2, 8))


def test_a_norm_by_cuda_is_a_norm():
    """Here by PyTorch's own plain form."""
    assert_equals_plain(lambda x, weight: shared_forms.rms_norm_by_cuda(x, weight, 0.3),
                        lambda x, weight: rms_norm.__wrapped__(x, weight, 0.3), (3, 7, 48), (48,))


@pytest.mark.cuda
def test_a_norm_by_cuda_is_a_norm_on_cuda():
    inputs = [2 * randn(3, 7, 48), randn(48, seed=1)]
    expected = gradients(lambda x, weight: rms_norm.__wrapped__(x, weight, 0.3), *inputs)

    def by_cuda(x, weight):
        return shared_forms.rms_norm_by_cuda(x.cuda(), weight.cuda(), 0.3).cpu()

    torch.testing.assert_close(gradients(by_cuda, *inputs), expected, rtol=1e-5, atol=4e-5)


@pytest.mark.parametrize("form, limit", [
    (training_forms.attend_by_products, 0.005),
    # The gradient of a key is rounded once for each block.
    (training_forms.attend_by_blocks, 0.006),
    (packed_forms.attend_by_two_products, 0.005)])
def test_attention_in_bfloat16_errs_by_bfloat16s_digits(form, limit):
    """8 bits: rounding to nearest errs by up to 0.4 %. The fused kernel errs by 0.52 % here."""
    shapes = [(2, 6, 200, 32), (2, 2, 200, 32), (2, 2, 200, 32)]
    narrow = [randn(*shape, seed=number).bfloat16() for number, shape in enumerate(shapes)]
    wide = [x.float() for x in narrow]
    found = gradients(form, *narrow)
    for got, expected in zip(found, gradients(plain_attend, *wide), strict=True):
        error = (got.float() - expected).square().mean().sqrt()
        assert error < limit * expected.square().mean().sqrt()


@pytest.mark.parametrize("scale, largest_score, ratio", [(1, 5, 2), (4, 22, 4), (16, 87, 10)])
def test_two_products_err_more_than_the_fused_kernel_where_scores_are_large(
        scale, largest_score, ratio):
    """The figures in the docstring of attend_by_two_products."""
    xq = (scale * randn(2, 6, 200, 32)).bfloat16()
    xk, xv = randn(2, 2, 200, 32, seed=1).bfloat16(), randn(2, 2, 200, 32, seed=2).bfloat16()
    wide = [x.float() for x in (xq, xk, xv)]
    scores = wide[0] @ wide[1].repeat_interleave(3, dim=1).mT / 32**0.5
    assert round(scores.abs().max().item()) == largest_score
    expected = plain_attend(*wide)
    errors = [(form(xq, xk, xv).float() - expected).square().mean().sqrt()
              for form in (packed_forms.attend_by_two_products, plain_attend)]
    assert 0.7 * ratio < errors[0] / errors[1] < 1.3 * ratio


@pytest.mark.parametrize("dtypes", [
    (torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)])
def test_attention_by_blocks_takes_float32_beside_bfloat16(dtypes):
    """An encoding of the user's own may add a table in float32 to keys or to values."""
    xq = randn(2, 4, 16, 8).bfloat16()
    xk = randn(2, 4, 16, 8, seed=1).to(dtypes[0])
    xv = randn(2, 4, 16, 8, seed=2).to(dtypes[1])
    with torch.autocast("cpu", torch.bfloat16):
        expected = gradients(training_forms.attend_by_blocks, xq, xk.bfloat16(), xv.bfloat16())
        found = gradients(training_forms.attend_by_blocks, xq, xk, xv)
    assert [x.dtype for x in found] == [torch.bfloat16, torch.bfloat16, *dtypes]
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got.float(), wanted.float())


def test_sums_in_bfloat16_are_rounded_once():
    x = randn(3, 48).bfloat16()
    weight = randn(31, 48, seed=1).bfloat16()
    once = decoding_forms.linear_by_sums(x.float(), weight.float()).bfloat16()
    assert torch.equal(decoding_forms.linear_by_sums(x, weight), once)


# --- which form is chosen, as the table at the top of kernels.py says -----------------------------


@pytest.fixture
def onednn():
    with kernels.products_by_onednn(True):
        yield


@pytest.fixture
def without_onednn():
    with kernels.products_by_onednn(False):
        yield


@pytest.fixture
def compiling(monkeypatch):
    """As while torch.compile traces."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def form_of_linear(tokens, dtype=torch.float32):
    """The form of a product of so many tokens."""
    return kernels.choose_linear(randn(tokens, 1, 48).to(dtype), randn(31, 48, seed=1).to(dtype))


def form_of_attention(length, dtype=torch.bfloat16, mask=None, rows=2):
    """The form of attention of so many queries and keys."""
    q = randn(rows, 6, length, 8).to(dtype)
    kv = randn(rows, 2, length, 8).to(dtype)
    return kernels.choose_attention(q.requires_grad_(), kv, kv, mask)


def test_few_tokens_are_multiplied_plainly(onednn):
    assert form_of_linear(15) is None


def test_many_tokens_are_multiplied_by_onednn(onednn):
    assert form_of_linear(16) is shared_forms.onednn_product


def test_without_a_gain_onednn_is_not_used(without_onednn):
    assert form_of_linear(16) is None


def test_onednn_multiplies_float32_only(onednn):
    assert form_of_linear(16, torch.bfloat16) is None


@pytest.mark.parametrize("tokens", [8, 16])
def test_under_autocast_products_are_plain(onednn, compiling, tokens):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert form_of_linear(tokens) is None


def test_compiled_generation_multiplies_few_tokens_by_sums(compiling):
    with torch.no_grad():
        assert form_of_linear(8) is decoding_forms.linear_by_sums


def test_a_weight_that_is_packed_is_multiplied_packed(compiling):
    weight = randn(31, 48)
    products = packed_forms.GroupedProducts([[weight]], [packed_forms.pack_matrices([weight], 8)])
    with torch.no_grad(), kernels.products_by_groups(products):
        assert kernels.choose_linear(randn(8, 1, 48), weight) == products.multiply
        another = kernels.choose_linear(randn(8, 1, 48), randn(31, 48))
        assert another is decoding_forms.linear_by_sums


@pytest.mark.parametrize("capability, dtype, rows, expected", [
    ("AVX512", torch.bfloat16, 5, True), ("AVX512", torch.bfloat16, 4, False),
    ("AVX2", torch.bfloat16, 9, False), ("AVX2", torch.float32, 9, True),
    ("AVX512", torch.float32, 8, False)])
def test_weights_are_packed_where_that_is_faster(
        capability, dtype, rows, expected, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert kernels.packs_weights(torch.device("cpu"), dtype, rows) is expected


@pytest.mark.parametrize("rows, amx, size, expected", [
    (8, False, 2**17, False), (8, False, 2**17 - 1, True), (8, True, 5 * 2**17, False),
    (8, True, 5 * 2**17 - 1, True), (9, True, 1, False)])
def test_matrices_are_too_small_to_be_packed_for_few_rows(rows, amx, size, expected, monkeypatch):
    """On average."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(kernels, "read_capabilities", lambda: {"amx_bf16": amx})
    sizes = [size // 2, size + size - size // 2]
    assert kernels.are_too_small(sizes, torch.bfloat16, rows) is expected


@pytest.mark.parametrize("limit, expected", [
    ("AVX512_CORE_BF16", False), ("avx2", False), ("SSE41", False), ("AVX512_CORE_AMX", True),
    ("DEFAULT", True)])
def test_amx_is_not_used_where_onednn_is_limited(limit, expected, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    monkeypatch.setattr(kernels, "read_capabilities", lambda: {"amx_bf16": True})
    assert kernels.has_amx() is expected


def test_no_matrix_is_too_small_for_another_dtype():
    assert not kernels.are_too_small([1], torch.int8, 5)


@pytest.mark.parametrize("capability, rows, expected", [
    ("AVX2", 8, True), ("AVX2", 9, False), ("AVX512", 1, False), ("DEFAULT", 1, False)])
def test_int8_weights_are_read_as_words_with_avx2_only(capability, rows, expected, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert kernels.packs_weights(torch.device("cpu"), torch.int8, rows) is expected


def form_of_int8(tokens, weight=BYTES):
    """The form of a product of so many tokens with an int8 weight, in generation."""
    with torch.no_grad():
        chosen = kernels.choose_int8(randn(tokens, 1, 64), weight, randn(4))
    return getattr(chosen, "func", chosen)  # without the product that it is given


@pytest.mark.parametrize("tokens, form", [(4, packed_forms.int8_with_float_inputs), (5, None)])
def test_with_avx512_few_tokens_keep_float_inputs(tokens, form, compiling, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: True)
    assert form_of_int8(tokens) is form


def test_with_avx2_int8_weights_that_are_no_words_are_not_summed(compiling, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: True)
    assert form_of_int8(1) is None


def test_words_are_multiplied_with_float_inputs(compiling):
    products = packed_forms.GroupedProducts([[BYTES]], [packed_forms.pack_matrices([BYTES], 8)])
    with kernels.products_by_groups(products):
        assert form_of_int8(8) is packed_forms.int8_with_float_inputs
        assert form_of_int8(8, BYTES.clone()) is not packed_forms.int8_with_float_inputs


def test_eager_int8_products_have_int8_inputs(monkeypatch):
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: True)
    assert form_of_int8(1) is None


def test_without_fast_int8_products_weights_are_converted(monkeypatch):
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: False)
    assert form_of_int8(1) is packed_forms.int8_by_float_weights


def test_int8_weights_with_one_input_are_converted(monkeypatch):
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: True)
    assert form_of_int8(1, BYTES.view(256, 1)) is packed_forms.int8_by_float_weights


def test_int8_products_are_slow_without_onednn():
    """Then torch multiplies one number after the other, as without instructions for int8."""
    with torch.backends.mkldnn.flags(enabled=False):
        assert not kernels.multiplies_int8.__wrapped__()


def test_measuring_int8_products_leaves_the_number_of_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    kernels.multiplies_int8.__wrapped__()
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == before + 1


def test_on_a_gpu_no_weights_are_packed():
    assert not kernels.packs_weights(torch.device("cuda"), torch.bfloat16, 32)


def test_compiled_training_multiplies_few_tokens_plainly(compiling):
    assert form_of_linear(8) is None


def test_training_in_bfloat16_attends_to_short_rows_by_blocks():
    assert form_of_attention(512) is training_forms.attend_by_blocks
    assert form_of_attention(513) is None


def test_compiled_training_attends_to_long_rows_by_products(compiling):
    """Compiled, they need no more memory."""
    assert form_of_attention(512) is training_forms.attend_by_products
    assert form_of_attention(513) is training_forms.attend_by_products


def test_training_in_float32_attends_plainly():
    assert form_of_attention(512, torch.float32) is None


@pytest.mark.parametrize("length", [1, 512])
def test_on_a_cpu_attention_with_a_mask_is_plain(length):
    assert form_of_attention(length, mask=randn(1)) is None


@pytest.fixture
def on_cuda(monkeypatch):
    """Say which form attention has there: `on_cuda(float32, n_kv_heads=2, mask=None)`."""
    def on_cuda(dtype, n_kv_heads, mask, major=9):
        monkeypatch.setattr(torch.cuda, "get_device_properties",
                            lambda device: SimpleNamespace(major=major))
        device = torch.device("cuda", 0)
        q = SimpleNamespace(device=device, dtype=dtype, shape=(2, 6, 7, 8))
        kv = SimpleNamespace(device=device, dtype=dtype, shape=(2, n_kv_heads, 7, 8))
        return kernels.choose_attention(q, kv, kv, mask)

    return on_cuda


@pytest.mark.parametrize("dtype, mask", [
    (torch.float32, None), (torch.float32, MASKS["bias"]), (torch.bfloat16, MASKS["bias"]),
    (torch.bfloat16, MASKS["visible keys"])])
def test_on_cuda_grouped_heads_are_repeated_for_a_fused_kernel(on_cuda, dtype, mask):
    assert on_cuda(dtype, 2, mask) is shared_forms.attend_repeated_heads


def test_on_an_old_card_grouped_heads_are_repeated_in_float16(on_cuda):
    assert on_cuda(torch.float16, 2, None, major=7) is shared_forms.attend_repeated_heads


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_on_cuda_grouped_heads_of_16_bits_stay_grouped(on_cuda, dtype):
    assert on_cuda(dtype, 2, None) is None


@pytest.mark.parametrize("mask", [None, MASKS["bias"]])
def test_on_cuda_no_head_is_repeated_without_groups(on_cuda, mask):
    assert on_cuda(torch.float32, 6, mask) is None


def test_prefill_attends_plainly():
    with torch.no_grad():
        assert form_of_attention(512) is None


@pytest.fixture
def exporting(monkeypatch):
    """As in the package of a prefill, on a processor with instructions for bfloat16."""
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    monkeypatch.setattr(kernels, "has_bfloat16", lambda: True)
    monkeypatch.setattr(kernels, "_groups", Mock())


def test_compiled_prefill_attends_to_short_prompts_by_two_products(exporting):
    with torch.no_grad():
        assert form_of_attention(1024, rows=1) is packed_forms.attend_by_two_products
        assert form_of_attention(1025, rows=1) is None


@pytest.mark.parametrize("dtype, rows", [(torch.float32, 1), (torch.bfloat16, 2)])
def test_compiled_prefill_in_float32_or_of_several_rows_attends_plainly(exporting, dtype, rows):
    with torch.no_grad():
        assert form_of_attention(512, dtype, rows=rows) is None


def test_what_others_export_attends_plainly(exporting, monkeypatch):
    monkeypatch.setattr(kernels, "_groups", None)
    with torch.no_grad():
        assert form_of_attention(512, rows=1) is None


def test_compiled_prefill_attends_plainly_without_instructions_for_bfloat16(exporting, monkeypatch):
    monkeypatch.setattr(kernels, "has_bfloat16", lambda: False)
    with torch.no_grad():
        assert form_of_attention(512, rows=1) is None


@pytest.mark.parametrize("capability, has_instructions, expected", [
    ("AVX512", True, True), ("AVX512", False, False), ("AVX2", True, False)])
def test_bfloat16_needs_instructions_and_vectors_of_512_bits(
        capability, has_instructions, expected, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cpu, "get_capabilities",
                        lambda: {"avx512_bf16": has_instructions}, raising=False)
    assert kernels.has_bfloat16() is expected


def test_a_torch_that_does_not_tell_has_no_instructions_for_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert kernels.has_bfloat16() is False


def test_one_query_attends_as_a_group_of_heads():
    assert form_of_attention(1) is decoding_forms.attend_one_query


def test_compiled_generation_attends_to_one_query_by_sums(compiling):
    with torch.no_grad():
        assert form_of_attention(1) is decoding_forms.attend_by_sums


def test_compiled_training_attends_to_one_query_as_a_group(compiling):
    assert form_of_attention(1) is decoding_forms.attend_one_query


class OneQueryOnCuda(SimpleNamespace):
    """One query of each of so many rows, as far as the choice of a form looks at it."""

    device = torch.device("cuda", 0)
    dtype = torch.bfloat16

    def __len__(self):
        return self.rows


def choose_for_one_query_on_cuda(rows):
    """The form for one query in each row, with a mask."""
    return kernels.choose_for_one_query(OneQueryOnCuda(rows=rows), randn(7).to(torch.bfloat16))


def test_eager_generation_on_cuda_attends_with_a_mask_by_scores():
    with torch.no_grad():
        assert choose_for_one_query_on_cuda(4) is decoding_forms.attend_by_scores


@pytest.mark.parametrize("rows, form", [
    (4, decoding_forms.attend_by_sums), (5, decoding_forms.attend_by_scores)])
def test_compiled_generation_on_cuda_attends_to_few_rows_with_a_mask_by_sums(compiling, rows, form):
    with torch.no_grad():
        assert choose_for_one_query_on_cuda(rows) is form


def test_training_on_cuda_attends_to_one_query_with_a_mask_plainly():
    assert choose_for_one_query_on_cuda(4) is None


def test_eager_training_in_bfloat16_keeps_the_plain_norm():
    x = randn(3, 48).to(torch.bfloat16).requires_grad_()
    assert kernels.choose_norm(x, randn(48).to(torch.bfloat16), 1e-5) is None


def test_compiled_rotations_are_in_real_numbers(compiling):
    rotations = randn(7, 4, 2)
    assert kernels.choose_rotation(randn(1), randn(1), rotations) is shared_forms.rotate_in_reals
    assert kernels.choose_rotation(randn(1), randn(1), torch.view_as_complex(rotations)) is None


def test_eager_rotations_are_plain():
    assert kernels.choose_rotation(randn(1), randn(1), randn(7, 4, 2)) is None


@pytest.mark.parametrize("capability, rows", [("AVX512", 4), ("AVX2", 8), ("DEFAULT", 0)])
def test_so_many_rows_of_int8_keep_float_inputs(capability, rows, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert kernels.max_float_rows() == rows


def test_without_the_operator_that_packs_no_weights_are_packed(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    assert not kernels.packs_weights(torch.device("cpu"), torch.bfloat16, 8)


def form_of_norm(device, dtype):
    """The form of a norm with a weight in float32, of x on this device and in this dtype."""
    x = SimpleNamespace(device=torch.device(device), dtype=dtype, requires_grad=False)
    return kernels.choose_norm(x, randn(48), 1e-5)


def test_on_cuda_a_norm_is_one_kernel_in_training_and_generation():
    assert form_of_norm("cuda", torch.float32) is shared_forms.rms_norm_by_cuda
    with torch.no_grad():
        assert form_of_norm("cuda", torch.float32) is shared_forms.rms_norm_by_cuda


def test_on_cuda_a_norm_of_two_dtypes_is_plain():
    assert form_of_norm("cuda", torch.bfloat16) is None


def test_on_a_cpu_a_norm_without_a_gradient_is_plain():
    assert form_of_norm("cpu", torch.float32) is None


def test_eager_training_keeps_few_tensors_of_a_norm():
    x = randn(3, 48).requires_grad_()
    assert kernels.choose_norm(x, randn(48), 1e-5) is training_forms.rms_norm_of_few_tensors
    with torch.no_grad():
        assert kernels.choose_norm(x, randn(48), 1e-5) is None


def test_eager_training_keeps_few_tensors_of_a_gate():
    x = randn(3, 48).requires_grad_()
    assert kernels.choose_gate(x, x) is training_forms.gate_of_few_tensors
    with torch.no_grad():
        assert kernels.choose_gate(x, x) is None


def test_eager_training_keeps_few_tensors_of_a_product_with_a_gate():
    gated = gate(randn(3, 48).requires_grad_(), randn(3, 48))
    chosen = kernels.choose_linear(gated, randn(31, 48))
    assert chosen.func is training_forms.linear_of_few_tensors


def form_for_layers(x, *layers):
    """The form of `call_each`, under autocast to bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        return kernels.choose_each(x, layers)


def test_eager_training_under_autocast_calls_layers_on_one_copy():
    x = randn(3, 48).requires_grad_() * 1
    layer = make_layer(randn(31, 48))
    assert form_for_layers(x, layer, layer) is training_forms.call_each_on_one_copy
    with torch.no_grad():
        assert form_for_layers(x, layer, layer) is None


def test_an_input_that_autocast_leaves_or_keeps_is_not_copied():
    """It keeps what it has converted a leaf to."""
    leaf = randn(3, 48).requires_grad_()
    x = leaf * 1
    layer = make_layer(randn(31, 48))
    assert kernels.choose_each(x, [layer, layer]) is None
    assert form_for_layers(x.bfloat16(), layer, layer) is None
    assert form_for_layers(leaf, layer, layer) is None


def test_layers_on_a_device_without_autocast_are_called_as_they_are():
    x = torch.ones(3, 48, device="meta", requires_grad=True) * 1
    layer = make_layer(torch.ones(31, 48, device="meta"))
    assert [out.shape for out in call_each(x, [layer, layer])] == [(3, 31), (3, 31)]


def test_a_layer_with_an_input_of_its_own_gets_no_copy():
    """Its hook computes in the dtype of x."""
    other = make_layer(randn(31, 48))
    other.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 3,))
    x = randn(3, 48).requires_grad_() * 1
    assert form_for_layers(x, make_layer(randn(31, 48)), other) is None


def test_compiled_training_leaves_what_is_kept_to_the_compiler(compiling):
    x = randn(3, 48).requires_grad_() * 1
    assert form_for_layers(x, make_layer(randn(31, 48))) is None
    assert kernels.choose_norm(x, randn(48), 1e-5) is None
    assert kernels.choose_gate(x, x) is None
    assert kernels.choose_loss(x * 1, x) is None


def test_eager_training_computes_the_loss_by_chunks():
    logits = randn(1, 3, 48).requires_grad_() * 1
    assert kernels.choose_loss(logits, logits) is training_forms.loss_by_chunks


def test_logits_that_nothing_computed_are_not_overwritten():
    logits = randn(1, 3, 48).requires_grad_()
    assert kernels.choose_loss(logits, logits) is None


def test_logits_that_are_not_contiguous_are_not_overwritten():
    """Chunks of them would be copies."""
    logits = (randn(7, 3, 50).requires_grad_() * 1).transpose(0, 1)
    assert kernels.choose_loss(logits, torch.zeros(3, 7, dtype=torch.long)) is None


def test_a_functional_gradient_of_attention_is_that_of_attend_by_products():
    x = randn(1, 2, 7, 8).bfloat16()
    found = torch.func.grad(lambda x: attend(x, x, x, None).sum())(x)
    leaf = x.clone().requires_grad_()
    training_forms.attend_by_products(leaf, leaf, leaf).sum().backward()
    assert torch.equal(found, leaf.grad)


@pytest.mark.parametrize("form", [
    lambda x: training_forms.attend_by_blocks(x, x, x),
    lambda x: training_forms.rms_norm_of_few_tensors(x, torch.ones(8), 1e-5),
    lambda x: training_forms.gate_of_few_tensors(x, x),
    lambda x: training_forms.loss_by_chunks(x[0] * 1, torch.zeros(2, 7, dtype=torch.int64))])
def test_a_written_out_gradient_refuses_a_second_derivative(form):
    """Even of a sum, whose own gradient is a constant."""
    x = randn(1, 2, 7, 8).requires_grad_()
    with pytest.raises(RuntimeError, match="this form has no second derivative"):
        torch.autograd.grad(form(x).sum(), x, create_graph=True)


def test_a_functional_gradient_of_a_gate_is_that_of_pytorch():
    x = randn(16, 48)
    found = torch.func.grad(lambda x: gate(x, x).sum())(x)
    expected = torch.func.grad(lambda x: gate.__wrapped__(x, x).sum())(x)
    assert torch.equal(found, expected)


def test_a_compiled_norm_is_plain(compiling):
    assert form_of_norm("cuda", torch.float32) is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_compiled_training_embeds_in_order(compiling, device):
    weight = SimpleNamespace(device=torch.device(device))
    form = kernels.choose_embedding(torch.tensor([[1]]), weight)
    assert form is training_forms.embed_in_order


def test_compiled_generation_embeds_plainly(compiling):
    with torch.no_grad():
        assert kernels.choose_embedding(torch.tensor([[1]]), randn(7, 48)) is None


def test_eager_training_embeds_plainly():
    assert kernels.choose_embedding(torch.tensor([[1]]), randn(7, 48)) is None


def test_the_form_that_is_chosen_is_used(onednn, monkeypatch):
    monkeypatch.setattr(shared_forms, "onednn_product", lambda x, weight: "oneDNN")
    assert linear(randn(16, 48), randn(31, 48)) == "oneDNN"


# --- derivatives that oneDNN's operator does not define -------------------------------------------


def test_a_forward_mode_derivative_is_that_of_pytorch(onednn):
    """The operator defines none: it would be 0."""
    x = randn(16, 48)
    weight = randn(31, 48, seed=1)
    _, tangent = torch.func.jvp(lambda w: linear(x, w), (weight,), (weight,))
    torch.testing.assert_close(tangent, x @ weight.T)


def test_no_product_by_onednn_while_forward_derivatives_are_taken(onednn):
    with torch.autograd.forward_ad.dual_level():
        assert form_of_linear(16) is None


def test_a_functional_gradient_is_that_of_pytorch(onednn):
    x = randn(16, 48)
    gradient = torch.func.grad(lambda w: linear(x, w).sum())(randn(31, 48, seed=1))
    torch.testing.assert_close(gradient, x.sum(0).expand(31, 48), rtol=1e-5, atol=2e-5)


def test_a_weight_gets_its_gradient_where_x_needs_none(onednn):
    x = randn(16, 48)
    weight = randn(31, 48, seed=1).requires_grad_()
    linear(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(31, 48), rtol=1e-5, atol=2e-5)
