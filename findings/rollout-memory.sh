#!/usr/bin/env bash
# In x-transformers, the second step of a rollout is predicted from the first one alone.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: ContinuousAutoregressiveWrapper with `rollout_steps=2` predicts one step
#     from the sequence, and the next one from the sequence and its first prediction, as generate()
#     does. (That the second step gets no cache was suspected after reading the source.)
# Seen: each step returns a cache, and none gets one: the second pass has one step as its input. For
#     sequences that alternate between two random numbers, where a step is the one before the last,
#     a loop of two steps gets to a loss near 0; `rollout_steps=2` does not get below 0.4, as it
#     needs a number that the second pass does not see, and the steps generated afterwards are
#     wrong.
# For gyre: it has no rollouts. There, `rollout_steps=1`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from x_transformers import ContinuousAutoregressiveWrapper, ContinuousTransformerWrapper, Decoder

N_STEPS = 12
torch.set_num_threads(1)


def make_sequences(n_sequences):
    return torch.randn(n_sequences, 2, 1).repeat(1, N_STEPS // 2, 1)


def train(rollout_steps, own=False):
    """Train on alternating numbers. Return loss, input lengths, and generated error."""
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=32, rotary_pos_emb=True)
    net = ContinuousTransformerWrapper(dim_in=1, dim_out=1, max_seq_len=N_STEPS, attn_layers=layers)
    model = ContinuousAutoregressiveWrapper(net)
    lengths = []
    net.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    losses = []
    for _ in range(400):
        sequences = make_sequences(16)
        if own:
            prefix = sequences[:, :-2]
            first = net(prefix)[:, -1:]
            second = net(torch.cat([prefix, first], 1))[:, -1:]
            loss = (torch.cat([first, second], 1) - sequences[:, -2:]).square().mean()
        else:
            loss = model(sequences, rollout_steps=rollout_steps)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    last_lengths = lengths[-rollout_steps:]
    sequences = make_sequences(256)
    generated = model.generate(sequences[:, :4], 4)
    error = (generated - sequences[:, 4:8]).square().mean().item()
    return sum(losses[-50:]) / 50, last_lengths, error


for name, steps, own in [("rollout_steps=1", 1, False), ("a loop of two steps", 2, True),
                         ("rollout_steps=2", 2, False)]:
    loss, lengths, error = train(steps, own)
    print(f"{name}: inputs of {lengths} steps, loss {loss:.3f}, squared error of generated steps "
          f"{error:.3f} (due near 0)")
    if name == "rollout_steps=2":
        assert lengths[-1] == 1 and loss > 0.4 and error > 0.2
    else:
        assert error < 0.15
        assert loss < 0.1 or not own
PYTHON
