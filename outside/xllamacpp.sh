#!/usr/bin/env bash
# xllamacpp: the server of llama.cpp in Python, compiled by its authors. It shows no logits.
. "$(dirname "$0")/common.sh"
install xllamacpp==2026.10.11549
ask <<'END'
import json
import urllib.request

import xllamacpp
from answer import Model, answer, gguf_file


def load(folder):
    settings = xllamacpp.CommonParams()
    settings.model.path = gguf_file(folder)
    settings.n_ctx = 512
    settings.n_parallel = 1
    settings.warmup = False
    settings.cpuparams.n_threads = 1
    settings.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(settings)

    def post(path, question):
        request = urllib.request.Request(f"{server.listening_address}{path}",
                                         json.dumps(question).encode())
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    def encode(text):
        question = {"content": text, "add_special": False, "parse_special": False}
        return post("/tokenize", question)["tokens"]

    def greedy(ids, new_tokens):
        question = {"prompt": ids, "n_predict": new_tokens, "temperature": 0, "ignore_eos": True,
                    "return_tokens": True, "cache_prompt": False}
        return post("/completion", question)["tokens"]

    return Model(encode, None, greedy)


answer(load, ["cache in float32, no flash attention"])
END
