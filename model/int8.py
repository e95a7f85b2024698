"""Matrix products with int8 weights, to decode faster on a CPU. For trained models only.

Weights have a scale for each output channel: the largest magnitude over 127. Compiled decoding of
up to 4 tokens multiplies them with inputs in float32, on a CPU with AVX-512. All other inputs are
int8 too, with one scale for each token. Their sums are exact, in int32, so a token's output does
not depend on the other tokens in the product. Embeddings, norms and attention stay in float32.
"""

import torch
from torch import Tensor, nn

from model.kernels import choose_linear, linear_by_sums
from model.transformer import Linear, Transformer

LARGEST = 127
# For more tokens, and with narrower vectors for any, the library's products are faster.
MAX_FLOAT_TOKENS = 4 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 0


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values (..., I) and scales (..., 1) whose product is close to x (..., I)."""
    # The minimum keeps a row of zeros from becoming nan.
    scale = x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny) / LARGEST
    return (x / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """A `Linear` in int8, without values yet: (..., I) -> (..., O)."""

    weight: Tensor
    scale: Tensor

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.register_buffer("weight", torch.empty(outputs, inputs, dtype=torch.int8))
        self.register_buffer("scale", torch.empty(outputs))

    def forward(self, input: Tensor) -> Tensor:
        few = input[..., 0].numel() <= MAX_FLOAT_TOKENS
        if few and choose_linear(input, self.weight) is linear_by_sums:
            return linear_by_sums(input, self.weight) * self.scale  # reads a byte for each weight
        values, scale = quantize(input.reshape(-1, input.shape[-1]))
        out = torch._int_mm(values, self.weight.T) * scale * self.scale
        return out.view(*input.shape[:-1], -1)


def to_int8(model: Transformer) -> Transformer:
    """Replace every `Linear` of `model` by an `Int8Linear`, and return the model.

    A tied model gets an int8 output matrix and keeps its embeddings. The new layers have no values
    yet: `int8_tensors` makes them from the old weights.
    """
    if model.config.tie_embeddings:
        model.add_module("output", Int8Linear(model.config.dim, model.config.vocab_size))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear):
                quantized = Int8Linear(child.in_features, child.out_features)
                quantized._forward_pre_hooks = child._forward_pre_hooks  # of an encoding
                setattr(parent, name, quantized)
    return model


def int8_tensors(model: Transformer, name: str, weight: Tensor) -> dict[str, Tensor]:
    """Return the entries in the state dict of an int8 `model` that replace a float `weight`.

    `name` is the name of the weight in the float model. Tied embeddings give three entries: the
    embeddings themselves, and the values and scales of the output matrix.
    """
    modules, path = dict(model.named_modules()), name.removesuffix(".weight")
    tensors = {} if isinstance(modules.get(path), Int8Linear) else {name: weight}
    if name == "tok_embeddings.weight" and model.config.tie_embeddings:
        path = "output"
    if isinstance(modules.get(path), Int8Linear):
        parts = [quantize(rows.float()) for rows in weight.split(512)]  # copies of a part only
        values, scale = map(torch.cat, zip(*parts, strict=True))
        tensors |= {f"{path}.weight": values, f"{path}.scale": scale[:, 0]}
    return tensors
