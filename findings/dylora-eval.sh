#!/usr/bin/env bash
# A DyLoRA of LyCORIS draws its rank in evaluation and for a merge, too.
#
# Versions: lycoris-lora 4.1.3, torch 2.13.0.
# Guess, written down after a first look: the rank is drawn for each step of the training, as in
#     the paper (Valipour et al. 2023, arXiv:2210.07558). After eval(), a layer has its full rank,
#     or a chosen one, so that two calls give the same output; and that is what is merged.
# Seen: every call draws a rank, after eval() as well: with rank 8 and blocks of 1, 40 calls of one
#     input give 8 outputs, and with the default blocks of 4 they give 2. merge_to draws a rank as
#     well: ten merges of one adapter make several models. Python's random draws, so torch's seed
#     does not fix it. An adapter that is made of the saved weights is a LoRA of full rank, with one
#     output; with blocks of 4, its update is a fourth of that in the training at full rank.
# For gyre: it has no adapters. There, take block_size=1, and evaluate and merge what was saved and
#     loaded.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lycoris-lora==4.1.3
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2 \
    toml==0.10.2 safetensors==0.8.0 tqdm==4.70.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import copy
import io
import logging
import random

import torch
from lycoris import LycorisNetwork, create_lycoris, create_lycoris_from_weights

WIDTH = 64
RANK = 8
N_CALLS = 40
logging.disable(logging.CRITICAL)
random.seed(0)
torch.set_num_threads(1)
torch.set_grad_enabled(False)
LycorisNetwork.apply_preset({"target_module": ["Linear"]})
x = torch.randn(5, WIDTH)


def count(outputs):
    """Return the number of different outputs."""
    return len({output.numpy().tobytes() for output in outputs})


def adapt(algorithm, **options):
    """Return a layer, and the layer with an adapter, both in evaluation."""
    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH))
    model = copy.deepcopy(base)
    adapter = create_lycoris(model, 1.0, linear_dim=RANK, linear_alpha=1.0, algo=algorithm,
                             **options)
    adapter.apply_to()
    for parameter in adapter.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape)
    model.eval()
    adapter.eval()
    return base, model, adapter


for algorithm, options in [("lora", {}), ("dylora", {"block_size": 1}), ("dylora", {})]:
    with contextlib.redirect_stdout(io.StringIO()):
        base, model, adapter = adapt(algorithm, **options)
        updates = []
        for _ in range(N_CALLS):
            torch.manual_seed(0)
            updates.append(model(x) - base(x))
        merged = []
        for _ in range(10):
            _, merged_model, merged_adapter = adapt(algorithm, **options)
            merged_adapter.restore()
            merged_adapter.merge_to(1.0)
            merged.append(merged_model(x))
        loaded = copy.deepcopy(base)
        saved = {key: value.clone() for key, value in adapter.state_dict().items()}
        again, _ = create_lycoris_from_weights(1.0, None, loaded, weights_sd=saved)
        again.apply_to()
        loaded.eval()
        again.eval()
        reloaded = [loaded(x) - base(x) for _ in range(N_CALLS)]
    norms = [update.norm().item() for update in updates]
    print(f"{algorithm}, {options}: {count(updates)} outputs in {N_CALLS} calls, updates of norm "
          f"{min(norms):.2f} to {max(norms):.2f}; {count(merged)} merged models in 10; reloaded "
          f"{count(reloaded)} output, update of norm {reloaded[0].norm().item():.2f}")
    n_ranks = {"lora": 1, "dylora": RANK // options.get("block_size", 4)}[algorithm]
    assert count(updates) == n_ranks
    assert count(reloaded) == 1
    assert (count(merged) > 1) == (algorithm == "dylora")
    factor = {"lora": 1, "dylora": options.get("block_size", 4)}[algorithm]
    distances = [(update - factor * reloaded[0]).norm().item() for update in updates]
    assert min(distances) < 1e-5
PYTHON
