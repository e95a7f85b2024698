"""Our weights under the names and in the layout of Hugging Face's LLaMA.

Meta's code, and ours, turns neighbouring channels (2i, 2i + 1) of a head; Hugging Face turns the
channels (i, i + D/2). The same attention needs the rows of wq and wk in another order.
"""

from torch import Tensor

from model.transformer import ModelConfig

NAMES = {
    "tok_embeddings.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attention.wq.weight": "self_attn.q_proj.weight",
    "attention.wk.weight": "self_attn.k_proj.weight",
    "attention.wv.weight": "self_attn.v_proj.weight",
    "attention.wo.weight": "self_attn.o_proj.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
    "feed_forward.w3.weight": "mlp.up_proj.weight",
    "attention_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
}


def interleaved_to_half(weight: Tensor, head_dim: int) -> Tensor:
    """The rows of wq or wk (heads * D, C), from neighbouring pairs to halves, head by head.

    Works for any number of heads: the head width decides, not how many query heads share a key.
    """
    pairs = weight.unflatten(0, (-1, head_dim // 2, 2))  # (H, D/2, 2, C)
    return pairs.transpose(1, 2).flatten(0, 2)


def to_hf(weights: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A state dict of ours, renamed and permuted for `transformers.LlamaForCausalLM`.

    Raises ValueError for an encoding other than plain RoPE, which that class does not have.
    """
    if config.position != "rope" or config.partial != 1:
        raise ValueError(
            f"model.position {config.position} with model.partial {config.partial} has no "
            "counterpart in LlamaForCausalLM: only rope with partial 1 does"
        )
    renamed = {}
    for name, weight in weights.items():
        if name in NAMES:
            renamed[NAMES[name]] = weight
            continue
        _, layer, rest = name.split(".", 2)
        if rest in ("attention.wq.weight", "attention.wk.weight"):
            weight = interleaved_to_half(weight, config.head_dim)
        renamed[f"model.layers.{layer}.{LAYER_NAMES[rest]}"] = weight
    return renamed
