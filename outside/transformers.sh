#!/usr/bin/env bash
# transformers 5, newest: what most programs in Python load the folder with.
. "$(dirname "$0")/common.sh"
install transformers==5.24.0 torch==2.13.0
ask <<'END'
from answer import answer, transformers_model

answer(transformers_model)
END
