#!/usr/bin/env bash
# OpenVINO, from torch.export of the model of transformers. Without a cache.
. "$(dirname "$0")/common.sh"
install openvino==2026.4.1 transformers==5.23.0 torch==2.13.0
ask <<'END'
import numpy as np
import openvino
import torch
from answer import Model, answer
from transformers import AutoModelForCausalLM, AutoTokenizer


class Logits(torch.nn.Module):
    """From ids to logits, without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


def load(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    model = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
    length = torch.export.Dim("length", min=2, max=4096)
    program = torch.export.export(Logits(model), (torch.ones(1, 8, dtype=torch.long),),
                                  dynamic_shapes={"ids": {1: length}})
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.compile_model(openvino.convert_model(program), "CPU", settings)

    def encode(text):
        return tokenizer(text).input_ids

    def logits(ids):
        return compiled([np.array([ids])])[0][0]

    def greedy(ids, new_tokens):
        ids = list(ids)
        for _ in range(new_tokens):
            ids.append(int(logits(ids)[-1].argmax()))
        return ids[-new_tokens:]

    return Model(encode, logits, greedy)


answer(load)
END
