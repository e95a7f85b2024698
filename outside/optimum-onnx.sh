#!/usr/bin/env bash
# optimum-onnx: the folder as an ONNX file, run by onnxruntime with its own cache.
. "$(dirname "$0")/common.sh"
install "optimum-onnx[onnxruntime]==0.1.0" onnxruntime==1.32.0 transformers==4.57.6 torch==2.13.0
ask <<'END'
import torch
from answer import Model, answer
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import AutoTokenizer


def load(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    theirs = ORTModelForCausalLM.from_pretrained(folder / "hf", export=True)
    theirs.generation_config.eos_token_id = None

    def encode(text):
        return tokenizer(text).input_ids

    def logits(ids):
        prompt = torch.tensor([ids])
        positions = torch.arange(len(ids))[None]
        inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
        return theirs(**inputs, position_ids=positions).logits[0].tolist()

    def greedy(ids, new_tokens):
        prompt = torch.tensor([ids])
        mask = torch.ones_like(prompt)
        tokens = theirs.generate(input_ids=prompt, attention_mask=mask, do_sample=False,
                                 max_new_tokens=new_tokens)
        return tokens[0, len(ids):].tolist()

    return Model(encode, logits, greedy)


answer(load, ["onnxruntime 1.32.0"])
END
