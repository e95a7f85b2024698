#!/usr/bin/env bash
# transformers.js documents top_p, typical_p and epsilon_cutoff, and samples as if they weren't there.
#
# Versions: @huggingface/transformers 4.3.2 (Node.js 20); the model is written by onnx 1.23.2.
# Guess before the run: where the most likely token has a probability of 0.6, `top_p: 0.5` and `epsilon_cutoff: 0.3`
#     sample that token only, and `typical_p: 0.3` that one and the second. (That top-p is not added was read before.)
# Seen: shares of tokens are those without the options, also with `top_p: 0.01`: 40 % of the samples should not be
#     there with the first two, 20 % with the third. Nothing is said. `temperature` and `top_k` are right. The default
#     top_k is 50, so that with a larger vocabulary the unlikely tokens are cut by rank alone.
# Cause: the lines that add the warper are commented out behind a TODO (src/models/modeling_utils.js,
#     `_get_logits_processor`), and `TopPLogitsWarper` has no `_call`; nothing reads the other two options.
# For gyre: there, an export's `generation_config.json` with top_p is sampled without it. Take a small top_k, or
#     write a LogitsProcessor.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile onnx==1.23.2 numpy==2.4.6
npm install --silent --no-fund --no-audit --ignore-scripts @huggingface/transformers@4.3.2
env/bin/python - <<'PYTHON'
import json
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# whatever came before, the next token is 3 to 7 with these probabilities
logits = np.full((8, 8), -np.inf, np.float32)
logits[:, 3:] = np.log([0.6, 0.2, 0.1, 0.06, 0.04])


def value(name, dtype, *shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def cache(prefix, length):
    return [value(f"{prefix}.0.{part}", TensorProto.FLOAT, "B", 1, length, 1) for part in ["key", "value"]]


graph = helper.make_graph(
    [helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
     helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
     helper.make_node("Unsqueeze", ["floats", "axes"], ["new"]),
     *[helper.make_node("Concat", [f"past_key_values.0.{part}", "new"], [f"present.0.{part}"], axis=2)
       for part in ["key", "value"]]],
    "unigrams",
    [value("input_ids", TensorProto.INT64, "B", "T"), value("attention_mask", TensorProto.INT64, "B", "S"),
     *cache("past_key_values", "P")],
    [value("logits", TensorProto.FLOAT, "B", "T", 8), *cache("present", "S")],
    [numpy_helper.from_array(logits, "table"), numpy_helper.from_array(np.array([1, 3]), "axes")])
os.makedirs("models/unigrams/onnx")
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
          "models/unigrams/onnx/model.onnx")
tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
sizes = {"vocab_size": 8, "hidden_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1,
         "num_key_value_heads": 1, "head_dim": 1}
with open("models/unigrams/config.json", "w") as file:
    json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | sizes | tokens, file)
with open("models/unigrams/generation_config.json", "w") as file:
    json.dump(tokens, file)
PYTHON
cat > generate.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { AutoModelForCausalLM, Tensor, env } from "@huggingface/transformers";
env.localModelPath = `${process.cwd()}/models/`;
env.allowRemoteModels = false;
const model = await AutoModelForCausalLM.from_pretrained("unigrams", { dtype: "fp32" });
const nTokens = 2000;

async function measure(options) {
  const texts = await model.generate({
    input_ids: new Tensor("int64", [1n], [1, 1]), attention_mask: new Tensor("int64", [1n], [1, 1]),
    max_new_tokens: nTokens, do_sample: true, ...options,
  });
  const counts = new Array(8).fill(0);
  texts.tolist()[0].slice(1).forEach(token => { counts[Number(token)] += 1 / nTokens; });
  console.log(`${JSON.stringify(options)}: shares ${counts.slice(3).map(share => share.toFixed(3)).join(", ")}`);
  return counts.slice(3);
}

const due = [0.6, 0.2, 0.1, 0.06, 0.04];
const near = (found, expected) => found.every((share, i) => Math.abs(share - expected[i]) < 0.06);
assert(near(await measure({}), due));
const root = due.map(Math.sqrt);
const total = root.reduce((sum, value) => sum + value);
assert(near(await measure({ temperature: 2 }), root.map(value => value / total)));
assert.deepEqual((await measure({ top_k: 2 })).slice(2), [0, 0, 0]);
for (const options of [{ top_p: 0.5 }, { top_p: 0.01 }, { typical_p: 0.3 }, { epsilon_cutoff: 0.3 }]) {
  assert(near(await measure(options), due));
}
JAVASCRIPT
node generate.mjs
