#!/usr/bin/env bash
# trl and peft: a LoRA of the model is trained on `text + tokenizer.eos_token`, the idiom of most
# examples. The trainer has to see EOS as the last id, or the model does not learn to stop.
. "$(dirname "$0")/common.sh"
install trl==1.16.0 peft==0.21.2 transformers==5.23.0 torch==2.13.0
ask <<'END'
import os
from pathlib import Path

from answer import answer, transformers_model
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

LORA = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])


def last_ids() -> str:
    """Return whether the trainer's last id is EOS, after one step of training."""
    folder = Path(os.environ["OUTSIDE_MADE"], "plain/hf")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [{"text": text + tokenizer.eos_token} for text in ("def f(x):", "a b c")]
    settings = SFTConfig("trained", max_steps=1, per_device_train_batch_size=2, use_cpu=True,
                         report_to="none", save_strategy="no", bf16=False)
    trainer = SFTTrainer(str(folder), settings, train_dataset=Dataset.from_list(rows),
                         processing_class=tokenizer, peft_config=LORA)
    trainer.train()
    print(trainer.train_dataset["input_ids"])
    last = [ids[-2:] for ids in trainer.train_dataset["input_ids"]]
    right = all(pair[-1] == tokenizer.eos_token_id != pair[-2] for pair in last)
    return f"`text + eos_token` ends with EOS: {'yes' if right else 'no'}"


def load(folder):
    return transformers_model(folder, lambda model: get_peft_model(model, LORA))


answer(load, [last_ids()])
END
