"""The properties that every encoding must have, and those of the absolute ones and of ALiBi."""

import copy
import math

import pytest
import torch
from conftest import CPU, draw, model_config, random_model

from model.config import INIT_STD, RopeScaling
from model.position import POSITIONS, PositionEncoding, alibi_slopes, check_position, sinusoid
from model.transformer import KVCache, Transformer, attend

TOKENS = torch.arange(14).view(2, 7)


@pytest.mark.parametrize("position", POSITIONS)
def test_tables_survive_every_cast(position):
    """In bfloat16 the integers 256 and 257 are the same number, so no position may ever be one."""
    model, at = random_model(position=position, max_positions=300), torch.arange(258)
    before, bias = copy.deepcopy(model.position.table), model.position.bias(at, at)
    for cast in (lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.double()):
        cast(model)
        torch.testing.assert_close(model.position.table, before, rtol=0, atol=0)
    torch.testing.assert_close(model.bfloat16().position.bias(at, at), bias, rtol=0, atol=0)
    if position in ("sinusoidal", "learned"):
        h = torch.zeros(1, 1, 48, dtype=torch.bfloat16)
        assert not torch.equal(model.position.embed(h, 256), model.position.embed(h, 257))


@pytest.mark.parametrize("position", POSITIONS)
def test_tables_are_in_no_state_dict_and_no_buffer(position):
    """And so a checkpoint fits a model of another length, unless its positions are learned."""
    model, longer = (random_model(position=position, max_positions=n) for n in (64, 128))
    assert not list(model.named_buffers())
    stored = [name for name in model.state_dict() if name.startswith("position.")]
    learned = {"sinusoidal": ["position.alpha"], "learned": ["position.weight"]}
    assert stored == learned.get(position, [])
    if POSITIONS[position].extrapolates:
        longer.load_state_dict(model.state_dict())
        assert torch.equal(model(TOKENS), longer(TOKENS))


@pytest.mark.parametrize("position", [*POSITIONS, "scaled"])
def test_a_model_built_on_meta_equals_one_built_in_place(position, monkeypatch):
    class Scaled(PositionEncoding):
        def __init__(self, config):
            super().__init__(config)
            self.scale = torch.nn.Parameter(torch.full((config.dim,), 3.0))

        def embed(self, h, start):
            return h * self.scale

    monkeypatch.setitem(POSITIONS, "scaled", Scaled)
    here = random_model(position=position)
    with torch.device("meta"):
        model = Transformer(model_config(position=position))
    assert all(not p.is_meta for p in model.position.parameters())
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(here.state_dict())
    assert torch.equal(model(TOKENS), here(TOKENS))


@pytest.mark.parametrize("position", POSITIONS)
def test_every_encoding_but_none_makes_order_visible(position):
    """In one layer, swapping two earlier tokens changes what follows."""
    model, tokens = random_model(position=position, n_layers=1), TOKENS[:1]
    with torch.no_grad():
        for p in model.layers.parameters():
            if p.ndim == 2:
                p.mul_(20)  # attention that is far from uniform
    swapped = tokens[:, [2, 1, 0, 3, 4, 5, 6]]
    change = (model(tokens)[0, -1] - model(swapped)[0, -1]).abs().max().item()
    assert change < 1e-5 if position == "none" else change > 1e-4


@pytest.mark.parametrize("position", POSITIONS)
def test_relative_encodings_do_not_see_where_a_row_starts_and_absolute_ones_do(position):
    """The same tokens at positions 0.. and at 40.."""
    model = random_model(position=position)
    change = (model(TOKENS, start=40) - model(TOKENS)).abs().max()
    absolute = position == "learned" or position.startswith("sin")
    assert change > 1e-3 if absolute else change <= 1e-5


def test_a_bias_is_told_where_its_keys_stand():
    """One that is not relative: it counts keys from the start of the text."""
    model = random_model(position="alibi")
    model.position.bias = lambda q, k: torch.stack([3 * torch.sin(k / 10).expand(len(q), -1)] * 6)
    assert (model(TOKENS, start=40) - model(TOKENS)).abs().max() > 1e-2
    cache = KVCache(model.config, len(TOKENS), 64)
    parts = [model(part, cache) for part in TOKENS.split(3, dim=1)]
    assert (torch.cat(parts, 1) - model(TOKENS)).abs().max() <= 1e-5


def test_a_start_reaches_to_the_end_of_the_context_and_no_further():
    model = random_model(position="learned")
    before = model(TOKENS, start=57)
    with torch.no_grad():
        model.position.weight[:57] = torch.nan  # rows that it must not read
    assert torch.equal(model(TOKENS, start=57), before)
    for start, cache, words in (
        (58, None, "a text of 65 tokens is longer than the context of 64"),
        (-1, None, "start is -1: use 0 or"),
        (3, KVCache(model.config, len(TOKENS), 64), "start is 3: .* 0 with a cache"),
    ):
        with pytest.raises(ValueError, match=words):
            model(TOKENS, cache, start)


@pytest.mark.parametrize("changes, words", [
    ({"position": "rop"}, "model.position must be one of rope, sinusoidal"),
    ({"position": "alibi", "partial": 0.5}, "model.partial has no effect with .* alibi"),
    ({"position": "none", "theta": 500.0}, "model.theta has no effect .* rope, sinusoidal"),
    ({"position": "alibi", "rope_scaling": RopeScaling("linear", 4, 16)},
     "model.rope_scaling has no effect with .* alibi: .* rope"),
    ({"head_dim": 7}, "head_dim must be even, not 7"),
    ({"head_dim": 2, "rope_scaling": RopeScaling("ntk", 4, 16)}, "head_dim 2 is one pair"),
])
def test_an_encoding_that_cannot_serve_a_model_says_so(changes, words):
    config = model_config(**changes)
    for check in (check_position, Transformer):
        with pytest.raises(ValueError, match=words):
            check(config)


# --- the mask ---


def test_the_mask_of_a_later_chunk_is_aligned_at_its_end():
    mask = random_model().position.mask
    assert mask(0, 7, CPU) is None and mask(6, 7, CPU) is None
    assert torch.equal(mask(4, 7, CPU), torch.ones(7, 7).tril().bool()[4:])


# --- RoPE ---


def test_partial_zero_is_no_positions_and_one_is_rope():
    none, zero, one, rope = (
        random_model(**changes)(TOKENS)
        for changes in ({"position": "none"}, {"partial": 0.0}, {"partial": 1.0}, {})
    )
    torch.testing.assert_close(none, zero, rtol=0, atol=1e-6)
    assert torch.equal(rope, one)
    assert (rope - none).abs().max() > 1e-3


def test_dynamic_scaling_follows_the_length_of_the_text():
    scalings = (None, RopeScaling("dynamic", 1, 16), RopeScaling("ntk", 3, 16))
    plain, model, ntk = (random_model(rope_scaling=scaling) for scaling in scalings)
    tokens = torch.arange(48)[None]
    for _ in range(2):  # nothing is left behind
        assert torch.equal(model(tokens[:, :16]), plain(tokens[:, :16]))
        torch.testing.assert_close(model(tokens), ntk(tokens), rtol=0, atol=1e-6)
    assert (model(tokens[:, :32]) - ntk(tokens[:, :32])).abs().max() > 1e-4
    assert (model(tokens) - plain(tokens)).abs().max() > 1e-4


# --- absolute encodings, ALiBi ---


def test_sinusoid_follows_the_paper_and_not_the_misprint():
    """One article prints the position in the exponent; then every even column is the same."""
    for d, m in ((16, 0), (16, 17), (64, 8191)):
        row, angles = sinusoid(d, m + 1)[m], [m * 10000 ** (-2 * t / d) for t in range(d // 2)]
        for column, f in enumerate((math.sin, math.cos)):  # rounded once, from float64
            expected = pytest.approx([f(a) for a in angles], rel=2e-7, abs=1e-12)
            assert row[column::2].tolist() == expected


def test_matched_sinusoid_starts_with_the_rms_of_the_embeddings():
    def ratio(scaling: str) -> float:
        model = random_model(position="sinusoidal", sinusoid=scaling, dim=128, head_dim=8)
        tokens = model.tok_embeddings.weight.detach()[:64]
        with_positions = model.position.embed(tokens[None], 0).detach()[0]
        scaled = tokens * model.position.embedding_scale
        return ((with_positions - scaled).square().mean() / scaled.square().mean()).sqrt().item()

    assert 0.9 < ratio("matched") < 1.1
    assert ratio("naive") == pytest.approx(math.sqrt(0.5) / INIT_STD, rel=0.05)  # 35: the trap
    vaswani = random_model(position="sinusoidal", sinusoid="vaswani").tok_embeddings.weight
    assert vaswani.std().item() == pytest.approx(1 / math.sqrt(48), rel=0.05)
    assert ratio("vaswani") == pytest.approx(math.sqrt(0.5), rel=0.05)  # beside a variance of 1
    model = random_model(position="sinusoidal")
    model(TOKENS).square().mean().backward()
    assert model.position.alpha.grad.abs() > 0


@pytest.mark.parametrize("position, layers", [("sin_qk", 3), ("sin_qk_first", 1)])
def test_queries_and_keys_alone_are_made_of_sinusoids_of_rms_1(position, layers):
    model, read = random_model(position=position), []
    for layer in model.layers:
        for projection in (layer.attention.wq, layer.attention.wk, layer.attention.wv):
            projection.register_forward_pre_hook(lambda _, x: read.append(x[0]))
    model(TOKENS, start=5).square().mean().backward()
    rows = math.sqrt(2) * sinusoid(48, 12)[5:]
    assert rows.square().mean() == pytest.approx(1, rel=1e-5)
    for number, (xq, xk, xv) in enumerate(zip(*[iter(read)] * 3, strict=True)):
        expected = rows.expand_as(xv) if number < layers else torch.zeros_like(xv)
        assert torch.equal(xq, xk)
        torch.testing.assert_close(xq - xv, expected, rtol=0, atol=1e-6)
    assert all(layer.attention.wk.weight.grad.abs().max() > 0 for layer in model.layers)


def test_alibi_slopes_are_the_published_ones():
    assert alibi_slopes(4).tolist() == [0.25, 0.0625, 0.015625, 0.00390625]
    assert alibi_slopes(8).tolist() == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    twelve = [2.0**-k for k in range(1, 9)] + [2.0**-k for k in (0.5, 1.5, 2.5, 3.5)]
    torch.testing.assert_close(alibi_slopes(12), torch.tensor(twelve))


def test_alibi_attention_equals_a_loop():
    q, k, v = draw(1, 6, 7, 8), draw(1, 2, 7, 8, seed=1), draw(1, 2, 7, 8, seed=2)
    out = attend(q, k, v, random_model(position="alibi").position.mask(0, 7, CPU))
    for h, slope in enumerate(alibi_slopes(6)):
        for m in range(7):
            keys, distances = k[0, h // 3, : m + 1], m - torch.arange(m + 1)
            weights = (keys @ q[0, h, m] / math.sqrt(8) - slope * distances).softmax(0)
            torch.testing.assert_close(out[0, h, m], weights @ v[0, h // 3, : m + 1])
