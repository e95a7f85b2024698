#!/usr/bin/env bash
# @huggingface/transformers, in JavaScript: its tokenizer reads the folder, and its models are ONNX
# files, which optimum-onnx makes first.
. "$(dirname "$0")/common.sh"
install "optimum-onnx[onnxruntime]==0.1.0" onnxruntime==1.32.0 transformers==4.57.6 torch==2.13.0
for source in "$OUTSIDE_MADE"/*/hf; do
    onnx=$folder/models/$(basename "$(dirname "$source")")/onnx
    "$folder/env/bin/optimum-cli" export onnx --model "$source" --task text-generation-with-past \
        "$onnx" > "$log" 2>&1 || finish
    cp "$source"/*.json "$onnx/.."
done
install_npm @huggingface/transformers@4.3.2
ask_node <<'END'
import { basename } from "node:path";
import { AutoModelForCausalLM, AutoTokenizer, Tensor, env } from "@huggingface/transformers";
import { answer } from "./answer.mjs";

env.allowRemoteModels = false;
env.localModelPath = "models";

async function load(folder) {
    const name = basename(folder);
    const tokenizer = await AutoTokenizer.from_pretrained(name);
    const model = await AutoModelForCausalLM.from_pretrained(name, { dtype: "fp32" });

    async function greedy(ids, newTokens) {
        const shape = [1, ids.length];
        const tokens = await model.generate({
            inputs: new Tensor("int64", BigInt64Array.from(ids.map(BigInt)), shape),
            attention_mask: new Tensor("int64", new BigInt64Array(ids.length).fill(1n), shape),
            do_sample: false, max_new_tokens: newTokens,
        });
        return tokens.tolist()[0].slice(ids.length);
    }

    return { encode: (text) => tokenizer.encode(text), greedy };
}

await answer(load, "ONNX files of optimum-onnx 0.1.0");
END
