"""Matrix products with int8 weights, to decode faster on a CPU. For trained models only.

Weights have a scale for each output channel, and embeddings for each token of the vocabulary: the
largest magnitude over 127. Inputs are int8 too, with one scale for each token. Their sums are
exact, in int32, so a token's output does not depend on the other tokens in the product. Compiled
decoding of a few tokens, and a CPU without fast int8 products, multiply the weights with inputs in
float32 instead (model/kernels.py says when). Norms and attention stay in float32.
"""

import torch
from torch import Tensor, nn

from model.kernels import or_faster
from model.transformer import Linear, Transformer


@or_faster
def multiply_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Multiply x (..., I), rounded to int8, with weight (O, I) * scale (O) -> (..., O)."""
    values, scales = quantize(x.reshape(-1, x.shape[-1]))
    out = torch._int_mm(values, weight.T) * scales * scale
    return out.view(*x.shape[:-1], -1)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values (..., I) and scales (..., 1) whose product is close to x (..., I)."""
    # The minimum keeps a row of zeros from becoming nan.
    scale = x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny) / 127
    return (x / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """A `Linear` in int8, without values yet: (..., I) -> (..., O)."""

    weight: Tensor
    scale: Tensor

    def __init__(self, outputs: int, inputs: int):
        super().__init__()
        self.register_buffer("weight", torch.empty(outputs, inputs, dtype=torch.int8))
        self.register_buffer("scale", torch.empty(outputs))

    def forward(self, input: Tensor) -> Tensor:
        return multiply_int8(input, self.weight, self.scale)


class Int8Embedding(Int8Linear):
    """An `nn.Embedding` in int8, without values yet: ids (...) -> (..., I)."""

    def forward(self, input: Tensor) -> Tensor:
        return self.weight[input] * self.scale[input, None]


def to_int8(model: Transformer) -> Transformer:
    """Replace every matrix of `model` by one in int8, and return the model.

    A tied model gets an output matrix of its own, which has the memory of its embeddings. The new
    layers have no values yet: `int8_tensors` makes them from the old weights.
    """
    if model.config.tie_embeddings:
        model.add_module("output", Int8Linear(*model.tok_embeddings.weight.shape))
    for name, child in list(model.named_modules()):
        if isinstance(child, Linear) or child is model.tok_embeddings:
            kind = Int8Linear if isinstance(child, Linear) else Int8Embedding
            quantized = kind(*child.weight.shape)
            for key, value in vars(child).items():
                if "hooks" in key:  # those that an encoding has registered
                    vars(quantized)[key] = value
            model.set_submodule(name, quantized)
    return model


def int8_tensors(model: Transformer, name: str, weight: Tensor) -> dict[str, Tensor]:
    """Return the entries in the state dict of an int8 `model` that replace a float `weight`.

    `name` is the name of the weight in the float model.
    """
    path = name.removesuffix(".weight")
    module = dict(model.named_modules()).get(path)
    if not isinstance(module, Int8Linear):
        return {name: weight.float()}
    values = torch.empty(weight.shape, dtype=torch.int8)
    scale = torch.empty(len(weight), 1)
    # In parts, so that their copies in float32 take little memory.
    for start in range(0, len(weight), 512):
        part = slice(start, start + 512)
        values[part], scale[part] = quantize(weight[part].float())
    entries = {f"{path}.weight": values, f"{path}.scale": scale[:, 0]}
    if path == "tok_embeddings" and model.config.tie_embeddings:
        entries |= {"output.weight": values, "output.scale": scale[:, 0]}
    return entries
