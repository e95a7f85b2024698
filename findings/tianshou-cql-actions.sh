#!/usr/bin/env bash
# In tianshou, CQL's random actions are all the same one, and more of them add nothing.
#
# Versions: tianshou 2.0.1, torch 2.13.0, gymnasium 1.4.0.
# Guess before the run: CQL lowers the values of actions drawn uniformly between `min_action` = -1
#     and `max_action` = 1, and of the policy's actions, by a log-sum-exp over `num_repeat_actions`
#     draws of each, as in the paper. (That neither is so was suspected after reading the source.)
# Seen: they are drawn between minus `min_action` and `max_action`, which is from 1 to 1 with the
#     defaults: each "random" action is the upper corner of the space. The values are reshaped to
#     one row per state and the result is dropped, so that each sum has three terms: for a critic of
#     zeros, 100 times as many draws should add log(100) = 4.6 to the loss, and add 0.01.
# For gyre: it has no reinforcement learning. There, give `min_action=1`, which draws from -1 to 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tianshou==2.0.1 torch==2.13.0 \
    gymnasium==1.4.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import gymnasium
import numpy as np
import torch
from tianshou.algorithm.imitation.cql import CQL
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

WIDTH, N_ACTIONS, BATCH = 3, 2, 32
torch.set_num_threads(1)


class ZeroCritic(nn.Module):
    """Give each action the value 0, and keep the actions."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))
        self.actions = []

    def forward(self, obs, act=None, info=None):
        act = torch.as_tensor(act, dtype=torch.float32)
        self.actions.append(act.detach().clone())
        return self.scale * act.sum(-1, keepdim=True)


def update(n_repeats, **options):
    """Return the loss of one update, the random actions, and the policy's."""
    torch.manual_seed(0)
    np.random.seed(0)
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=WIDTH, hidden_sizes=[16]), action_shape=N_ACTIONS,
        unbounded=True, conditioned_sigma=True)
    space = gymnasium.spaces.Box(-1.0, 1.0, (N_ACTIONS,))
    policy = SACPolicy(actor=actor, action_space=space)
    critic = ZeroCritic()
    algorithm = CQL(policy=policy, policy_optim=AdamOptimizerFactory(lr=1e-5), critic=critic,
                    critic_optim=AdamOptimizerFactory(lr=1e-5), alpha=0.0, with_lagrange=False,
                    calibrated=False, num_repeat_actions=n_repeats, **options)
    buffer = ReplayBuffer(BATCH)
    for _ in range(BATCH):
        states = np.random.randn(2, WIDTH).astype(np.float32)
        buffer.add(Batch(obs=states[0], act=np.random.uniform(-1, 1, N_ACTIONS), rew=0.0,
                         terminated=True, truncated=False, obs_next=states[1], info={}))
    with policy_within_training_step(policy):
        stats = algorithm.update(buffer=buffer, sample_size=BATCH)
    drawn = [a for a in critic.actions if len(a) == BATCH * n_repeats]
    return stats.critic1_loss, drawn[-1], drawn[-2]


losses = []
for name, n_repeats, options in [("defaults", 10, {}), ("num_repeat_actions=1000", 1000, {}),
                                 ("min_action=1", 10, {"min_action": 1.0})]:
    loss, random, policy = update(n_repeats, **options)
    losses.append(loss)
    print(f"{name}: random actions from {random.min():.2f} to {random.max():.2f}, mean "
          f"{random.mean():.2f} (due -1 to 1, 0); the policy's from {policy.min():.2f} to "
          f"{policy.max():.2f}; loss {loss:.3f}")
    if options:
        assert random.min() < -0.9 and random.max() > 0.9 and abs(random.mean()) < 0.1
    else:
        assert (random == 1).all()
    assert policy.min() < -0.5 and policy.max() > 0.5
print(f"1000 repetitions for 10 change the loss by {losses[1] - losses[0]:.3f} "
      f"(due {np.log(100):.3f})")
assert abs(losses[1] - losses[0]) < 0.2
PYTHON
