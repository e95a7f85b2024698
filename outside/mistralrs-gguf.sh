#!/usr/bin/env bash
# mistral.rs, in Rust: a GGUF.
. "$(dirname "$0")/common.sh"
install mistralrs==0.9.5
name="mistralrs, GGUF"
export MISTRALRS_CPU_KV_F32=1
ask <<'END'
from pathlib import Path

from answer import answer, gguf_file, mistralrs_model
from mistralrs import ModelDType, Which


def load(folder):
    file = Path(gguf_file(folder))
    return mistralrs_model(Which.GGUF(str(folder), file.name, dtype=ModelDType.F32))


answer(load, ["cache in float32"])
END
