#!/usr/bin/env bash
# In higher, an inner loop with an optimizer that maximizes minimizes.
#
# Versions: higher 0.2.1, torch 2.13.0.
# Guess before the run: `innerloop_ctx(model, optimizer)` takes the steps of the given optimizer of
#     torch, with its options, and raises an error for what it does not know, as it does for AdamW.
# Seen: so it is for SGD with momentum, Nesterov and decay, and for Adam, Adamax, RMSprop, Adadelta,
#     Adagrad, ASGD and Rprop, to float32. `maximize=True` is dropped in silence: an inner loop of
#     gradient ascent, such as an adversary's, descends, and the outer gradient is that of the
#     descent.
# For gyre: it has no inner loops. There, give the loss with the other sign.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 higher==0.2.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import higher
import torch

N_STEPS = 20
OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    "SGD, Nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"weight_decay": 0.1}),
    "RMSprop": (torch.optim.RMSprop, {"centered": True, "momentum": 0.9}),
    "Adamax": (torch.optim.Adamax, {}),
    "SGD, maximize": (torch.optim.SGD, {"maximize": True}),
    "Adam, maximize": (torch.optim.Adam, {"maximize": True}),
    "RMSprop, maximize": (torch.optim.RMSprop, {"maximize": True}),
}
torch.set_num_threads(1)


def make_model():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)


def get_loss(model, scale=1.0):
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(32, 4, generator=generator), torch.randn(32, 1, generator=generator)
    return (model(scale * x) - y).square().mean()


def run_torch(optimizer_class, options):
    model = make_model()
    optimizer = optimizer_class(model.parameters(), lr=0.01, **options)
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        get_loss(model).backward()
        optimizer.step()
    return model


def run_higher(optimizer_class, options):
    """Return the last model, and the gradient of its loss with respect to the scale of the data."""
    model = make_model()
    optimizer = optimizer_class(model.parameters(), lr=0.01, **options)
    scale = torch.ones((), requires_grad=True)
    with higher.innerloop_ctx(model, optimizer) as (inner, differentiable):
        for _ in range(N_STEPS):
            differentiable.step(get_loss(inner, scale))
        gradient, = torch.autograd.grad(get_loss(inner), scale)
        return inner, gradient.item()


start = get_loss(make_model()).item()
print(f"loss before the steps: {start:.4f}")
for name, (optimizer_class, options) in OPTIMIZERS.items():
    model = run_torch(optimizer_class, options)
    inner, gradient = run_higher(optimizer_class, options)
    losses = get_loss(model).item(), get_loss(inner).item()
    print(f"{name}: after {N_STEPS} steps {losses[0]:.4f} in torch, {losses[1]:.4f} in higher, "
          f"whose outer gradient is {gradient:.4f}")
    if options.get("maximize"):
        minimized = {**options, "maximize": False}
        _, of_descent = run_higher(optimizer_class, minimized)
        assert losses[0] > start + 0.01 and losses[1] < start - 0.01
        assert gradient == of_descent
    else:
        assert losses[0] < start and abs(losses[0] - losses[1]) < 1e-5
PYTHON
