#!/usr/bin/env bash
# onnx's reference evaluator gives capped scores of Attention where the raw ones are asked for.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: the evaluator that comes with the standard and onnxruntime compute the same Attention,
#     with and without a softcap, in each of the four modes of `qk_matmul_output_mode`.
# Seen: modes 1 to 3 agree. In mode 0, "the output of qk matmul", the evaluator gives mode 1, the scores
#     behind the softcap: with a softcap of 1.5 they are off by more than 1, and none is above 1.5.
#     onnxruntime gives the product. Without a softcap, and in the main output, both agree.
# Cause: the variable that is returned as the scores is overwritten by the capped ones, in all modes
#     (onnx/reference/ops/op_attention.py, `_compute_attention`, line 351); modes 2 and 3 replace it later.
# For gyre: it exports no ONNX. There, take onnxruntime for the scores.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
HOME="$folder" "$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

HEAD_SIZE, SOFTCAP = 8, 1.5
generator = np.random.default_rng(0)
inputs = {name: generator.normal(size=(1, 2, 5, HEAD_SIZE)).astype(np.float32) for name in "qkv"}
raw = inputs["q"] @ inputs["k"].transpose(0, 1, 3, 2) / HEAD_SIZE**0.5
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()]
results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "scores")]
for softcap in (0.0, SOFTCAP):
    capped = softcap * np.tanh(raw / softcap) if softcap else raw
    weights = np.exp(capped) / np.exp(capped).sum(-1, keepdims=True)
    for mode, due in enumerate([raw, capped, capped, weights]):
        node = helper.make_node("Attention", list(inputs), ["y", "", "", "scores"], softcap=softcap,
                                qk_matmul_output_mode=mode)
        model = helper.make_model(helper.make_graph([node], "attention", values, results),
                                  opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        y, scores = session.run(None, inputs)
        y_reference, scores_reference = ReferenceEvaluator(model).run(None, inputs)
        error, error_reference = abs(scores - due).max(), abs(scores_reference - due).max()
        print(f"softcap {softcap}, mode {mode}: error of onnxruntime {error:.1e}, of the evaluator {error_reference:.1e}")
        assert np.allclose(y, y_reference, atol=1e-5) and np.allclose(y, weights @ inputs["v"], atol=1e-5)
        assert error < 1e-5
        if softcap and mode == 0:
            assert error_reference > 1 and np.allclose(scores_reference, capped, atol=1e-5)
            print(f"largest score: {abs(raw).max():.2f} due, {abs(scores_reference).max():.2f} from the evaluator")
        else:
            assert error_reference < 1e-5
PYTHON
