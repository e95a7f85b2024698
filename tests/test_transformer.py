"""The decoder: keys, causality, grouped heads, initialisation, attention weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import CPU, draw, random_model

from ablation.attention import attention_scores
from errors import UserError
from model import kernels
from model.config import INIT_STD, RopeScaling
from model.encodings import POSITIONS
from model.position import alibi_slopes
from model.transformer import RMSNorm, attend


@pytest.mark.parametrize("tie", [True, False])
def test_state_dict_keys_are_metas(tie):
    model = random_model(tie_embeddings=tie, dim=50, head_dim=8)
    expected = {"tok_embeddings.weight", "norm.weight"} | (set() if tie else {"output.weight"})
    for i in range(3):
        expected |= {f"layers.{i}.{name}.weight" for name in (
            "attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1",
            "feed_forward.w2", "feed_forward.w3", "attention_norm", "ffn_norm")}
    assert set(model.state_dict()) == expected


def test_causality_by_gradient():
    """Exactly nothing flows back from a logit to later tokens, and something does to all
    earlier. Of every encoding, test_cache.py compares logits with and without later tokens."""
    model, tokens = random_model(), torch.arange(7)[None]
    h = model.tok_embeddings(tokens).detach().requires_grad_()
    model.tok_embeddings.forward = lambda _: h
    model(tokens)[0, 3].square().sum().backward()
    reached = h.grad[0].abs().sum(-1)
    assert (reached[:4] > 0).all() and (reached[4:] == 0).all()


@pytest.mark.parametrize("position", ["rope", "alibi"])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@pytest.mark.parametrize("new", [1, 2, 7])
def test_attention_equals_explicit_loops(position, n_kv_heads, new):
    """New queries see the keys up to their own, of the key/value head that serves their group."""
    xq, (xk, xv) = draw(2, 6, new, 8), draw(2, 2, n_kv_heads, 7, 8, seed=1)
    out = attend(xq, xk, xv, random_model(position=position).position.mask(7 - new, 7, CPU))
    for h, slope in enumerate(alibi_slopes(6) * (position == "alibi")):
        group = h // (6 // n_kv_heads)
        for i, at in enumerate(range(7 - new, 7)):
            keys, values = (x[:, group, : at + 1] for x in (xk, xv))
            distances = at - torch.arange(at + 1)[:, None]
            scores = keys @ xq[:, h, i, :, None] / math.sqrt(8) - slope * distances
            expected = (scores.softmax(1) * values).sum(1)
            torch.testing.assert_close(out[:, h, i], expected, rtol=0, atol=1e-5)


def test_a_bias_keeps_its_digits_under_autocast():
    """bfloat16 rounds -1000 and -999 together; apart, the second key weighs e/(1 + e)."""
    mask = torch.tensor([[[[-1000.0, -999.0]]]])
    q, k, v = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 2, 8), torch.tensor([0.0, 1.0])
    v = v[:, None].expand(1, 1, 2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask)
    assert out[0, 0, 0, 0].item() == pytest.approx(math.e / (1 + math.e), abs=0.004)


def test_a_norm_is_float32_inside_and_rounded_before_its_weight():
    """As transformers' LlamaRMSNorm computes it, bit for bit; small rows feel epsilon."""
    norm, x = RMSNorm(48, 1e-5), draw(5, 48) * torch.tensor([1e-3, 1e-2, 0.1, 1, 9])[:, None]
    norm.weight.data = draw(48, seed=1)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (48,), norm.weight, 1e-5))
    assert norm(x.bfloat16()).dtype == torch.bfloat16  # as under autocast
    norm, x = norm.bfloat16(), x.bfloat16()
    wide = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    assert torch.equal(norm(x), norm.weight * wide.bfloat16())


def test_flops_follow_from_the_configuration():
    model = random_model(n_layers=2, head_dim=10)
    matrices = sum(p.numel() for p in model.layers.parameters() if p.ndim == 2) + 97 * 48
    assert model.config.flops_per_token(20) == 6 * matrices + 12 * 20 * 2 * 6 * 10


@pytest.mark.parametrize("position", POSITIONS)
def test_attention_weights_are_what_attention_weighs_values_by(position):
    """Nothing is seen ahead, and weighted values are the output of `attend`."""
    model, tokens = random_model(position=position), torch.arange(14).view(2, 7)
    attended, values = [], []
    for layer in model.layers:
        layer.attention.wo.register_forward_pre_hook(lambda _, x: attended.append(x[0]))
        layer.attention.wv.register_forward_hook(lambda _, x, y: values.append(y))
    for scores, x, v in zip(attention_scores(model, tokens), attended, values, strict=True):
        w = scores.softmax(-1)
        assert (w.triu(1) == 0).all()
        v = v.view(2, 7, 2, 8).repeat_interleave(3, dim=2)  # (B, T, H, D)
        expected = torch.einsum("bhts,bshd->bthd", w, v).flatten(-2)
        torch.testing.assert_close(expected, x, rtol=1e-4, atol=1e-6)


def test_matrices_of_every_encoding_start_from_the_same_numbers_and_draw_nothing_else():
    """Their std is 0.02, divided by sqrt(2 n_layers) where they write into the residual stream."""
    reference = dict(random_model(position="none", dim=192).named_parameters())
    for name, parameter in reference.items():
        if parameter.ndim == 2:
            std = INIT_STD / math.sqrt(2 * 3 if name.endswith(("wo.weight", "w2.weight")) else 1)
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name
    for position in POSITIONS:
        if "aligned" in position:
            continue  # in test_position.py
        model = random_model(position=position, dim=192)
        for name, parameter in model.named_parameters():
            own = ".position." in f".{name}" or position == "rope_sinscale" and "tok_emb" in name
            assert own or torch.equal(parameter, reference[name]), (position, name)
        torch.manual_seed(999)  # whatever PyTorch draws while it builds the next one
    before = torch.get_rng_state()
    model.init_weights(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(model.layers[0].feed_forward.w1.weight,
                           reference["layers.0.feed_forward.w1.weight"])
    starts = [(p / p.std()).flatten()[:50].tolist() for p in reference.values() if p.ndim == 2]
    assert len(set(map(tuple, starts))) == len(starts)  # each has its own stream


@pytest.mark.parametrize("changes, words", [
    ({"dim": 50}, "model.dim 50 is not divisible by model.n_heads 6"),
    ({"n_kv_heads": 4}, "model.n_heads 6 is not divisible by model.n_kv_heads 4"),
    *(({name: value}, f"model.{name} must be in .*, not {value}") for name, value in (
        ("theta", 1.0), ("n_heads", 0), ("dropout", 1.0), ("partial", 1.5), ("norm_eps", 0.0))),
    ({"vocab_size": None}, "model.vocab_size must be set"),
    ({"rope_scaling": RopeScaling("linear", 4)}, "original_positions must be set"),
    ({"position": "rop"}, "model.position must be one of rope, sinusoidal"),
    ({"position": "alibi", "partial": 0.5}, "model.partial has no effect with .* alibi: .* rope"),
    ({"head_dim": 7}, "head_dim must be even, not 7"),
    ({"head_dim": 2, "rope_scaling": RopeScaling("ntk", 4, 16)}, "head_dim 2 is one pair")])
def test_what_cannot_be_built_is_refused_in_words(changes, words):
    with pytest.raises(UserError, match=words):
        random_model(**changes)


@pytest.mark.slow
@pytest.mark.parametrize("position, onednn", [("rope", True), ("alibi", False)])
def test_a_compiled_step_equals_an_eager_one(position, onednn, monkeypatch):
    """Forward and backward, with RoPE in real arithmetic. Dropout drops the same."""
    monkeypatch.setattr(kernels, "uses_onednn", onednn)
    tokens, results = torch.arange(21).view(3, 7), []
    for compiled in (False, True):
        model = random_model(position=position, n_layers=1, dropout=0.1).train()
        if compiled:
            model.compile()
        logits = model(tokens, dropout_keys=torch.tensor([3, 4, 5]))
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        results.append([logits.detach(), *(p.grad for p in model.parameters())])
        assert not any("_orig_mod" in name for name in model.state_dict())
    eager, compiled = results
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)
