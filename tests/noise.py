"""Runs that nobody trained, for tests of what generates: their models write noise."""

from functools import partial
from pathlib import Path
from typing import Any

import sentencepiece
from conftest import load, untrained
from torch import Tensor

from data.bpe import learn_pieces
from gyre.checkpoint import WEIGHTS, write_tensors
from gyre.parallel import ALONE
from gyre.rundir import RunDir
from model.transformer import Transformer

TEXT = "def f(x):\n    return x + 1  # naïve café, 中文, 🙂\n\n\nclass A:\n\tpass\n"
PROMPT = "def f(x):\n"
VOCAB = 330
FIRST_BYTE = 3  # Llama 2's ids: unk, bos, eos, then the 256 bytes
ODD = [
    TEXT, "", " ", "  two", "a  b   c    d", "   leading and trailing   ", "\n\n\n\t\t",
    "\t\tx\r\ny\rz", "\0", "a\0\0b", "</s> is <s> text <unk>", "<s></s><unk><0x0A><pad>", "<0x41>",
    "\u2581", "\u2581 a\u2581b", " \u2581 \u2581\u2581",  # sentencepiece's own mark for a space
    "\r\n\u2585", "\u2585\u2047",  # what it skips in training, what it prints for unk
    "\ufeffbom", "\ufffd", "\ue000\uffff\ufffe\U0010ffff", "🙂" * 3, " " * 41, "=" * 33,
    "\n\n\n", "0123456789", "\u0301",  # a combining mark with nothing to combine with
    "e\u0301 \u00e9 \ufb01 \u2460 \uff21",  # what other normalisations would change
    "\u4e2d\u6587\u5b57", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7",
    "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\u3000h\u00a0i"]


def train_tokenizer(folder: Path) -> Path:
    path = folder / "tokenizer.model"
    path.write_bytes(learn_pieces([TEXT + "    " * 9] * 5, VOCAB))
    return path


def train_sentencepiece(folder: Path, **options: Any) -> Path:
    """A tokenizer.model that changes no text, but for what `options` say."""
    words: dict[str, Any] = {
        "sentence_iterator": iter((TEXT * 5).splitlines()), "model_type": "bpe",
        "vocab_size": VOCAB, "byte_fallback": True, "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False, "model_prefix": str(folder / "tokenizer")}
    sentencepiece.SentencePieceTrainer.train(**(words | options), minloglevel=3)
    (folder / "tokenizer.vocab").unlink()
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


def save_weights(run: RunDir, name: Any, weights: dict[str, Tensor]) -> None:
    """Write a checkpoint that has weights only."""
    run.checkpoints.save(name, partial(write_tensors, files={WEIGHTS: weights}, world=ALONE), {})
