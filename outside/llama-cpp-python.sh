#!/usr/bin/env bash
# llama-cpp-python: llama.cpp, compiled here, which takes ten minutes of two cores and more. pip keeps
# the wheel, so that it is compiled once. Its cache is in float32 here, and in float16 by itself.
. "$(dirname "$0")/common.sh"
install llama-cpp-python==0.3.36
ask <<'END'
import numpy as np
from answer import Model, answer, gguf_file
from llama_cpp import Llama


def load(folder):
    theirs = Llama(gguf_file(folder), n_ctx=0, logits_all=True, type_k=0, type_v=0, verbose=False,
                   n_threads=1)

    def encode(text):
        return theirs.tokenize(text.encode(), add_bos=False, special=False)

    def logits(ids):
        theirs.reset()
        theirs.eval(ids)
        return np.array(theirs.scores[: len(ids)])

    def greedy(ids, new_tokens):
        tokens = [int(logits(ids)[-1].argmax())]
        while len(tokens) < new_tokens:
            theirs.eval(tokens[-1:])
            tokens.append(int(np.argmax(theirs.scores[theirs.n_tokens - 1])))
        return tokens

    return Model(encode, logits, greedy)


answer(load, ["cache in float32"])
END
