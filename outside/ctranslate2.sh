#!/usr/bin/env bash
# ctranslate2: a fast runtime for CPUs, behind faster-whisper and LibreTranslate.
. "$(dirname "$0")/common.sh"
install ctranslate2==4.8.5 transformers==5.23.0 torch==2.13.0
ask <<'END'
import ctranslate2
import numpy as np
from answer import Model, answer
from ctranslate2.converters import TransformersConverter
from transformers import AutoTokenizer


def load(folder):
    converted = f"{folder.name}-converted"
    TransformersConverter(str(folder / "hf")).convert(converted)
    generator = ctranslate2.Generator(converted, device="cpu", compute_type="float32")
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")

    def encode(text):
        return tokenizer(text).input_ids

    def logits(ids):
        return np.array(generator.forward_batch([ids]))[0]

    def greedy(ids, new_tokens):
        prompt = tokenizer.convert_ids_to_tokens(ids)
        [result] = generator.generate_batch(
            [prompt], max_length=new_tokens, min_length=new_tokens, sampling_topk=1,
            include_prompt_in_result=False)
        return result.sequences_ids[0]

    return Model(encode, logits, greedy)


answer(load)
END
