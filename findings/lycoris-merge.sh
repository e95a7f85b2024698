#!/usr/bin/env bash
# LyCORIS merges a LoHa or a LoKr scaled twice, and does not restore a merged layer on a CPU.
#
# Versions: lycoris-lora 4.1.3, torch 2.13.0.
# Guess before the run: after merge_to, a layer computes what it computed with its adapter, and
#     after onfly_restore what it computed before the merge. (Some algorithm was suspected to
#     differ, before the source was read.)
# Seen: LoRA is as guessed. For LoHa, and for LoKr where its second factor has a low rank, the merge
#     multiplies by alpha / rank once more than the adapted layer does: with rank 8 and alpha 1, the
#     default, an eighth of what was learned is left. So it is with onfly_merge; and
#     onfly_restore, on a CPU, leaves the merged weights where they are, for LoRA too. Both merges
#     leave out the scalar of use_scalar=True, which is trained from 0, so that too much is merged,
#     or the other sign. With alpha equal to the rank, and without the scalar, LoHa and LoKr merge
#     well.
# For gyre: it has no adapters. There, give alpha the rank before the training, or add to the weight
#     the change of the outputs for unit vectors.
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

import torch
from lycoris import LycorisNetwork, create_lycoris, create_lycoris_from_weights

WIDTH = 256
RANK = 8
logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
LycorisNetwork.apply_preset({"target_module": ["Linear"]})


def compare(algorithm, alpha, **options):
    """Return the shares of the adapter's update that are left after merges and a reload."""
    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False))
    weight = base[0].weight.detach()
    vectors = torch.eye(WIDTH)

    def share(model):
        change = model(vectors).T - weight
        return ((change * update).sum() / (update * update).sum()).item()

    model = copy.deepcopy(base)
    adapter = create_lycoris(model, 1.0, linear_dim=RANK, linear_alpha=alpha, algo=algorithm,
                             **options)
    adapter.apply_to()
    for parameter in adapter.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape)
    model.eval()
    adapter.eval()
    update = model(vectors).T - weight
    saved = {key: value.clone() for key, value in adapter.state_dict().items()}
    shares = {"adapted": share(model)}

    loaded = copy.deepcopy(base)
    again, _ = create_lycoris_from_weights(1.0, None, loaded, weights_sd=saved)
    again.apply_to()
    loaded.eval()
    again.eval()
    shares["reloaded"] = share(loaded)

    adapter.restore()
    adapter.onfly_merge(1.0)
    shares["onfly_merge"] = share(model)
    adapter.onfly_restore()
    shares["onfly_restore"] = share(model)
    model[0].weight.copy_(weight)
    adapter.merge_to(1.0)
    shares["merge_to"] = share(model)
    return shares


cases = [("lora", 1.0, {}), ("loha", 1.0, {}), ("loha", 4.0, {}), ("loha", float(RANK), {}),
         ("lokr", 1.0, {"factor": 4}), ("lokr", float(RANK), {"factor": 4}),
         ("lora", 1.0, {"use_scalar": True}), ("loha", 1.0, {"use_scalar": True})]
torch.set_grad_enabled(False)
for algorithm, alpha, options in cases:
    with contextlib.redirect_stdout(io.StringIO()):
        shares = compare(algorithm, alpha, **options)
    text = ", ".join(f"{name} {value:.3f}" for name, value in shares.items())
    print(f"{algorithm}, rank {RANK}, alpha {alpha:.0f}, {options}: shares of the update: {text}")
    due = {name: 1.0 for name in shares}
    if algorithm in ("loha", "lokr"):
        for name in ["onfly_merge", "onfly_restore", "merge_to"]:
            due[name] = alpha / RANK
    for name, value in shares.items():
        if options and algorithm == "loha" and name.startswith(("onfly", "merge")):
            assert not 0.5 < value < 2
        else:
            assert abs(value - due[name]) < 0.02, name
PYTHON
