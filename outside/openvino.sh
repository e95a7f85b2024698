#!/usr/bin/env bash
# OpenVINO, from torch.export of the model of transformers. Without a cache.
. "$(dirname "$0")/common.sh"
install openvino==2026.4.1 transformers==5.24.0 torch==2.13.0
ask <<'END'
import numpy as np
import openvino
from answer import Model, answer, export_logits, greedy_from
from transformers import AutoTokenizer


def load(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    converted = openvino.convert_model(export_logits(folder))
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.compile_model(converted, "CPU", settings)

    def encode(text):
        return tokenizer(text).input_ids

    def logits(ids):
        return compiled([np.array([ids])])[0][0]

    return Model(encode, logits, greedy_from(logits))


answer(load, ["no cache"])
END
