#!/usr/bin/env bash
# keras-hub's LLaMA ignores its position scaling, and "dynamic" scales all channels alike.
#
# Versions: keras-hub 0.32.0, keras 3.15.1 on tensorflow 2.21.0.
# Guess before the run: LlamaBackbone(rope_position_scaling_factor=4) divides all frequencies by 4,
#     as RotaryEmbedding(scaling_factor=4) does. rope_type="dynamic" raises the base, so that the
#     fastest channel stays as it is. (Both were suspected to be otherwise after reading the
#     source.)
# Seen: the backbones of LLaMA 2 and 3 give the same output with every position scaling, although
#     their documents offer it; Mistral's and Qwen's scale. "dynamic" divides every channel by 4 **
#     (D / (D - 2)), the power by which the base should be multiplied: linear scaling by 4.18 for
#     heads of 64 channels, at all lengths. No warning in either case.
# For gyre: a run with linear scaling becomes another model in a LlamaBackbone; the llama3 scaling
#     has its own arguments.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile keras-hub==0.32.0 keras==3.15.1 \
    tensorflow==2.21.0 numpy==2.4.6
export KERAS_HOME="$folder" KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3
"$folder/env/bin/python" - <<'PYTHON'
import keras
import keras_hub
import numpy as np

HEAD_WIDTH = 64
FACTOR = 4.0
LENGTH = 12
SHARED = {"vocabulary_size": 32, "num_layers": 1, "num_query_heads": 2, "num_key_value_heads": 2,
          "hidden_dim": 2 * HEAD_WIDTH, "intermediate_dim": 64}

plain = 10_000 ** (-np.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
by_base = plain * FACTOR ** (-np.arange(HEAD_WIDTH // 2) / (HEAD_WIDTH // 2 - 1))
expected = {"linear": plain / FACTOR, "dynamic": by_base}
x = np.zeros((1, LENGTH, 1, HEAD_WIDTH), np.float32)
x[..., :HEAD_WIDTH // 2] = 1
for rope_type in ["linear", "dynamic"]:
    layer = keras_hub.layers.RotaryEmbedding(scaling_factor=FACTOR, rope_type=rope_type)
    cos, sin = np.split(np.asarray(layer(x))[0, 1, 0], 2)
    divided_by = plain / np.arctan2(sin, cos)
    should = plain / expected[rope_type]
    print(f"{rope_type}: the fastest, the middle and the slowest channel are divided by "
          f"{divided_by[0]:.2f}, {divided_by[16]:.2f} and {divided_by[-1]:.2f}; expected were "
          f"{should[0]:.2f}, {should[16]:.2f} and {should[-1]:.2f}")
    if rope_type == "linear":
        np.testing.assert_allclose(divided_by, should, rtol=1e-4)
    else:
        np.testing.assert_allclose(divided_by, FACTOR ** (HEAD_WIDTH / (HEAD_WIDTH - 2)),
                                   rtol=1e-4)

tokens = np.random.default_rng(0).integers(0, 32, (1, LENGTH))
inputs = {"token_ids": tokens, "padding_mask": np.ones((1, LENGTH), np.int32)}
for name, argument in [("LlamaBackbone", "rope_position_scaling_factor"),
                       ("Llama3Backbone", "rope_position_scaling_factor"),
                       ("MistralBackbone", "rope_scaling_factor"),
                       ("QwenBackbone", "rope_scaling_factor")]:
    outputs = []
    weights = None
    for factor in [1.0, FACTOR]:
        keras.utils.set_random_seed(0)
        model = getattr(keras_hub.models, name)(**SHARED, **{argument: factor})
        if weights is None:
            random = np.random.default_rng(1)
            weights = [random.normal(0, 0.3, w.shape).astype(np.float32)
                       for w in model.get_weights()]
        model.set_weights(weights)
        outputs.append(np.asarray(model(inputs)))
    change = np.abs(outputs[0] - outputs[1]).max()
    print(f"{name}: {argument}={FACTOR:.0f} changes its output by {change:.1e}")
    if name.startswith("Llama"):
        assert change == 0
    else:
        assert change > 0.1
PYTHON
