#!/usr/bin/env bash
# coremltools converts std(), var(), argmax() and argmin() of a whole tensor into something else.
#
# Versions: coremltools 9.0, torch 2.13.0.
# Guess before the run: constants that the converter computes are those of torch, in float32, and
#     functions without `dim` are over the whole tensor. (That var(correction=2), which others have
#     recorded, and log_softmax might be wrong, was known; std() and argmax() were not.)
# Seen: by tracing and by torch.export, `x.std()` and `x.var()` are divided by n instead of n - 1:
#     a correction that isn't given counts as none. With `unbiased=True` or a `dim` they are right.
#     `x.argmax()` and `x.argmin()` are over the last axis: four numbers for a matrix of 4 x 3,
#     where one is due, and an addition broadcasts them without a word. Sums, means, norms and
#     maxima of the whole tensor are right. So it is with inputs: the program has no factor behind
#     the mean of squares, and an argmax with axis -1.
# For gyre: it exports no Core ML. There, write `unbiased=True`, and `x.flatten().argmax(0)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile coremltools==9.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - 2> /dev/null <<'PYTHON'
import logging

import coremltools
import numpy as np
import torch

logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
torch.manual_seed(0)
CONSTANT = torch.randn(3, 4)


class Model(torch.nn.Module):
    """Add a function of a constant, or of the input."""

    def __init__(self, function, of_input):
        super().__init__()
        self.register_buffer("constant", CONSTANT)
        self.function = function
        self.of_input = of_input

    def forward(self, x):
        return x + self.function(x if self.of_input else self.constant)


def convert(function, frontend, of_input=False):
    model = Model(function, of_input).eval()
    x = torch.zeros(CONSTANT.shape)
    options = {"convert_to": "milinternal",
               "compute_precision": coremltools.precision.FLOAT32}
    if frontend == "trace":
        return coremltools.convert(torch.jit.trace(model, x), **options,
                                   inputs=[coremltools.TensorType(shape=x.shape)])
    exported = torch.export.export(model, (x,)).run_decompositions({})
    return coremltools.convert(exported, **options)


def folded(program):
    """Return the constant that is added to the input."""
    for operation in program.functions["main"].operations:
        if operation.op_type == "add":
            for operand in [operation.x, operation.y]:
                if operand.val is not None:
                    return np.asarray(operand.val)
    raise SystemExit("the constant is not folded")


right = {"sum": torch.sum, "mean": torch.mean, "max": torch.max, "norm": torch.norm,
         "std(unbiased=True)": lambda x: x.std(unbiased=True),
         "std(1, keepdim=True)": lambda x: x.std(1, keepdim=True),
         "flatten().argmax(0)": lambda x: x.flatten().argmax(0)}
# transposed, so that four numbers can be added to a matrix of 3 x 4
wrong = {"std": torch.std, "var": torch.var, "argmax": lambda x: x.T.argmax(),
         "argmin": lambda x: x.T.argmin()}
for frontend in ["trace", "export"]:
    for name, function in {**right, **wrong}.items():
        actual = folded(convert(function, frontend))
        expected = function(CONSTANT).numpy()
        equal = actual.size == expected.size and np.allclose(actual, expected, rtol=1e-5)
        texts = [" ".join(f"{number:.4g}" for number in array.ravel())
                 for array in [actual, expected]]
        print(f"{frontend}, {name}: {texts[0]}; due: {texts[1]}")
        assert equal == (name in right)
    n = CONSTANT.numel()
    ratio = folded(convert(torch.var, frontend)).item() / CONSTANT.var().item()
    print(f"{frontend}: var is {ratio:.4f} of due; (n - 1) / n is {(n - 1) / n:.4f}")
    assert abs(ratio - (n - 1) / n) < 1e-5
    last_axis = CONSTANT.T.argmax(-1)
    assert folded(convert(wrong["argmax"], frontend)).tolist() == last_axis.tolist()

    operations = convert(torch.var, frontend, of_input=True).functions["main"].operations
    kinds = [operation.op_type for operation in operations if operation.op_type != "const"]
    print(f"{frontend}, var of the input: {kinds}")
    assert kinds == ["reduce_mean", "sub", "square", "reduce_mean", "add"]
    operations = convert(wrong["argmax"], frontend, of_input=True).functions["main"].operations
    argmax = [operation for operation in operations if operation.op_type == "reduce_argmax"][0]
    print(f"{frontend}, argmax of the input: axis {argmax.axis.val}, shape "
          f"{argmax.outputs[0].shape}")
    assert argmax.axis.val == -1 and argmax.outputs[0].shape == (4,)
PYTHON
