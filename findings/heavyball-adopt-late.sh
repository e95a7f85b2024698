#!/usr/bin/env bash
# With heavyball's ADOPT, a first gradient of one parameter makes all others forget and leap.
#
# Versions: heavyball 3.2.1, torch 2.13.0.
# Guess before the run: a parameter's steps depend on its own gradients only, whatever others do:
#     the steps are the same with `multi_tensor` or without. (Nothing was suspected; then the source
#     was read.)
# Seen: not with multi_tensor=True, the default. When a bias of three weights has its first gradient
#     after 1,000 steps, as one does that was frozen, or that of an expert without tokens, all
#     others lose that step, and their second moments are replaced by the squares of the last
#     gradients. The largest of their next steps is 80 learning rates long, where it was 1, and it
#     is 25 steps until the largest is below 5 again. With multi_tensor=False, and with AdamW, the
#     bias changes nothing, bit for bit.
# For gyre: it has no ADOPT, and all its parameters have gradients at all steps. There,
#     multi_tensor=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile heavyball==3.2.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import heavyball
import heavyball.utils
import torch

LATE = 1000  # step of the bias's first gradient
N_STEPS = 1060
RATE = 1e-3
heavyball.utils.compile_mode = None  # needs no compiler; the numbers are the same
torch.set_num_threads(1)


def largest_steps(optimizer_class, first, **options):
    """Return each step's largest move of 1,000 weights, in learning rates, and these weights.

    Their gradient is that of a bowl, with noise. A bias has gradients from the step `first` on.
    """
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.zeros(1000))
    bias = torch.nn.Parameter(torch.zeros(3))
    optimizer = optimizer_class([weights, bias], lr=RATE, **options)
    moves = []
    for step in range(N_STEPS):
        weights.grad = weights.detach() + torch.randn(1000, generator=generator)
        bias.grad = torch.ones(3) if step >= first else None
        before = weights.detach().clone()
        optimizer.step()
        moves.append((weights.detach() - before).abs().max().item() / RATE)
    return moves, weights.detach()


for name, optimizer_class, options in [
        ("AdamW", heavyball.AdamW, {}),
        ("ADOPT(multi_tensor=False)", heavyball.ADOPT, {"multi_tensor": False}),
        ("ADOPT", heavyball.ADOPT, {})]:
    moves, weights = largest_steps(optimizer_class, 0, **options)
    late_moves, late_weights = largest_steps(optimizer_class, LATE, **options)
    n_long = sum(move > 5 for move in late_moves[LATE:])
    print(f"{name}: largest moves at steps {LATE - 2} to {LATE + 3}, in learning rates: "
          f"{[round(x, 1) for x in moves[LATE - 2:LATE + 4]]} if the bias has gradients from the "
          f"start, {[round(x, 1) for x in late_moves[LATE - 2:LATE + 4]]} if from step {LATE} on; "
          f"{n_long} of those from there on are above 5")
    assert max(moves[LATE - 100:]) < 2 and max(late_moves[LATE - 100:LATE]) < 2
    if name == "ADOPT":
        assert late_moves[LATE] == 0 and late_moves[LATE + 1] > 20 and n_long > 10
    else:
        assert torch.equal(weights, late_weights)
PYTHON
