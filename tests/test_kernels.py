"""Each faster form equals its plain one, with gradients, and is taken when kernels.py says."""


import pytest
import torch
import torch.nn.functional as F
from conftest import draw, random_tokens, sharpened

from model import kernels
from model.generation import compiled_next_logits, compute_dtype, generate, next_logits
from model.rope import apply_rotary_emb, precompute_freqs_cis
from model.sampling import Sampling
from model.transformer import KVCache, attend, linear

GREEDY = Sampling(temperature=0)
MOST_SUMMED = kernels.MAX_SUMMED_TOKENS


def plain_attend(q, k, v):
    """`attend` in its plain form, whatever is faster: (B, H, T, D), causal."""
    return attend.__wrapped__(q, k, v, None)


def gradients(form, *inputs):
    """What a form makes of these inputs, and its gradient for each of them."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = form(*leaves)
    out.backward(draw(*out.shape, seed=9).to(out.dtype))
    return [out.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("length", [2, 127, 128, 129, 300, 519])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
def test_attention_by_products_equals_the_fused_kernel(length, n_kv_heads):
    """Lengths around a block of 128 queries; several blocks, of which the last is not full."""
    kv = (2, n_kv_heads, length, 8)
    inputs = 2 * draw(2, 6, length, 8), draw(*kv, seed=1), draw(*kv, seed=2)
    products, fused = (gradients(f, *inputs) for f in (kernels.attend_by_products, plain_attend))
    torch.testing.assert_close(products, fused, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("scale", "bound"), [(1, 0.006), (4, 0.012)])
def test_attention_by_products_in_bfloat16_errs_by_bfloat16s_digits(scale, bound):
    shapes = (2, 6, 200, 32), (2, 2, 200, 32), (2, 2, 200, 32)
    wide = [draw(*shape, seed=i).bfloat16().float() for i, shape in enumerate(shapes)]
    wide[0] *= scale  # logits reach 5 and 20
    exact = gradients(plain_attend, *wide)
    narrow = gradients(kernels.attend_by_products, *(x.bfloat16() for x in wide))
    for got, expected in zip(narrow, exact, strict=True):
        error = (got.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert error < bound  # 8 bits: rounding to nearest errs by up to 0.4 %


def test_attention_by_products_is_for_training_in_bfloat16_in_short_rows(monkeypatch):
    calls = []

    def record(q, k, v, mask):
        calls.append(q.shape[2])
        return q

    monkeypatch.setattr(kernels, "attend_by_products", record)
    q, kv = draw(1, 6, 600, 8).bfloat16(), draw(1, 2, 600, 8).bfloat16()

    def length(n, dtype=torch.bfloat16):
        attend(*(x[:, :, :n].to(dtype) for x in (q, kv, kv)), None)

    length(512)
    assert calls == [512]
    length(513), length(1), length(512, torch.float32)
    with torch.no_grad():
        length(512)
    attend(q, kv, kv, torch.ones(600, 600).tril().bool())  # a mask is the fused kernel's
    assert calls == [512]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    length(513)  # which costs no more memory, compiled
    assert calls == [512, 513]


@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@pytest.mark.parametrize(("longest", "length"), [(4096, 9), (8, 32), (8, 47), (32, 32), (31, 32)])
def test_one_query_attends_like_the_last_of_many(n_kv_heads, longest, length, monkeypatch):
    """And so it does where its sum is cut into parts, with most keys left over and with none.

    Processors add in different orders: up to 1.7e-6 apart, of numbers around 1.
    """
    monkeypatch.setattr(kernels, "LONGEST_SUM", longest)
    kv = (2, n_kv_heads, length, 8)
    q, k, v = 3 * draw(2, 6, length, 8), 3 * draw(*kv, seed=1), draw(*kv, seed=2)
    last = q[:, :, -1:]
    plain = gradients(plain_attend, last, k, v)
    torch.testing.assert_close(plain[0], plain_attend(q, k, v)[:, :, -1:], rtol=1e-5, atol=1e-6)
    for form in (kernels.attend_by_sums, kernels.attend_one_query):
        out, *grads = gradients(form, last, k, v)
        torch.testing.assert_close(out, plain[0], rtol=1e-5, atol=4e-6)
        torch.testing.assert_close(grads, plain[1:], rtol=1e-5, atol=1e-5)


def test_which_form_a_single_query_takes(monkeypatch):
    q, kv = draw(2, 6, 1, 8), draw(2, 2, 7, 8, seed=1)
    grouped, summed = (f(q, kv, kv) for f in (kernels.attend_one_query, kernels.attend_by_sums))
    assert not torch.equal(grouped, summed)
    assert torch.equal(attend(q, kv, kv, None), grouped)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(attend(q, kv, kv, None), grouped)  # gradients: training
    with torch.no_grad():
        assert torch.equal(attend(q, kv, kv, None), summed)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (MOST_SUMMED, 1), (2, 3), (4,), ()])
def test_a_few_tokens_take_sums_of_products_when_compiled(shape, monkeypatch):
    x, weight = draw(*shape, 48), draw(31, 48, seed=1)
    expected = F.linear(x, weight)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.no_grad():
        monkeypatch.setattr(torch.nn.functional, "linear", None)
        got = linear(x, weight)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    monkeypatch.undo()
    sums, products = (gradients(form, x, weight) for form in (kernels.linear_by_sums, F.linear))
    torch.testing.assert_close(sums, products, rtol=1e-5, atol=2e-5)


def test_more_tokens_and_training_keep_the_matrix_product(monkeypatch):
    x, weight = draw(MOST_SUMMED + 1, 1, 48), draw(31, 48, seed=1)
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *_: "product")
    assert linear(x[:1], weight) == "product"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert linear(x[:1], weight) == "product"
    with torch.no_grad():
        assert linear(x, weight) == "product"
        assert linear(x[:1], weight) != "product"


@pytest.mark.parametrize("outputs", [31, 97])
def test_products_by_onednn_equal_those_of_the_library(outputs):
    """Fewer and more outputs than inputs: the gradient of the weight is computed either way round.
    The model compiles them, and each gradient alone may be asked for."""
    x, weight = draw(3, 7, 48), draw(outputs, 48, seed=1)
    expected = gradients(F.linear, x, weight)
    for form in (kernels.onednn_product, torch.compile(kernels.onednn_product)):
        for got, plain in zip(gradients(form, x, weight), expected, strict=True):
            torch.testing.assert_close(got, plain, rtol=1e-5, atol=2e-5)
    alone = weight.clone().requires_grad_()
    kernels.onednn_product(x, alone).backward(draw(3, 7, outputs, seed=9))
    torch.testing.assert_close(alone.grad, expected[2], rtol=1e-5, atol=2e-5)


def test_onednn_multiplies_many_rows_in_float32_where_it_is_preferred(monkeypatch):
    monkeypatch.setattr(kernels, "onednn_product", lambda *_: "oneDNN")
    x, weight = draw(kernels.MIN_ONEDNN_TOKENS, 48), draw(31, 48, seed=1)
    monkeypatch.setattr(kernels, "onednn_is_faster", False)
    assert linear(x, weight) != "oneDNN"
    kernels.prefer_onednn(True)
    assert linear(x, weight) == "oneDNN"
    assert linear(x[1:], weight) != "oneDNN"
    assert linear(x.bfloat16(), weight.bfloat16()) != "oneDNN"
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight) != "oneDNN"
    assert linear(x[:, :0], weight[:, :0]).shape == (len(x), 31)
    # The operator has no forward-mode derivative, and would say 0.
    _, tangent = torch.func.jvp(lambda w: linear(x, w), (weight,), (weight,))
    torch.testing.assert_close(tangent, x @ weight.T)
    torch.func.grad(lambda w: linear(x, w).sum())(weight)
    with torch.autograd.forward_ad.dual_level():
        assert linear(x, weight) != "oneDNN"


def test_rotation_in_reals_equals_the_complex_one_forwards_and_backwards():
    freqs_cis = precompute_freqs_cis(8, 7)
    xq, xk = draw(2, 7, 6, 8), draw(2, 7, 2, 8, seed=1)

    def joined(form, table):
        return gradients(lambda q, k: torch.cat(form(q, k, table), dim=2), xq, xk)

    reals = joined(kernels.rotate_in_reals, torch.view_as_real(freqs_cis))
    torch.testing.assert_close(reals, joined(apply_rotary_emb, freqs_cis), rtol=0, atol=1e-6)


# --- compiled decoding ---


def graphs():
    """How many were compiled since this was last asked."""
    count = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.utils.counters.clear()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("rows, narrow", [
    (1, False), (3, False), (MOST_SUMMED + 1, False), (1, True), (MOST_SUMMED + 1, True)])
def test_compiled_decoding_equals_eager_and_compiles_twice(rows, narrow):
    """Once for an empty cache and once for all other lengths, however many tokens are drawn."""
    model = sharpened(n_layers=2)
    compiled = compiled_next_logits("cpu")
    torch._dynamo.reset(), graphs()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        caches = [KVCache(model.config, rows, 64, dtype=compute_dtype(model)) for _ in "ab"]
        fed = random_tokens(rows, 1)
        for _ in range(40):
            expected = next_logits(model, fed, caches[0])
            got = compiled(model, fed, caches[1])
            # logits reach 3 and bfloat16 rounds that to 0.02
            torch.testing.assert_close(got, expected, rtol=0, atol=0.1 if narrow else 1e-4)
            fed = expected.argmax(-1, keepdim=True)
    assert caches[1].length == 40
    assert graphs() == 2


@pytest.mark.slow
def test_compiled_decoding_equals_eager_in_long_texts_and_compiles_once_more():
    """Beyond LONGEST_SUM keys it is another sum. The call that fills the cache, which `generate`
    never makes, compiles too, and is right."""
    long = kernels.LONGEST_SUM + 3 * kernels.PARTS
    model = sharpened(n_layers=2, max_positions=long + 1)
    compiled = compiled_next_logits("cpu")
    torch._dynamo.reset(), graphs()
    counts = []
    with torch.inference_mode():
        caches = [KVCache(model.config, 1, long) for _ in "ab"]
        for cache in caches:
            next_logits(model, random_tokens(1, kernels.LONGEST_SUM - 5), cache)
        while caches[1].length < long:
            fed = random_tokens(1, 1, seed=caches[1].length)
            expected = next_logits(model, fed, caches[0])
            got = compiled(model, fed, caches[1])
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)
            counts.append(graphs())
    assert [i for i, n in enumerate(counts[:-1]) if n] == [0, 5]


@pytest.mark.slow
def test_generation_compiles_once_whatever_is_asked_of_it():
    """Rows that start, and go on, at other places than those before them are no new case, nor is
    their number, once it is past what sums are made for."""
    model = sharpened(n_layers=2)
    torch._dynamo.reset(), graphs()
    counts = []
    many = [5] * (MOST_SUMMED + 1)
    for prompts in ([5], [2], [5, 5, 5], [3, 9, 6], many, [*many, 6]):
        prompts = [random_tokens(length, seed=seed).tolist() for seed, length in enumerate(prompts)]
        eager, compiled = (
            generate(model, prompts, GREEDY, max_new_tokens=30, compile=c) for c in (False, True)
        )
        assert eager == compiled
        counts.append(graphs())
    assert counts == [1, 0, 1, 0, 1, 0]
