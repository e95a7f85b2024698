#!/usr/bin/env bash
# onnxruntime-genai goes on from the token before the padding id that ends a prompt, such as EOS.
#
# Versions: onnxruntime-genai 0.18.0; the model is written by onnx 1.23.2.
# Guess, written down after a first look: one prompt that is given as ids has no padding, so the
#     model sees all of it and the text goes on from its last token, whatever pad_token_id is.
# Seen: the model sees all of it: the mask is all ones and the positions count on. (EOS inside a
#     prompt was masked until a fix of 2025.) But the next token is chosen by the logits of the last
#     token that is not pad_token_id. The model builder writes EOS there if a model has no padding,
#     and then a prompt that ends in EOS goes on as if that was not there, while the model keeps it
#     in the cache. A prompt of nothing but EOS goes on from it. No warning.
# For gyre: EOS stands in front of each of its texts, so a prompt that ends in EOS asks for a new
#     text. There, set pad_token_id to an id that no prompt has.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile onnxruntime-genai==0.18.0 onnxruntime==1.32.0 \
    onnx==1.23.2 numpy==2.4.6
env/bin/python - <<'PYTHON'
import json
import os

import numpy as np
import onnx
import onnxruntime_genai as genai
from onnx import TensorProto, helper, numpy_helper

# The best next token of each token. 2 is EOS; 1 is in no prompt.
BEST = {0: 0, 1: 1, 2: 7, 3: 4, 4: 5, 5: 6, 6: 3, 7: 6}
logits = np.zeros((8, 8), np.float32)
for token, best in BEST.items():
    logits[token, best] = 5


def value(name, dtype, *shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def save_model():
    """Save a model whose logits depend on the last token, and that shows mask and positions."""
    caches = [[value(f"{prefix}.0.{part}", TensorProto.FLOAT, "B", 1, length, 1)
               for part in ["key", "value"]]
              for prefix, length in [("past_key_values", "P"), ("present", "S")]]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
         helper.make_node("Identity", ["attention_mask"], ["seen_mask"]),
         helper.make_node("Identity", ["position_ids"], ["seen_positions"]),
         helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
         helper.make_node("Unsqueeze", ["floats", "axes"], ["new"]),
         *[helper.make_node("Concat", [f"past_key_values.0.{part}", "new"],
                            [f"present.0.{part}"], axis=2) for part in ["key", "value"]]],
        "bigrams",
        [value("input_ids", TensorProto.INT64, "B", "T"),
         value("attention_mask", TensorProto.INT64, "B", "S"),
         value("position_ids", TensorProto.INT64, "B", "T"), *caches[0]],
        [value("logits", TensorProto.FLOAT, "B", "T", 8),
         value("seen_mask", TensorProto.INT64, "B", "S"),
         value("seen_positions", TensorProto.INT64, "B", "T"), *caches[1]],
        [numpy_helper.from_array(logits, "table"),
         numpy_helper.from_array(np.array([1, 3]), "axes")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
              "model/model.onnx")


def save_config(pad):
    decoder = {
        "filename": "model.onnx", "head_size": 1, "hidden_size": 1, "num_attention_heads": 1,
        "num_hidden_layers": 1, "num_key_value_heads": 1,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                   "position_ids": "position_ids", "past_key_names": "past_key_values.%d.key",
                   "past_value_names": "past_key_values.%d.value"},
        "outputs": {"logits": "logits", "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value"}}
    config = {"model": {"type": "llama", "vocab_size": 8, "context_length": 64, "bos_token_id": 2,
                        "eos_token_id": 2, "pad_token_id": pad, "decoder": decoder},
              "search": {"max_length": 64, "past_present_share_buffer": False}}
    with open("model/genai_config.json", "w") as file:
        json.dump(config, file)


def continue_prompt(model, prompt):
    """Return the mask and the positions that the model is given, and the next token."""
    generator = genai.Generator(model, genai.GeneratorParams(model))
    generator.append_tokens(np.array([prompt], np.int32))
    seen = [generator.get_output(name)[0].tolist() for name in ["seen_mask", "seen_positions"]]
    generator.generate_next_token()
    return *seen, generator.get_sequence(0)[len(prompt)]


os.mkdir("model")
save_model()
for pad in [2, 1]:
    save_config(pad)
    model = genai.Model("model")
    for prompt, source in [([3, 4], 4), ([3, 2, 4], 4), ([3, 4, 2], 4), ([3, 2, 2], 3), ([2], 2)]:
        mask, positions, token = continue_prompt(model, prompt)
        right = BEST[prompt[-1]]
        print(f"EOS 2, padding {pad}, prompt {prompt}: mask {mask}, positions {positions}, goes on "
              f"with {token}, right is {right}")
        assert mask == [1] * len(prompt) and positions == list(range(len(prompt)))
        assert token == (BEST[source] if pad == 2 else right)
PYTHON
