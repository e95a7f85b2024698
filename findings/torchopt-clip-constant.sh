#!/usr/bin/env bash
# torchopt's clipping by norm is a constant for outer gradients: they are wrong where it clips.
#
# Versions: torchopt 0.7.3, torch 2.13.0, optree 0.20.0, numpy 2.4.6.
# Guess before the run: torchopt is differentiable optimization, so the gradient of an outer loss
#     through inner steps of chain(clip_grad_norm, sgd) is that of finite differences, as it is
#     without clipping. (That the norm does not take part was suspected after reading the source.)
# Seen: without clipping, and where the gradient is below the limit, it is, to six digits. Where an
#     inner step is clipped, the factor is a plain number, without its own gradient. For one weight,
#     whose clipped step is the same for all losses, the outer gradient is 0.58 where it is 0; for
#     five weights and three steps it is 4 times too large, with a cosine of -0.23 to the right one.
#     So meta-learned losses and rates follow a wrong direction. No warning. (optax's clipping by
#     norm lets gradients pass.)
# For gyre: it has no inner loops. There, write the clipping by hand, or clip nothing inside.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 optree==0.20.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchopt==0.7.3 graphviz==0.21
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
import torchopt

RATE, EPSILON = 0.1, 1e-5
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def outer_loss(scales, start, limit, n_steps):
    """The sum of squares behind inner steps on half of the sum of (scale * weight)^2."""
    optimizer = torchopt.sgd(RATE)
    if limit:
        optimizer = torchopt.chain(torchopt.clip.clip_grad_norm(limit), optimizer)
    weights = (start.clone().requires_grad_(),)
    state = optimizer.init(weights)
    for _ in range(n_steps):
        loss = 0.5 * (scales * weights[0]).square().sum()
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        updates, state = optimizer.update(gradients, state, params=weights, inplace=False)
        weights = torchopt.apply_updates(weights, updates, inplace=False)
    return weights[0].square().sum()


def by_differences(scales, *rest):
    result = torch.zeros_like(scales)
    for i in range(len(scales)):
        step = torch.zeros_like(scales)
        step[i] = EPSILON
        result[i] = (outer_loss(scales + step, *rest) - outer_loss(scales - step, *rest)).item()
    return result / (2 * EPSILON)


one = torch.tensor([2.0]), torch.tensor([3.0])
five = 1 + torch.rand(5), torch.randn(5)
for name, (scales, start), limit, n_steps in [
        ("one weight, one step, no clipping", one, None, 1),
        ("one weight, one step, limit 100", one, 100.0, 1),
        ("one weight, one step, limit 1", one, 1.0, 1),
        ("five weights, three steps, no clipping", five, None, 3),
        ("five weights, three steps, limit 1", five, 1.0, 3)]:
    scales = scales.clone().requires_grad_()
    own, = torch.autograd.grad(outer_loss(scales, start, limit, n_steps), scales)
    due = by_differences(scales.detach(), start, limit, n_steps)
    cosine = torch.nn.functional.cosine_similarity(own, due, 0).item()
    print(f"{name}: norm of the outer gradient {own.norm():.5f}, by finite differences "
          f"{due.norm():.5f}, cosine {cosine:.4f}")
    if limit == 1:
        assert (own - due).norm() > 0.2 * own.norm()
    else:
        assert torch.allclose(own, due, rtol=1e-6)
PYTHON
