#!/usr/bin/env bash
# In x-transformers, the loss of a continuous sequence includes a step of its padding.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: with `lens` or `mask`, ContinuousAutoregressiveWrapper does not look at what
#     is behind the end of a sequence. (That it does was suspected after reading the source.)
# Seen: the mask says which inputs are real, and is taken for the targets, too, which are one step
#     later. So the last real step has the first step of padding as its target, and other padding is
#     another loss. Trained on sequences of ones, padded with zeros after 2 to 7 steps, the model
#     predicts 0.75 and not 1 as the next step, with a loss of 0.17 and not 0. Only a sequence as
#     long as the batch has no such target.
# For gyre: it pads nothing. There, give `lens - 1`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from x_transformers import ContinuousAutoregressiveWrapper, ContinuousTransformerWrapper, Decoder

N_STEPS = 8
torch.set_num_threads(1)


def make_model():
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=1, heads=2, attn_dim_head=32, rotary_pos_emb=True)
    return ContinuousAutoregressiveWrapper(
        ContinuousTransformerWrapper(dim_in=1, dim_out=1, max_seq_len=N_STEPS, attn_layers=layers))


model = make_model()
lens = torch.tensor([N_STEPS, 5])
sequences = torch.randn(2, N_STEPS, 1)
changed = sequences.clone()
changed[1, 5:] = 10.0
mask = torch.arange(N_STEPS) < lens[:, None]
for name, options in [("lens", {"lens": lens}), ("mask", {"mask": mask}),
                      ("lens - 1", {"lens": lens - 1})]:
    before, after = model(sequences, **options).item(), model(changed, **options).item()
    print(f"{name}: the loss is {before:.4f}, and {after:.4f} with other padding "
          f"(due {before:.4f})")
    assert abs(after - before) < 1e-5 if name == "lens - 1" else after > before + 1


def predict_ones(shift):
    """Train on ones, padded with zeros. Return the loss and what follows 1 to 6 ones."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(400):
        lens = torch.randint(2, N_STEPS, (32,))
        ones = (torch.arange(N_STEPS) < lens[:, None]).float()[..., None]
        loss = model(ones, lens=lens - shift)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return loss.item(), model.net(torch.ones(1, N_STEPS - 2, 1))[0, :, 0]


for name, shift in [("lens - 1", 1), ("lens", 0)]:
    loss, predictions = predict_ones(shift)
    print(f"trained with {name}: loss {loss:.3f} (due 0), after 1 to 6 ones it predicts "
          + " ".join(f"{value:.2f}" for value in predictions) + " (due 1)")
    if shift:
        assert loss < 0.01 and (predictions > 0.9).all()
    else:
        assert loss > 0.1 and (predictions < 0.9).all()
PYTHON
