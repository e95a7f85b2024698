#!/usr/bin/env bash
# node-llama-cpp: llama.cpp in JavaScript, as npm brings it. It shows no logits. By
# itself it has a cache in float16 and flash attention, with which near ties go the other way.
. "$(dirname "$0")/common.sh"
install_npm node-llama-cpp@3.22.1
ask_node <<'END'
import { answer, ggufFile } from "./answer.mjs";
import { getLlama } from "node-llama-cpp";

const llama = await getLlama({ gpu: false, build: "never" });

async function load(folder) {
    const model = await llama.loadModel({ modelPath: ggufFile(folder) });
    const context = await model.createContext({
        contextSize: model.trainContextSize, threads: 1,
        experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32",
        flashAttention: false,
    });
    const sequence = context.getSequence();

    async function greedy(ids, newTokens) {
        await sequence.clearHistory();
        const tokens = [];
        for await (const token of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
            tokens.push(token);
            if (tokens.length === newTokens) break;
        }
        return tokens;
    }

    return { encode: (text) => model.tokenize(text), greedy };
}

await answer(load, "cache in float32, no flash attention");
process.exit();
END
