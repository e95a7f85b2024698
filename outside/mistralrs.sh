#!/usr/bin/env bash
# mistral.rs, in Rust: the folder.
. "$(dirname "$0")/common.sh"
install mistralrs==0.9.5
export MISTRALRS_CPU_KV_F32=1
ask <<'END'
from answer import answer, mistralrs_model
from mistralrs import ModelDType, Which


def load(folder):
    return mistralrs_model(Which.Plain(str(folder / "hf"), dtype=ModelDType.F32))


answer(load, ["cache in float32"])
END
