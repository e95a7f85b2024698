"""The decoder: keys, causality, grouped heads, norms, initial weights, checkpointed blocks."""

import math

import pytest
import torch
import torch.nn.functional as F
from builders import CPU, KINDS, quick_for, randn, random_model
from torch import Tensor

from errors import UserError
from model import kernels
from model.config import RopeScaling
from model.encodings import POSITIONS
from model.position import alibi_slopes
from model.transformer import RMSNorm, attend, derive_seed


@pytest.mark.parametrize("tie", [True, False])
def test_state_dict_keys_are_metas(tie):
    model = random_model(tie_embeddings=tie, dim=50, head_dim=8)
    expected = {"tok_embeddings.weight", "norm.weight"}
    if not tie:
        expected.add("output.weight")
    for i in range(3):
        expected |= {f"layers.{i}.{name}.weight" for name in (
            "attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1",
            "feed_forward.w2", "feed_forward.w3", "attention_norm", "ffn_norm")}
    assert set(model.state_dict()) == expected


def test_causality_by_gradient():
    """Exactly nothing flows back from a logit to later tokens, and something does to all earlier.

    test_cache.py shows causality for every encoding, by logits with and without later tokens.
    """
    model = random_model()
    tokens = torch.arange(7)[None]
    h = model.tok_embeddings(tokens).detach().requires_grad_()
    model.tok_embeddings.forward = lambda _: h
    model(tokens)[0, 3].square().sum().backward()
    reached = h.grad[0].abs().sum(-1)
    assert (reached[:4] > 0).all()
    assert (reached[4:] == 0).all()


@pytest.mark.parametrize("position", ["rope", "alibi"])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@pytest.mark.parametrize("new", [1, 2, 7])
def test_attention_equals_explicit_loops(position, n_kv_heads, new):
    """New queries see the keys up to their own, of the key/value head that serves their group."""
    xq = randn(2, 6, new, 8)
    xk = randn(2, n_kv_heads, 7, 8, seed=1)
    xv = randn(2, n_kv_heads, 7, 8, seed=2)
    out = attend(xq, xk, xv, random_model(position=position).position.mask(7 - new, 7, CPU))
    slopes = alibi_slopes(6) if position == "alibi" else torch.zeros(6)
    for h in range(6):
        group = h // (6 // n_kv_heads)
        for i in range(new):
            at = 7 - new + i
            keys = xk[:, group, : at + 1]
            values = xv[:, group, : at + 1]
            distances = at - torch.arange(at + 1)[:, None]
            scores = keys @ xq[:, h, i, :, None] / math.sqrt(8) - slopes[h] * distances
            expected = (scores.softmax(1) * values).sum(1)
            torch.testing.assert_close(out[:, h, i], expected, rtol=0, atol=1e-5)


def test_a_bias_keeps_its_digits_under_autocast():
    """bfloat16 rounds -1000 and -999 together; apart, the second key weighs e/(1 + e)."""
    mask = torch.tensor([[[[-1000.0, -999.0]]]])
    q = torch.zeros(1, 1, 1, 8, dtype=torch.bfloat16)
    k = torch.zeros(1, 1, 2, 8, dtype=torch.bfloat16)
    v = torch.tensor([0, 1], dtype=torch.bfloat16)[:, None].expand(1, 1, 2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(q, k, v, mask)
    assert out[0, 0, 0, 0].item() == pytest.approx(0.7311, abs=0.004)


# --- norms ---

ROWS = randn(5, 48) * torch.tensor([1e-3, 1e-2, 0.1, 1, 9])[:, None]  # small rows feel epsilon


def random_norm() -> RMSNorm:
    norm = RMSNorm(48, 1e-5)
    norm.weight.data = randn(48, seed=1)
    return norm


def test_a_norm_equals_pytorchs():
    norm = random_norm()
    torch.testing.assert_close(norm(ROWS), F.rms_norm(ROWS, (48,), norm.weight, 1e-5))


def test_a_norm_with_wide_weights_returns_a_narrow_input_narrow():
    """As under autocast."""
    assert random_norm()(ROWS.bfloat16()).dtype == torch.bfloat16


def test_a_norm_is_float32_inside_and_rounded_before_its_weight():
    """As transformers' LlamaRMSNorm computes it, bit for bit."""
    norm = random_norm().bfloat16()
    x = ROWS.bfloat16()
    wide = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    assert torch.equal(norm(x), norm.weight * wide.bfloat16())


# --- initial weights ---


@pytest.mark.parametrize("name, std", [
    ("tok_embeddings", 0.02), ("layers.0.attention.wq", 0.02), ("layers.2.attention.wk", 0.02),
    ("layers.1.attention.wv", 0.02), ("layers.0.feed_forward.w1", 0.02),
    ("layers.2.feed_forward.w3", 0.02),
    ("layers.0.attention.wo", 0.008165),  # these write into the stream: 0.02 / sqrt(2 * 3 layers)
    ("layers.2.feed_forward.w2", 0.008165)])
def test_matrices_start_with_the_documented_std(name, std):
    weight = random_model(dim=192).get_submodule(name).weight
    assert weight.std().item() == pytest.approx(std, rel=0.05)


# Of aligned models, test_encodings.py says how they start.
@pytest.mark.parametrize("position", [name for name in POSITIONS if "aligned" not in name])
def test_matrices_of_every_encoding_start_from_the_same_numbers(position):
    reference = dict(random_model(position="none").named_parameters())
    torch.manual_seed(999)  # they do not depend on what PyTorch draws
    for name, parameter in random_model(position=position).named_parameters():
        scaled = position == "rope_sinscale" and name == "tok_embeddings.weight"
        if not scaled and not name.startswith("position."):
            assert torch.equal(parameter, reference[name]), name


def test_another_seed_starts_from_other_numbers():
    first = random_model(seed=1).layers[0].feed_forward.w1.weight
    second = random_model(seed=2).layers[0].feed_forward.w1.weight
    assert not torch.equal(first, second)


def test_initial_weights_leave_pytorchs_generator_alone():
    model = random_model()
    before = torch.get_rng_state()
    model.init_weights(seed=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_each_matrix_starts_from_a_stream_of_its_own():
    starts = set()
    for parameter in random_model().parameters():
        if parameter.ndim == 2:
            starts.add(tuple((parameter / parameter.std()).flatten()[:50].tolist()))
    assert len(starts) == 1 + 3 * 7  # embeddings, and seven matrices in each layer


@pytest.mark.parametrize("one, other", [
    ((1, 11), (11, 1)), ((1, 11), (1, 1, 1)), (("a", 1), ("a1",))])
def test_addresses_of_the_same_characters_have_seeds_of_their_own(one, other):
    assert derive_seed(*one) != derive_seed(*other)


def test_a_seed_has_63_bits_of_the_hash_of_its_address():
    assert derive_seed(0, "wq") == int.from_bytes(bytes.fromhex("3e8b63aba21ee1b6"), "little") >> 1


@pytest.mark.parametrize("changes, words", [
    ({"dim": 50}, "model.dim 50 is not divisible by model.n_heads 6"),
    ({"n_kv_heads": 4}, "model.n_heads 6 is not divisible by model.n_kv_heads 4"),
    ({"theta": 1.0}, "model.theta must be in .*, not 1.0"),
    ({"n_heads": 0}, "model.n_heads must be in .*, not 0"),
    ({"dropout": 1.0}, "model.dropout must be in .*, not 1.0"),
    ({"partial": 1.5}, "model.partial must be in .*, not 1.5"),
    ({"norm_eps": 0.0}, "model.norm_eps must be in .*, not 0.0"),
    ({"vocab_size": None}, "model.vocab_size must be set"),
    ({"rope_scaling": RopeScaling("linear", 4)}, "original_positions must be set"),
    ({"position": "rop"}, r"no model.position rop \(did you mean rope\?\): it must be one of rope"),
    ({"position": "alibi", "partial": 0.5}, "model.partial has no effect with .* alibi: .* rope"),
    ({"head_dim": 7}, "head_dim must be even, not 7"),
    ({"head_dim": 2, "rope_scaling": RopeScaling("ntk", 4, 16)}, "head_dim 2 is one pair")])
def test_a_model_that_cannot_be_built_is_refused(changes, words):
    with pytest.raises(UserError, match=words):
        random_model(**changes)


def take_step(
    position: str, compiled: bool, n_layers: int = 1, checkpointed: bool = False
) -> list[Tensor | None]:
    """The logits of a step with dropout and the gradients of all parameters."""
    tokens = torch.arange(21).view(3, 7)
    model = random_model(position=position, n_layers=n_layers, dropout=0.1).train()
    model.checkpoint_blocks = checkpointed
    if compiled:
        model.compile()
    logits = model(tokens, dropout_keys=torch.tensor([3, 4, 5]))
    F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    return [logits.detach(), *(parameter.grad for parameter in model.parameters())]


@pytest.mark.slow
@pytest.mark.parametrize("position, onednn", [("rope", True), ("alibi", False)])
def test_a_compiled_step_equals_an_eager_one(position, onednn, monkeypatch):
    """Forward and backward, with RoPE in real arithmetic. Dropout drops the same."""
    monkeypatch.setattr(kernels, "_uses_onednn", onednn)
    eager = take_step(position, compiled=False)
    compiled = take_step(position, compiled=True)
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


# --- blocks that are computed again in the backward pass ---


@pytest.mark.parametrize("position", quick_for(KINDS, POSITIONS))
def test_checkpointed_blocks_have_the_same_gradients(position):
    """Bit for bit, with dropout."""
    kept = take_step(position, compiled=False, n_layers=3)
    computed_again = take_step(position, compiled=False, n_layers=3, checkpointed=True)
    for tensor, expected in zip(computed_again, kept, strict=True):
        assert torch.equal(tensor, expected)


def test_checkpointed_blocks_have_the_same_gradients_in_bfloat16():
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        kept = take_step("rope", compiled=False, n_layers=3)
        computed_again = take_step("rope", compiled=False, n_layers=3, checkpointed=True)
    for tensor, expected in zip(computed_again, kept, strict=True):
        assert torch.equal(tensor, expected)


@pytest.mark.parametrize("checkpointed, kept", [(False, True), (True, False)])
def test_checkpointed_blocks_keep_nothing_of_the_feed_forward(checkpointed, kept):
    """Its tensors are 80 wide. Blocks that are not checkpointed keep some of them."""
    model = random_model().train()
    model.checkpoint_blocks = checkpointed
    widths = set()

    def keep(tensor):
        widths.add(tensor.shape[-1])
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.hidden_states(torch.arange(14).view(2, 7))
    assert 48 in widths
    assert (80 in widths) is kept


@pytest.mark.slow
@pytest.mark.parametrize("position", ["rope", "alibi"])
def test_checkpointed_blocks_can_be_compiled(position):
    eager = take_step(position, compiled=False, n_layers=1)
    compiled = take_step(position, compiled=True, n_layers=1, checkpointed=True)
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # model.compile() imports the compiler
def test_a_compiled_model_has_the_same_state_dict_keys():
    model = random_model()
    model.compile()
    assert model.state_dict().keys() == random_model().state_dict().keys()
