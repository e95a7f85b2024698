"""The properties that every encoding must have, and those of the absolute ones and of ALiBi."""

import copy
import math

import pytest
import torch
from cached_decoding import assert_cached_equals_uncached
from conftest import model_config, random_model, sharpened

from model.config import INIT_STD, RopeScaling
from model.position import POSITIONS, alibi_slopes, sinusoid
from model.transformer import KVCache, Transformer

TOKENS = torch.arange(14).view(2, 7)


@pytest.mark.parametrize("position", POSITIONS)
def test_tables_survive_every_cast_and_are_in_no_checkpoint(position):
    """In bfloat16, positions 256 and 257 would be equal. Without tables, a checkpoint fits a model
    of another length."""
    model, longer = (random_model(position=position, max_positions=n) for n in (300, 400))
    stored = {name for name in model.state_dict() if name.startswith("position.")}
    assert stored <= {"position.alpha", "position.weight"} and not list(model.named_buffers())
    if POSITIONS[position].extrapolates:
        longer.load_state_dict(model.state_dict())
        assert torch.equal(model(TOKENS), longer(TOKENS))
    at = torch.arange(258)
    before = copy.deepcopy((model.position.table, model.position.bias(at, at)))
    for dtype in (torch.bfloat16, torch.float64):
        after = model.to(dtype).position
        torch.testing.assert_close((after.table, after.bias(at, at)), before, rtol=0, atol=0)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_model_built_on_meta_equals_one_built_in_place(position):
    here = random_model(position=position)
    with torch.device("meta"):
        model = Transformer(model_config(position=position))
    assert not any(p.is_meta for p in model.position.parameters())
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(here.state_dict())
    assert torch.equal(model(TOKENS), here(TOKENS))


@pytest.mark.parametrize("position", POSITIONS)
def test_every_encoding_but_none_sees_order_and_absolute_ones_where_a_row_starts(position):
    """In one layer, swapping two earlier tokens changes what follows. With absolute positions, so
    does moving all tokens from 0.. to 40.."""
    model, swapped = sharpened(position=position, n_layers=1), TOKENS[:, [2, 1, 0, 3, 4, 5, 6]]
    change = (model(TOKENS)[:, -1] - model(swapped)[:, -1]).abs().max().item()
    assert change < 1e-5 if position == "none" else change > 1e-3
    model = random_model(position=position)
    change = (model(TOKENS, start=40) - model(TOKENS)).abs().max()
    assert change > 1e-3 if position.startswith(("learned", "sin")) else change <= 1e-5


def test_a_bias_and_rotations_are_told_where_their_tokens_stand():
    """Some that are not relative: they count from the start of the text."""
    model = sharpened()
    model.position.table *= torch.linspace(1, 2, 80)[:, None, None]
    assert (model(TOKENS, start=40) - model(TOKENS)).abs().max() > 1e-2
    model = random_model(position="alibi")
    model.position.bias = lambda q, k: torch.stack([3 * torch.sin(k / 10).expand(len(q), -1)] * 6)
    assert (model(TOKENS, start=40) - model(TOKENS)).abs().max() > 1e-2
    assert_cached_equals_uncached(model, TOKENS)


def test_a_start_reaches_to_the_end_of_the_context_and_no_further():
    model = random_model(position="learned")
    before = model(TOKENS, start=57)
    with torch.no_grad():
        model.position.weight[:57] = torch.nan  # rows that it must not read
    assert torch.equal(model(TOKENS, start=57), before)
    for start, cache, words in (
        (58, None, "a text of 65 tokens is longer than the context of 64"),
        (-1, None, "start is -1: use 0 or"),
        (3, KVCache(model.config, len(TOKENS), 64), "start is 3: .* 0 with a cache")):
        with pytest.raises(ValueError, match=words):
            model(TOKENS, cache, start)


# --- RoPE ---


def test_partial_zero_is_no_positions():
    none, still = random_model(position="none"), random_model(partial=0.0)
    assert (none(TOKENS) - still(TOKENS)).abs().max() <= 1e-6


def test_dynamic_scaling_follows_the_length_of_the_text():
    scalings = (None, RopeScaling("dynamic", 1, 16), RopeScaling("ntk", 3, 16))
    plain, model, ntk = (random_model(rope_scaling=scaling) for scaling in scalings)
    tokens = torch.arange(48)[None]
    for _ in range(2):  # nothing is left behind
        assert torch.equal(model(tokens[:, :16]), plain(tokens[:, :16]))
        torch.testing.assert_close(model(tokens), ntk(tokens), rtol=0, atol=1e-6)
    assert (model(tokens[:, :32]) - ntk(tokens[:, :32])).abs().max() > 1e-4


# --- absolute encodings, ALiBi ---


def test_sinusoid_follows_the_paper_and_not_the_misprint():
    """One article prints the position in the exponent; then every even column is the same."""
    for d, m, theta in ((15, 17, 500), (64, 8191, 10000)):
        row, angles = sinusoid(d, m + 1, theta)[m], [m * theta ** (-2 * t / d) for t in range(d)]
        assert row.shape == (d,)
        for column, f in enumerate((math.sin, math.cos)):  # rounded once, from float64
            expected = [f(a) for a in angles][: len(row[column::2])]
            assert row[column::2].tolist() == pytest.approx(expected, rel=2e-7, abs=1e-12)


@pytest.mark.parametrize("option, std, expected", [
    ("matched", INIT_STD, 1), ("naive", INIT_STD, math.sqrt(0.5) / INIT_STD),
    ("vaswani", 1 / math.sqrt(128), math.sqrt(0.5))])
def test_sinusoids_and_embeddings_start_with_the_sizes_of_the_option(option, std, expected):
    """Their rms in the ratio that the paper, or none, has: with naive sinusoids it is 35."""
    model = random_model(position="sinusoidal", sinusoid=option, dim=128, head_dim=8, theta=500)
    assert torch.equal(model.position.table, sinusoid(128, 64, 500))
    tokens, embed = model.tok_embeddings.weight.detach()[None, :64], model.position.embed
    assert tokens.std().item() == pytest.approx(std, rel=0.05)
    rows = embed(torch.zeros_like(tokens), 0)
    scaled = embed(tokens, 0) - rows
    assert (rows.norm() / scaled.norm()).item() == pytest.approx(expected, rel=0.05)
    assert rows.requires_grad == (option == "matched")  # alpha is trained
    narrow = tokens.bfloat16()  # the sum is rounded once
    assert torch.equal(embed(narrow, 0), embed(narrow.float(), 0).bfloat16())


@pytest.mark.parametrize("position, qk_layers, v_layers", [
    ("sin_qk", 3, 0), ("sin_qk_first", 1, 0), ("sin_qkv", 3, 3), ("learned_qk", 3, 0)])
def test_what_an_encoding_adds_goes_where_it_says_with_rms_1(position, qk_layers, v_layers):
    model, read = random_model(position=position, theta=1e2 if "sin" in position else 1e4), []
    for layer in model.layers:
        layer.attention_norm.register_forward_hook(lambda *call: read.append(call[2]))
        for projection in (layer.attention.wq, layer.attention.wk, layer.attention.wv):
            projection.register_forward_pre_hook(lambda _, x: read.append(x[0]))
    model(TOKENS, start=5)
    table = (math.sqrt(2) * sinusoid(48, 64, 1e2)).expand(3, 64, 48)
    if position == "learned_qk":
        table = model.position.weight.detach() / INIT_STD
        assert (table[0] - table[1]).abs().max() > 0.1  # each layer has its own
    assert table.square().mean() == pytest.approx(1, rel=0.05)
    rows = table[:, 5:12]
    for number, (x, *parts) in enumerate(zip(*[iter(read)] * 4, strict=True)):
        for part, layers in zip(parts, (qk_layers, qk_layers, v_layers), strict=True):
            torch.testing.assert_close(part - x, (rows[number] * (number < layers)).expand_as(x),
                                       rtol=0, atol=1e-5)


def test_sinusoids_enter_the_residual_stream_once_before_every_block():
    model, entered, left = random_model(position="sin_residual"), [], []
    for layer in model.layers:
        layer.attention_norm.register_forward_pre_hook(lambda _, x: entered.append(x[0]))
        layer.register_forward_hook(lambda *call: left.append(call[2]))
    model(TOKENS, start=5)
    rows = model.position.alpha * sinusoid(48, 12)[5:]
    for x, stream in zip(entered, [model.tok_embeddings(TOKENS), *left[:-1]], strict=True):
        torch.testing.assert_close(x - stream, rows.expand_as(x), rtol=0, atol=1e-5)


def test_rope_first_turns_the_first_layer_as_rope_does_and_no_other():
    plain, model, turned = random_model(), random_model(position="rope_first"), []
    for layer in (*plain.layers, *model.layers):
        layer.attention.register_forward_pre_hook(lambda _, inputs: turned.append(inputs[1]))
    plain(TOKENS, start=5)
    model(TOKENS, start=5)
    assert torch.equal(turned[3], turned[0]) and turned[4:] == [None, None]


def test_scaled_rope_starts_with_the_embeddings_of_vaswanis_sinusoids():
    model, vaswani = (random_model(position=position, **changes) for position, changes in (
        ("rope_sinscale", {}), ("sinusoidal", {"sinusoid": "vaswani"})))
    h, rows = (x.position.embed(x.tok_embeddings(TOKENS), 0) for x in (model, vaswani))
    torch.testing.assert_close(h, rows - sinusoid(48, 7))
    assert h.std().item() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("position, usual", [
    ("sin_aligned", "sinusoidal"), ("sin_qk_aligned", "sin_qk")])
def test_aligned_scores_follow_the_distance_of_sinusoids_at_the_start(position, usual):
    """All other matrices start as usual."""
    changes = {"n_kv_heads": 6, "sinusoid": "vaswani"} if "qk" not in usual else {"n_kv_heads": 6}
    aligned, other = (random_model(position=name, **changes) for name in (position, usual))
    expected = dict(other.named_parameters())
    for name, matrix in aligned.named_parameters():
        scale = 3 if ".wq." in name or ".wk." in name else 1
        torch.testing.assert_close(matrix, scale * expected[name.replace(".wk.", ".wq.")])
    wq, wk = (p.weight for p in (aligned.layers[0].attention.wq, aligned.layers[0].attention.wk))
    rows = sinusoid(48, 40)
    scores = rows @ wq.T @ wk @ rows.T
    assert scores.diagonal().mean() - scores.diagonal(20).mean() > 3 * scores.diagonal(20).std()


def test_alibi_slopes_are_the_published_ones():
    assert alibi_slopes(4).tolist() == [0.25, 0.0625, 0.015625, 0.00390625]
    twelve = [2.0**-k for k in range(1, 9)] + [2.0**-k for k in (0.5, 1.5, 2.5, 3.5)]
    torch.testing.assert_close(alibi_slopes(12), torch.tensor(twelve))
