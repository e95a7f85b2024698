"""What a word may have been meant for that names no option, or that stands behind one."""

import glob
import json
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_origin

from errors import closest
from gyre.options import OPTIONS

# Words of other repositories for our options: first for those of train.py and ablate.py, then for
# those of generate.py. A word may stand for several. The first that the command has is meant.
HABITS = {
    "arms": "encodings positions",
    "config": "c config_file",
    "data.files": "data data_dir data_path dataset input text train_file",
    "data.seq_len": "block_size context context_length ctx_len max_seq_len seq_length "
                    "sequence_length",
    "data.vocab_size": "n_vocab vocab vocab_size",
    "init_from": "finetune finetune_from model_name_or_path pretrained",
    "log.runs": "save_dir",
    "model.dim": "d_model emb_dim hidden_size n_embd",
    "model.hidden_dim": "ffn_dim intermediate_size",
    "model.n_heads": "n_head num_attention_heads num_heads",
    "model.n_kv_heads": "n_kv_head num_key_value_heads",
    "model.n_layers": "depth n_layer num_hidden_layers num_layers",
    "model.theta": "rope_theta",
    "name": "exp_name out out_dir output_dir run_name wandb_run_name",
    "optim.final_lr": "min_lr",
    "optim.grad_clip": "clip max_grad_norm",
    "optim.lr": "learning_rate max_lr",
    "optim.schedule": "decay_lr lr_decay lr_scheduler_type",
    "optim.warmup_steps": "warmup warmup_iters",
    "resume": "resume_from resume_from_checkpoint",
    "train.dtype": "amp bf16 fp16 fp32 mixed_precision precision torch_dtype",
    "train.eval_interval": "eval_every eval_steps save_steps",
    "train.micro_batch_size": "device_batch_size per_device_train_batch_size",
    "train.sample_prompt": "prompt start",
    "train.sample_tokens": "max_new_tokens",
    "train.steps": "iters max_iters max_steps num_iterations",
    "dtype": "bf16 fp16 fp32 precision torch_dtype",
    "max_new_tokens": "length max_length max_tokens n_predict num_tokens",
    "num_samples": "n_samples num_return_sequences",
    "prompt": "input start text",
    "run": "checkpoint_path ckpt ckpt_path model model_name_or_path model_path out_dir",
    "temperature": "do_sample temp",
}

# Words of other repositories that no option means quite.
EXPLAINED = {
    "epochs max_epochs num_epochs num_train_epochs":
        "gyre counts steps: leave it out, and they are chosen for the text, or say --train.steps",
    "gradient_accumulation_steps grad_accum":
        "did you mean --train.micro_batch_size? It is the rows of a part, and not the number of "
        "parts",
    "size model_size":
        "did you mean --model.dim and --model.n_layers? The number of parameters follows from them",
    "disable_wandb no_wandb report_to use_wandb wandb_log":
        "did you mean --log.wandb disabled?",
}

# Options of each command beside those of the configuration. No command imports another for a hint.
COMMAND_OPTIONS = {
    "train.py": "at branch_from config init_from resume",
    "generate.py": "chat checkpoint compile device dtype interactive max_new_tokens min_p "
                   "num_samples prompt prompt_file repetition_penalty rope_factor rope_scaling run "
                   "stop temperature top_k top_p",
    "evaluate.py": "checkpoint context device json lengths plot stride",
    "ablate.py": "arm arms baseline beside config dry_run jobs no_tuning scheduler seeds tier "
                 "tokens",
    "bench.py": "config json new_tokens peer repeats",
    "export.py": "dtype to",
}


def suggest_name(word: str, names: Iterable[str], elsewhere: bool = False) -> str:
    """Return a did-you-mean for a misspelt option, or for the word of another repository; or "".

    Options are compared by the part after their section, with dashes as underscores. With
    `elsewhere`, an option of another command is told before options that are only similar.
    """
    plain = {name.lstrip("-").replace("-", "_"): name for name in names}
    by_last_part = {option.rpartition(".")[2]: option for option in plain}
    wanted = word.lstrip("-").replace("-", "_").rpartition(".")[2]
    option = find_option(wanted, plain)
    if option is not None:
        return f" (did you mean {plain[option]}?)"
    if "train.steps" in plain:  # what is explained are options of a training
        for words, explanation in EXPLAINED.items():
            if wanted in words.split():
                return f" ({explanation})"
    hint = suggest_command(wanted) if elsewhere else ""
    if hint:
        return hint
    last_part = closest(wanted, by_last_part)
    return f" (did you mean {plain[by_last_part[last_part]]}?)" if last_part else ""


def find_option(word: str, names: Iterable[str]) -> str | None:
    """Return the option that a word of another repository stands for, or that ends with the word.
    """
    options = list(names)
    for ours, words in HABITS.items():
        if word in words.split() and ours in options:
            return ours
    for option in options:
        if option.rpartition(".")[2] == word:
            return option
    return None


def suggest_command(word: str) -> str:
    """Return a hint at the command that has the option a word stands for, or "" if none has."""
    for command, words in COMMAND_OPTIONS.items():
        if word in words.split():
            return f" (--{word.replace('_', '-')} is an option of {command})"
    option = find_option(word, OPTIONS)
    return f" (--{option} is an option of train.py)" if option else ""


def advise(name: str, expected: Any, values: list[str]) -> str:
    """Return what to do about several words after an option whose type is `expected`."""
    parts = (expected, *get_args(expected))
    if any(get_origin(part) is list for part in parts):
        return advise_list(name, values)
    if name in ("--arms", "--tokens"):
        joined = ",".join(value.strip(",") for value in values)
        return f"put commas between them, as in {name} {joined}"
    if name == "--data.column":
        columns = ",".join(value.strip(",") for value in values)
        return (f"put commas between columns, as in {name} {columns}, or quote a name with spaces, "
                f"as in {name} {shlex.quote(' '.join(values))}")
    if str in parts:
        return f"quote it, as in {name} {shlex.quote(' '.join(values))}"
    return "leave it out"


def advise_list(name: str, values: list[str]) -> str:
    """Return what to do about several words after an option that takes a list."""
    spaced = " ".join(values)
    if os.path.exists(spaced) or glob.glob(spaced):
        return f"quote a name with spaces, as in {name} {shlex.quote(spaced)}"
    shown = [write_item(value) for value in values[:2]]
    if len(values) > 2:
        shown.append("...")
    items = ", ".join(shown)
    as_list = f"give a list, as in {name} {shlex.quote(f'[{items}]')}"
    first = Path(values[0])
    if not first.name or not first.exists():  # "." has no name to make a glob of
        return as_list
    if {Path(value).suffix for value in values} != {first.suffix}:
        return as_list
    # The shell may have expanded a glob, perhaps one over several folders.
    folder = first.parent
    pattern = f"*{first.suffix}"
    if len({Path(value).parent for value in values}) > 1:
        if first.is_absolute() or ".." in "".join(values):
            return as_list  # they may have little in common
        folder = Path(os.path.relpath(os.path.commonpath(map(os.path.abspath, values))))
        pattern = f"**/*{first.suffix}"
    quoted = shlex.quote(str(Path(glob.escape(str(folder)), pattern)))
    return f"quote a glob, as in {name} {quoted}, or {as_list}"


def write_item(value: str) -> str:
    """Return a value as an item of a list in YAML: in quotes where it needs them."""
    needs_quotes = re.search(r"""[][{},'"#]|: |^[&*!|>%@`]""", value)
    return json.dumps(value, ensure_ascii=False) if needs_quotes else value
