#!/usr/bin/env bash
# Liger's DPO loss ignores its label smoothing.
#
# Versions: liger-kernel 0.8.5, torch 2.13.0.
# Guess before the run: label_smoothing makes the default loss of LigerFusedLinearDPOLoss that of
#     cDPO, as its docstring says, and as in trl's DPOTrainer of old: -(1 - e) log sigmoid(x)
#     - e log sigmoid(-x). (The opposite was suspected after reading the source.)
# Seen: the default loss, "sigmoid", does not read the argument: loss and gradients are those of DPO
#     for any value, and nothing is said. The losses "robust" and "exo_pair" read it. In
#     LigerFusedLinearCPOLoss and LigerFusedLinearSimPOLoss it is as in the formula.
# For gyre: it trains on text, not on pairs. There, take loss_type="robust", which is another loss
#     for the same doubt about the labels.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps liger-kernel==0.8.5
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
import torch.nn.functional as F
from liger_kernel.chunked_loss import LigerFusedLinearCPOLoss, LigerFusedLinearDPOLoss

BETA = 0.1
IGNORED = -100
N_PAIRS, LENGTH, WIDTH, N_VOCAB = 4, 6, 16, 32
torch.set_num_threads(1)
torch.manual_seed(0)
hidden = torch.randn(2 * N_PAIRS, LENGTH, WIDTH)
target = torch.randint(0, N_VOCAB, (2 * N_PAIRS, LENGTH))
target[:, :2] = IGNORED
initial = torch.randn(N_VOCAB, WIDTH)
reference = torch.randn(N_VOCAB, WIDTH)


def log_probability(weight):
    """Return the log-probability of each answer (2 * N_PAIRS,)."""
    log_probabilities = F.log_softmax(hidden @ weight.T, -1)
    chosen = log_probabilities.gather(-1, target.clamp(min=0)[..., None])[..., 0]
    return (chosen * (target != IGNORED)).sum(-1)


def smooth(ratios, epsilon):
    """Return cDPO's loss of log-ratios (2 * N_PAIRS,), the chosen answers first."""
    margin = BETA * (ratios[:N_PAIRS] - ratios[N_PAIRS:])
    losses = -(1 - epsilon) * F.logsigmoid(margin) - epsilon * F.logsigmoid(-margin)
    return losses.mean()


def differentiate(compute):
    """Return compute's loss of the weight, and its gradient."""
    weight = initial.clone().requires_grad_()
    loss = compute(weight)
    loss.backward()
    return loss.item(), weight.grad


for epsilon in [0.0, 0.1, 0.4]:
    dpo = LigerFusedLinearDPOLoss(beta=BETA, label_smoothing=epsilon, compiled=False)
    cpo = LigerFusedLinearCPOLoss(beta=BETA, label_smoothing=epsilon, compiled=False,
                                  compute_nll_loss=False)
    given, given_gradient = differentiate(
        lambda weight: dpo(weight, hidden, target, ref_input=hidden, ref_weight=reference)[0])
    due, due_gradient = differentiate(
        lambda weight: smooth(log_probability(weight) - log_probability(reference), epsilon))
    ratio = (given_gradient.norm() / due_gradient.norm()).item()
    print(f"smoothing of {epsilon}: loss {given:.4f}, by the formula {due:.4f}; gradient "
          f"{ratio:.2f} times as long as by the formula")
    cpo_given, cpo_gradient = differentiate(lambda weight: cpo(weight, hidden, target)[0])
    cpo_due, cpo_due_gradient = differentiate(
        lambda weight: smooth(log_probability(weight), epsilon))
    print(f"    CPO: loss {cpo_given:.4f}, by the formula {cpo_due:.4f}")
    torch.testing.assert_close(cpo_gradient, cpo_due_gradient, rtol=1e-4, atol=1e-6)
    if epsilon == 0:
        plain, plain_gradient = given, given_gradient
        torch.testing.assert_close(given_gradient, due_gradient, rtol=1e-4, atol=1e-6)
    assert given == plain and torch.equal(given_gradient, plain_gradient)
    assert epsilon == 0 or abs(given - due) > 0.01
PYTHON
