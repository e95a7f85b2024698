#!/usr/bin/env bash
# torchao: int8 weights for the matrices. Its differences are those of the rounding.
. "$(dirname "$0")/common.sh"
install torchao==0.18.0 transformers==5.23.0 torch==2.13.0
ask <<'END'
from answer import answer, transformers_model
from torchao.quantization import Int8WeightOnlyConfig, quantize_


def to_int8(model):
    quantize_(model, Int8WeightOnlyConfig())
    return model


def load(folder):
    return transformers_model(folder, to_int8)


answer(load, ["int8 weights"])
END
