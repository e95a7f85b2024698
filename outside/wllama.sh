#!/usr/bin/env bash
# wllama: llama.cpp in a browser, here a headless Chromium. It is given the text of a prompt, and shows
# neither ids of texts nor logits.
. "$(dirname "$0")/common.sh"
install_npm @wllama/wllama@3.13.0
cat > "$folder/page.html" <<'END'
<!doctype html>
<script type="module">
import { Wllama } from "/node_modules/@wllama/wllama/esm/index.js";

// Each answer is sent with the request for the next question.
let said = {};
for (;;) {
    const sent = { method: "POST", body: JSON.stringify(said) };
    const question = await (await fetch("/next", sent)).json();
    try {
        said = { tokens: await greedy(question) };
    } catch (error) {
        said = { error: `${error.name}: ${error.message}` };
    }
}

async function greedy({ file, text, newTokens }) {
    const wllama = new Wllama({ default: "/node_modules/@wllama/wllama/esm/wasm/wllama.wasm" });
    const blob = await (await fetch(file)).blob();
    await wllama.loadModel([blob], {
        n_ctx: 512, n_threads: 1, flash_attn: false, cache_type_k: "f32", cache_type_v: "f32",
    });
    const answer = await wllama.createCompletion({
        prompt: text, max_tokens: newTokens, temperature: 0, ignore_eos: true, logprobs: 1,
    });
    await wllama.exit();
    return answer.choices[0].logprobs.content.map((token) => token.id);
}
</script>
END
ask_node <<'END'
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { answer, ggufFile } from "./answer.mjs";

const PATIENCE = 300_000; // milliseconds
const TYPES = { html: "text/html", js: "text/javascript", wasm: "application/wasm" };
let ready; // how to hand the page its next question
let settle; // how to hand back the answer to the last one
let pageWaits = new Promise((resolve) => { ready = resolve; });

const server = createServer(async (request, response) => {
    if (request.method === "POST") {
        const said = JSON.parse(await text(request));
        ready(response);
        if (settle) settle(said);
        return;
    }
    const path = request.url === "/" ? "page.html" : decodeURI(request.url).slice(1);
    const file = path.startsWith("made/") ? `${process.env.OUTSIDE_MADE}/${path.slice(5)}` : path;
    if (!existsSync(file)) return response.writeHead(404).end();
    const type = TYPES[path.split(".").pop()] ?? "application/octet-stream";
    response.writeHead(200, { "Content-Type": type }).end(readFileSync(file));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const chromium = spawn("chromium", [
    "--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${process.cwd()}/profile`,
    `http://127.0.0.1:${server.address().port}/`,
], { stdio: "inherit" });

async function ask(question) {
    const response = await pageWaits;
    pageWaits = new Promise((resolve) => { ready = resolve; });
    const said = await new Promise((resolve, reject) => {
        settle = resolve;
        setTimeout(() => reject(new Error("no answer within five minutes")), PATIENCE).unref();
        response.end(JSON.stringify(question));
    });
    if (said.error) throw new Error(said.error);
    return said.tokens;
}

async function load(folder) {
    const file = ggufFile(folder).replace(process.env.OUTSIDE_MADE, "/made");
    return { greedy: (ids, newTokens, text) => ask({ file, text, newTokens }) };
}

await answer(load, "in Chromium; cache in float32, no flash attention");
chromium.kill();
process.exit();
END
