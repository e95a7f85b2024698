"""What the tests of formats/ share: runs of ours and folders of others, with weights so large that
a wrong layout shows."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from conftest import model_config, refusal, untrained
from conftest import run as exit_code
from noise import TEXT
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

import export
from data.dataset import DataConfig
from data.tokenizer import Tokenizer, open_tokenizer
from gyre.checkpoint import WEIGHTS
from gyre.optim import OptimConfig
from gyre.options import Config, TrainConfig
from gyre.options import read_config as load_config
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.transformer import Transformer

VOCAB = 330
POSITIONS = 64  # as in conftest's SIZES
THEIR_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "initializer_range": 0.2,
}


def export_to(to: str, source: Path, target: Path, *options: str) -> Path:
    """`python export.py SOURCE --to TO TARGET ...`, which has to succeed; returns the target."""
    assert exit_code(export.main, source, "--to", to, target, *options) == 0
    return target


def refused(capsys, to, source, target, *words, options=()) -> None:
    """Exit 2 and one line that holds all of the words, and not a file more or less than before."""

    def files():
        return {p: p.stat().st_mtime_ns for p in target.parent.rglob("*")}

    before = files()
    (message,) = refusal(capsys, export.main, source, "--to", to, target, *options)
    for word in words:
        assert word in message, message
    assert files() == before


@functools.cache
def our_tokenizer() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        Tokenizer.train([TEXT + "    " * 9] * 5, VOCAB, path)
        return path.read_bytes()


def untied(**changes: Any) -> ModelConfig:
    """conftest's SIZES as other people's models have them, with these fields changed."""
    return model_config(tie_embeddings=False, **changes)


def make_run(
    folder: Path, name: str = "ours", *, dtype=torch.float32, tokenizer: Path | None = None, **model
) -> RunDir:
    """A run with random weights: conftest's SIZES, untied, and what `model` changes."""
    if tokenizer is None:
        tokenizer = folder / "tokenizer.model"
        tokenizer.write_bytes(our_tokenizer())
    pieces = open_tokenizer(tokenizer.parent).vocab_size
    config = Config(
        model=model_config(**({"vocab_size": pieces, "tie_embeddings": False} | model)),
        data=DataConfig(vocab_size=pieces, seq_len=16), optim=OptimConfig(), train=TrainConfig(),
        log=LogConfig(),
    )
    run = untrained(folder, name, tokenizer, config)
    made = Transformer(config.model)
    made.init_weights(1)
    generator = torch.Generator().manual_seed(2)
    weights = {
        name: 8 * w if w.ndim > 1 else w + 0.3 * torch.randn(w.shape, generator=generator)
        for name, w in made.state_dict().items()
    }
    save_best(run, {name: w.to(dtype) for name, w in weights.items()})
    return run


def save_best(run: RunDir, weights: dict[str, Tensor]) -> None:
    """Make these the best weights of a run, of step 1."""
    def write(folder: Path) -> list[Path]:
        save_file(weights, folder / WEIGHTS)
        return [folder / WEIGHTS]

    run.checkpoints.save("best", write, {"step": 1})


def load(run: RunDir) -> Transformer:
    model = Transformer(load_config(run.path / "config.yaml").model)
    model.load_state_dict(run.checkpoints.load_weights())
    return model.eval()


def their_folder(
    folder: Path, dtype=torch.float32, shards: str = "5GB", kind=LlamaConfig, **changes: Any
) -> tuple[Path, torch.nn.Module]:
    """A random model of transformers' own making, saved by its own code, and our tokenizer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**{**THEIR_SIZES, **changes})).to(dtype).eval()
    folder = folder / "theirs"
    model.save_pretrained(folder, max_shard_size=shards)
    (folder / "tokenizer.model").write_bytes(our_tokenizer())
    return folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def logits(model, length: int = POSITIONS) -> Tensor:
    """Over the full context."""
    tokens = torch.randint(VOCAB, (2, length), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        out = model(tokens)
    return out if isinstance(out, Tensor) else out.logits


def assert_same_logits(first, second, length: int = POSITIONS) -> None:
    torch.testing.assert_close(logits(first, length), logits(second, length), rtol=0, atol=1e-4)


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Bit by bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def read(file: Path) -> dict:
    return json.loads(file.read_text(encoding="utf-8"))


def edit(file: Path, **fields) -> None:
    file.write_text(json.dumps(read(file) | fields), encoding="utf-8")


def rewrite(file: Path, **tensors) -> None:
    """Change or add these tensors of a safetensors file; None takes one away."""
    changed = load_file(file) | tensors
    save_file({name: t for name, t in changed.items() if t is not None}, file)
