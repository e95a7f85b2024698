#!/usr/bin/env bash
# With `inplace=True`, all chains of posteriors count their steps together.
#
# Versions: posteriors 0.1.3, torch 2.13.0, tensordict 0.15.3, optree 0.20.0, torchopt 0.7.3.
# Guess before the run: each state that `init` makes begins at step 0, whatever was sampled before,
#     so that a schedule of the rate begins anew with each chain, and chains that are run in turn
#     each have their own step. (That states might share it was suspected after reading the source.)
# Seen: the step of a new state is one tensor for the whole class, and `inplace=True` counts in it.
#     The second chain goes on with the rate at which the first one ended: with a rate that falls
#     as 1 / step, a chain of 500 steps that starts at 10 ends at 0, and the next three at 5.0, 6.7
#     and 7.5. Four chains in turn see every fourth step of the schedule. The log posterior of all
#     states is that of the chain that moved last. New states begin there with `inplace=False` too,
#     once a chain has been run in place. No warning.
# For gyre: it samples no posteriors. There, make states by hand, with `step=torch.tensor(0)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 tensordict==0.15.3 \
    optree==0.20.0 cloudpickle==3.1.3 pyvers==0.2.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps posteriors==0.1.3 torchopt==0.7.3 \
    graphviz==0.21
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from posteriors.sgmcmc import sgld

STEPS, START, SIZE = 500, 10.0, 1000
torch.set_num_threads(1)
torch.manual_seed(0)
seen = []


def log_posterior(params, batch):
    """A standard normal distribution in each dimension."""
    return -0.5 * params["x"].square().sum(), torch.tensor([])


def rate(step):
    seen.append(int(step))
    return 1 / (1 + int(step))


def sample(inplace):
    """Return the mean over the dimensions at the end of a chain, and its first steps."""
    seen.clear()
    transform = sgld.build(log_posterior, rate)
    state = transform.init({"x": torch.full((SIZE,), START)})
    for _ in range(STEPS):
        state, _ = transform.update(state, None, inplace=inplace)
    return state.params["x"].mean().item(), seen[0], state


for inplace in [False, True]:
    chains = [sample(inplace) for _ in range(4)]
    print(f"inplace={inplace}: chains of {STEPS} steps that start at {START:.0f} end at",
          ", ".join(f"{mean:.2f} (first step {first})" for mean, first, _ in chains))
    firsts = [first for _, first, _ in chains]
    if inplace:
        assert firsts == [0, 500, 1000, 1500] and chains[0][0] < 0.5
        assert all(mean > 4.5 for mean, _, _ in chains[1:])
        values = [state.log_posterior.item() for _, _, state in chains]
        own = [log_posterior(state.params, None)[0].item() for _, _, state in chains]
        print(f"log posteriors of the four states: {values}; of their samples: {own}")
        assert len(set(values)) == 1 and len(set(own)) == 4
    else:
        assert firsts == [0] * 4 and all(mean < 0.5 for mean, _, _ in chains)

mean, first, _ = sample(False)
print(f"a chain with inplace=False behind them: ends at {mean:.2f}, first step {first}")
assert first == 2000 and mean > 7

seen.clear()
transform = sgld.build(log_posterior, rate)
states = [transform.init({"x": torch.zeros(1)}) for _ in range(4)]
for _ in range(3):
    for state in states:
        transform.update(state, None, inplace=True)
steps = [step - seen[0] for step in seen]
print(f"steps that four chains in turn see, less the first one: {steps}")
assert steps == list(range(12))
PYTHON
