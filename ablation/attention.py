"""The weights of attention: who looks at whom, which SDPA itself does not return."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gyre.measure import Scorer
from model.transformer import Transformer


@torch.inference_mode()
def attention_to_previous(scorer: Scorer, spans: Tensor) -> list[list[float]]:
    """Return the share of attention on the token before, for each head of each layer: the mean
    over the queries of windows of T tokens."""
    config = scorer.trained.config
    total = torch.zeros(config.n_layers, config.n_heads, dtype=torch.float64)
    for rows in scorer.rows(spans, scorer.seq_len):
        for layer, weights in enumerate(attention_weights(scorer.trained, rows[:, :-1])):
            previous = weights.diagonal(-1, dim1=-2, dim2=-1)  # (B, H, T - 1)
            total[layer] += previous.cpu().double().mean(-1).sum(0)
    return (total / len(spans)).tolist()


class AttentionWeights(TorchFunctionMode):
    """Within `with`, record the weights of every attention, which SDPA itself does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            xq, xk, _, mask = args  # (B, H, T, D), (B, H_kv, T, D)
            xk = xk.repeat_interleave(xq.shape[1] // xk.shape[1], dim=1)
            scores = torch.einsum("bhtd,bhsd->bhts", xq, xk) * xq.shape[-1] ** -0.5
            if mask is None:  # causal
                mask = torch.full(scores.shape[-2:], -torch.inf, device=xq.device).triu(1)
            self.layers.append((scores + mask).softmax(-1))
        return func(*args, **(kwargs or {}))


def attention_weights(model: Transformer, tokens: Tensor) -> list[Tensor]:
    """Tokens (B, T) -> the attention weights of each layer, (B, H, T, T)."""
    with AttentionWeights() as weights:
        model.hidden_states(tokens)
    return weights.layers
