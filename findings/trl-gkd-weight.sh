#!/usr/bin/env bash
# GKDTrainer weighs a text that the student wrote by its length, over that of the text in the data.
#
# Versions: trl 1.16.0, transformers 5.24.0, accelerate 1.15.0, torch 2.13.0.
# Guess before the run: the loss of GKD is the mean divergence of a token, of texts of the data and of
#     texts of the student alike, as it is in DistillationTrainer. (That the number of labels is counted
#     before a text is generated was read in the source before the run.)
# Seen: for answers of the data, which have 4 tokens, a mean divergence of 0.37 is a loss of 0.37. For
#     generated ones, 0.38 is a loss of 1.5 with 16 new tokens, and 0.37 one of 5.1 with 64, whose
#     gradient is 6 times as long. So with `lmbda=0.5` the student's texts outweigh those of the data.
# Cause: transformers counts `num_items_in_batch` on the labels of the data. `training_step` generates and
#     replaces the labels afterwards, and the sum is divided by the old count (gkd_trainer.py). A comment in
#     distillation_trainer.py names the trap, and counts anew.
# For gyre: it does not distill. There, let `max_new_tokens` be the length of the answers in the data, or
#     take DistillationTrainer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==5.24.0 \
    accelerate==1.15.0 datasets==5.2.0 trl==1.16.0
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { tail -20 "$folder/errors"; exit 1; }
import contextlib
import io
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.experimental.gkd import GKDConfig, GKDTrainer

torch.set_num_threads(1)
WORDS = ["<pad>", "<eos>", "<unk>", "user", "assistant", ":"] + [f"w{i}" for i in range(26)]
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>",
                                    unk_token="<unk>")
tokenizer.chat_template = ("{% for m in messages %}{{ m['role'] + ' : ' + m['content'] + ' <eos> ' }}"
                           "{% endfor %}{% if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}")
CHOICES = random.Random(0)


def say(role, n_words):
    return {"role": role, "content": " ".join(CHOICES.choices(WORDS[6:], k=n_words))}


DATA = Dataset.from_list([{"messages": [say("user", 4), say("assistant", 3)]} for _ in range(4)])


def make_model(seed):
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=256, initializer_range=0.3, pad_token_id=0,
        eos_token_id=1, bos_token_id=None))
    with torch.no_grad():
        model.lm_head.weight[1] = 0  # so that a text rarely ends early
    return model


def step(lmbda, max_new_tokens):
    """Return the loss and the norm of the gradient of one step, and the mean divergence of its tokens."""
    arguments = GKDConfig(
        output_dir="run", lmbda=lmbda, max_new_tokens=max_new_tokens, temperature=1.0, max_length=128,
        per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=1, learning_rate=0.0,
        max_grad_norm=1e9, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=False,
        gradient_checkpointing=False)
    trainer = GKDTrainer(model=make_model(1), teacher_model=make_model(2), args=arguments,
                         train_dataset=DATA, processing_class=tokenizer)
    compute = trainer.generalized_jsd_loss
    means = []

    def record(num_items_in_batch, **given):
        means.append(compute(**given).item())
        return compute(num_items_in_batch=num_items_in_batch, **given)

    trainer.generalized_jsd_loss = record
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    logged = trainer.state.log_history[0]
    return logged["loss"], logged["grad_norm"], means[0]


loss, norm_of_data, mean = step(lmbda=0.0, max_new_tokens=4)
print(f"answers of the data: mean divergence {mean:.3f}, loss {loss:.3f}, gradient {norm_of_data:.3f}")
assert abs(loss - mean) < 1e-3
for max_new_tokens, due in [(4, 1), (16, 4), (64, 16)]:
    loss, norm, mean = step(lmbda=1.0, max_new_tokens=max_new_tokens)
    print(f"answers of the student, {max_new_tokens} new tokens: mean divergence {mean:.3f}, "
          f"loss {loss:.3f}, {loss / mean:.1f} times that, gradient {norm:.3f}")
    assert 0.6 * due < loss / mean < 1.01 * due
assert norm > 5 * norm_of_data
PYTHON
