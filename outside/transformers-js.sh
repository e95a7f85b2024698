#!/usr/bin/env bash
# @huggingface/transformers, in JavaScript: its tokenizer reads the folder. Its models are ONNX.
. "$(dirname "$0")/common.sh"
install_npm @huggingface/transformers@4.3.2
ask_node <<'END'
import { basename } from "node:path";
import { AutoModelForCausalLM, AutoTokenizer, env } from "@huggingface/transformers";
import { answer } from "./answer.mjs";

env.allowRemoteModels = false;
env.localModelPath = process.env.OUTSIDE_MADE;

async function load(folder) {
    const name = `${basename(folder)}/hf`;
    const tokenizer = await AutoTokenizer.from_pretrained(name);

    async function greedy(ids, newTokens) {
        await AutoModelForCausalLM.from_pretrained(name, { dtype: "fp32" });
        throw new Error("it loads the model: compare its tokens here");
    }

    return { encode: (text) => tokenizer.encode(text), greedy };
}

await answer(load, "the tokenizer reads the folder; models are read as ONNX only");
END
