"""What the tests of formats/ share: runs of ours and folders of others, with weights so large that
a wrong layout shows."""

import json
from pathlib import Path
from typing import Any

import torch
from conftest import draw, model_config, refusal, untrained
from conftest import load as make_config
from conftest import run as exit_code
from foreign_tokenizers import SAVE
from noise import VOCAB, save_weights, train_tokenizer
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

import export
from data.tokenizer import open_tokenizer
from gyre.load import load as load_run
from gyre.rundir import RunDir
from model.config import ModelConfig
from model.transformer import Transformer

POSITIONS = 64  # as in conftest's SIZES
THEIR_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "initializer_range": 0.2}


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


def untied(**changes: Any) -> ModelConfig:
    """conftest's SIZES as other people's models have them, with these fields changed."""
    return model_config(**{"tie_embeddings": False, **changes})


def make_run(folder: Path, name: str = "ours", *, dtype=torch.float32,
             tokenizer: Path | None = None, **model) -> RunDir:
    """A run with random weights: conftest's SIZES, untied, and what `model` changes."""
    tokenizer = tokenizer or train_tokenizer(folder)
    pieces = open_tokenizer(tokenizer.parent).vocab_size
    config = make_config(f"--data.vocab_size={pieces}", "--train.sample_tokens=0")
    config.model = untied(**{"vocab_size": pieces, **model})
    run, made = untrained(folder, name, tokenizer, config), Transformer(config.model)
    made.init_weights(1)
    weights = {name: (8 * w if w.ndim > 1 else w + 0.3 * draw(*w.shape, seed=i)).to(dtype)
               for i, (name, w) in enumerate(made.state_dict().items())}
    save_weights(run, "best", weights)
    return run


def load(run: RunDir) -> Transformer:
    return load_run(run, device="cpu").model


def their_folder(folder: Path, tokenizer: str = "ours", *, dtype=torch.float32, shards="5GB",
                 kind=LlamaConfig, **changes: Any) -> Path:
    """A random model of transformers' own making, saved by its own code, with this tokenizer: ours,
    or another that SAVE names, for which the model has 6 ids more."""
    torch.manual_seed(0)
    sizes = THEIR_SIZES | {"vocab_size": VOCAB + 6 * (tokenizer != "ours")} | changes
    model = AutoModelForCausalLM.from_config(kind(**sizes)).to(dtype)
    folder = folder / f"theirs-{tokenizer}"
    model.save_pretrained(folder, max_shard_size=shards)
    SAVE[tokenizer](folder)
    return folder


def exported(tmp_path: Path, *options: str, **model) -> tuple[RunDir, Path]:
    """(a run as `make_run` makes it, a folder of theirs exported from it)."""
    run = make_run(tmp_path, **model)
    return run, export_to("hf", run.path, tmp_path / "hf", *options)


def reexport(folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """(a run imported from their folder, a folder of theirs exported from that run)."""
    run = export_to("run", folder, tmp_path / "ours")
    return run, export_to("hf", run, tmp_path / "hf")


def imported(tmp_path: Path, tokenizer: str) -> tuple[RunDir, Path]:
    """(a run from transformers' own model with such a tokenizer, their folder)."""
    folder = their_folder(tmp_path, tokenizer)
    return RunDir.open(export_to("run", folder, tmp_path / "imported")), folder


def greedy(folder: Path) -> list[int]:
    """The new ids of transformers for "def f(x"."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("def f(x", return_tensors="pt")["input_ids"]
    return model.generate(ids, max_new_tokens=20, do_sample=False)[0, ids.shape[1] :].tolist()


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
    """Change or add these fields of a file of JSON, which may not be there yet."""
    before = read(file) if file.exists() else {}
    file.write_text(json.dumps(before | fields), encoding="utf-8")


def rewrite(file: Path, **tensors) -> None:
    """Change or add these tensors of a safetensors file; None takes one away."""
    changed = load_file(file) | tensors
    save_file({name: t for name, t in changed.items() if t is not None}, file)
