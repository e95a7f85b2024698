#!/usr/bin/env bash
# transformers 4, last: it reads rope_scaling, where version 5 reads rope_parameters.
. "$(dirname "$0")/common.sh"
install transformers==4.57.1 torch==2.13.0
ask <<'END'
from answer import answer, transformers_model

answer(transformers_model)
END
