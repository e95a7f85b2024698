"""Tokenizers of 330 pieces, learned from a few lines; and texts that are hard to give back."""

import io
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece

from data.bpe import learn_pieces

TEXT = "def f(x):\n    return x + 1  # naïve café, 中文, 🙂\n\n\nclass A:\n\tpass\n"
VOCAB = 330  # pieces of each tokenizer
FIRST_BYTE = 3  # Llama 2's ids: unk, bos, eos, then the 256 bytes
ODD_TEXTS = [  # that a tokenizer has to give back unchanged
    TEXT, "", " ", "  two", "a  b   c    d", "   leading and trailing   ", "\n\n\n\t\t",
    "\t\tx\r\ny\rz", "\0", "a\0\0b", "</s> is <s> text <unk>", "<s></s><unk><0x0A><pad>", "<0x41>",
    "\u2581", "\u2581 a\u2581b", " \u2581 \u2581\u2581",  # sentencepiece's own mark for a space
    "\r\n\u2585", "\u2585\u2047",  # what it skips in training, what it prints for unk
    "\ufeffbom", "\ufffd", "\ue000\uffff\ufffe\U0010ffff", "🙂" * 3, " " * 41, "=" * 33,
    "\n\n\n", "0123456789", "\u0301",  # a combining mark with nothing to combine with
    "e\u0301 \u00e9 \ufb01 \u2460 \uff21",  # what other normalisations would change
    "\u4e2d\u6587\u5b57", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7",
    "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\u3000h\u00a0i"]


@cache
def learned_tokenizer() -> bytes:
    """The file of a tokenizer that is learned as prepare.py does."""
    text = TEXT + " " * 36
    return learn_pieces([text] * 5, VOCAB)


def train_tokenizer(folder: Path) -> Path:
    """Write this tokenizer; returns its file."""
    path = folder / "tokenizer.model"
    path.write_bytes(learned_tokenizer())
    return path


@cache
def learned_sentencepiece(**options: Any) -> bytes:
    """The file of a tokenizer that is learned by sentencepiece itself."""
    model = io.BytesIO()
    defaults: dict[str, Any] = {
        "sentence_iterator": iter((TEXT * 5).splitlines()), "model_type": "bpe",
        "vocab_size": VOCAB, "byte_fallback": True, "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False, "model_writer": model}
    sentencepiece.SentencePieceTrainer.train(**(defaults | options), minloglevel=3)
    return model.getvalue()


def train_sentencepiece(folder: Path, **options: Any) -> Path:
    """Write such a tokenizer; returns its file. It changes no text, but for what `options` say."""
    path = folder / "tokenizer.model"
    path.write_bytes(learned_sentencepiece(**options))
    return path
