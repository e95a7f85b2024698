#!/usr/bin/env bash
# onnxslim and onnxsim make one noise of two, and onnxslim freezes noise of a fixed shape.
#
# Versions: onnxslim 0.1.98, onnxsim 0.8.1, onnx 1.23.2, onnxruntime 1.32.0.
# Guess before the run: a simplified model computes what the model did: two RandomNormalLike are two
#     draws, and noise is another one in each run. (That they are merged was suspected after reading
#     the source of onnxslim.)
# Seen: two RandomNormalLike with the same input become one node in both, so that two noises of one
#     tensor are equal in every element. If that input is constant, as for noise of a fixed shape,
#     onnxslim draws once while it simplifies and stores the numbers: the model has the same noise
#     in each run, for ever, and a generator makes one sample.
# For gyre: it exports no ONNX. There, pass noise as an input of the model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnxslim==0.1.98 onnxsim==0.8.1 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx.parser
import onnxruntime
import onnxsim
import onnxslim

LIKE_INPUT = """
<ir_version: 8, opset_import: ["": 17]>
add_noise (float[4, 64] x) => (float[4, 64] first, float[4, 64] second)
{
    one = RandomNormalLike (x)
    other = RandomNormalLike (x)
    first = Add (x, one)
    second = Add (x, other)
}
"""
LIKE_CONSTANT = """
<ir_version: 8, opset_import: ["": 17]>
add_noise (float[4, 64] x) => (float[4, 64] first, float[4, 64] second)
{
    shape = Constant <value_ints = [4, 64]> ()
    zeros = ConstantOfShape (shape)
    one = RandomNormalLike (zeros)
    other = RandomNormalLike (zeros)
    first = Add (x, one)
    second = Add (x, other)
}
"""

FORMS = {"as it is": lambda model: model, "onnxslim": onnxslim.slim,
         "onnxsim": lambda model: onnxsim.simplify(model)[0]}
x = np.zeros((4, 64), np.float32)
for name, text, one_noise, frozen in [
        ("noise like an input", LIKE_INPUT, ("onnxslim", "onnxsim"), ()),
        ("noise like a constant", LIKE_CONSTANT, ("onnxsim",), ("onnxslim",))]:
    for form, simplify in FORMS.items():
        model = onnx.parser.parse_model(text)
        onnx.checker.check_model(model, full_check=True)
        model = simplify(model)
        n_draws = sum(node.op_type == "RandomNormalLike" for node in model.graph.node)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        first, second = session.run(None, {"x": x})
        again = session.run(None, {"x": x})[0]
        print(f"{name}, {form}: {n_draws} draws; deviation between the two outputs "
              f"{(first - second).std():.2f}, between two runs {(first - again).std():.2f}, "
              "1.41 expected for both")
        assert abs((first - second).std() - (0 if form in one_noise else 2**0.5)) < 0.3
        assert abs((first - again).std() - (0 if form in frozen else 2**0.5)) < 0.3
PYTHON
