#!/usr/bin/env bash
# With gradient accumulation, Keras runs its schedules and its average once a micro-batch.
#
# Versions: keras 3.15.1 on jax 0.10.2.
# Guess before the run: learning-rate schedules and use_ema=True count updates, as weight decay,
#     Adam's bias correction and `optimizer.iterations` do. 400 equal updates give the same weights
#     with and without accumulation.
# Seen: a schedule is asked with the number of micro-batches. With gradient_accumulation_steps=8, a
#     decay over 400 steps is over after 50 updates, and 350 updates do nothing; nothing is said.
#     The average moves 8 times between two updates, each time towards the same weights: a momentum
#     of 0.99 acts as 0.99**8 = 0.92. fit() leaves the average in the model at its end.
# For gyre: a step of its schedules is an update. In Keras, make schedules 8 times as long then, and
#     ask for a momentum of 0.99 ** (1 / 8).
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


def train(n_micro, scheduled):
    """Return the weight that fit() leaves after N_UPDATES updates, averaged or scheduled."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    schedule = keras.optimizers.schedules.PolynomialDecay(RATE, N_UPDATES, 0.0)
    optimizer = keras.optimizers.SGD(
        schedule if scheduled else RATE, use_ema=not scheduled, ema_momentum=MOMENTUM,
        gradient_accumulation_steps=n_micro if n_micro > 1 else None)
    model.compile(optimizer=optimizer, loss="mse")
    shape = (N_UPDATES * n_micro, 1)
    model.fit(np.ones(shape), np.full(shape, TARGET), batch_size=1, verbose=0)
    assert int(optimizer.iterations) == N_UPDATES
    return model.get_weights()[0].item()


def reference(n_counts, scheduled):
    """Return the same, where an update counts so many times for the schedule or the average."""
    weight = 0.0
    average = 0.0
    for update in range(N_UPDATES):
        rate = RATE
        if scheduled:
            rate *= max(0.0, 1 - (n_counts * (update + 1) - 1) / N_UPDATES)
        weight -= rate * 2 * (weight - TARGET)
        if update == 0:
            average = weight
        for _ in range(n_counts):
            average = MOMENTUM * average + (1 - MOMENTUM) * weight
    return weight if scheduled else average


for scheduled in [True, False]:
    name = "linear decay" if scheduled else "average"
    for n_micro in [1, 8]:
        seen = train(n_micro, scheduled)
        print(f"{name}, {N_UPDATES} updates of {n_micro} micro-batches: weight {seen:.2f}; counted "
              f"by updates it is {reference(1, scheduled):.2f}, by micro-batches "
              f"{reference(n_micro, scheduled):.2f}")
        assert math.isclose(seen, reference(n_micro, scheduled), rel_tol=0.01)
        assert n_micro == 1 or not math.isclose(seen, reference(1, scheduled), rel_tol=0.1)
PYTHON
