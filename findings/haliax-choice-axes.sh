#!/usr/bin/env bash
# haliax's `random.choice` along an inner axis gives the samples of one row to another row.
#
# Versions: haliax 1.4.dev453, jax 0.10.2, equinox 0.13.8.
# Guess before the run: of a matrix with a row for each text, choosing positions along the second axis
#     gives samples whose axes say which text they are of, whatever the order of the axes in memory.
#     (That the names come in the wrong order was suspected after reading the source.)
# Seen: jax puts the new axes where the old one was, and haliax names them as if they were in front. If
#     there are as many samples as texts (8), the two axes have each other's names: sample i of text j is
#     sample j of text i, so that 7 of 8 samples are of another text. With other sizes, it is an
#     error. If the axis is the first one, the names are right.
# For gyre: it has no named axes. There, choose positions by `randint`, and `take` them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile haliax==1.4.dev453 jax==0.10.2 equinox==0.13.8 \
    jaxtyping==0.3.11 jmp==0.0.4 aqtp==0.9.0 safetensors==0.8.0 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import haliax as hax
import jax
import numpy as np

N_TEXTS = 8
LENGTH = 20

Text = hax.Axis("text", N_TEXTS)
Position = hax.Axis("position", LENGTH)
owner = hax.arange(Text).broadcast_to((Text, Position))  # each token says which text it is of


def share(array, n_samples):
    """Return the share of the samples that are of the text under whose name they are."""
    Sample = hax.Axis("sample", n_samples)
    chosen = hax.random.choice(jax.random.key(0), (Sample,), array, Position)
    owners = np.array(chosen.rearrange((Text, Sample)).array)
    return (owners == np.arange(N_TEXTS)[:, None]).mean()


inner = share(owner, N_TEXTS)
outer = share(owner.rearrange((Position, Text)), N_TEXTS)
print(f"samples that are of their text: {inner:.0%} along the second axis, {outer:.0%} along the "
      f"first")
assert outer == 1
assert inner == 1 / N_TEXTS
try:
    share(owner, N_TEXTS - 1)
except Exception as error:
    print(f"with another number of samples: {type(error).__name__}")
else:
    raise SystemExit("another number of samples is no error any more")
PYTHON
