#!/usr/bin/env bash
# Behind mlx's checkpoint, the backward pass draws another dropout mask than the forward pass.
#
# Version: mlx 0.32.4.
# Guess before the run: mx.checkpoint and nn.utils.checkpoint change memory and time, and no
#     gradient: the mask is drawn again from the same key, as in PyTorch, JAX and Flax.
# Seen: the block runs again with the next random numbers. Half of the elements that the forward
#     pass keeps at p=0.5 have a gradient of 0, and half of those it drops have one. Nothing fails.
#     A small network with dropout 0.3 in its blocks ends 150 Adam steps with three times the
#     error, and with more after more steps; without dropout it is the same to the bit.
# For gyre: its masks are a function of the seed, the step and the row, so that a block which runs
#     again has the same ones. In mlx, train without dropout where blocks are checkpointed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile "mlx[cpu]==0.32.4"
"$folder/env/bin/python" - <<'PYTHON'
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers

mx.set_default_device(mx.cpu)
N_ELEMENTS = 10_000
WIDTH = 32


def compare_masks(function):
    """Return the shares of kept and of dropped elements that have a gradient."""
    mx.random.seed(0)

    def loss(x):
        y = function(x)
        return y.sum(), y

    (_, y), gradient = mx.value_and_grad(loss)(mx.ones(N_ELEMENTS))
    kept = y != 0
    used = gradient != 0
    n_kept = kept.sum().item()
    n_dropped = N_ELEMENTS - n_kept
    return (kept & used).sum().item() / n_kept, (~kept & used).sum().item() / n_dropped


dropout = nn.Dropout(0.5)
for name, function in [("plain", dropout), ("mx.checkpoint", mx.checkpoint(dropout)),
                       ("nn.utils.checkpoint", nn.utils.checkpoint(dropout))]:
    kept, dropped = compare_masks(function)
    print(f"{name}: a gradient flows through {kept:.2f} of the kept elements and {dropped:.2f} of "
          "the dropped ones")
    if name == "plain":
        assert (kept, dropped) == (1, 0)
    else:
        assert 0.45 < kept < 0.55
        assert 0.45 < dropped < 0.55


class Block(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(p)

    def __call__(self, x):
        return x + self.down(self.dropout(nn.relu(self.up(x))))


class Network(nn.Module):
    def __init__(self, p, checkpointed):
        super().__init__()
        self.blocks = [Block(p) for _ in range(3)]
        self.output = nn.Linear(WIDTH, 1)
        self.checkpointed = checkpointed

    def __call__(self, x):
        for block in self.blocks:
            x = nn.utils.checkpoint(block)(x) if self.checkpointed else block(x)
        return self.output(x)


def train(p, checkpointed):
    """Return the error on the training set, without dropout, after 150 steps of Adam."""
    mx.random.seed(0)
    network = Network(p, checkpointed)
    x = mx.random.normal((256, WIDTH))
    y = mx.sin(2 * x[:, :1]) * x[:, 1:2]
    optimizer = optimizers.Adam(2e-3)
    compute = nn.value_and_grad(network, lambda x, y: ((network(x) - y)**2).mean())
    for _ in range(150):
        _, gradients = compute(x, y)
        optimizer.update(network, gradients)
        mx.eval(network.parameters(), optimizer.state)
    network.eval()
    return ((network(x) - y)**2).mean().item()


for p in [0.0, 0.3]:
    plain = train(p, checkpointed=False)
    checkpointed = train(p, checkpointed=True)
    print(f"dropout {p}: the trained network's squared error is {plain:.1e}, and with "
          f"checkpoints {checkpointed:.1e}")
    if p == 0:
        assert checkpointed == plain
    else:
        assert checkpointed > 2 * plain
PYTHON
