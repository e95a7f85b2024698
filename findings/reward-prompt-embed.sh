#!/usr/bin/env bash
# In palm-rlhf-pytorch, a reward model fine-tuned by its own list ignores the prompt mask.
#
# Versions: palm-rlhf-pytorch 0.8.0, torch 2.13.0.
# Guess before the run: `finetune_parameters()` gives all that is to be trained, so that the reward
#     model learns where the prompt ends and the answer begins, which `prompt_lengths` tells it.
#     (That two embeddings are missing was suspected after reading the source.)
# Seen: prompt and answer are told apart by two embeddings, which start at zero and are not in the
#     list: they stay zero, and a reward is the same for every prompt length, bit for bit. Where the
#     label is the prompt's share of the text, the loss stays at the variance of the labels. Trained
#     by `parameters()`, the model learns it.
# For gyre: it has no reward models. There, give the optimizer `parameters()`, or add `prompt_embed`
#     and `response_embed`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile palm-rlhf-pytorch==0.8.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from palm_rlhf_pytorch import PaLM, RewardModel

LENGTH = 6
torch.set_num_threads(1)


def train(get_parameters, use_lora):
    """Learn the prompt's share of a text. Return the last losses, and rewards of one text."""
    torch.manual_seed(0)
    palm = PaLM(num_tokens=8, dim=32, depth=1, heads=2, dim_head=16)
    model = RewardModel(palm, dropout=0.0, use_lora=use_lora)
    optimizer = torch.optim.Adam(get_parameters(model), 2e-3)
    losses = []
    for _ in range(200):
        texts = torch.randint(0, 8, (32, LENGTH))
        prompt_lengths = torch.randint(1, LENGTH, (32,))
        labels = prompt_lengths / LENGTH * 2 - 1
        loss = model(texts, prompt_lengths=prompt_lengths, labels=labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        rewards = [model(texts[:1], prompt_lengths=torch.tensor([length])).item()
                   for length in (1, 3, 5)]
    return sum(losses[-50:]) / 50, rewards


due = [length / LENGTH * 2 - 1 for length in (1, 3, 5)]
print("due with prompts of 1, 3 and 5 tokens: rewards", *(f"{reward:.3f}" for reward in due))
for name, get_parameters, use_lora in [
        ("parameters()", RewardModel.parameters, False),
        ("finetune_parameters()", RewardModel.finetune_parameters, False),
        ("finetune_parameters(), LoRA", RewardModel.finetune_parameters, True)]:
    loss, rewards = train(get_parameters, use_lora)
    print(f"{name}: loss {loss:.4f}, rewards " + " ".join(f"{reward:.3f}" for reward in rewards))
    if name == "parameters()":
        assert loss < 0.01
        assert all(abs(reward - wanted) < 0.15 for reward, wanted in zip(rewards, due))
    else:
        assert loss > 0.1
        assert rewards[0] == rewards[1] == rewards[2]
PYTHON
