"""Matrix products in int8, to decode several rows faster on a CPU. For trained models only.

Weights have a scale for each output channel, inputs have one for each token. A scale is the
largest magnitude over 127. Sums are exact, in int32, so a token's output does not depend on the
other tokens in the product. Embeddings, norms and attention stay in float32.
"""

import torch
from torch import Tensor, nn

from model.transformer import Linear, Transformer

LARGEST = 127


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (..., I) -> int8 values (..., I) and scales (..., 1) whose product is close to x."""
    # The minimum keeps a row of zeros from becoming nan.
    scale = x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny) / LARGEST
    return (x / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """A `Linear` with this weight (O, I), in int8: (..., I) -> (..., O)."""

    weight: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        values, scale = quantize(weight.detach().float())
        self.register_buffer("weight", values)
        self.register_buffer("scale", scale[:, 0])

    def forward(self, input: Tensor) -> Tensor:
        values, scale = quantize(input.reshape(-1, input.shape[-1]))
        out = torch._int_mm(values, self.weight.T) * scale * self.scale
        return out.view(*input.shape[:-1], -1)


def to_int8(model: Transformer) -> Transformer:
    """Replace every matrix of `model` by its int8 form, in place, and return the model.

    A tied model gets an int8 output matrix and keeps its embeddings.
    """
    if model.config.tie_embeddings:
        model.add_module("output", Int8Linear(model.tok_embeddings.weight))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear):
                setattr(parent, name, Int8Linear(child.weight))
    return model
