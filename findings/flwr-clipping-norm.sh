#!/usr/bin/env bash
# In Flower, adaptive clipping moves the clipping norm away from its quantile.
#
# Versions: flwr 1.42.0, numpy 2.4.6.
# Guess before the run: the clipping norm of DifferentialPrivacyServerSideAdaptiveClipping rises
#     while more clients are clipped than `target_clipped_quantile` and falls while fewer are, as in
#     the paper, and so arrives at the median norm of the updates from any start. (That the sign is
#     reversed was suspected after reading the source.)
# Seen: the rule of the paper is applied to the share of clipped clients, where the paper counts
#     those that are not clipped. From the recommended start of 0.1, with updates of norm 1, all are
#     clipped, the norm falls in every round, and after 100 rounds it is 5e-6: the model stands
#     still. From 10 it rises to 220,000, so that nothing is clipped, and the noise rises with it.
#     The strategy with clipping by clients and the message-based ones have the same rule.
# For gyre: it has no federated training. There, take DifferentialPrivacyServerSideFixedClipping.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile flwr==1.42.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import logging

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg

N_CLIENTS, N_ROUNDS, WIDTH, RATE, TARGET = 20, 100, 10, 0.2, 0.5
logging.disable(logging.CRITICAL)


def make_updates(generator):
    """Return an update for each client, with norms around 1, most of them between 0.5 and 2."""
    updates = generator.normal(size=(N_CLIENTS, WIDTH)) + 1.0
    norms = np.exp(0.3 * generator.normal(size=(N_CLIENTS, 1)))
    return updates / np.linalg.norm(updates, axis=1, keepdims=True) * norms


def run_flower(start):
    """Return the clipping norm after all rounds, and how far the last round moved the model."""
    generator = np.random.default_rng(0)
    strategy = DifferentialPrivacyServerSideAdaptiveClipping(
        FedAvg(), noise_multiplier=0.0, num_sampled_clients=N_CLIENTS,
        initial_clipping_norm=start, target_clipped_quantile=TARGET, clip_norm_lr=RATE)
    for server_round in range(1, N_ROUNDS + 1):
        strategy.current_round_params = [np.zeros(WIDTH)]
        results = [(None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([update]), 1, {}))
                   for update in make_updates(generator)]
        parameters, _ = strategy.aggregate_fit(server_round, results, [])
    moved = np.linalg.norm(parameters_to_ndarrays(parameters)[0])
    return strategy.clipping_norm, moved


def run_paper(start):
    generator = np.random.default_rng(0)
    clip = start
    for _ in range(N_ROUNDS):
        updates = make_updates(generator)
        norms = np.linalg.norm(updates, axis=1, keepdims=True)
        moved = np.linalg.norm((updates * np.minimum(1, clip / norms)).mean(0))
        clip *= np.exp(-RATE * ((norms <= clip).mean() - TARGET))
    return clip, moved


print("median norm of the updates: 1")
for start in (0.1, 10.0):
    for name, run in [("paper", run_paper), ("Flower", run_flower)]:
        clip, moved = run(start)
        print(f"{name}, from {start}: clipping norm {clip:.3g}, the last round moves by "
              f"{moved:.2g}")
        if run is run_paper:
            assert 0.8 < clip < 1.25 and moved > 0.1
        elif start < 1:
            assert clip < 1e-4 and moved < 1e-4
        else:
            assert clip > 1e4
PYTHON
