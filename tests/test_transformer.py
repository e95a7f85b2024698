"""The decoder: shapes, causality, grouped heads, masks, initialisation, keys."""

import ast
import math
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from model import transformer
from model.config import INIT_STD, ModelConfig
from model.kernels import MAX_SUMMED_TOKENS, attend_by_products, attend_by_sums
from model.position import POSITIONS
from model.transformer import Transformer, attend, linear

ROOT = Path(__file__).parent.parent
SIZES = {
    "dim": 48,
    "n_layers": 3,
    "n_heads": 6,
    "n_kv_heads": 2,
    "vocab_size": 97,
    "max_positions": 64,
}


def build(**changes) -> Transformer:
    model = Transformer(ModelConfig(**{**SIZES, **changes}))
    model.init_weights(seed=1)
    return model


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("tie", [True, False])
def test_state_dict_keys_are_metas(tie):
    model = build(tie_embeddings=tie)
    expected = {"tok_embeddings.weight", "norm.weight"} | (set() if tie else {"output.weight"})
    for i in range(3):
        expected |= {f"layers.{i}.attention.{w}.weight" for w in ("wq", "wk", "wv", "wo")}
        expected |= {f"layers.{i}.feed_forward.{w}.weight" for w in ("w1", "w2", "w3")}
        expected |= {f"layers.{i}.{norm}.weight" for norm in ("attention_norm", "ffn_norm")}
    assert set(model.state_dict()) == expected
    assert model(torch.zeros(2, 7, dtype=torch.long)).shape == (2, 7, 97)
    assert model.layers[0].attention.wk.weight.shape == (2 * 8, 48)


@pytest.mark.parametrize("position", POSITIONS)
def test_causality_by_gradient(position):
    """Exactly nothing flows back from a logit to later tokens, and something does to all
    earlier."""
    model = build(position=position)
    tokens = torch.arange(7)[None]
    h = model.tok_embeddings(tokens).detach().requires_grad_()
    model.tok_embeddings.forward = lambda _: h
    model(tokens)[0, 3].square().sum().backward()
    reached = h.grad[0].abs().sum(-1)
    assert (reached[:4] > 0).all()
    assert (reached[4:] == 0).all()


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_grouped_heads_equal_repeated_heads(n_kv_heads):
    q, k, v = draw(2, 6, 7, 8), draw(2, n_kv_heads, 7, 8, seed=1), draw(2, n_kv_heads, 7, 8, seed=2)
    grouped = attend(q, k, v, None)
    group = 6 // n_kv_heads
    visible = torch.ones(7, 7).tril().bool()
    for h in range(6):
        scores = (q[:, h] @ k[:, h // group].transpose(-1, -2)) / math.sqrt(8)
        expected = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v[:, h // group]
        torch.testing.assert_close(grouped[:, h], expected, rtol=0, atol=1e-5)


def gradients(attention, q, k, v):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attention(*leaves)
    out.backward(draw(*out.shape, seed=9).to(out.dtype))
    return [out, *(x.grad for x in leaves)]


@pytest.mark.parametrize("length", [2, 127, 128, 129, 300, 519])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
def test_attention_by_products_equals_the_fused_kernel(length, n_kv_heads):
    """Lengths around a block of 128 queries; several blocks, of which the last is not full."""
    kv = (2, n_kv_heads, length, 8)
    q, k, v = 2 * draw(2, 6, length, 8), draw(*kv, seed=1), draw(*kv, seed=2)
    fused = gradients(lambda q, k, v: attend(q, k, v, None), q, k, v)
    for got, expected in zip(gradients(attend_by_products, q, k, v), fused, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("scale, bound", [(1, 0.006), (4, 0.012)])
def test_attention_by_products_in_bfloat16_errs_by_bfloat16s_digits(scale, bound):
    shapes = (2, 6, 200, 32), (2, 2, 200, 32), (2, 2, 200, 32)
    wide = [draw(*shape, seed=i).bfloat16().float() for i, shape in enumerate(shapes)]
    wide[0] *= scale  # logits reach 5 and 20
    exact = gradients(lambda q, k, v: attend(q, k, v, None), *wide)
    narrow = gradients(attend_by_products, *(x.bfloat16() for x in wide))
    for got, expected in zip(narrow, exact, strict=True):
        error = (got.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert error < bound  # 8 bits: rounding to nearest errs by up to 0.4 %


def test_which_attention_runs(monkeypatch):
    """By products where it pays: in training, in bfloat16, in rows that are not too long."""
    calls = []
    monkeypatch.setattr(
        transformer, "attend_by_products", lambda q, k, v: calls.append(q.shape[2]) or q
    )
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


@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@pytest.mark.parametrize(("longest", "length"), [(4096, 9), (8, 32), (8, 47), (32, 32), (31, 32)])
def test_one_query_attends_like_the_last_of_many(n_kv_heads, longest, length, monkeypatch):
    """And so it does where its sum is cut into parts, with most keys left over and with none."""
    monkeypatch.setattr(transformer, "LONGEST_SUM", longest)
    kv = (2, n_kv_heads, length, 8)
    q, k, v = 3 * draw(2, 6, length, 8), 3 * draw(*kv, seed=1), draw(*kv, seed=2)
    expected = attend(q, k, v, None)[:, :, -1:]
    for one in (attend(q[:, :, -1:], k, v, None), attend_by_sums(q[:, :, -1:], k, v)):
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (MAX_SUMMED_TOKENS, 1), (2, 3), (4,), ()])
def test_a_few_tokens_take_sums_of_products_when_compiled(shape, monkeypatch):
    x, weight = draw(*shape, 48), draw(31, 48, seed=1)
    expected = F.linear(x, weight)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.no_grad():
        monkeypatch.setattr(transformer.F, "linear", None)
        got = linear(x, weight)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_more_tokens_and_training_keep_the_matrix_product(monkeypatch):
    x, weight = draw(MAX_SUMMED_TOKENS + 1, 1, 48), draw(31, 48, seed=1)
    monkeypatch.setattr(transformer.F, "linear", lambda *_: "product")
    assert linear(x[:1], weight) == "product"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert linear(x[:1], weight) == "product"
    with torch.no_grad():
        assert linear(x, weight) == "product"
        assert linear(x[:1], weight) != "product"


def test_mask_of_a_later_chunk_is_aligned_at_its_end():
    """SDPA's is_causal would align it at the start, and show one key to one query."""
    model = build()
    assert model._mask(0, 7, torch.device("cpu")) is None
    assert model._mask(6, 7, torch.device("cpu")) is None
    mask = model._mask(4, 7, torch.device("cpu"))
    explicit = [[n <= m for n in range(7)] for m in (4, 5, 6)]
    assert mask.tolist() == explicit
    q, k, v = draw(2, 6, 3, 8), draw(2, 2, 7, 8, seed=1), draw(2, 2, 7, 8, seed=2)
    out = attend(q, k, v, mask)
    for i, m in enumerate((4, 5, 6)):
        for h in range(6):
            scores = (q[:, h, i, None] @ k[:, h // 3, : m + 1].transpose(-1, -2)) / math.sqrt(8)
            expected = (scores.softmax(-1) @ v[:, h // 3, : m + 1])[:, 0]
            torch.testing.assert_close(out[:, h, i], expected, rtol=0, atol=1e-5)
    top_left = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert (top_left - out).abs().max() > 0.1


def test_residual_projections_start_smaller():
    model = build(dim=192, n_layers=4, n_heads=6)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            scaled = name.endswith(("wo.weight", "w2.weight"))
            std = INIT_STD / math.sqrt(2 * 4) if scaled else INIT_STD
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name
        else:
            assert (parameter == 1).all()


def test_every_encoding_starts_from_the_same_shared_weights():
    reference = dict(build(position="none").named_parameters())
    for position in POSITIONS:
        shared = {n: p for n, p in build(position=position).named_parameters() if n in reference}
        assert set(shared) == set(reference)
        assert all(torch.equal(p, reference[n]) for n, p in shared.items())
    torch.manual_seed(999)  # nor does the global stream matter, and it is not touched
    before = torch.get_rng_state()
    again = dict(build(position="none").named_parameters())
    # Building draws PyTorch's own defaults; what counts is that init_weights replaced all of them.
    assert all(torch.equal(p, reference[n]) for n, p in again.items())
    torch.set_rng_state(before)
    model = build()
    before = torch.get_rng_state()
    model.init_weights(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(model.tok_embeddings.weight, reference["tok_embeddings.weight"])


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_dropout_drops_every_number_as_often_and_keeps_the_mean(p):
    n = 400_003  # no multiple of the four numbers that share a draw
    x = torch.full((n,), 3.0, requires_grad=True)
    torch.manual_seed(1)
    out = transformer.Dropout(p)(x)
    out.sum().backward()
    dropped = out == 0
    torch.testing.assert_close(out[~dropped], torch.full_like(out[~dropped], 3 / (1 - p)))
    torch.testing.assert_close(x.grad, out.detach() / 3)
    for lane in range(4):
        share = dropped[lane::4].double().mean().item()
        assert abs(share - p) < 5 * (p * (1 - p) / (n / 4)) ** 0.5
    for shift in range(1, 5):  # neighbours are dropped independently
        both = (dropped[shift:] & dropped[:-shift]).double().mean().item()
        assert abs(both - p**2) < 5 * p / n**0.5


def test_dropout_acts_in_training_only():
    model = build(dropout=0.5)
    tokens = torch.arange(7)[None]
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"dim": 50}, "model.dim 50 is not divisible by model.n_heads 6"),
        ({"n_kv_heads": 4}, "model.n_heads 6 is not divisible by model.n_kv_heads 4"),
        ({"n_kv_heads": 0}, "model.n_kv_heads must be at least 1, not 0"),
        ({"dropout": 1.0}, r"model.dropout must be in \[0, 1\), not 1.0"),
        ({"partial": 1.5}, r"model.partial must be in \[0, 1\]"),
        ({"theta": 1.0}, "model.theta must be above 1"),
        ({"position": "rop"}, "model.position must be one of rope, sinusoidal"),
        ({"vocab_size": None}, "model.vocab_size must be set"),
    ],
)
def test_what_cannot_be_built_is_refused_in_words(changes, words):
    with pytest.raises(ValueError, match=words):
        build(**changes)


def test_explicit_head_dim():
    model = build(dim=50, head_dim=8)
    assert model(torch.zeros(2, 7, dtype=torch.long)).shape == (2, 7, 97)
    assert model.layers[0].attention.wo.weight.shape == (50, 48)


@pytest.mark.parametrize("position", ["rope", "alibi"])
def test_a_compiled_step_equals_an_eager_one(position):
    """Forward and backward; rope runs in complex arithmetic in one and in real arithmetic in the
    other. Dropout drops the same, as train.py compiles it."""
    tokens = torch.arange(14).view(2, 7)
    results = []
    for compiled in (False, True):
        model = build(position=position, n_layers=1, dropout=0.1)
        if compiled:
            model.compile(options={"fallback_random": True})
        torch.manual_seed(3)
        logits = model(tokens)
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        results.append([logits.detach(), *(p.grad for p in model.parameters())])
        assert not any("_orig_mod" in name for name in model.state_dict())
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


def test_model_imports_torch_and_nothing_of_ours():
    allowed = {"torch", "model", "__future__"} | set(sys.stdlib_module_names)
    for path in (ROOT / "model").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            assert {name.split(".")[0] for name in names} <= allowed, path


def test_no_module_asks_which_encoding_it_is():
    """Outside position.py a branch on the encoding's name is a bug."""
    for path in (ROOT / "model" / "transformer.py", ROOT / "model" / "generation.py",
                 *ROOT.glob("*.py")):  # fmt: skip
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                constants = [c.value for c in ast.walk(node) if isinstance(c, ast.Constant)]
                assert not set(constants) & set(POSITIONS), f"{path}:{node.lineno}"
