"""Runs that nobody trained, for tests of what generates: their models write noise."""

from functools import partial
from pathlib import Path
from typing import Any

from builders import parse_config, untrained_run
from small_tokenizers import VOCAB, train_tokenizer
from torch import Tensor

from gyre.checkpoint import WEIGHTS, write_tensors
from gyre.parallel import ALONE
from gyre.rundir import RunDir
from model.config import ModelConfig
from model.transformer import Transformer

PROMPT = "def f(x):\n"


def random_run(runs: Path, name: str, **model: Any) -> RunDir:
    """A run of a small model with rows of 32 tokens; `best` and `last` have other weights.

    `model` are fields of ModelConfig.
    """
    sizes = {"dim": 24, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1, "hidden_dim": 40}
    words = [f"--model.{key}={value}" for key, value in (sizes | model).items()]
    words += [f"--data.vocab_size={VOCAB}", "--data.seq_len=32", "--train.sample_tokens=0"]
    config = parse_config(*words)
    run = untrained_run(runs, name, train_tokenizer(runs.parent), config)
    save_weights(run, "last", random_weights(config.model, seed=0))
    save_weights(run, "best", random_weights(config.model, seed=1))
    return run


def random_weights(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """Large weights, with which some tokens are much likelier than others."""
    model = Transformer(config)
    model.init_weights(seed)
    weights = {key: 5 * value for key, value in model.state_dict().items()}
    weights["tok_embeddings.weight"][2] = 0  # EOS has logit 0, never the largest: greedy goes on
    return weights


def save_weights(run: RunDir, name: Any, weights: dict[str, Tensor]) -> None:
    """Write a checkpoint that has weights only."""
    run.checkpoints.save(name, partial(write_tensors, files={WEIGHTS: weights}, world=ALONE),
                         {"step": 0})
