#!/usr/bin/env bash
# With gradient accumulation, Keras moves its average of the weights at every micro-batch.
#
# Versions: keras 3.15.1 on jax 0.10.2.
# Guess before the run: use_ema=True averages once an update, as weight decay, clipping and the
#     learning rate count updates. 400 updates give one average, with or without accumulation.
# Seen: with gradient_accumulation_steps=8, the average moves 8 times between two updates, each time
#     towards the same weights. A momentum of 0.99 acts as 0.99**8 = 0.92: it averages over 12
#     updates instead of 100. fit() leaves the average in the model at its end, so the weights that
#     are saved differ, though all updates were the same.
# For gyre: it keeps no average of weights. In Keras, ask for a momentum of 0.99 ** (1 / 8) then.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_HOME="$folder" KERAS_BACKEND=jax "$folder/env/bin/python" - <<'PYTHON'
import math

import keras
import numpy as np

RATE = 0.001
MOMENTUM = 0.99
N_UPDATES = 400
TARGET = 100.0


def train(n_micro):
    """Return the weight that fit() leaves after N_UPDATES equal updates."""
    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    optimizer = keras.optimizers.SGD(
        RATE, use_ema=True, ema_momentum=MOMENTUM,
        gradient_accumulation_steps=n_micro if n_micro > 1 else None)
    model.compile(optimizer=optimizer, loss="mse")
    shape = (N_UPDATES * n_micro, 1)
    model.fit(np.ones(shape), np.full(shape, TARGET), batch_size=1, verbose=0)
    assert int(optimizer.iterations) == N_UPDATES
    return model.get_weights()[0].item()


def reference(n_averagings):
    """Return the average of the weights, moved so many times after each update."""
    weight = 0.0
    average = None
    for _ in range(N_UPDATES):
        weight -= RATE * 2 * (weight - TARGET)
        if average is None:
            average = weight
        for _ in range(n_averagings):
            average = MOMENTUM * average + (1 - MOMENTUM) * weight
    return average


for n_micro in [1, 2, 8]:
    seen = train(n_micro)
    print(f"{N_UPDATES} updates of {n_micro} micro-batches: weight {seen:.2f}; averaged once an "
          f"update it is {reference(1):.2f}, {n_micro} times an update {reference(n_micro):.2f}")
    assert math.isclose(seen, reference(n_micro), rel_tol=0.005)
    assert n_micro == 1 or not math.isclose(seen, reference(1), rel_tol=0.03)
PYTHON
