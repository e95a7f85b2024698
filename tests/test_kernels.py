"""Each faster form equals its plain one, with gradients, and is used when kernels.py says."""

import pytest
import torch
import torch.nn.functional as F
from conftest import draw

from model import kernels
from model.rope import apply_rotary_emb, precompute_freqs_cis
from model.transformer import attend, linear

MOST_SUMMED = kernels.MAX_SUMMED_TOKENS


def plain_attend(q, k, v):
    """`attend` in its plain form: (B, H, T, D), causal."""
    return attend.__wrapped__(q, k, v, None)


def gradients(form, *inputs):
    """The output of a form, and its gradient for each of the inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = form(*leaves)
    out.backward(draw(*out.shape, seed=9).to(out.dtype))
    return [out.detach(), *(x.grad for x in leaves)]


def attention(queries, length, n_kv_heads):
    """Shapes of queries, keys and values."""
    return (2, 6, queries, 8), (2, n_kv_heads, length, 8), (2, n_kv_heads, length, 8)


def rotate(form, view):
    table = view(precompute_freqs_cis(8, 7))
    return lambda xq, xk: torch.cat(form(xq, xk, table), dim=2)


@pytest.mark.parametrize("form, plain, shapes", [
    # Lengths around a block of 128 queries; several blocks, of which the last is not full.
    *((kernels.attend_by_products, plain_attend, attention(length, length, n_kv_heads))
      for length, n_kv_heads in ((2, 2), (128, 6), (129, 1), (300, 2), (519, 2))),
    # Sums that are cut into parts and sums that are not, with most keys left over and with few.
    *((form, plain_attend, attention(1, length, n_kv_heads))
      for form in (kernels.attend_by_sums, kernels.attend_one_query)
      for length, n_kv_heads in ((9, 1), (31, 2), (32, 2), (55, 6))),
    *((kernels.linear_by_sums, F.linear, ((*shape, 48), (31, 48)))
      for shape in ((MOST_SUMMED, 1), (2, 3), (4,), ())),
    # With fewer and more outputs than inputs, for the two ways to compute the weight's gradient.
    *((kernels.onednn_product, F.linear, ((3, 7, 48), (outputs, 48))) for outputs in (31, 97)),
    (rotate(kernels.rotate_in_reals, torch.view_as_real),
     rotate(apply_rotary_emb, lambda table: table), ((2, 7, 6, 8), (2, 7, 2, 8)))])
def test_each_form_equals_the_plain_one_forwards_and_backwards(form, plain, shapes, monkeypatch):
    """Processors add in different orders: up to 1.7e-6 apart, of numbers around 1."""
    monkeypatch.setattr(kernels, "LONGEST_SUM", 31)
    inputs = [2 * draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    got, expected = gradients(form, *inputs), gradients(plain, *inputs)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=4e-5)


def test_attention_by_products_in_bfloat16_errs_by_bfloat16s_digits():
    shapes = (2, 6, 200, 32), (2, 2, 200, 32), (2, 2, 200, 32)
    wide = [draw(*shape, seed=i).bfloat16().float() for i, shape in enumerate(shapes)]
    narrow = gradients(kernels.attend_by_products, *(x.bfloat16() for x in wide))
    for got, expected in zip(narrow, gradients(plain_attend, *wide), strict=True):
        error = (got.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert error < 0.005  # 8 bits: rounding to nearest errs by up to 0.4 %


def test_sums_in_bfloat16_are_rounded_once():
    x, weight = draw(3, 48).bfloat16(), draw(31, 48, seed=1).bfloat16()
    once = kernels.linear_by_sums(x.float(), weight.float()).bfloat16()
    assert torch.equal(kernels.linear_by_sums(x, weight), once)


def test_each_form_is_chosen_where_the_table_says(monkeypatch):
    """The table at the top of kernels.py, a row at a time, and what lies just beside it."""
    x, weight = draw(kernels.MIN_ONEDNN_TOKENS, 1, 48), draw(31, 48, seed=1)
    q, kv = draw(2, 6, 600, 8).bfloat16(), draw(2, 2, 600, 8).bfloat16()

    def products(tokens):
        return kernels.choose_linear(x[:tokens], weight)

    def attention(length, dtype=torch.bfloat16, mask=None):
        return kernels.choose_attention(*(a[:, :, :length].to(dtype) for a in (q, kv, kv)), mask)

    assert products(16) is None
    monkeypatch.setattr(kernels, "_uses_onednn", True)
    assert products(16) is kernels.onednn_product and products(15) is None
    assert kernels.choose_linear(x.bfloat16(), weight.bfloat16()) is None
    assert attention(512) is kernels.attend_by_products
    assert {attention(513), attention(512, torch.float32), attention(512, mask=q)} == {None}
    with torch.no_grad():
        assert attention(512) is None and attention(1) is kernels.attend_one_query
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert attention(513) is kernels.attend_by_products  # compiled, it needs no more memory
    assert products(MOST_SUMMED) is None and attention(1) is kernels.attend_one_query  # training
    with torch.no_grad():
        assert products(MOST_SUMMED) is kernels.linear_by_sums and products(9) is None
        assert attention(1) is kernels.attend_by_sums
        with torch.autocast("cpu", torch.bfloat16):
            assert products(MOST_SUMMED) is products(16) is None


def test_onednn_leaves_other_derivatives_to_pytorch(monkeypatch):
    """The operator defines no forward-mode derivative: it would be 0."""
    x, weight = draw(kernels.MIN_ONEDNN_TOKENS, 48), draw(31, 48, seed=1)
    monkeypatch.setattr(kernels, "_uses_onednn", True)
    _, tangent = torch.func.jvp(lambda w: linear(x, w), (weight,), (weight,))
    torch.testing.assert_close(tangent, x @ weight.T)
    torch.func.grad(lambda w: linear(x, w).sum())(weight)
    alone = weight.clone().requires_grad_()  # without a gradient for x
    linear(x, alone).sum().backward()
    torch.testing.assert_close(alone.grad, x.sum(0).expand(31, 48), rtol=1e-5, atol=2e-5)
    with torch.autograd.forward_ad.dual_level():
        assert kernels.choose_linear(x, weight) is None
    monkeypatch.setattr(kernels, "onednn_product", lambda *_: "oneDNN")
    assert linear(x, weight) == "oneDNN"  # what is chosen is used
