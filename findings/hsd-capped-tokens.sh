#!/usr/bin/env bash
# Capped hierarchical speculative decoding gives other texts than the target model's.
#
# Versions: sequential-speculative-decoding 0.1.1, transformers 4.57.6, torch 2.13.0.
# Guess before the run: each of the package's three methods "accelerates inference without changing
#     the output distribution", as its README says. (That the capped one reads the probabilities of
#     other positions was suspected after reading the source.)
# Seen: with drafts of two or three tokens, the capped method, which the README finds to be the
#     fastest, gives first tokens with the draft's probabilities: 0.94 for a token to which the
#     target gives 0.51, and 0.00 for one with 0.21. The acceptance leaves the last drafted token
#     out, and the replacement of the first one is drawn from the probabilities of the last
#     position. The standard and the naive method are within 0.02 of the target, which is the noise
#     of the drawing.
# For gyre: it decodes without a draft. There, take "standard".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sequential-speculative-decoding==0.1.1 \
    transformers==4.57.6 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import types

import torch
from seqspecdecod.capped_hsd import capped_hsd_step
from seqspecdecod.naive_hsd import naive_hsd_step
from seqspecdecod.standard_sd import standard_speculative_step

VOCABULARY = 3
N_SAMPLES = 3000
torch.set_num_threads(1)


class TinyModel:
    """A language model whose next token depends on the last one."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(VOCABULARY, VOCABULARY, generator=generator) * 1.5

    def __call__(self, ids):
        return types.SimpleNamespace(logits=self.table[ids])


draft, target = TinyModel(0), TinyModel(1)
prompt = torch.tensor([[0]])
expected = target.table[0].softmax(-1)
print(f"first token: the target's probabilities are {[round(p, 2) for p in expected.tolist()]}, "
      f"the draft's {[round(p, 2) for p in draft.table[0].softmax(-1).tolist()]}")
for name, step in [("standard", standard_speculative_step), ("naive", naive_hsd_step),
                   ("capped", capped_hsd_step)]:
    for n_drafted in [2, 3]:
        torch.manual_seed(0)
        counts = torch.zeros(VOCABULARY)
        for _ in range(N_SAMPLES):
            ids, _, _ = step(draft, target, prompt, gamma=n_drafted, draft_temperature=1.0,
                             target_temperature=1.0)
            counts[ids[0, 1]] += 1
        seen = counts / N_SAMPLES
        distance = (seen - expected).abs().sum().item() / 2
        print(f"{name}, {n_drafted} drafted tokens: {[round(p, 2) for p in seen.tolist()]}, "
              f"{distance:.3f} in total variation from the target")
        assert distance > 0.3 if name == "capped" else distance < 0.04
PYTHON
