#!/usr/bin/env bash
# torchtune's normalized advantages keep their mean: with a new critic, the worst answers are reinforced too.
#
# Versions: torchtune 0.6.1, torch 2.13.0.
# Guess before the run: `estimate_advantages` normalizes the advantages of a batch, so that they have
#     the mean 0 and the deviation 1, and an answer below the average has a negative one. (That the
#     mean is added again was suspected after reading the source.)
# Seen: the deviation is 1, but the mean is that of the raw advantages. Where answers have rewards
#     around 5 with a deviation of 1, and the critic still says 0, all advantages are positive: those
#     of the answers below the average too. With rewards around -5, all are negative, those of the
#     best answers too. `whiten` follows a function of trl, where `shift_mean=True` centres. Here the
#     same argument with the same default adds the mean back, and `estimate_advantages` does not set
#     it. With a critic that knows the mean reward, there is no difference.
# For gyre: it does not learn from rewards. There, subtract the mean of the valid advantages.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 torchao==0.16.0 torchdata==0.11.0 \
    numpy==2.4.6 omegaconf==2.4.0 tiktoken==0.14.0 sentencepiece==0.2.3 blobfile==3.3.0 \
    datasets==5.2.0 huggingface_hub==2.4.0 safetensors==0.8.0 tokenizers==0.23.3 psutil==7.2.2 \
    pillow==13.0.0 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchtune==0.6.1
cd "$folder"
env/bin/python - <<'PYTHON'
import torch
from torchtune.rlhf import estimate_advantages

N_ANSWERS = 256
LENGTH = 12

torch.manual_seed(0)
lengths = torch.randint(4, LENGTH + 1, (N_ANSWERS,))
valid = torch.arange(LENGTH) < lengths[:, None]


def measure(mean_reward, critic):
    """Return mean and deviation, and the share of positive ones below and above the average."""
    rewards = torch.zeros(N_ANSWERS, LENGTH)
    scores = mean_reward + torch.randn(N_ANSWERS)
    rewards[torch.arange(N_ANSWERS), lengths - 1] = scores
    values = critic * valid
    advantages, _ = estimate_advantages(values, rewards, gamma=1.0, lmbda=1.0, masks=valid)
    of_tokens = advantages[valid]
    first = advantages[:, 0]
    worse = first[scores < scores.mean()]
    better = first[scores > scores.mean()]
    shares = [(part > 0).float().mean().item() for part in (worse, better)]
    print(f"rewards around {mean_reward}, critic {critic}: mean {of_tokens.mean().item():.2f}, "
          f"deviation {of_tokens.std().item():.2f}; positive below the average {shares[0]:.0%}, "
          f"above it {shares[1]:.0%}")
    return of_tokens.mean().item(), of_tokens.std().item(), shares


mean, deviation, shares = measure(5.0, 0.0)
assert mean > 4.5 and abs(deviation - 1) < 0.01 and shares == [1, 1]
mean, deviation, shares = measure(-5.0, 0.0)
assert mean < -4.5 and abs(deviation - 1) < 0.01 and shares == [0, 0]
mean, deviation, shares = measure(5.0, 5.0)
assert abs(mean) < 0.2 and shares[0] < 0.2 and shares[1] > 0.8
PYTHON
