#!/usr/bin/env bash
# transformers, given a GGUF: it makes a model and a tokenizer of its own from it.
. "$(dirname "$0")/common.sh"
install transformers==5.24.0 torch==2.13.0 gguf==0.19.0 accelerate==1.15.0
name="transformers, gguf_file="
ask <<'END'
from pathlib import Path

from answer import answer, gguf_file, transformers_model


def load(folder):
    return transformers_model(folder, gguf_file=Path(gguf_file(folder)).name)


answer(load)
END
