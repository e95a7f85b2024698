#!/usr/bin/env bash
# In dictionary_learning, p-annealing announces resampled neurons and resamples none.
#
# Versions: dictionary-learning 0.1.0, torch 2.13.0.
# Guess before the run: `resample_steps` gives dead neurons new weights, by the recipe that it
#     follows: an input with a high loss, scaled to a fifth of the mean norm of the living encoder
#     rows. (That it does not was suspected after reading the source.)
# Seen: PAnnealTrainer prints "resampling 8 neurons" and writes into copies: rows, columns and
#     biases stay as they are, bit for bit, and the neurons stay dead to the end. StandardTrainer
#     writes them, but does not normalize the input: with inputs of norm 40, new rows are 8 times as
#     long as the living ones, instead of a fifth.
# For gyre: it trains no sparse autoencoders. There, take StandardTrainer, and inputs of norm 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.1 \
    tqdm==4.67.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps dictionary-learning==0.1.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import sys
import types

import torch

# The package imports nnsight, and with it transformers, for a buffer that no trainer needs.
sys.modules["nnsight"] = types.SimpleNamespace(LanguageModel=None)
from dictionary_learning.trainers.p_anneal import PAnnealTrainer
from dictionary_learning.trainers.standard import StandardTrainer

WIDTH, N_NEURONS, N_DEAD, RESAMPLE = 16, 64, 8, 100
torch.set_num_threads(1)


def train(trainer_class, scale, **options):
    """Train with 8 dead neurons. Return whether they changed, norms, and how many are dead."""
    trainer = trainer_class(
        steps=400, activation_dim=WIDTH, dict_size=N_NEURONS, layer=0, lm_name="none", lr=1e-3,
        warmup_steps=10, sparsity_warmup_steps=None, resample_steps=RESAMPLE, device="cpu", seed=0,
        **options)
    model = trainer.ae
    model.encoder.bias.data[:N_DEAD] = -1000.0
    torch.manual_seed(1)
    for index in range(RESAMPLE + 1):
        before = [tensor.detach().clone() for tensor in model.parameters()]
        trainer.update(index, scale * torch.randn(256, WIDTH))
        if index and index % RESAMPLE in (0, RESAMPLE - 1):  # the two trainers differ by a step
            rows, bias = model.encoder.weight.detach(), model.encoder.bias.detach()
            changed = not (torch.equal(rows[:N_DEAD], before[1][:N_DEAD])
                           and torch.equal(bias[:N_DEAD], before[2][:N_DEAD]))
            if changed:
                break
    ratio = rows[:N_DEAD].norm(dim=1).mean() / rows[N_DEAD:].norm(dim=1).mean()
    active = (model.encode(scale * torch.randn(4096, WIDTH)) > 0).any(0)
    return changed, ratio.item(), (~active).sum().item()


for name, trainer_class, options in [
        ("StandardTrainer", StandardTrainer, {}),
        ("PAnnealTrainer", PAnnealTrainer,
         {"anneal_start": 300, "initial_sparsity_penalty": 0.1})]:
    for scale in (0.25, 10):
        changed, ratio, n_dead = train(trainer_class, scale, **options)
        print(f"{name}, inputs of norm {scale * WIDTH**0.5:g}: dead neurons changed: {changed}, "
              f"their rows are {ratio:.2f} times as long as the others (due 0.2), "
              f"{n_dead} are dead")
        assert changed == (trainer_class is StandardTrainer)
        assert n_dead == 0 if changed else n_dead >= N_DEAD
        if changed:
            assert 0.1 < ratio < 0.4 if scale < 1 else ratio > 5
PYTHON
