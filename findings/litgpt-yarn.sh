#!/usr/bin/env bash
# LitGPT's YaRN slows the fast channels of RoPE and leaves the slow ones, the reverse of the paper.
#
# Versions: litgpt 0.5.13, torch 2.13.0.
# Guess before the run: a channel that turns more than beta_fast times within the original length
#     keeps its frequency; one that turns less than beta_slow times has it divided by `factor`; the
#     channels between are blended. (That it is reversed was suspected after reading the source.)
# Seen: the fast channels are divided and the slow ones kept. So a distance of eight tokens looks to
#     the fast channels like one, and the slow channels meet angles past those of the training,
#     which is what YaRN is there to avoid. Without `mscale` in the settings, the paper's factor on
#     the scores is left out as well. No warning; a model that is trained so trains without
#     complaint.
# For gyre: a model of gyre's that is trained on there needs linear or llama3 scaling, not YaRN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile litgpt==0.5.13 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import math

import torch
from litgpt import GPT, Config

HEAD_WIDTH = 64
BASE = 10_000
FACTOR = 8.0
ORIGINAL = 4096  # positions that the model was trained with
BETA_FAST, BETA_SLOW = 32.0, 1.0  # turns within the original length


def make_model(adjustments):
    return GPT(Config(block_size=32, padded_vocab_size=32, n_layer=1, n_head=1,
                      n_embd=HEAD_WIDTH, rotary_percentage=1.0, rope_base=BASE,
                      rope_adjustments=adjustments))


def score(frequencies, distance):
    """Return the mean product of two equal tokens at this distance, for weights of one."""
    return torch.cos(distance * frequencies).mean().item()


plain = torch.tensor([BASE ** (-channel / HEAD_WIDTH) for channel in range(0, HEAD_WIDTH, 2)])
model = make_model({"factor": FACTOR, "beta_fast": BETA_FAST, "beta_slow": BETA_SLOW,
                    "original_max_seq_len": ORIGINAL})
seen = torch.atan2(model.sin[1], model.cos[1])[:HEAD_WIDTH // 2]
divided_by = plain / seen
turns = ORIGINAL * plain / (2 * math.pi)
for channel in range(0, HEAD_WIDTH // 2, 3):
    print(f"channel {channel}: {turns[channel]:.1f} turns in {ORIGINAL} positions; its frequency "
          f"is divided by {divided_by[channel]:.2f}")

fast = turns > BETA_FAST
slow = turns < BETA_SLOW
print(f"{int(fast.sum())} fast channels, {int(slow.sum())} slow ones")
torch.testing.assert_close(seen[fast], plain[fast] / FACTOR)
torch.testing.assert_close(seen[slow], plain[slow])
blended = divided_by[~fast & ~slow]
assert (blended.diff() < 0).all()  # the paper's rise with the channel

by_paper = torch.where(fast, plain, plain / FACTOR)
for name, frequencies in [("no scaling", plain), ("the paper's ends", by_paper), ("LitGPT", seen)]:
    print(f"{name}: mean product of equal tokens at distances 1, 2 and 4: "
          f"{', '.join(f'{score(frequencies, distance):.3f}' for distance in [1, 2, 4])}")
assert score(plain, 4) < 0.75 < 0.95 < score(seen, 4)

largest = (ORIGINAL * FACTOR * seen)[slow].max().item() / (2 * math.pi)
trained = turns[slow].max().item()
print(f"the fastest slow channel has made {trained:.2f} turns in training, and makes {largest:.2f} "
      f"in {FACTOR:.0f} times the length")
assert largest > 7.9 * trained

linear = make_model({"factor": FACTOR})
torch.testing.assert_close(torch.atan2(linear.sin[1], linear.cos[1])[:HEAD_WIDTH // 2],
                           plain / FACTOR)
assert (model.cos[0] == 1).all()  # the paper multiplies both by 0.1 * log(8) + 1 = 1.21
PYTHON
