"""Names, layouts and configurations of others, without a file."""

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from formats import names as interop
from model.config import ModelConfig
from model.position import POSITIONS
from model.rope import RopeScaling
from model.transformer import Transformer

SIZES = dict(
    dim=48, n_layers=3, n_heads=6, n_kv_heads=2, hidden_dim=80, vocab_size=97, max_positions=64
)
# As transformers 4 wrote them for real models, shortened to what is read.
BASE = dict(
    model_type="llama", hidden_act="silu", hidden_size=48, intermediate_size=80,
    num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, vocab_size=97,
    rms_norm_eps=1e-5, max_position_embeddings=64, tie_word_embeddings=False,
)  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = YARN | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def config(**changes):
    return ModelConfig(**(SIZES | {"tie_embeddings": False} | changes))


@pytest.mark.parametrize("tied", [False, True])
def test_every_tensor_has_one_name_there_and_no_other(tied):
    """Against the state dict that transformers builds from the same sizes."""
    ours = config(tie_embeddings=tied)
    theirs = AutoModelForCausalLM.from_config(LlamaConfig(**interop.to_hf_config(ours)))
    expected = {name: tuple(t.shape) for name, t in theirs.state_dict().items()}
    if tied:
        del expected["lm_head.weight"]
    names, shapes = interop.names(ours, "hf"), interop.shapes(ours)
    assert {names[name]: shape for name, shape in shapes.items()} == expected
    assert shapes == {n: tuple(t.shape) for n, t in Transformer(ours).state_dict().items()}


def test_the_names_of_gguf_are_those_of_its_package():
    import gguf

    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 3)
    theirs, hf = interop.names(config(), "gguf"), interop.names(config(), "hf")
    for name in interop.shapes(config()):
        assert known.get_name(hf[name], (".weight",)) == theirs[name]


def test_the_layouts_are_each_others_inverse_and_not_their_own():
    weight = torch.arange(6 * 8 * 5).view(6 * 8, 5)
    halves = interop.relayout(weight, 8, "halves")
    assert not torch.equal(halves, weight)
    assert not torch.equal(interop.relayout(halves, 8, "halves"), weight)
    assert torch.equal(interop.relayout(halves, 8, "pairs"), weight)
    # Channels 2i and 2i+1 of a head go to i and i + D/2, in the same head.
    for head in range(6):
        for i in range(4):
            assert torch.equal(halves[8 * head + i], weight[8 * head + 2 * i])
            assert torch.equal(halves[8 * head + 4 + i], weight[8 * head + 2 * i + 1])


def test_rows_move_from_pairs_to_halves():
    rows = torch.arange(2 * 6)[:, None]
    moved = interop.relayout(rows, 6, "halves").flatten().tolist()
    assert moved == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


# Heads over key/value heads is 3, unlike their number, so that no mix-up of the two can pass.
@pytest.mark.parametrize(
    "shape",
    [
        {"tie_embeddings": True},
        {"n_heads": 4, "n_kv_heads": 1},
        {"n_heads": 3, "n_kv_heads": 3, "head_dim": 32},
        {"theta": 500.0},
    ],
    ids=str,
)
@torch.no_grad()
def test_logits_are_the_same_over_the_whole_context_and_not_without_the_permutation(shape):
    ours = Transformer(config(**shape))
    ours.init_weights(seed=2)
    for parameter in ours.layers.parameters():
        if parameter.ndim > 1:
            parameter.mul_(7)  # attention is flat at the start, and would hide a wrong order
    theirs = AutoModelForCausalLM.from_config(LlamaConfig(**interop.to_hf_config(ours.config)))
    tokens = torch.randint(97, (2, 64), generator=torch.Generator().manual_seed(0))

    def difference():
        if ours.config.tie_embeddings:
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        theirs.load_state_dict(weights)
        return (theirs(tokens).logits - ours(tokens)).abs().max()

    weights = dict(interop.to_hf(ours.state_dict(), ours.config))
    assert difference() < 1e-4
    hf = interop.names(ours.config, "hf")
    weights |= {hf[name]: w for name, w in ours.state_dict().items() if interop.is_rotated(name)}
    assert difference() > 0.1


@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"rope"}))
@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_encodings_without_a_runtime_are_refused_by_name(position, to):
    with pytest.raises(ValueError, match=f"model.position {position}: .*knows only rope"):
        interop.refuse_without_counterpart(config(position=position), to)


@pytest.mark.parametrize(
    ("changes", "to", "words"),
    [
        ({"partial": 0.5}, "hf", "model.partial 0.5"),
        ({"partial": 0.5}, "gguf", "model.partial 0.5"),
        ({"dim": 50, "head_dim": 8}, "hf", "dim 50 is not divisible by model.n_heads 6"),
        ({"rope_scaling": RopeScaling("dynamic", 2, 16)}, "gguf", "type dynamic.*llama.cpp"),
        (
            {"rope_scaling": RopeScaling("yarn", 2, 16, attention_factor=1.5)},
            "gguf",
            "attention_factor 1.5",
        ),
    ],
)
def test_what_a_target_cannot_express_is_refused_by_name(changes, to, words):
    with pytest.raises(ValueError, match=words):
        interop.refuse_without_counterpart(config(**changes), to)
    other = {"hf": "gguf", "gguf": "hf"}[to]
    if "partial" not in changes:
        interop.refuse_without_counterpart(config(**changes), other)


# --- config.json ---


SCALINGS = [
    None,
    RopeScaling("linear", 4.0, 16),
    RopeScaling("dynamic", 4.0, 16),
    RopeScaling("yarn", 4.0, 16, beta_fast=6.0, beta_slow=2.0),
    RopeScaling("yarn", 4.0, 16, attention_factor=1.3),
    RopeScaling("llama3", 4.0, 16, low_freq_factor=1.5, high_freq_factor=3.0),
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_a_configuration_comes_back_from_either_spelling(scaling):
    ours = config(rope_scaling=scaling, theta=5e5, norm_eps=3e-6, head_dim=12)
    both = interop.to_hf_config(ours)
    v4 = {k: v for k, v in both.items() if k != "rope_parameters"}
    v5 = {k: v for k, v in both.items() if k not in ("rope_theta", "rope_scaling")}
    for spelling in (both, v4, v5):
        assert interop.from_hf_config(spelling) == (ours, [])
    if scaling is not None:  # before transformers 4.43 it was called type
        old = v4["rope_scaling"] | {"type": v4["rope_scaling"]["rope_type"]}
        del old["rope_type"]
        assert interop.from_hf_config(v4 | {"rope_scaling": old}) == (ours, [])


def test_yarn_reaches_its_factor_times_as_far_as_before():
    """transformers 4.53 takes the ratio of the two lengths for the factor."""
    ours = config(rope_scaling=RopeScaling("yarn", 4.0, 16), max_positions=50)
    assert interop.to_hf_config(ours)["max_position_embeddings"] == 64


def test_static_ntk_is_another_base():
    ours = config(rope_scaling=RopeScaling("ntk", 4.0, 16))
    read, _ = interop.from_hf_config(interop.to_hf_config(ours))
    assert read.rope_scaling is None and read.theta == pytest.approx(1e4 * 4 ** (8 / 6))
    tables = [Transformer(c).position.freqs_cis for c in (ours, read)]
    torch.testing.assert_close(*tables, rtol=0, atol=1e-6)


def test_what_is_missing_is_said():
    old = {k: v for k, v in BASE.items() if k not in ("num_key_value_heads", "hidden_act")}
    read, notes = interop.from_hf_config(old)
    assert read == config(n_kv_heads=6)
    assert notes == ["hidden_act: silu", "num_key_value_heads: 6", "rope_theta: 10000"]


def test_deepseeks_way_to_say_the_attention_factor():
    rope = {"rope_type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 0.4}
    read, _ = interop.from_hf_config(BASE | {"rope_theta": 1e4, "rope_scaling": rope})
    theirs = LlamaConfig(**(BASE | {"rope_parameters": rope | {"rope_theta": 1e4}}))
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    _, magnitude = ROPE_INIT_FUNCTIONS["yarn"](theirs)
    assert read.rope_scaling.magnitude == pytest.approx(magnitude, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attention_bias": True}, "attention_bias True"),
        ({"mlp_bias": True}, "mlp_bias True"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"model_type": "qwen3"}, "model_type 'qwen3'"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding_window 4096"),
        ({"model_type": "mistral"}, "mistral without sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types sliding_attention"),
        ({"qk_norm": True}, "qk_norm True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"rope_interleaved": True}, "rope_interleaved True"),
        ({"embedding_multiplier": 12.0}, "embedding_multiplier 12.0"),
        ({"residual_multiplier": 0.22}, "residual_multiplier 0.22"),
        ({"attention_multiplier": 0.0156}, "attention_multiplier 0.0156"),
        ({"logits_scaling": 8.0}, "logits_scaling 8.0"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
        ({"no_rope_layers": [1, 1, 0]}, "no_rope_layers"),
        ({"num_local_experts": 8}, "num_local_experts 8"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        ({"num_attention_heads": None}, "num_attention_heads is None"),
        ({"hidden_size": "48"}, "hidden_size is '48'"),
        ({"rms_norm_eps": None}, "rms_norm_eps is None"),
        ({"num_key_value_heads": 4}, "n_heads 6 is not divisible by model.n_kv_heads 4"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "type 'longrope'"),
        ({"rope_scaling": {"type": "su"}}, "type 'su'"),
        ({"rope_scaling": {"type": "linear"}}, "linear has no factor"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor is '2', not a number"),
        ({"rope_theta": "1e6"}, "rope_theta is '1e6', not a number"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "'full_attention'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "alpha": 3}}, "'alpha'"),
        ({"rope_scaling": {"type": "yarn", **YARN, "truncate": False}}, "truncate"),
        (
            {"rope_scaling": {"rope_type": "llama3", **YARN}},
            "llama3 has no low_freq_factor",
        ),
        (
            {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
            "rope_theta is 500000.0, and 10000.0",
        ),
        (
            {
                "rope_scaling": {"rope_type": "llama3", **LLAMA3},
                "rope_parameters": {"rope_type": "llama3", **LLAMA3, "factor": 8.0},
            },
            "say different things",
        ),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else "",
)
def test_what_we_cannot_represent_is_refused_by_name(change, words):
    with pytest.raises(ValueError, match=words):
        interop.from_hf_config(BASE | change)


def test_fields_that_nobody_reads_do_not_matter():
    plain, _ = interop.from_hf_config(BASE)
    more = BASE | {"use_cache": True, "pretraining_tp": 1, "attention_bias": False,
                   "sliding_window": None, "transformers.js_config": {}}  # fmt: skip
    assert interop.from_hf_config(more)[0] == plain


# --- params.json ---

PARAMS = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "norm_eps": 1e-5}


def from_params(**changes):
    return interop.from_meta_params(PARAMS | changes, interop.shapes(config()))


def test_metas_parameters():
    llama2, notes = from_params(vocab_size=-1, multiple_of=256)
    assert llama2 == config(max_positions=4096)
    assert notes == ["rope_theta: 10000, as in Llama 1 and 2", "max_positions: 4096"]
    llama3, notes = from_params(rope_theta=5e5)
    assert llama3 == config(max_positions=8192, theta=5e5)
    assert notes == ["max_positions: 8192"]
    scaled, notes = from_params(rope_theta=5e5, use_scaled_rope=True, rope_scaling_factor=8)
    assert notes == ["rope_high_freq_factor: 4", "max_positions: 131072"]
    assert scaled == config(
        max_positions=131072, theta=5e5, rope_scaling=RopeScaling("llama3", 8, 8192)
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_scaled_rope": True}, "without rope_scaling_factor"),
        ({"moe_args": {"num_experts": 16}}, "moe_args"),
        ({"quantization_args": {"scheme": "int8"}}, "quantization_args"),
        ({"n_heads": None}, "n_heads is None"),
        ({"norm_eps": None}, "norm_eps is None"),
    ],
)
def test_metas_parameters_that_are_not_ours(change, words):
    with pytest.raises(ValueError, match=words):
        from_params(**({"rope_theta": 5e5} | change))


def test_the_factors_of_gguf_are_the_scaling():
    scaled = config(head_dim=16, rope_scaling=RopeScaling("llama3", 4.0, 64))
    plain = dataclasses.replace(scaled, rope_scaling=None)
    angles = [Transformer(c).position.freqs_cis[1].angle() for c in (plain, scaled)]
    factors = interop.gguf_rope_factors(scaled)
    assert 1 == factors[0] < factors[2] < factors[-1] == 4
    torch.testing.assert_close(angles[0] / factors, angles[1], rtol=1e-6, atol=0)
    assert interop.gguf_rope_factors(plain) is None
