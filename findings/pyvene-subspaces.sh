#!/usr/bin/env bash
# In pyvene, the rows of a batch swap each other's subspaces.
#
# Versions: pyvene 0.1.8, transformers 5.24.0, torch 2.13.0.
# Guess before the run: `subspaces` has a list of dimensions for each row of the batch, and each row
#     is changed in its own ones. (That it is not was suspected after reading the source.)
# Seen: if the lists have one length and differ, then with one position each row is changed in the
#     dimensions of all rows, and with as many positions as rows, position i of each row in those of
#     row i. This holds for VanillaIntervention, AdditionIntervention and SubtractionIntervention.
#     With lists of different lengths and with equal lists all is right, so a single row is too.
# For gyre: nobody intervenes on it. There, run a batch for each list of dimensions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 \
    transformers==5.24.0 matplotlib==3.11.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pyvene==0.1.8
HF_HOME="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import pyvene
import torch
from transformers import GPT2Config, GPT2LMHeadModel

WIDTH, LENGTH, VOCABULARY = 8, 4, 20
torch.set_num_threads(1)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=1, n_head=2, n_positions=LENGTH, bos_token_id=0,
    eos_token_id=0)).eval()
model.transformer.ln_f = torch.nn.Identity()  # the output is that of the block
model.lm_head = torch.nn.Identity()


def find_changes(intervention, positions, dimensions):
    """Return the dimensions that change, for each row and position."""
    n_rows = len(dimensions)
    base, source = torch.randint(VOCABULARY, (2, n_rows, LENGTH))
    intervenable = pyvene.IntervenableModel(
        {"layer": 0, "component": "block_output", "intervention_type": intervention}, model)
    locations = [[positions] * n_rows]
    with torch.no_grad():
        before = model(base).logits
        _, after = intervenable(
            {"input_ids": base}, [{"input_ids": source}],
            unit_locations={"sources->base": (locations, locations)}, subspaces=[dimensions])
    changed = (after.logits - before).abs() > 1e-6
    return [[changed[row, position].nonzero().flatten().tolist() for position in positions]
            for row in range(n_rows)]


for intervention in (pyvene.VanillaIntervention, pyvene.AdditionIntervention,
                     pyvene.SubtractionIntervention):
    print(intervention.__name__)
    for positions, dimensions, seen in [
            ([1], [[0, 1], [2, 3]], [[[0, 1, 2, 3]], [[0, 1, 2, 3]]]),
            ([1], [[0], [3], [5]], [[[0, 3, 5]]] * 3),
            ([1, 2], [[0, 1], [2, 3]], [[[0, 1], [2, 3]]] * 2),
            ([1], [[0, 1], [2]], None),
            ([1, 2], [[2, 3], [2, 3]], None)]:
        due = [[row] * len(positions) for row in dimensions]
        changes = find_changes(intervention, positions, dimensions)
        print(f"    positions {positions}, dimensions of the rows {dimensions}: "
              f"changed {changes}{'' if changes == due else f', due {due}'}")
        assert changes == (due if seen is None else seen)
PYTHON
