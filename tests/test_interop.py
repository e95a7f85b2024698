"""What Hugging Face's own model makes of our weights."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from model.interop import interleaved_to_half, to_hf
from model.transformer import ModelConfig, Transformer

# Heads over key/value heads is 3, unlike their number, so that no mix-up of the two can pass.
SHAPES = {
    "grouped": {"n_heads": 6, "n_kv_heads": 2},
    "one key for all": {"n_heads": 4, "n_kv_heads": 1},
    "wide heads": {"n_heads": 3, "n_kv_heads": 3, "head_dim": 32},
    "untied": {"n_heads": 6, "n_kv_heads": 2, "tie_embeddings": False, "theta": 500.0},
}


def ours(**shape) -> Transformer:
    model = Transformer(ModelConfig(dim=48, n_layers=3, vocab_size=97, max_positions=40, **shape))
    model.init_weights(seed=2)
    with torch.no_grad():
        for parameter in model.layers.parameters():
            if parameter.ndim > 1:
                parameter.mul_(7)  # attention is flat at the start, and would hide a wrong order
    return model.eval()


def theirs(c: ModelConfig, weights: dict[str, torch.Tensor]) -> LlamaForCausalLM:
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.dim, intermediate_size=c.hidden_dim,
        num_hidden_layers=c.n_layers, num_attention_heads=c.n_heads, head_dim=c.head_dim,
        num_key_value_heads=c.n_kv_heads, rms_norm_eps=c.norm_eps,
        max_position_embeddings=c.max_positions, tie_word_embeddings=c.tie_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": c.theta},
    ))  # fmt: skip
    if c.tie_embeddings:
        weights = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    model.load_state_dict(weights)
    return model.eval()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_logits_are_the_same_over_the_whole_context(shape):
    model = ours(**shape)
    tokens = torch.randint(97, (2, 40), generator=torch.Generator().manual_seed(0))
    expected = model(tokens)
    weights = to_hf(model.state_dict(), model.config)
    got = theirs(model.config, weights)(tokens).logits
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)

    for i in range(3):  # and without the permutation they are not
        for name, key in (("wq", "q_proj"), ("wk", "k_proj")):
            plain = model.state_dict()[f"layers.{i}.attention.{name}.weight"]
            weights[f"model.layers.{i}.self_attn.{key}.weight"] = plain
    wrong = theirs(model.config, weights)(tokens).logits
    assert (wrong - expected).abs().max() > 0.1


def test_rows_move_from_pairs_to_halves():
    rows = torch.arange(2 * 6)[:, None]
    assert interleaved_to_half(rows, 6).flatten().tolist() == [0, 2, 4, 1, 3, 5,
                                                               6, 8, 10, 7, 9, 11]  # fmt: skip


@pytest.mark.parametrize("options", [{"position": "alibi"}, {"partial": 0.5}])
def test_other_encodings_are_refused_by_name(options):
    model = ours(n_heads=6, **options)
    with pytest.raises(ValueError, match=f"{model.config.position} with model.partial"):
        to_hf(model.state_dict(), model.config)
