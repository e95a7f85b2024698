#!/usr/bin/env bash
# mlm-pytorch masks all tokens of a short text if its padding is on the left.
#
# Versions: mlm-pytorch 0.1.0, torch 2.13.0.
# Guess before the run: with `mask_prob=0.15`, 15 % of the tokens of a text are masked, wherever its
#     padding is; padding and tokens of `mask_ignore_token_ids` never change; with
#     `random_token_prob=0.1`, a tenth of the chosen tokens is random, as in BERT. (That it is not
#     so was suspected after reading the source.)
# Seen: a text of 15 tokens in a row of 128 has 4 masked tokens if the padding is on the right. On
#     the left, all 15 are masked, and 5 tokens of padding or CLS are given to the model as the mask
#     token too: the excess is cut off where the row begins, not where the text does. Random ones
#     replace a tenth of all tokens, also of padding and ignored ones, where a tenth of the masked
#     ones was due.
# For gyre: it trains on the next token. There, pad on the right, with `random_token_prob=0`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mlm-pytorch==0.1.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from mlm_pytorch import MLM

PAD, CLS, MASK = 0, 1, 2
N_TOKENS = 100
LENGTH = 128
N_TEXT = 16
N_ROWS = 500

torch.set_num_threads(1)


class Recorder(torch.nn.Module):
    """A model that keeps what it is given."""

    def forward(self, ids):
        self.ids = ids
        return torch.zeros(*ids.shape, N_TOKENS)


def measure(side, random_token_prob):
    """Return the mean numbers per row of masked text, masked padding and random tokens."""
    torch.manual_seed(0)
    text = torch.randint(3, N_TOKENS, (N_ROWS, N_TEXT))
    text[:, 0] = CLS
    padding = torch.full((N_ROWS, LENGTH - N_TEXT), PAD)
    ids = torch.cat([text, padding] if side == "right" else [padding, text], dim=1)
    recorder = Recorder()
    model = MLM(recorder, num_tokens=N_TOKENS, mask_token_id=MASK, pad_token_id=PAD,
                mask_prob=0.15, replace_prob=1.0, random_token_prob=random_token_prob,
                mask_ignore_token_ids=[CLS])
    model(ids)
    masked = recorder.ids == MASK
    is_text = ids > MASK
    is_random = (recorder.ids != ids) & ~masked
    counts = []
    for chosen in (masked & is_text, masked & ~is_text, is_random & is_text, is_random & ~is_text):
        counts.append(chosen.sum().item() / N_ROWS)
    return counts


for side in ("right", "left"):
    text, other, _, _ = measure(side, 0.0)
    print(f"padding on the {side}: of {N_TEXT - 1} tokens {text:.2f} are masked, and {other:.2f} "
          f"of padding and CLS")
    if side == "right":
        assert text == 4 and other == 0
    else:
        assert text == N_TEXT - 1 and other > 4
_, _, text, other = measure("right", 0.1)
print(f"random_token_prob=0.1: {text:.2f} random tokens in the text, {other:.2f} in padding and "
      f"CLS")
assert text > 1.2 and other > 9
PYTHON
