#!/usr/bin/env bash
# mlx-lm, on the CPU of Linux: what Macs run.
. "$(dirname "$0")/common.sh"
install mlx-lm==0.32.2 "mlx[cpu]==0.32.4" transformers==5.23.0
ask <<'END'
import mlx.core as mx
import mlx_lm
from answer import Model, answer
from mlx_lm.generate import generate_step


def load(folder):
    model, tokenizer = mlx_lm.load(str(folder / "hf"))

    def encode(text):
        return tokenizer.encode(text)

    def logits(ids):
        return model(mx.array([ids]))[0].tolist()

    def greedy(ids, new_tokens):
        steps = generate_step(mx.array(ids), model, max_tokens=new_tokens)
        return [int(token) for token, _ in steps]

    return Model(encode, logits, greedy)


answer(load)
END
