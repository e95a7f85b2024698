"""What the tests of formats/ share: runs of ours and folders of others, with weights so large that
a wrong layout shows."""

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
import transformers
from conftest import model_config
from conftest import run as exit_code
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

import export
from data.dataset import DataConfig
from data.tokenizer import Tokenizer, open_tokenizer
from gyre.cli import load_file as load_config
from gyre.config import Config, TrainConfig
from gyre.optim import OptimConfig
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.transformer import Transformer

TEXT = "def f(x):\n    return x + 1  # naïve café, 中文, 🙂\n\n\nclass A:\n\tpass\n"
ODD = [
    TEXT, "", " ", "  two", "a  b   c    d", "\n\n\n\t\t", "</s> is <s> text <unk>", "<0x41>",
    "\u2581 a\u2581b", "\0", "\r\n\u2585", "e\u0301", "🙂" * 3, " " * 41, "=" * 33, "0123456789",
]
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
    capsys.readouterr()
    assert exit_code(export.main, source, "--to", to, target, *options) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1, said
    for word in words:
        assert word in said, said
    assert files() == before


@functools.cache
def our_tokenizer() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        Tokenizer.train([TEXT + "    " * 9] * 5, VOCAB, path)
        return path.read_bytes()


def make_run(
    folder: Path, name: str = "ours", *, dtype=torch.float32, tokenizer: Path | None = None, **model
) -> RunDir:
    """A run with random weights: conftest's SIZES, untied, and what `model` changes."""
    if tokenizer is None:
        tokenizer = folder / "tokenizer.model"
        tokenizer.write_bytes(our_tokenizer())
    log = LogConfig(runs=str(folder), wandb="disabled")
    pieces = open_tokenizer(tokenizer.parent).vocab_size
    config = Config(
        model=model_config(**({"vocab_size": pieces, "tie_embeddings": False} | model)),
        data=DataConfig(vocab_size=pieces, seq_len=16), optim=OptimConfig(), train=TrainConfig(),
        log=log,
    )
    run = RunDir.create(log, name, config_yaml=config.to_yaml(), config={}, tokenizer=[tokenizer],
                        manifest={})
    made = Transformer(config.model)
    made.init_weights(1)
    generator = torch.Generator().manual_seed(2)
    weights = {
        name: 8 * w if w.ndim > 1 else w + 0.3 * torch.randn(w.shape, generator=generator)
        for name, w in made.state_dict().items()
    }
    run.save("best", {name: w.to(dtype) for name, w in weights.items()})
    return run


def load(run: RunDir) -> Transformer:
    model = Transformer(load_config(run.path / "config.yaml").model)
    model.load_state_dict(run.load_weights())
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


def assert_same_logits(one, other, length: int = POSITIONS) -> None:
    found, expected = logits(one, length), logits(other, length)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit by bit."""
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a
    )


def read(file: Path) -> dict:
    return json.loads(file.read_text(encoding="utf-8"))


def edit(file: Path, **fields) -> None:
    file.write_text(json.dumps(read(file) | fields), encoding="utf-8")


def rewrite(file: Path, **tensors) -> None:
    """Change or add these tensors of a safetensors file; None takes one away."""
    changed = load_file(file) | tensors
    save_file({name: t for name, t in changed.items() if t is not None}, file)


# --- tokenizers of others -------------------------------------------------------------------------


def train_sentencepiece(folder: Path, **options: Any) -> Path:
    """A tokenizer.model that changes no text, but for what `options` say."""
    words: dict[str, Any] = {
        "sentence_iterator": iter((TEXT * 5).splitlines()), "model_type": "bpe",
        "vocab_size": VOCAB, "byte_fallback": True, "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False, "model_prefix": str(folder / "tokenizer"),
    }
    sentencepiece.SentencePieceTrainer.train(**(words | options), minloglevel=3)
    (folder / "tokenizer.vocab").unlink()
    return folder / "tokenizer.model"


def save_llama2(folder: Path) -> None:
    """A tokenizer.model as Meta's: a space in front, nothing else changed."""
    train_sentencepiece(folder)
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def save_llama2_json(folder: Path) -> None:
    """The same with what transformers makes of it beside it."""
    with tempfile.TemporaryDirectory() as spare:
        shutil.copy(train_sentencepiece(folder), spare)
        tokenizer = transformers.LlamaTokenizer.from_pretrained(spare, add_bos_token=True)
        tokenizer.save_pretrained(folder)


def save_llama3(folder: Path) -> None:
    """Byte-level byte pairs, special tokens behind them, and BOS from the post-processor."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.Regex(r"\p{N}{1,3}| ?\p{L}+|\s+")
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Split(split, "isolated"), byte_level]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB - 3, show_progress=False, initial_alphabet=byte_level.alphabet()
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    start, end = "<|begin_of_text|>", "<|end_of_text|>"
    tokenizer.add_special_tokens([start, end])
    tokenizer.add_tokens(["<think>"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, tokenizer.token_to_id(start))]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end
    )
    fast.save_pretrained(folder)


TOKENIZERS = {"llama2": save_llama2, "llama2-json": save_llama2_json, "llama3": save_llama3}


def imported(tmp_path: Path, kind: str) -> tuple[RunDir, Path]:
    """(a run from transformers' own model with such a tokenizer and 6 ids more, their folder)."""
    folder, _ = their_folder(tmp_path, vocab_size=VOCAB + 6)
    (folder / "tokenizer.model").unlink()
    TOKENIZERS[kind](folder)
    return RunDir.open(export_to("run", folder, tmp_path / "imported")), folder
