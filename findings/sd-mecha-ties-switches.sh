#!/usr/bin/env bash
# In sd-mecha, two switches of TIES are the wrong way round, and are on by default.
#
# Versions: sd-mecha 1.1.8, torch 2.13.0, scipy 1.17.1, numpy 2.4.6.
# Guess before the run: by default, `add_ties_with_dare` with a probability of 0 is TIES as in the
#     paper (Yadav et al. 2023, arXiv:2306.01708): the sign of the larger sum wins.
#     `apply_stock=True` multiplies each row by the ratio of Model Stock ("TIES-STOCK"), and
#     `vote_sgn=True` lets each model's sign count once ("TIES-SOUP"). (That both are inverted was
#     suspected after reading the source.)
# Seen: without `apply_stock`, rows are multiplied by the ratio, and with it they are not. Without
#     `vote_sgn`, each sign counts once: where the signs of two models differ, the number is that of
#     the base, for which the larger step is due; with `vote_sgn=True`, it is the larger step. Two
#     random steps merge into one of norm 45 instead of 101. `ties_sum_extended` does the same, and
#     `ties_sum` has the second of the two: half of the numbers are those of the base.
# For gyre: it merges nothing. There, give both switches the other way round.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile sd-mecha==1.1.8 torch==2.13.0 numpy==2.4.6 scipy==1.17.1
env/bin/python -W ignore - 2> progress <<'PYTHON'
import sd_mecha
import torch
from safetensors.torch import save_file

ROWS, WIDTH = 32, 256
torch.manual_seed(0)
torch.set_num_threads(1)
base = torch.randn(ROWS, WIDTH)
steps = [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)]


def model(name, weight):
    save_file({"weight": weight}, f"{name}.safetensors")
    return sd_mecha.model(f"{name}.safetensors")


def merge(recipe, space="weight"):
    return sd_mecha.merge(recipe, merge_dtype=torch.float64, output_dtype=torch.float64,
                          strict_merge_space=space)["weight"]


def merge_ties(by_signs, with_stock):
    """Return the merged step (ROWS, WIDTH) of two models, without trimming."""
    a, b = (step.double() for step in steps)
    sums = a.sign() + b.sign() if by_signs else a + b
    kept = [torch.where(step.sign() == sums.sign(), step, 0) for step in (a, b)]
    count = sum(part != 0 for part in kept)
    merged = sum(kept) / count.clamp(min=1)
    if with_stock:
        cosine = torch.cosine_similarity(*kept, dim=1)[:, None]
        merged = merged * 2 * cosine / (1 + cosine)
    return merged


models = [model("first", base + steps[0]), model("second", base + steps[1])]
start = model("base", base)
for apply_stock in [False, True]:
    for vote_sgn in [False, True]:
        switches = {"apply_stock": apply_stock, "vote_sgn": vote_sgn}
        by_dare = merge(sd_mecha.add_ties_with_dare(
            start, *models, probability=0.0, k=1.0, **switches)) - base
        by_sum = merge(sd_mecha.ties_sum_extended(
            *(sd_mecha.subtract(tuned, start) for tuned in models), k=1.0, **switches), "delta")
        due = merge_ties(vote_sgn, apply_stock)
        inverted = merge_ties(not vote_sgn, not apply_stock)
        print(f"{switches}: norm of the merged step {by_dare.norm():.1f}, {due.norm():.1f} due, "
              f"{inverted.norm():.1f} with both switches inverted")
        assert torch.allclose(by_dare, inverted, atol=1e-4)
        assert torch.allclose(by_sum, inverted, atol=1e-4)
        assert (by_dare - due).norm() > 0.3 * due.norm()

plain = merge(sd_mecha.ties_sum(
    *(sd_mecha.subtract(tuned, start) for tuned in models), k=1.0), "delta")
assert torch.allclose(plain, merge_ties(True, False), atol=1e-4)
lost = ((plain == 0) & (steps[0] + steps[1] != 0)).double().mean().item()
print(f"ties_sum: {lost:.2f} of the numbers are those of the base, 0 expected")
assert 0.45 < lost < 0.55
PYTHON
