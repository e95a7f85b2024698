#!/usr/bin/env bash
# TextBrewer's attention losses take every negative score for a masked one.
#
# Versions: textbrewer 0.2.1.post1, torch 2.13.0.
# Guess before the run: a loss without a mask is that with a mask of ones; cross entropy, which
#     applies a softmax, doesn't change if a number is added to all scores; the gradient reaches
#     scores of both signs. (That negative scores are left out was suspected after reading.)
# Seen: without `inputs_mask`, scores of -0.001 and below count as 0, or have no target, as if they
#     were masked; TinyBERT, whose rule it is, has -100. The inputs are scores before a softmax, so
#     half of them are negative: the squared error is a third of that with a mask of ones, and both
#     losses are 0 where all scores are 5 smaller; 49 % of the student's scores have no gradient. Of
#     probabilities nothing is left out. Similarity matrices ("mmd", "nst") are divided by the width
#     without a mask, and by the length with one: 33 times the loss for 8 tokens of width 32 and 64,
#     and not 0 for a teacher that is the student twice, side by side. (Issue 36 has that, and its
#     author agreed in 2021; no version has the correction.) All other losses are equal.
# For gyre: it has no distillation. There, return `inputs_mask`, and no "mmd".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 packaging==25.0 \
    tensorboardX==2.6.5 protobuf==7.36.2 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps textbrewer==0.2.1.post1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from textbrewer import MATCH_LOSS_MAP

BATCH, HEADS, LENGTH, WIDTH = 4, 3, 8, 32
torch.set_num_threads(1)
torch.manual_seed(0)
mask = torch.ones(BATCH, LENGTH)
student, teacher = torch.randn(2, BATCH, HEADS, LENGTH, LENGTH)  # scores before the softmax

for name in ["attention_mse", "attention_mse_sum", "attention_ce", "attention_ce_mean"]:
    loss = MATCH_LOSS_MAP[name]
    plain, masked = loss(student, teacher).item(), loss(student, teacher, mask).item()
    shifted = loss(student - 5, teacher - 5).item(), loss(student - 5, teacher - 5, mask).item()
    of_probabilities = [loss(student.softmax(-1), teacher.softmax(-1), m).item()
                        for m in [None, mask]]
    print(f"{name}: {plain:.4f} without a mask, {masked:.4f} with a mask of ones; with all scores "
          f"5 smaller, {abs(shifted[0]):.4f} and {shifted[1]:.4f}; of probabilities: "
          f"{of_probabilities[0]:.4f} and {of_probabilities[1]:.4f}")
    assert plain < 0.85 * masked
    assert shifted[0] == 0 and abs(shifted[1] - masked) < 1e-4
    assert abs(of_probabilities[0] - of_probabilities[1]) < 1e-5

scores = student.clone().requires_grad_()
MATCH_LOSS_MAP["attention_mse"](scores, teacher).backward()
share = (scores.grad == 0).float().mean().item()
print(f"attention_mse: {share:.0%} of the scores have no gradient, "
      f"{(student < 0).float().mean():.0%} are negative")
assert (scores.grad[student <= -1e-3] == 0).all() and share > 0.4

states = torch.randn(2, BATCH, LENGTH, WIDTH)
wider = torch.randn(2, BATCH, LENGTH, 2 * WIDTH)
twice = torch.cat([states, states], dim=-1)
loss = MATCH_LOSS_MAP["mmd"]
values = [loss(states, other, m).item() for other in [wider, twice] for m in [None, mask]]
print(f"mmd: {values[0]:.4f} without a mask, {values[1]:.4f} with a mask of ones; for a teacher "
      f"that is the student twice {values[2]:.4f} and {values[3]:.4f}")
assert values[1] > 20 * values[0] and values[2] < 1e-9 and values[3] > 0.1

for name, inputs in [("hidden_mse", (states[0], states[1])), ("cos", (states[0], states[1])),
                     ("fsp", (states, torch.randn(2, BATCH, LENGTH, WIDTH)))]:
    values = [MATCH_LOSS_MAP[name](*inputs, m).item() for m in [None, mask]]
    print(f"{name}: {values[0]:.4f} without a mask, {values[1]:.4f} with a mask of ones")
    assert abs(values[0] - values[1]) < 1e-5
PYTHON
