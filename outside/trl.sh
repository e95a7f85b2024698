#!/usr/bin/env bash
# trl and peft: the model is fine-tuned on `text + tokenizer.eos_token`, the idiom of most examples.
# The trainer has to see EOS as the last id, or the model does not learn to stop. Then transformers
# continues prompts of the same kind, which were not trained on: do the texts end by themselves?
. "$(dirname "$0")/common.sh"
install trl==1.16.0 peft==0.21.2 transformers==5.23.0 torch==2.13.0
ask <<'END'
import os
from pathlib import Path

import torch
from answer import answer, transformers_model
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

LORA = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
NAMES = ["Ada", "Ben", "Carla", "Dora", "Emil", "Fritz", "Greta", "Hugo"]
PLACES = ["harbour", "market", "church", "mill", "bridge", "garden", "gate", "river"]
NEW_TOKENS = 64  # at most; a text has 8 or so
STEPS = 60


def fine_tune() -> list[str]:
    """Return what the trainer saw, and how many texts ended by themselves before and after."""
    folder = Path(os.environ["OUTSIDE_MADE"], "plain/hf")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = []
    held_out = []
    for i, name in enumerate(NAMES):
        for j, place in enumerate(PLACES):
            if i == j:
                held_out.append(f"{name} asks for the {place}.")
            else:
                text = f"{name} asks for the {place}. It is behind the next house."
                rows.append({"text": text + tokenizer.eos_token})
    before = count_ended(model, tokenizer, held_out)
    settings = SFTConfig("trained", max_steps=STEPS, per_device_train_batch_size=14,
                         learning_rate=1e-3, use_cpu=True, report_to="none", save_strategy="no",
                         bf16=False, gradient_checkpointing=False, disable_tqdm=True)
    trainer = SFTTrainer(model, settings, train_dataset=Dataset.from_list(rows),
                         processing_class=tokenizer)
    trainer.train()
    last = [ids[-2:] for ids in trainer.train_dataset["input_ids"]]
    right = all(pair[-1] == tokenizer.eos_token_id != pair[-2] for pair in last)
    after = count_ended(model, tokenizer, held_out)
    return [f"`text + eos_token` ends with EOS: {'yes' if right else 'no'}",
            f"fine-tuned, {after} of {len(held_out)} new texts end by themselves ({before} before)"]


def count_ended(model, tokenizer, prompts) -> int:
    """Return how many greedy texts end with EOS before they have NEW_TOKENS."""
    ended = 0
    for prompt in prompts:
        given = tokenizer(prompt, return_tensors="pt")
        [ids] = model.generate(**given, do_sample=False, max_new_tokens=NEW_TOKENS)
        print(repr(tokenizer.decode(ids)))
        new = ids[given.input_ids.shape[1]:]
        if len(new) < NEW_TOKENS and new[-1] == tokenizer.eos_token_id:
            ended += 1
    return ended


def load(folder):
    return transformers_model(folder, lambda model: get_peft_model(model, LORA))


answer(load, fine_tune())
END
