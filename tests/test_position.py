"""How a model calls an encoding, and RoPE, sinusoids and ALiBi by themselves."""

import math

import pytest
import torch
from builders import model_config, randn, random_model, sharp_model
from cached_decoding import assert_cached_equals_uncached

from model.config import RopeScaling
from model.position import RoPE, Sinusoidal, alibi_slopes, sinusoid
from model.transformer import KVCache

TOKENS = torch.arange(14).view(2, 7)


# --- where tokens stand ---


def test_rotations_are_those_of_where_the_tokens_stand():
    """The rows of the table grow with the position, and so logits depend on the start."""
    model = sharp_model()
    model.position.table *= torch.linspace(1, 2, 80)[:, None, None]
    assert (model(TOKENS, start=40) - model(TOKENS)).abs().max() > 1e-2


def biased_by_position():
    """A model whose bias depends on the position of the key."""
    model = random_model(position="alibi")
    model.position.bias = lambda q, k: 3 * torch.sin(k / 10).expand(6, len(q), -1)
    return model


def test_a_bias_is_told_where_its_tokens_stand():
    model = biased_by_position()
    assert (model(TOKENS, start=40) - model(TOKENS)).abs().max() > 1e-2


def test_a_bias_is_told_where_cached_keys_stand():
    assert_cached_equals_uncached(biased_by_position(), TOKENS)


def test_a_row_may_end_where_the_context_ends():
    model = random_model(position="learned")
    before = model(TOKENS, start=57)
    with torch.no_grad():
        model.position.weight[:57] = torch.nan  # rows that it must not read
    assert torch.equal(model(TOKENS, start=57), before)


def test_a_row_past_the_context_is_refused():
    with pytest.raises(ValueError, match="a text of 65 tokens is longer than the context of 64"):
        random_model()(TOKENS, start=58)


def test_a_negative_start_is_refused():
    with pytest.raises(ValueError, match="start is -1: use 0 or more"):
        random_model()(TOKENS, start=-1)


def test_a_start_beside_a_cache_is_refused():
    model = random_model()
    with pytest.raises(ValueError, match="start is 3: .* 0 with a cache"):
        model(TOKENS, KVCache(model.config, batch_size=2, max_length=64), start=3)


# --- RoPE ---


def test_partial_zero_is_no_positions():
    still = random_model(partial=0.0)
    none = random_model(position="none")
    assert (none(TOKENS) - still(TOKENS)).abs().max() <= 1e-6


def scaled_model(*scaling):
    return random_model(rope_scaling=RopeScaling(*scaling))


def test_dynamic_scaling_changes_nothing_up_to_the_trained_length():
    model = scaled_model("dynamic", 1, 16)
    short = torch.arange(16)[None]
    model(torch.arange(48)[None])  # a longer text before it leaves nothing behind
    assert torch.equal(model(short), random_model()(short))


def test_dynamic_scaling_is_ntk_for_the_length_of_the_text():
    """48 tokens are 3 times the trained length, 32 are twice."""
    model = scaled_model("dynamic", 1, 16)
    for length, factor in ((48, 3), (32, 2)):
        tokens = torch.arange(length)[None]
        expected = scaled_model("ntk", factor, 16)(tokens)
        torch.testing.assert_close(model(tokens), expected, rtol=0, atol=1e-6)
    # Factor 3 would show on these 32 tokens.
    assert (scaled_model("ntk", 3, 16)(tokens) - expected).abs().max() > 1e-4


@pytest.mark.parametrize("scaling", [None, RopeScaling("dynamic", 4, 16)])
def test_rotations_of_a_part_are_rows_of_the_whole(scaling):
    encoding = RoPE(model_config(rope_scaling=scaling))
    whole = encoding.freqs_cis(0, 40)
    assert whole.shape == (40, 4, 2)
    assert torch.equal(encoding.freqs_cis(30, 40), whole[30:])


# --- sinusoids ---


def test_sinusoids_follow_the_paper_and_not_the_misprint():
    """One article prints the position in the exponent; then all even columns are equal."""
    row = sinusoid(4, 3, theta=100.0)[2].tolist()  # angles 2 and 2 / sqrt(100)
    assert row == pytest.approx([0.90929743, -0.41614684, 0.19866933, 0.98006658], abs=1e-7)


def test_sinusoids_of_odd_width_end_with_a_sine():
    row = sinusoid(3, 2, theta=1000.0)[1].tolist()  # angles 1 and 1 / 1000^(2/3)
    assert row == pytest.approx([0.84147098, 0.54030231, 0.00999983], abs=1e-7)


def test_sinusoids_are_rounded_once():
    row = sinusoid(64, 8192)[8191].tolist()
    assert row[0] == pytest.approx(math.sin(8191), rel=2e-7)
    assert row[1] == pytest.approx(math.cos(8191), rel=2e-7)
    assert row[32] == pytest.approx(math.sin(81.91), rel=2e-7)  # 10000^(-32/64) is 1/100


@pytest.mark.parametrize("option", ["matched", "vaswani", "naive"])
def test_sinusoids_are_those_of_the_models_theta(option):
    table = random_model(position="sinusoidal", sinusoid=option, theta=500.0).position.table
    assert torch.equal(table, sinusoid(48, 64, 500.0))


@pytest.mark.parametrize("option, std, ratio", [
    ("matched", 0.02, 1), ("vaswani", 128**-0.5, 0.5**0.5), ("naive", 0.02, 35.4)])
def test_sinusoids_start_as_large_as_their_option_says(option, std, ratio):
    """The ratio is the rms of what is added to that of the scaled embeddings."""
    model = random_model(position="sinusoidal", sinusoid=option, dim=128, head_dim=8)
    embeddings = model.tok_embeddings.weight.detach()[None, :64]
    assert embeddings.std().item() == pytest.approx(std, rel=0.05)
    rows = model.position.embed(torch.zeros_like(embeddings), 0)
    scaled = model.position.embed(embeddings, 0) - rows
    assert (rows.norm() / scaled.norm()).item() == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("option, trained", [
    ("matched", ["alpha"]), ("vaswani", []), ("naive", [])])
def test_only_the_scale_of_matched_sinusoids_is_trained(option, trained):
    encoding = Sinusoidal(model_config(position="sinusoidal", sinusoid=option))
    assert [name for name, _ in encoding.named_parameters()] == trained


def test_sums_with_sinusoids_are_rounded_once():
    encoding = Sinusoidal(model_config(position="sinusoidal", sinusoid="vaswani"))
    narrow = randn(1, 64, 48).bfloat16()
    assert torch.equal(encoding.embed(narrow, 0), encoding.embed(narrow.float(), 0).bfloat16())


# --- ALiBi ---


def test_alibis_slopes_for_4_heads_are_the_published_ones():
    assert alibi_slopes(4).tolist() == [0.25, 0.0625, 0.015625, 0.00390625]


def test_alibis_slopes_for_12_heads_are_the_published_ones():
    powers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.5, 1.5, 2.5, 3.5]
    torch.testing.assert_close(alibi_slopes(12), 2 ** -torch.tensor(powers))


def test_alibis_bias_is_minus_slope_times_distance():
    bias = random_model(position="alibi", n_heads=4).position.bias(
        torch.tensor([5]), torch.tensor([2, 5]))
    assert bias.tolist() == [[[-0.75, 0]], [[-0.1875, 0]], [[-0.046875, 0]], [[-0.01171875, 0]]]
