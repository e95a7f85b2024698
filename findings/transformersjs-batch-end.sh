#!/usr/bin/env bash
# In a batch, transformers.js goes on after the end of a text, until all rows end in the same step.
#
# Versions: @huggingface/transformers 4.3.1 (Node.js 20); the model is written by onnx 1.23.2.
# Guess before the run: a row of a batch that has generated its EOS is padded from then on, as in
#     Python, and generate() returns when every row has ended. (That it might look at the last
#     tokens only was suspected after reading the loop.)
# Seen: alone, each prompt ends at its EOS. In a batch, the shorter text goes on behind its EOS with
#     what the model says next, and the call stops only if all rows have EOS as their last token at
#     once, or at max_new_tokens. Nothing is padded. Decoded without special tokens, the text has a
#     tail that is not an answer to anything.
# For gyre: there, generate one prompt at a time, or cut each row of a batch at its first EOS.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile onnx==1.23.2 numpy==2.4.6
npm install --silent --no-fund --no-audit --ignore-scripts @huggingface/transformers@4.3.1
env/bin/python - <<'PYTHON'
import json
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The best next token of each token. 2 is EOS: 4 ends, and 7 and 3 lead to it by 3 and 1 steps more.
BEST = {0: 0, 1: 1, 2: 5, 3: 4, 4: 2, 5: 6, 6: 7, 7: 3}
logits = np.zeros((8, 8), np.float32)
for token, best in BEST.items():
    logits[token, best] = 5


def value(name, dtype, *shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def cache(prefix, length):
    return [value(f"{prefix}.0.{part}", TensorProto.FLOAT, "B", 1, length, 1)
            for part in ["key", "value"]]


graph = helper.make_graph(
    [helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
     helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
     helper.make_node("Unsqueeze", ["floats", "axes"], ["new"]),
     *[helper.make_node("Concat", [f"past_key_values.0.{part}", "new"], [f"present.0.{part}"],
                        axis=2) for part in ["key", "value"]]],
    "bigrams",
    [value("input_ids", TensorProto.INT64, "B", "T"),
     value("attention_mask", TensorProto.INT64, "B", "S"), *cache("past_key_values", "P")],
    [value("logits", TensorProto.FLOAT, "B", "T", 8), *cache("present", "S")],
    [numpy_helper.from_array(logits, "table"), numpy_helper.from_array(np.array([1, 3]), "axes")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
os.makedirs("models/bigrams/onnx")
onnx.save(model, "models/bigrams/onnx/model.onnx")
tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
sizes = {"vocab_size": 8, "hidden_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1,
         "num_key_value_heads": 1, "head_dim": 1}
with open("models/bigrams/config.json", "w") as file:
    json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | sizes | tokens, file)
with open("models/bigrams/generation_config.json", "w") as file:
    json.dump(tokens, file)
PYTHON
cat > generate.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { AutoModelForCausalLM, Tensor, env } from "@huggingface/transformers";
env.localModelPath = `${process.cwd()}/models/`;
env.allowRemoteModels = false;
const model = await AutoModelForCausalLM.from_pretrained("bigrams", { dtype: "fp32" });

async function generate(...firstTokens) {
  const shape = [firstTokens.length, 1];
  const texts = await model.generate({
    input_ids: new Tensor("int64", BigInt64Array.from(firstTokens, BigInt), shape),
    attention_mask: new Tensor("int64", BigInt64Array.from(firstTokens, () => 1n), shape),
    max_new_tokens: 12,
  });
  return texts.tolist().map((row) => row.map(Number).join(" "));
}

const [first, second, both, equal] = [
  await generate(3), await generate(7), await generate(3, 7), await generate(3, 3)];
console.log(`2 is EOS. Alone: ${first} | ${second}`);
console.log(`in a batch: ${both.join(" | ")}; twice the same prompt: ${equal.join(" | ")}`);
assert.deepStrictEqual([first, second], [["3 4 2"], ["7 3 4 2"]]);
assert.deepStrictEqual(both, ["3 4 2 5 6 7 3 4 2 5 6 7 3", "7 3 4 2 5 6 7 3 4 2 5 6 7"]);
assert.deepStrictEqual(equal, ["3 4 2", "3 4 2"]);
JAVASCRIPT
node generate.mjs
