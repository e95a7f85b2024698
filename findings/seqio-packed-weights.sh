#!/usr/bin/env bash
# seqio's packing moves loss weights away from their tokens: zeros are cut out, and fractions become 0.
#
# Versions: seqio 0.0.20, tensorflow 2.21.0.
# Guess before the run: `trim_and_pack_dataset` packs all features of an example side by side, so that
#     each token of a packed row has the weight that it had before, zeros and fractions too: 0 is
#     padding behind an example only. (That zeros inside of one count as padding was suspected after
#     reading the source.)
# Seen: each feature is cast to int32, cut after as many elements as it has numbers other than 0, and
#     packed by itself. Of the weights 0, 0, 1, 1, 1 the first three are left, and those of the next
#     example begin two places too early. Where the weights of prompts are 0 and those of answers 1, and
#     both are equally long, 12 % of the tokens of answers have the weight 1 in the packed rows. A
#     weight of 0.5 is 0. A token with the id 0 costs its example the last token, EOS. Nothing is said.
#     (That 0 is padding is documented; that it may not be inside of a feature is not.)
# For gyre: it trains on all tokens of a row, and 0 is a token like others. There, add 1 to weights of 0
#     and 1 before they are packed, and subtract it where the segment is not 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tensorflow==2.21.0 tensorflow-text==2.21.1 \
    tensorflow-datasets==4.9.10 clu==0.0.12 flax==0.12.8 jax==0.10.2 optax==0.2.8 numpy==2.4.6 \
    sentencepiece==0.2.3 pyglove==0.4.5 editdistance==0.8.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps seqio==0.0.20
cd "$folder"
TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu env/bin/python - <<'PYTHON'
import numpy as np
import tensorflow as tf
from seqio import utils

LENGTH = 64
N_EXAMPLES = 200


def pack(examples):
    """Return the packed rows of the examples, each a list of tokens and one of weights."""
    signature = {"targets": tf.TensorSpec([None], tf.int32),
                 "weights": tf.TensorSpec([None], tf.float32)}
    data = tf.data.Dataset.from_generator(lambda: iter(examples), output_signature=signature)
    packed = utils.trim_and_pack_dataset(data, {"targets": LENGTH, "weights": LENGTH})
    return list(packed.as_numpy_iterator())


[row] = pack([{"targets": [5, 6, 7, 8, 1], "weights": [0, 0, 1, 1, 1]},
              {"targets": [9, 4, 3, 1], "weights": [1, 0.5, 1, 1]}])
for key in ["targets", "targets_segment_ids", "weights", "weights_segment_ids"]:
    print(f"{key}: {row[key][:9].tolist()}")
assert row["targets"][:9].tolist() == [5, 6, 7, 8, 1, 9, 4, 3, 1]
assert row["weights"][:9].tolist() == [0, 0, 1, 1, 0, 1, 0, 0, 0]

# Prompts are tokens 2, with weight 0, and answers are tokens 3, with weight 1.
generator = np.random.default_rng(0)
examples = []
for _ in range(N_EXAMPLES):
    n_prompt, n_answer = generator.integers(4, 13, 2)
    examples.append({"targets": [2] * n_prompt + [3] * n_answer,
                     "weights": [0.0] * n_prompt + [1.0] * n_answer})
rows = pack(examples)
tokens = np.concatenate([row["targets"] for row in rows])
weights = np.concatenate([row["weights"] for row in rows])
n_answers = sum(example["targets"].count(3) for example in examples)
assert (tokens == 3).sum() == n_answers
kept = (weights[tokens == 3] == 1).mean()
print(f"{kept:.0%} of the tokens with weight 1 have it in the packed rows")
assert kept < 0.25

[row] = pack([{"targets": [7, 0, 8, 1], "weights": [1] * 4}, {"targets": [9, 1], "weights": [1] * 2}])
print(f"with an id of 0 inside: {row['targets'][:6].tolist()}")
assert row["targets"][:6].tolist() == [7, 0, 8, 9, 1, 0]
PYTHON
