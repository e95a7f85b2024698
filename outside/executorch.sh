#!/usr/bin/env bash
# ExecuTorch: what phones run, here with XNNPACK on this machine. Without a cache.
. "$(dirname "$0")/common.sh"
install executorch==1.5.1 transformers==5.24.0 torch==2.13.0
ask <<'END'
import torch
from answer import Model, answer, export_logits, greedy_from
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from transformers import AutoTokenizer


def load(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    lowered = to_edge_transform_and_lower(export_logits(folder), partitioner=[XnnpackPartitioner()])
    file = f"{folder.name}.pte"
    with open(file, "wb") as stream:
        stream.write(lowered.to_executorch().buffer)
    method = Runtime.get().load_program(file).load_method("forward")

    def encode(text):
        return tokenizer(text).input_ids

    def logits(ids):
        return method.execute([torch.tensor([ids])])[0][0]

    return Model(encode, logits, greedy_from(logits))


answer(load, ["XNNPACK, no cache"])
END
