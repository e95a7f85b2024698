#!/usr/bin/env bash
# Betty's `roll_back=True` rolls nothing back: inner problems take two steps instead of one.
#
# Versions: betty-ml 0.1.1, torch 2.13.0.
# Guess before the run: with EngineConfig(roll_back=True), the inner problem takes a trial step, the
#     outer problem is updated by it, and the inner problem goes back and takes its step again with
#     the new outer parameters. So in 10 iterations it takes 10 steps. (That it does not go back was
#     suspected after reading the source.)
# Seen: it takes 20. The states are kept by `state_dict()`, whose tensors are those of the model and
#     of the optimizer, not copies. After the trial step, they are loaded onto themselves, and the
#     real step comes on top, with the same batch. On a quadratic, the parameters are those of this
#     recursion, to nine digits: an inner one that should be at 0.35 is at 0.12. Adam counts 19 steps
#     in 10 iterations, as its state is empty before the first one. The outer problem learns from
#     trial steps that begin elsewhere.
# For gyre: it has no inner loops. There, leave `roll_back` off, or copy in `cache_states`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install -qq --no-compile --no-deps betty-ml==0.1.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import logging

import torch
from betty.configs import Config, EngineConfig
from betty.engine import Engine
from betty.problems import ImplicitProblem

ITERATIONS, OUTER_RATE, INNER_RATE, TARGET = 10, 0.5, 0.1, 3.0
logging.disable(logging.CRITICAL)


class Scalar(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor(value, dtype=torch.float64))


class Outer(ImplicitProblem):
    def get_batch(self):
        return None

    def training_step(self, batch):
        outer = self.module.value
        return 0.5 * (self.inner.module.value - TARGET).square() + 0 * outer


class Inner(ImplicitProblem):
    def get_batch(self):
        return None

    def training_step(self, batch):
        return 0.5 * (self.module.value - self.outer.module.value).square()


def run(roll_back, make_inner, outer_rate):
    """Return inner and outer parameter after the iterations, and the inner optimizer."""
    inner_module, outer_module = Scalar(1.0), Scalar(0.0)
    inner_optimizer = make_inner(inner_module.parameters(), lr=INNER_RATE)
    outer_optimizer = torch.optim.SGD(outer_module.parameters(), lr=outer_rate)
    config = Config(type="cg", cg_iterations=1, retain_graph=True)
    outer = Outer("outer", config, module=outer_module, optimizer=outer_optimizer)
    inner = Inner("inner", config, module=inner_module, optimizer=inner_optimizer)
    dependencies = {"u2l": {outer: [inner]}, "l2u": {inner: [outer]}}
    Engine([outer, inner], EngineConfig(train_iters=ITERATIONS, roll_back=roll_back),
           dependencies).run()
    return inner_module.value.item(), outer_module.value.item(), inner_optimizer


def expected(roll_back, copies, outer_rate):
    """Return the parameters by hand; the Hessian is 1, so the hypergradient is w - TARGET."""
    inner, outer = 1.0, 0.0
    for _ in range(ITERATIONS):
        before = inner
        inner = before - INNER_RATE * (before - outer)
        outer = outer - outer_rate * (inner - TARGET)
        if roll_back:
            start = before if copies else inner
            inner = start - INNER_RATE * (start - outer)
    return inner, outer


for roll_back in (False, True):
    for rate in (0.0, OUTER_RATE):
        inner, outer, _ = run(roll_back, torch.optim.SGD, rate)
        due = expected(roll_back, True, rate)
        print(f"roll_back={roll_back}, outer rate {rate}: inner {inner:.4f}, outer {outer:.4f} "
              f"(due {due[0]:.4f} and {due[1]:.4f})")
        by_hand = expected(roll_back, False, rate)
        assert abs(inner - by_hand[0]) < 1e-9 and abs(outer - by_hand[1]) < 1e-9
        if roll_back:
            assert abs(inner - due[0]) > 0.1
        else:
            assert by_hand == due
    _, _, adam = run(roll_back, torch.optim.Adam, OUTER_RATE)
    steps = int(next(iter(adam.state.values()))["step"])
    print(f"roll_back={roll_back}: Adam has counted {steps} steps in {ITERATIONS} iterations")
    assert steps == (2 * ITERATIONS - 1 if roll_back else ITERATIONS)
PYTHON
