"""Runs that nobody trained, for tests of what generates: their models write noise."""

from functools import partial
from pathlib import Path
from typing import Any

from conftest import load, untrained
from torch import Tensor

from data.tokenizer import Tokenizer
from gyre.checkpoint import WEIGHTS, write_tensors
from gyre.parallel import ALONE
from gyre.rundir import RunDir
from model.transformer import Transformer

TEXT = "def f(x):\n    return x + 1  # naïve café, 中文, 🙂\n\n\nclass A:\n\tpass\n"
PROMPT = "def f(x):\n"
VOCAB = 330
FIRST_BYTE = 3  # Llama 2's ids: unk, bos, eos, then the 256 bytes


def train_tokenizer(folder: Path) -> Path:
    Tokenizer.train([TEXT + "    " * 9] * 5, VOCAB, folder / "tokenizer.model")
    return folder / "tokenizer.model"


def noise_run(runs: Path, name: str, **model) -> RunDir:
    """A run of a small model with rows of 32 tokens; `best` and `last` differ."""
    model = {"dim": 24, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1, "hidden_dim": 40} | model
    words = [f"--model.{key}={value}" for key, value in model.items()]
    words += [f"--data.vocab_size={VOCAB}", "--data.seq_len=32", "--train.sample_tokens=0"]
    config = load(*words)
    run = untrained(runs, name, train_tokenizer(runs.parent), config)
    for seed, checkpoint in enumerate(("last", "best")):
        model = Transformer(config.model)
        model.init_weights(seed)
        weights = {key: 5 * value for key, value in model.state_dict().items()}
        weights["tok_embeddings.weight"][2] = 0  # a logit of 0 never is the largest: greedy goes on
        save_weights(run, checkpoint, weights)
    return run


def save_weights(run: RunDir, checkpoint: Any, weights: dict[str, Tensor]) -> None:
    """Write a checkpoint that has weights only."""
    run.checkpoints.save(
        checkpoint, partial(write_tensors, files={WEIGHTS: weights}, world=ALONE), {})
