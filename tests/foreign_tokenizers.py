"""Tokenizers as other people's models bring them, trained on a few lines."""

import json
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sentencepiece
import tokenizers
import transformers
from foreign import VOCAB, export_to, their_folder
from noise import TEXT
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore
from transformers.convert_slow_tokenizer import LlamaConverter
from transformers.tokenization_utils_base import generate_merges

from gyre.rundir import RunDir

ODD = [
    TEXT, "", " ", "  two", "a  b   c    d", "\n\n\n\t\t", "</s> is <s> text <unk>", "<0x41>",
    "\u2581 a\u2581b", "\0", "\r\n\u2585", "e\u0301", "🙂" * 3, " " * 41, "=" * 33, "0123456789",
]


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


def add_runs_of_spaces(model: Path) -> None:
    """Pieces of up to 16 spaces that share the score -1e9, as Llama 2's own do."""
    proto = ModelProto.FromString(model.read_bytes())
    (space,) = [piece for piece in proto.pieces if piece.piece == "\u2581"]
    space.score = -1e9
    for n in range(2, 17):
        proto.pieces.add(piece=n * "\u2581", score=-1e9)
    model.write_bytes(proto.SerializeToString())


class Extractor:
    """Merges from the scores of pieces, as transformers 4 had them; that of 5 fails here."""

    def __init__(self, model: Path): ...

    def extract(self, scores: list[tuple[str, float]]) -> tuple[dict, list]:
        vocabulary = {text: i for i, (text, _) in enumerate(scores)}
        return vocabulary, generate_merges(vocabulary, dict(scores))


def save_llama2_of_4(folder: Path) -> None:
    """What transformers 4 makes of Llama 2's own (`legacy`), and no tokenizer.model beside it."""
    model = train_sentencepiece(folder, vocab_size=VOCAB - 15)
    add_runs_of_spaces(model)
    pieces = sentencepiece.SentencePieceProcessor(str(model))
    slow = SimpleNamespace(vocab_file=model, legacy=True, convert_ids_to_tokens=pieces.id_to_piece)
    converter = LlamaConverter(slow)
    converter.SpmExtractor = Extractor  # pyrefly: ignore
    tokenizer = converter.converted()
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    described = json.loads(tokenizer.to_str())
    del described["model"]["type"]  # tokenizers wrote none at first, and a pair as one text
    described["model"]["merges"] = [" ".join(pair) for pair in described["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    model.unlink()
    settings = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True,
                "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


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


TOKENIZERS = {"llama2": save_llama2, "llama2-json": save_llama2_json,
              "llama2-of-4": save_llama2_of_4, "llama3": save_llama3}


def imported(tmp_path: Path, kind: str) -> tuple[RunDir, Path]:
    """(a run from transformers' own model with such a tokenizer and 6 ids more, their folder)."""
    folder, _ = their_folder(tmp_path, vocab_size=VOCAB + 6)
    (folder / "tokenizer.model").unlink()
    TOKENIZERS[kind](folder)
    return RunDir.open(export_to("run", folder, tmp_path / "imported")), folder
