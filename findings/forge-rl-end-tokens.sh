#!/usr/bin/env bash
# forge-rl's loss has no end tokens, and its learning rate hardly decays by the end of training.
#
# Versions: forge-rl 0.1.2, transformers 5.23.0, torch 2.13.0.
# Guess before the run: the log-probability of a response is that of all tokens that were sampled,
#     its end token included, so that the policy learns where to end; the "cosine-with-warmup"
#     schedule has its peak after 10 % of the updates, and is near 0 with the last one. (Both were
#     suspected otherwise after reading the source.)
# Seen: responses are decoded without special tokens, and the text is encoded again: of 960
#     responses, 856 were ended by an end token, and of the 3894 tokens of the loss, none is one, so
#     that where to end is learned by the probabilities of other tokens alone. The schedule is made
#     for one step per prompt, and makes one per update, of 4 prompts by default: the peak is
#     reached with update 13 of 30, and the last update has 94 % of it.
# For gyre: it trains no policies. There, take TRL, whose masks include the end token.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==5.23.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps forge-rl==0.1.2
export HF_HOME="$folder/hf" HF_HUB_OFFLINE=1
cd "$folder"  # checkpoints are saved here
env/bin/python -W ignore - 2> errors <<'PYTHON' || { cat errors; exit 1; }
import contextlib
import io

import torch
from forge import BaseReward, GRPOConfig, GRPOTrainer
from forge.core import trainer as trainer_module
from forge.core.reward import RewardOutput
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

END = 0
N_PROMPTS = 40
torch.set_num_threads(1)
torch.manual_seed(0)
words = ["<end>", "<unk>"] + [f"w{i}" for i in range(6)]
backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
backend.pre_tokenizer = WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>",
                                    pad_token="<end>", unk_token="<unk>", model_max_length=64)
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), n_positions=64, n_embd=16, n_layer=1,
                                   n_head=2, bos_token_id=END, eos_token_id=END))


class Few(BaseReward):
    def __call__(self, prompts, responses):
        return RewardOutput(scores=[float(len(response.split()) < 5) for response in responses])


n_ended = 0
n_responses = 0
real_generate = model.generate


def generate(**options):
    global n_ended, n_responses
    outputs = real_generate(**options)
    n_ended += (outputs[:, options["input_ids"].shape[1]:] == END).any(dim=1).sum().item()
    n_responses += len(outputs)
    return outputs


n_end_tokens = 0
n_tokens = 0
real_log_probs = trainer_module.compute_token_log_probs


def log_probs(model, input_ids, attention_mask, response_mask):
    global n_end_tokens, n_tokens
    if model.training:  # the policy
        n_end_tokens += ((input_ids == END) & (response_mask > 0)).sum().item()
        n_tokens += int(response_mask.sum().item())
    return real_log_probs(model, input_ids, attention_mask, response_mask)


model.generate = generate
trainer_module.compute_token_log_probs = log_probs
config = GRPOConfig(group_size=8, max_new_tokens=16, learning_rate=1e-3, output_dir="out",
                    num_train_epochs=3, gradient_accumulation_steps=4)
trainer = GRPOTrainer(model, tokenizer, Few(), config)
rates = []
trainer.optimizer.register_step_pre_hook(
    lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
with contextlib.redirect_stdout(io.StringIO()):
    trainer.train([{"prompt": f"w{i % 6} w{i // 6 % 6}"} for i in range(N_PROMPTS)])
print(f"{n_ended} of {n_responses} responses were ended by an end token; of the {n_tokens} tokens "
      f"of the loss, {n_end_tokens} are end tokens")
assert n_ended > 500 and n_end_tokens == 0
print(f"learning rate: the largest one is reached with update {rates.index(max(rates)) + 1} of "
      f"{len(rates)}; the last one is {rates[-1] / max(rates):.3f} of it")
assert len(rates) == 30 and rates.index(max(rates)) > 10 and rates[-1] > 0.9 * max(rates)
PYTHON
