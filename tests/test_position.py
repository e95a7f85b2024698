"""Golden numbers of the documents gyre grew from, and the properties every encoding must have."""

import copy
import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.config import INIT_STD, ModelConfig, RopeScaling
from model.position import POSITIONS, ALiBi, RoPE, Sinusoidal, alibi_slopes, sinusoid
from model.rope import (
    apply_rotary_emb,
    apply_rotary_emb_real,
    ntk_theta,
    precompute_freqs_cis,
    reshape_for_broadcast,
    rope_frequencies,
    scaled_frequencies,
    yarn_ramp,
)
from model.transformer import Transformer

SIZES = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "vocab_size": 97}


def config(position: str, **changes) -> ModelConfig:
    return ModelConfig(**{**SIZES, "max_positions": 64, "position": position, **changes})


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rotate_half(x: Tensor) -> Tensor:
    """The halves layout of Hugging Face: (x1, x2) -> (-x2, x1)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def halves(x: Tensor) -> Tensor:
    """The row permutation from adjacent pairs to halves: 0, 2, 4, ..., 1, 3, 5, ..."""
    return torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)


def rotation_matrix(position: int, frequencies: Tensor) -> Tensor:
    """R of the derivation: one 2x2 block per pair on the diagonal, in float64."""
    blocks = []
    for angle in (position * frequencies).tolist():
        c, s = math.cos(angle), math.sin(angle)
        blocks.append(torch.tensor([[c, -s], [s, c]], dtype=torch.float64))
    return torch.block_diag(*blocks)


# --- golden numbers ---


def test_worked_example_to_the_last_of_its_240_numbers():
    printed = json.loads(
        (Path(__file__).parent / "worked_example.json").read_text(encoding="utf-8")
    )
    xq = torch.arange(160.0).view(2, 5, 2, 8)
    xk = torch.arange(80.0).view(2, 5, 1, 8)
    for rotated, name in zip(
        apply_rotary_emb(xq, xk, precompute_freqs_cis(8, 5)), ("xq_out", "xk_out"), strict=True
    ):
        expected = torch.tensor(printed[name]).view_as(rotated)
        torch.testing.assert_close(rotated, expected, rtol=0, atol=6e-5)
    # The step that the document works out by hand.
    assert precompute_freqs_cis(8, 5)[1, 2].real.item() == pytest.approx(0.99995, abs=1e-6)
    assert precompute_freqs_cis(8, 5)[1, 2].imag.item() == pytest.approx(0.009999833, abs=1e-8)


def test_complex_equals_2x2_equals_matrix_equals_rotate_half():
    d, T = 8, 7
    xq, xk = draw(2, T, 6, d), draw(2, T, 2, d, seed=1)
    frequencies = rope_frequencies(d)
    rotated, _ = apply_rotary_emb(xq, xk, precompute_freqs_cis(d, T))

    angles = torch.outer(torch.arange(T), frequencies).float()[:, None]  # (T, 1, D/2)
    even, odd = xq[..., 0::2], xq[..., 1::2]
    by_hand = torch.empty_like(xq)
    by_hand[..., 0::2] = even * angles.cos() - odd * angles.sin()
    by_hand[..., 1::2] = odd * angles.cos() + even * angles.sin()
    torch.testing.assert_close(rotated, by_hand, rtol=0, atol=1e-6)

    R = torch.stack([rotation_matrix(m, frequencies) for m in range(T)])
    by_matrix = torch.einsum("tij,bthj->bthi", R, xq.double()).float()
    torch.testing.assert_close(rotated, by_matrix, rtol=0, atol=1e-6)

    cos, sin = (torch.cat((f(angles),) * 2, dim=-1) for f in (torch.cos, torch.sin))
    in_halves = halves(xq) * cos + rotate_half(halves(xq)) * sin
    torch.testing.assert_close(halves(rotated), in_halves, rtol=0, atol=1e-6)


def test_rotate_half_formula_with_the_corrected_second_vector():
    """A published formula prints (-x1, -x3, ..., x2, x4, ...); it has to be x0, x2, x4, ..."""
    x, m = torch.arange(1.0, 9.0), 1
    frequencies = rope_frequencies(8).float()
    cos, sin = (torch.cat((f(m * frequencies),) * 2) for f in (torch.cos, torch.sin))
    corrected = halves(x) * cos + torch.cat((-x[1::2], x[0::2])) * sin
    freqs_cis = precompute_freqs_cis(8, 2)[1:]
    reference, _ = apply_rotary_emb(x.view(1, 1, 1, 8), x.view(1, 1, 1, 8), freqs_cis)
    torch.testing.assert_close(corrected, halves(reference.flatten()), rtol=0, atol=1e-6)
    assert corrected.norm().item() == pytest.approx(14.283, abs=1e-3)
    misprinted = halves(x) * cos + torch.cat((-x[1::2], x[2::2], torch.zeros(1))) * sin
    assert abs(misprinted.norm().item() - 14.283) > 0.1


def test_a_table_in_the_other_layout_is_caught():
    """A published test pairs an interleaved table with rotate_half and prints 0.4873 as a
    warning."""
    torch.manual_seed(42)
    q = torch.randn(2, 32, 16, 128)
    angles = torch.outer(torch.arange(16) * 0.1, 0.5 ** torch.arange(64.0))
    mismatched = angles.repeat_interleave(2, dim=-1)  # adjacent channels share an angle ...
    turned = q * mismatched.cos() + rotate_half(q) * mismatched.sin()  # ... halves are turned
    assert (turned.norm(dim=-1) - q.norm(dim=-1)).abs().max().item() == pytest.approx(
        0.4873, abs=1e-4
    )
    matched = torch.cat((angles, angles), dim=-1)
    turned = q * matched.cos() + rotate_half(q) * matched.sin()
    assert (turned.norm(dim=-1) - q.norm(dim=-1)).abs().max() < 1e-5

    def diagonal_deviation(pairing) -> float:
        same = draw(128).expand(1, 1, 16, 128)
        out = (same * pairing.cos() + rotate_half(same) * pairing.sin())[0, 0]
        scores = out @ out.T
        return max((s := scores.diagonal(k)).max().item() - s.min().item() for k in range(-15, 16))

    assert diagonal_deviation(matched) < 1e-3  # of scores near 128
    assert diagonal_deviation(mismatched) > 0.1


def test_scores_are_q_R_of_n_minus_m_k():
    """The sign that two of the documents get wrong: R(n - m), not R(m - n)."""
    d, m, n = 8, 5, 2
    q, k, frequencies = draw(d).double(), draw(d, seed=1).double(), rope_frequencies(8)
    score = (rotation_matrix(m, frequencies) @ q) @ (rotation_matrix(n, frequencies) @ k)
    assert q @ rotation_matrix(n - m, frequencies) @ k == pytest.approx(score.item(), abs=1e-12)
    assert abs(q @ rotation_matrix(m - n, frequencies) @ k - score) > 0.1


def test_sinusoid_follows_the_paper_and_not_the_misprint():
    """One document prints the position in the exponent; then every even column is the same."""
    table = sinusoid(16, 64)
    for m in (0, 1, 17, 63):
        for t in range(8):
            angle = m / 10000 ** (2 * t / 16)
            assert table[m, 2 * t].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[m, 2 * t + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    columns = table[:, 0::2]
    assert all(
        (columns[:, a] - columns[:, b]).abs().max() > 0.01 for a in range(8) for b in range(a)
    )
    distances = torch.cdist(table.double(), table.double()) + 1e9 * torch.eye(64)
    assert distances.min() > 1.0


# --- RoPE ---


@pytest.mark.parametrize("partial", [1.0, 0.75, 0.5])
def test_rotation_keeps_norms_and_sees_only_distance(partial):
    d, T = 16, 40
    freqs_cis = precompute_freqs_cis(d, T, partial=partial)
    x = draw(2, T, 6, d)
    turned, _ = apply_rotary_emb(x, x, freqs_cis)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=0, atol=1e-5)
    q, k = (draw(d, seed=s).expand(1, T, 1, d) for s in (1, 2))
    xq, xk = apply_rotary_emb(q, k, freqs_cis)
    scores = xq[0, :, 0] @ xk[0, :, 0].T
    for offset in range(-T + 1, T):
        diagonal = scores.diagonal(offset)
        assert diagonal.max() - diagonal.min() <= 1e-5
    assert scores.std() > 0.1  # and they do see it


def test_partial_turns_the_fastest_pairs_at_unchanged_frequencies():
    expected = [1.0, 0.316227766, 0.1, 0.031622777, 0.01, 0.003162278, 0.0, 0.0]
    torch.testing.assert_close(
        rope_frequencies(16, partial=0.75),
        torch.tensor(expected, dtype=torch.float64),
        rtol=0,
        atol=1e-9,
    )


def test_partial_zero_is_no_positions_and_one_is_rope():
    tokens = torch.arange(14).view(2, 7)
    models = {}
    for name, c in {
        "none": config("none"), "zero": config("rope", partial=0.0),
        "one": config("rope", partial=1.0), "rope": config("rope"),
    }.items():  # fmt: skip
        models[name] = Transformer(c)
        models[name].init_weights(seed=1)
    torch.testing.assert_close(models["none"](tokens), models["zero"](tokens), rtol=0, atol=1e-6)
    torch.testing.assert_close(models["rope"](tokens), models["one"](tokens), rtol=0, atol=0)
    assert (models["rope"](tokens) - models["none"](tokens)).abs().max() > 1e-3


def test_real_form_equals_complex_form_forwards_and_backwards():
    freqs_cis = precompute_freqs_cis(8, 7)
    results = []
    for form, table in (
        (apply_rotary_emb, freqs_cis), (apply_rotary_emb_real, torch.view_as_real(freqs_cis)),
    ):  # fmt: skip
        xq, xk = draw(2, 7, 6, 8).requires_grad_(), draw(2, 7, 2, 8, seed=1).requires_grad_()
        yq, yk = form(xq, xk, table)
        (yq * draw(2, 7, 6, 8, seed=2)).sum().backward()
        (yk * draw(2, 7, 2, 8, seed=3)).sum().backward()
        results.append((yq.detach(), yk.detach(), xq.grad, xk.grad))
    for complex_, real in zip(*results, strict=True):
        torch.testing.assert_close(complex_, real, rtol=0, atol=1e-6)


def test_rotation_runs_in_float32_and_returns_the_callers_dtype():
    x = draw(1, 7, 6, 8).bfloat16()
    for form, view in (
        (apply_rotary_emb, lambda t: t),
        (apply_rotary_emb_real, torch.view_as_real),
    ):
        turned, _ = form(x, x, view(precompute_freqs_cis(8, 7)))
        wide, _ = form(x.float(), x.float(), view(precompute_freqs_cis(8, 7)))
        assert turned.dtype == torch.bfloat16
        torch.testing.assert_close(turned, wide.bfloat16(), rtol=0, atol=0)


def test_a_table_of_the_wrong_length_does_not_broadcast():
    x = draw(2, 7, 6, 4)
    with pytest.raises(ValueError, match=r"\(1, 4\).*\(7, 4\)"):
        reshape_for_broadcast(precompute_freqs_cis(8, 1), x)


def test_position_8191_is_exact_to_float32():
    rope, sinusoids = precompute_freqs_cis(64, 8192), sinusoid(64, 8192)
    for m in (256, 257, 8191):
        angles = [m * 10000 ** (-2 * i / 64) for i in range(32)]
        cos, sin = (torch.tensor([f(a) for a in angles]) for f in (math.cos, math.sin))
        torch.testing.assert_close(rope[m].real, cos, rtol=2e-7, atol=1e-12)
        torch.testing.assert_close(rope[m].imag, sin, rtol=2e-7, atol=1e-12)
        torch.testing.assert_close(sinusoids[m, 0::2], sin, rtol=2e-7, atol=1e-12)
        torch.testing.assert_close(sinusoids[m, 1::2], cos, rtol=2e-7, atol=1e-12)


# --- RoPE past its training length ---

VECTORS = json.loads((Path(__file__).parent / "rope_scaling.json").read_text(encoding="utf-8"))
PER_PAIR = ["linear", "ntk", "yarn", "llama3"]  # frequencies that do not depend on the length


@pytest.mark.parametrize(
    ("scaling", "length", "key"),
    [
        (RopeScaling("linear", 4, 128), 512, "linear4"),
        (RopeScaling("ntk", 4, 128), 512, "ntk4"),
        (RopeScaling("dynamic", 1, 128), 512, "dyn_ntk_l=512(paper s=4)"),
        (RopeScaling("dynamic", 1, 128), 512, "dyn_ntk_hf factor=1 l=512"),
        (RopeScaling("dynamic", 4, 128), 512, "dyn_ntk_hf factor=4 l=512"),
        (RopeScaling("dynamic", 4, 128), 128, "default"),
        (RopeScaling("dynamic", 4, 128), 5, "default"),
        (RopeScaling("yarn", 4, 128), 512, "yarn_code"),
        (RopeScaling("llama3", 4, 128), 512, "llama3 f4"),
    ],
)
def test_scaled_frequencies_are_the_published_ones(scaling, length, key):
    expected = torch.tensor(VECTORS[key], dtype=torch.float64)
    scaled = scaled_frequencies(scaling, length, head_dim=16)
    torch.testing.assert_close(scaled, expected, rtol=0, atol=1e-9)


def test_the_other_published_numbers():
    assert ntk_theta(10000, 4, 16) == pytest.approx(VECTORS["ntk4_base"], rel=1e-12)
    hf = ntk_theta(10000, 4 * 512 / 128 - 3, 16)
    assert hf == pytest.approx(VECTORS["dyn_ntk_hf factor=4 l=512 base"], rel=1e-12)
    magnitude = RopeScaling("yarn", 4).magnitude
    assert magnitude == pytest.approx(VECTORS["mscale4"], rel=1e-12)
    assert magnitude**2 == pytest.approx(VECTORS["1/t"], rel=1e-12)
    # Llama 3.1 8B, where pairs of all three kinds occur.
    plain = rope_frequencies(128, 5e5)
    scaled = scaled_frequencies(RopeScaling("llama3", 8, 8192), 0, head_dim=128, theta=5e5)
    expected = VECTORS["llama3.1_8b d=128 base=5e5 L=8192 f=8: idx0,28,29,30,35,40,63"]
    assert scaled[[0, 28, 29, 30, 35, 40, 63]].tolist() == pytest.approx(expected, abs=1e-9)
    kept, divided = (scaled == plain).sum().item(), (scaled == plain / 8).sum().item()
    assert [kept, 64 - kept - divided, divided] == VECTORS["llama3.1 n(unchanged, medium, divided)"]


def test_yarns_ramp_starts_and_ends_at_whole_pairs():
    """d = 16 and L = 128 above begin at the clamp; Llama 2's sizes begin inside, at 20.94 -> 20."""
    ramp = yarn_ramp(RopeScaling("yarn", 8, 4096), head_dim=128, theta=10000)
    for pair, share in enumerate(ramp.tolist()):
        assert share == pytest.approx(min(max((pair - 20) / (46 - 20), 0), 1)), pair
    low, high = VECTORS["yarn_code_low_high"]
    ramp = yarn_ramp(RopeScaling("yarn", 4, 128), head_dim=16, theta=10000)
    assert ramp[: high + 1].tolist() == pytest.approx([(i - low) / high for i in range(high + 1)])


def test_the_ramp_of_yarns_paper_is_another_one():
    """Both between the same ends; ours is the reference code's, drawn over pairs and not turns."""
    plain = rope_frequencies(16)
    kept = ((128 * plain / (2 * math.pi) - 1) / (32 - 1)).clamp(0, 1)
    paper = torch.lerp(plain / 4, plain, kept)
    assert paper.tolist() == pytest.approx(VECTORS["yarn_paper"], abs=1e-9)
    ours = scaled_frequencies(RopeScaling("yarn", 4, 128), 512, head_dim=16)
    assert (ours - paper)[0] > 0.2 and torch.equal(ours[3:], plain[3:] / 4)


@pytest.mark.parametrize("type", [*PER_PAIR, "dynamic"])
def test_a_scaling_slows_turns_down_and_keeps_what_stands_still(type):
    """Up to the trained length dynamic scaling does nothing, and at factor 1 none does."""
    scaling = RopeScaling(type, 4, 16)
    ratio = scaled_frequencies(scaling, 64, head_dim=16) / rope_frequencies(16)
    assert (ratio <= 1).all() and (ratio.diff() <= 0).all()  # slow pairs at least as much
    assert ratio[-1] < 0.3
    partial = scaled_frequencies(scaling, 64, head_dim=16, partial=0.75)
    assert (partial[:6] > 0).all() and (partial[6:] == 0).all()
    one = precompute_freqs_cis(16, 16, scaling=RopeScaling(type, 1, 16))
    assert torch.equal(one, precompute_freqs_cis(16, 16))


@pytest.mark.parametrize("type", [*PER_PAIR, "dynamic"])
def test_scaled_rotation_keeps_norms_but_for_yarns_factor_and_sees_only_distance(type):
    d, T = 16, 60
    scaling = RopeScaling(type, 4, 15)
    encoding = RoPE(config("rope", head_dim=d, max_positions=T, rope_scaling=scaling))
    rows = encoding.at(0, T)
    x = draw(2, T, 6, d)
    turned, _ = encoding.rotate(x, x, rows)
    factor = 0.1 * math.log(4) + 1 if type == "yarn" else 1.0
    torch.testing.assert_close(turned.norm(dim=-1), factor * x.norm(dim=-1), rtol=1e-6, atol=0)
    q, k = (draw(d, seed=s).expand(1, T, 1, d) for s in (1, 2))
    xq, xk = encoding.rotate(q, k, rows)
    scores = xq[0, :, 0] @ xk[0, :, 0].T
    spread = [(s := scores.diagonal(n)).max() - s.min() for n in range(-T + 1, T)]
    assert max(spread) <= 2e-5 and scores.std() > 0.1
    plain, _ = apply_rotary_emb(x, x, precompute_freqs_cis(d, T))
    assert (turned / factor - plain).abs().max() > 0.1  # and it is on


def test_yarns_factor_can_be_set_and_multiplies_the_logits_by_its_square():
    q, k = draw(1, 7, 6, 8), draw(1, 7, 2, 8, seed=1)
    tables = [
        precompute_freqs_cis(8, 7, scaling=RopeScaling("yarn", 4, 64, attention_factor=factor))
        for factor in (1.0, 1.5)
    ]
    (q1, k1), (q2, k2) = (apply_rotary_emb(q, k, table) for table in tables)
    torch.testing.assert_close(q2[..., :2, :] @ k2.mT, 2.25 * (q1[..., :2, :] @ k1.mT))


def test_dynamic_scaling_follows_the_length_of_the_text():
    plain = Transformer(config("rope"))
    plain.init_weights(seed=1)
    c = dataclasses.replace(plain.config, rope_scaling=RopeScaling("dynamic", 1, 16))
    model = Transformer(c)  # the same weights, on a config that is resolved already
    model.load_state_dict(plain.state_dict())
    tokens = torch.arange(48)[None]
    assert torch.equal(model(tokens[:, :16]), plain(tokens[:, :16]))
    ntk = Transformer(dataclasses.replace(c, rope_scaling=RopeScaling("ntk", 3, 16)))
    ntk.load_state_dict(plain.state_dict())
    torch.testing.assert_close(model(tokens), ntk(tokens), rtol=0, atol=1e-6)
    assert (model(tokens[:, :32]) - ntk(tokens[:, :32])).abs().max() > 1e-4
    assert (model(tokens) - plain(tokens)).abs().max() > 1e-4
    assert torch.equal(model(tokens[:, :16]), plain(tokens[:, :16]))  # nothing is left behind
    assert torch.equal(model.position.at(24, 48), model.position.at(0, 48)[24:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"type": "yam"}, "model.rope_scaling.type must be one of linear, ntk, dynamic, yarn, ll"),
        ({"factor": 0.5}, "model.rope_scaling.factor must be at least 1, not 0.5"),
        ({"factor": math.inf}, "factor must be at least 1, not inf"),
        ({"original_positions": 0}, "model.rope_scaling.original_positions must be above 0, not 0"),
        ({"attention_factor": 0.0}, "model.rope_scaling.attention_factor must be above 0, not 0.0"),
        ({"beta_slow": 32.0}, "beta_slow 32.0 must be above 0 and below beta_fast 32.0"),
        ({"beta_slow": 0.0}, "beta_slow 0.0 must be above 0"),
        ({"type": "llama3", "high_freq_factor": 0.5}, "low_freq_factor 1.0 must .* 0.5"),
        ({"type": "linear", "beta_fast": 8.0}, "beta_fast has no effect with type linear: .* yarn"),
        ({"type": "ntk", "attention_factor": 1.0}, "attention_factor has no effect with type ntk"),
        ({"high_freq_factor": 8.0}, "high_freq_factor has no effect with type yarn: .* llama3"),
    ],
)  # fmt: skip
def test_a_scaling_without_a_meaning_is_refused_in_words(options, words):
    with pytest.raises(ValueError, match=words):
        RopeScaling(**{"type": "yarn", "factor": 4.0, **options})


def test_a_scaling_that_does_not_fit_the_model_is_refused_in_words():
    with pytest.raises(ValueError, match="model.rope_scaling has no effect with .* alibi: .* rope"):
        config("alibi", rope_scaling=RopeScaling("linear", 4, 16))
    with pytest.raises(ValueError, match="original_positions must be set"):
        Transformer(config("rope", rope_scaling=RopeScaling("linear", 4)))
    for type in ("ntk", "dynamic"):
        with pytest.raises(ValueError, match="model.head_dim 2 is one pair"):
            Transformer(config("rope", head_dim=2, rope_scaling=RopeScaling(type, 4, 16)))


# --- every encoding ---

CASTS = {
    "to(bfloat16)": lambda m: m.to(torch.bfloat16),
    "to(float16)": lambda m: m.to(torch.float16),
    "to(float32)": lambda m: m.to(torch.float32),
    "half()": lambda m: m.half(),
    "bfloat16()": lambda m: m.bfloat16(),
    "float()": lambda m: m.float(),
    "double()": lambda m: m.double(),
}


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("position", POSITIONS)
def test_tables_survive_every_cast(position, cast):
    model = Transformer(config(position))
    before = copy.deepcopy(model.position.table)
    CASTS[cast](model)
    after = model.position.table
    if before is None:
        assert after is None
    else:
        assert after.dtype == before.dtype and torch.equal(after, before)


@pytest.mark.parametrize("position", POSITIONS)
def test_tables_survive_autocast_and_are_in_no_state_dict_and_no_buffer(position):
    model = Transformer(config(position))
    before = copy.deepcopy(model.position.table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.arange(14).view(2, 7))
    assert before is None or torch.equal(model.position.table, before)
    assert not list(model.named_buffers())
    assert not any(p.is_complex() for p in model.parameters())
    stored = [name for name in model.state_dict() if name.startswith("position.")]
    assert stored == {"sinusoidal": ["position.alpha"], "learned": ["position.weight"]}.get(
        position, []
    )


@pytest.mark.parametrize("position", POSITIONS)
def test_a_model_built_on_meta_equals_one_built_in_place(position):
    here = Transformer(config(position))
    here.init_weights(seed=1)
    with torch.device("meta"):
        model = Transformer(config(position))
    model.to_empty(device="cpu")
    model.load_state_dict(here.state_dict())
    tokens = torch.arange(14).view(2, 7)
    assert torch.equal(model(tokens), here(tokens))


@pytest.mark.parametrize("position", [p for p in POSITIONS if POSITIONS[p].extrapolates])
def test_a_checkpoint_does_not_pin_the_length(position):
    short, long = Transformer(config(position)), Transformer(config(position, max_positions=128))
    short.init_weights(seed=1)
    long.load_state_dict(short.state_dict())
    tokens = torch.arange(14).view(2, 7)
    assert torch.equal(short(tokens), long(tokens))


@pytest.mark.parametrize("position", [p for p in POSITIONS if p != "none"])
def test_positions_256_and_257_differ_in_bfloat16(position):
    """In bfloat16 the integers 256 and 257 are the same number, so no position may ever be one."""
    encoding = POSITIONS[position](config(position, max_positions=300))
    if position == "learned":
        torch.nn.init.normal_(
            encoding.weight, 0, INIT_STD, generator=torch.Generator().manual_seed(0)
        )
    encoding.bfloat16()
    at_256, at_257 = encoding.at(256, 257), encoding.at(257, 258)
    if isinstance(encoding, ALiBi):
        q = torch.arange(258)
        bias = encoding.bias(q, q)
        assert bias.dtype == torch.float32
        assert torch.equal(bias[:, 256, 0] - bias[:, 257, 0], alibi_slopes(6))
    elif isinstance(encoding, RoPE):
        x = draw(1, 1, 6, 8).bfloat16()
        assert not torch.equal(encoding.rotate(x, x, at_256)[0], encoding.rotate(x, x, at_257)[0])
    else:
        h = torch.zeros(1, 1, 48, dtype=torch.bfloat16)
        assert not torch.equal(encoding.embed(h, at_256), encoding.embed(h, at_257))


@pytest.mark.parametrize("position", POSITIONS)
def test_the_encoding_is_on_and_it_is_the_only_one(position):
    """Swapping two earlier tokens changes what follows, except where order is invisible; and
    exactly the doors that the class says it uses are open."""
    encoding = POSITIONS[position](config(position))
    h, x, q = draw(2, 7, 48), draw(2, 7, 6, 8), torch.arange(7)
    if position == "learned":
        torch.nn.init.normal_(encoding.weight, generator=torch.Generator().manual_seed(0))
    rows = encoding.at(0, 7)
    doors = [
        not torch.equal(encoding.embed(h, rows), h),
        not torch.equal(encoding.rotate(x, x, rows)[0], x),
        encoding.bias(q, q) is not None,
    ]
    assert doors == {
        "rope": [False, True, False], "sinusoidal": [True, False, False],
        "learned": [True, False, False], "alibi": [False, False, True],
        "none": [False, False, False],
    }[position]  # fmt: skip

    model = Transformer(config(position, n_layers=1))
    model.init_weights(seed=1)
    with torch.no_grad():
        for p in model.layers.parameters():
            if p.ndim == 2:
                p.mul_(20)  # attention that is far from uniform
    tokens = torch.tensor([[5, 11, 23, 42, 60, 77, 90]])
    swapped = tokens[:, [2, 1, 0, 3, 4, 5, 6]]
    change = (model(tokens)[0, -1] - model(swapped)[0, -1]).abs().max().item()
    assert change < 1e-5 if position == "none" else change > 1e-4


@pytest.mark.parametrize("position", POSITIONS)
def test_relative_encodings_do_not_see_where_a_row_starts_and_absolute_ones_do(position):
    """Model level: the same tokens at positions 0.. and at 40.."""
    model = Transformer(config(position))
    model.init_weights(seed=1)
    tokens = torch.arange(14).view(2, 7)
    change = (model(tokens, offset=40) - model(tokens)).abs().max()
    assert change > 1e-2 if position in ("sinusoidal", "learned") else change <= 1e-5


def test_an_offset_reaches_to_the_end_of_the_context_and_no_further():
    model = Transformer(config("learned"))
    model.init_weights(seed=1)
    tokens = torch.arange(14).view(2, 7)
    before = model(tokens, offset=57)
    with torch.no_grad():
        model.position.weight[:57] = torch.nan  # rows that it must not read
    assert torch.equal(model(tokens, offset=57), before)
    with pytest.raises(ValueError, match="position 65 is past the context of 64"):
        model(tokens, offset=58)
    with pytest.raises(ValueError, match="offset -1: positions start at 0 or later"):
        model(tokens, offset=-1)


# --- absolute encodings, ALiBi ---


def test_matched_sinusoid_starts_with_the_rms_of_the_embeddings():
    def ratio(scaling: str) -> float:
        model = Transformer(config("sinusoidal", sinusoid=scaling, dim=128, head_dim=8))
        model.init_weights(seed=1)
        tokens = model.tok_embeddings.weight.detach()[:64]
        with_positions = model.position.embed(tokens[None], model.position.at(0, 64)).detach()[0]
        scaled = tokens * model.position.embedding_scale
        return ((with_positions - scaled).square().mean() / scaled.square().mean()).sqrt().item()

    assert 0.9 < ratio("matched") < 1.1
    assert ratio("naive") == pytest.approx(math.sqrt(0.5) / INIT_STD, rel=0.05)  # 35: the trap
    assert ratio("vaswani") == pytest.approx(math.sqrt(0.5) / INIT_STD / math.sqrt(128), rel=0.05)


def test_matched_alpha_is_one_trainable_number_and_the_others_have_none():
    for scaling, expected in (("matched", 1), ("vaswani", 0), ("naive", 0)):
        encoding = Sinusoidal(config("sinusoidal", sinusoid=scaling))
        assert sum(p.numel() for p in encoding.parameters()) == expected
    model = Transformer(config("sinusoidal"))
    model.init_weights(seed=1)
    model(torch.arange(14).view(2, 7)).square().mean().backward()
    assert model.position.alpha.grad.abs() > 0


def test_alibi_slopes_are_the_published_ones():
    assert alibi_slopes(4).tolist() == [0.25, 0.0625, 0.015625, 0.00390625]
    assert alibi_slopes(8).tolist() == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    twelve = [2.0**-k for k in range(1, 9)] + [2.0**-k for k in (0.5, 1.5, 2.5, 3.5)]
    torch.testing.assert_close(alibi_slopes(12), torch.tensor(twelve))


def test_alibi_attention_equals_a_loop():
    from model.transformer import attend

    c = config("alibi")
    model = Transformer(c)
    q, k, v = draw(2, 6, 7, 8), draw(2, 2, 7, 8, seed=1), draw(2, 2, 7, 8, seed=2)
    out = attend(q, k, v, model._mask(0, 7, torch.device("cpu")))
    slopes = alibi_slopes(6)
    for b in range(2):
        for h in range(6):
            for m in range(7):
                scores = torch.stack([
                    q[b, h, m] @ k[b, h // 3, n] / math.sqrt(8) - slopes[h] * (m - n)
                    for n in range(m + 1)
                ])  # fmt: skip
                expected = scores.softmax(0) @ v[b, h // 3, : m + 1]
                torch.testing.assert_close(out[b, h, m], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", POSITIONS)
def test_past_the_end_is_an_error_and_never_a_clamp(position):
    model = Transformer(config(position, max_positions=9))
    model(torch.zeros(1, 9, dtype=torch.long))
    with pytest.raises(ValueError, match="position 10 is past the context of 9"):
        model(torch.zeros(1, 10, dtype=torch.long))


def test_an_option_without_effect_is_an_error():
    with pytest.raises(ValueError, match="model.partial has no effect with model.position alibi"):
        config("alibi", partial=0.5)
    with pytest.raises(ValueError, match="model.sinusoid has no effect"):
        config("rope", sinusoid="naive")
    with pytest.raises(ValueError, match="model.theta has no effect .* rope, sinusoidal"):
        config("none", theta=500.0)
    with pytest.raises(ValueError, match="head_dim must be even, not 7"):
        Transformer(config("rope", head_dim=7))
