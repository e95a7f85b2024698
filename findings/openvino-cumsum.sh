#!/usr/bin/env bash
# Converted by OpenVINO, the running count of a condition is a condition: position ids are all 1.
#
# Versions: openvino 2026.4.1, beside torch 2.13.0.
# Guess before the run: if convert_model raises no error, the converted module computes what torch
#     computes, up to rounding. A running sum of a Boolean tensor is a count, of integers.
# Seen: cumsum of a Boolean tensor is Boolean, from a traced module and from an exported program. So
#     (ids != pad).cumsum(1) * (ids != pad), the positions of RoBERTa and its kin, is 1 for all
#     tokens, and a table indexed by a count is masked instead, to another shape. With
#     dtype=torch.long all is right. Also in silence, a traced softplus ignores its beta and its
#     threshold, var its correction, and round its decimals. No warning.
# For gyre: its exports count nothing. Elsewhere, write cumsum(1, dtype=torch.long).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6 packaging==25.0
env/bin/pip install --quiet --no-compile --no-deps openvino==2026.4.1  # without its telemetry
env/bin/python - <<'PYTHON'
import numpy as np
import openvino
import torch
import torch.nn.functional as F

PAD = 0
IDS = torch.tensor([[PAD, PAD, 5, 7, 6], [5, 5, 7, 7, 5]])
VALUES = torch.tensor([[-3.0, -1.234, 0.0, 1.5, 2.0]])
TABLE = torch.arange(12.0).reshape(6, 2)


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, tensor):
        return self.function(tensor)


def convert(function, tensor, exported):
    """Return what the converted function makes of the tensor."""
    module = Module(function).eval()
    if exported:
        model = openvino.convert_model(torch.export.export(module, (tensor,)))
    else:
        model = openvino.convert_model(module, example_input=(tensor,))
    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([tensor.numpy()])[0]


def compare(name, function, tensor, same, exported=False):
    right = function(tensor).numpy()
    seen = convert(function, tensor, exported)
    print(f"{name}, {'exported' if exported else 'traced'}: torch {right.ravel().tolist()[:10]}, "
          f"shape {right.shape}; OpenVINO {seen.ravel().tolist()[:10]}, shape {seen.shape}")
    equal = seen.shape == right.shape and np.allclose(seen.astype(float), right.astype(float),
                                                      rtol=1e-5, atol=1e-5)
    assert equal == same, name
    return seen


for exported in [False, True]:
    compare("count", lambda ids: (ids != PAD).cumsum(1), IDS, False, exported)
    positions = compare("positions", lambda ids: (ids != PAD).cumsum(1) * (ids != PAD), IDS, False,
                        exported)
    assert set(positions.ravel().astype(int).tolist()) == {0, 1}
    compare("with a dtype", lambda ids: (ids != PAD).cumsum(1, dtype=torch.long) * (ids != PAD),
            IDS, True, exported)
rows = compare("rows of a table", lambda ids: TABLE[(ids != PAD).cumsum(1)], IDS, False)
assert rows.shape != (*IDS.shape, 2)
compare("softplus", F.softplus, VALUES, True)
compare("softplus with beta=4", lambda x: F.softplus(x, beta=4.0), VALUES, False)
compare("softplus with threshold=1", lambda x: F.softplus(x, threshold=1.0), VALUES, False)
compare("variance", lambda x: x.var(1), VALUES, True)
compare("variance with correction=2", lambda x: x.var(1, correction=2), VALUES, False)
compare("round to decimals=1", lambda x: torch.round(x, decimals=1), VALUES, False)
PYTHON
