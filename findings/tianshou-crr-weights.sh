#!/usr/bin/env bash
# In tianshou, discrete CRR clones the good and the bad actions alike.
#
# Versions: tianshou 2.0.1, torch 2.13.0, gymnasium 1.4.0.
# Guess before the run: DiscreteCRR with "binary" clones those actions of the data that the critic
#     rates above the policy's mean, as in the paper: from data of random actions, it learns the
#     better one. (That the weights do not belong to their actions was suspected after reading the
#     source.)
# Seen: log-probabilities of shape (batch,) are multiplied by weights of shape (batch, 1), so that
#     each action gets the mean weight of the batch. Where one of two actions is paid 1 and the
#     other 0, and both are as frequent in the data, the critic is right, and the policy stays at
#     0.52, as with "all", which clones the data; the paper's loss gets to 0.99. With "exp", it is
#     the same product.
# For gyre: it has no reinforcement learning. There, take DiscreteBCQ or DiscreteCQL.
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
from tianshou.algorithm.imitation.discrete_crr import DiscreteCRR
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.torch_utils import policy_within_training_step
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

N_STATES, N_ROWS, N_STEPS, BATCH = 4, 1024, 400, 64
torch.set_num_threads(1)
generator = np.random.default_rng(0)
states = np.eye(N_STATES, dtype=np.float32)
best = np.arange(N_STATES) % 2  # the action that is paid 1; the other one is paid 0


def make_networks():
    torch.manual_seed(0)
    actor = DiscreteActor(preprocess_net=Net(state_shape=N_STATES, hidden_sizes=[32]),
                          action_shape=2, softmax_output=False)
    critic = DiscreteCritic(preprocess_net=Net(state_shape=N_STATES, hidden_sizes=[32]),
                            last_size=2)
    return actor, critic


def describe(actor, critic):
    """Return the policy's probability of the best actions, and the critic's values of both."""
    with torch.no_grad():
        chances = actor(states)[0].softmax(-1)
        values = critic(states)
    rows = torch.arange(N_STATES)
    return (chances[rows, best].mean().item(), values[rows, best].mean().item(),
            values[rows, 1 - best].mean().item())


def train_tianshou(mode):
    actor, critic = make_networks()
    policy = DiscreteActorPolicy(actor=actor, action_space=gymnasium.spaces.Discrete(2))
    algorithm = DiscreteCRR(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=3e-3),
                            policy_improvement_mode=mode, min_q_weight=0.0)
    buffer = ReplayBuffer(N_ROWS)
    for _ in range(N_ROWS):
        state, action = generator.integers(N_STATES), generator.integers(2)
        buffer.add(Batch(obs=states[state], act=action, rew=float(action == best[state]),
                         terminated=True, truncated=False, obs_next=states[state], info={}))
    with policy_within_training_step(policy):
        for _ in range(N_STEPS):
            algorithm.update(buffer=buffer, sample_size=BATCH)
    return describe(actor, critic)


def train_paper(_):
    actor, critic = make_networks()
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 3e-3)
    for _ in range(N_STEPS):
        rows, actions = generator.integers(N_STATES, size=BATCH), generator.integers(2, size=BATCH)
        rewards = torch.as_tensor(actions == best[rows]).float()
        chosen = torch.as_tensor(actions)[:, None]
        values, logits = critic(states[rows]), actor(states[rows])[0]
        logs = logits.log_softmax(-1)
        value = values.gather(1, chosen)[:, 0]
        advantages = (value - (values * logs.exp()).sum(-1)).detach()
        weights = (advantages > 0).float()
        loss = 0.5 * (value - rewards).square().mean()
        loss = loss - (logs.gather(1, chosen)[:, 0] * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return describe(actor, critic)


print("due: values 1 and 0; chance of the best action near 1 with weights, 0.5 without")
for name, train, mode in [("paper, binary", train_paper, "binary"),
                          ("tianshou, all", train_tianshou, "all"),
                          ("tianshou, binary", train_tianshou, "binary")]:
    chance, good, bad = train(mode)
    print(f"{name}: chance {chance:.3f}, values {good:.2f} and {bad:.2f}")
    assert abs(good - 1) < 0.1 and abs(bad) < 0.1
    assert chance > 0.9 if train is train_paper else 0.4 < chance < 0.6
PYTHON
