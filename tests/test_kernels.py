"""Each faster form equals its plain one, with gradients, and is used when kernels.py says."""

import pytest
import torch
import torch.nn.functional as F
from conftest import draw, random_tokens, sharpened

from model import kernels
from model.generation import generate, next_logits
from model.rope import apply_rotary_emb, precompute_freqs_cis
from model.sampling import Sampling
from model.transformer import KVCache, attend, linear

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
    monkeypatch.setattr(kernels, "uses_onednn", True)
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


def test_onednn_leaves_other_derivatives_and_empty_products_to_pytorch(monkeypatch):
    """The operator defines no forward-mode derivative: it would be 0."""
    x, weight = draw(kernels.MIN_ONEDNN_TOKENS, 48), draw(31, 48, seed=1)
    monkeypatch.setattr(kernels, "uses_onednn", True)
    assert linear(x[:, :0], weight[:, :0]).shape == (len(x), 31)
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


# --- compiled decoding ---


def graphs():
    """The number of graphs compiled since the last call."""
    count = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.utils.counters.clear()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("rows, narrow, first, steps, compiled_at", [
    (1, False, 0, 9, [0, 1]), (MOST_SUMMED + 1, True, 0, 9, [0, 1]),
    (1, False, kernels.LONGEST_SUM - 3, 5, [0, 3])])
def test_decoding_compiles_twice_and_equals_eager(rows, narrow, first, steps, compiled_at):
    """For an empty cache and for all other lengths; and once more beyond LONGEST_SUM keys."""
    model = sharpened(n_layers=1, max_positions=first + 80)
    compiled, counts = kernels.compile_for_decoding(next_logits, "cpu"), []
    dtype = torch.bfloat16 if narrow else torch.float32
    torch._dynamo.reset(), graphs()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        caches = [KVCache(model.config, rows, first + 64, dtype=dtype) for _ in "ab"]
        for cache in caches if first else ():
            next_logits(model, random_tokens(rows, first), cache)
        for seed in range(steps):
            fed = random_tokens(rows, 1, seed=seed)
            expected = next_logits(model, fed, caches[0])
            got = compiled(model, fed, caches[1])
            # Logits reach 3, which bfloat16 rounds to 0.02.
            torch.testing.assert_close(got, expected, rtol=0, atol=0.1 if narrow else 1e-4)
            counts.append(graphs())
    assert caches[1].length == first + steps
    assert [i for i, n in enumerate(counts) if n] == compiled_at


@pytest.mark.slow
def test_generation_compiles_once_for_each_number_of_rows():
    """Other lengths of prompts are no new case, nor are more rows than sums are made for."""
    model, counts, many = sharpened(n_layers=1), [], [5] * (MOST_SUMMED + 1)
    torch._dynamo.reset(), graphs()
    for lengths in ([5], [2], [3, 9, 6], [5, 5, 5], many, [*many, 6]):
        prompts = [random_tokens(length, seed=seed).tolist() for seed, length in enumerate(lengths)]
        eager, compiled = (generate(model, prompts, Sampling(temperature=0), max_new_tokens=12,
                                    compile=compile) for compile in (False, True))
        assert eager == compiled
        counts.append(graphs())
    assert counts == [1, 0, 1, 0, 1, 0]
