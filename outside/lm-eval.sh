#!/usr/bin/env bash
# lm-eval: benchmarks. Its window is said, too: it is not the length that the model was trained on.
. "$(dirname "$0")/common.sh"
install lm-eval==0.4.13 transformers==5.23.0 torch==2.13.0 accelerate==1.15.0
ask <<'END'
import torch
from answer import Model, answer
from lm_eval.models.huggingface import HFLM

windows = ["max_length by itself"]


def load(folder):
    theirs = HFLM(pretrained=str(folder / "hf"), dtype="float32", device="cpu")
    windows.append(f"{folder.name} {theirs.max_length}")

    def logits(ids):
        return theirs._model_call(torch.tensor([ids]))[0].tolist()

    def greedy(ids, new_tokens):
        prompt = torch.tensor([ids])
        theirs.model.generation_config.eos_token_id = None
        tokens = theirs._model_generate(prompt, len(ids) + new_tokens, stop=[])
        return tokens[0, len(ids):].tolist()

    return Model(theirs.tok_encode, logits, greedy)


answer(load, windows)
END
