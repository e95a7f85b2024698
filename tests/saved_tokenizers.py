"""Tokenizers as other people's models bring them, trained on a few lines."""

import json
import shutil
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore
from small_tokenizers import VOCAB, train_sentencepiece, train_tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors


def save_settings(folder: Path, **settings: Any) -> None:
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def save_llama2(folder: Path) -> None:
    """A tokenizer.model as Meta's: a space in front, nothing else changed."""
    train_sentencepiece(folder)
    save_settings(folder, legacy=False)


def save_llama2_json(folder: Path) -> None:
    """The same with what transformers makes of it beside it."""
    train_sentencepiece(folder)
    transformers.LlamaTokenizer.from_pretrained(folder, add_bos_token=True).save_pretrained(folder)


def save_llama2_runs(folder: Path) -> None:
    """The first with pieces of up to 16 spaces that share the score -1e9, as Llama 2's own do."""
    model = train_sentencepiece(folder, vocab_size=VOCAB - 15)
    save_settings(folder, legacy=False)
    proto = ModelProto.FromString(model.read_bytes())
    (space,) = [piece for piece in proto.pieces if piece.piece == "\u2581"]
    space.score = -1e9
    for n in range(2, 17):
        proto.pieces.add(piece=n * "\u2581", score=-1e9)
    model.write_bytes(proto.SerializeToString())


def save_llama2_of_4(folder: Path) -> None:
    """What transformers 4 makes of the last (with `legacy`), and no tokenizer.model beside it.

    Merges are mixed where scores are equal, and each is one text, as `tokenizers` wrote them first.
    """
    shutil.copy(Path(__file__).with_name("llama2_of_4.json"), folder / "tokenizer.json")
    save_settings(folder, legacy=True, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def save_llama3(folder: Path) -> None:
    """Byte-level byte pairs, special tokens behind them, and BOS from the post-processor."""
    shutil.copy(Path(__file__).with_name("llama3.json"), folder / "tokenizer.json")
    save_settings(folder, tokenizer_class="PreTrainedTokenizerFast", add_bos_token=None,
                  bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")


def save_gemma(folder: Path) -> None:
    """The layout of Gemma's: no space in front, and runs of spaces among the added tokens."""
    content = json.loads(Path(__file__).with_name("llama2_of_4.json").read_text(encoding="utf-8"))
    merges = [tuple(merge.split(" ")) for merge in content["model"]["merges"]]
    theirs = tokenizers.Tokenizer(models.BPE(
        content["model"]["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    theirs.normalizer = normalizers.Replace(" ", "\u2581")
    theirs.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    theirs.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    theirs.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    theirs.add_special_tokens(["<unk>", "<s>", "</s>", "<start_of_turn>"])
    for mark in ("\n", "\t", "\u2581"):
        runs = [n * mark for n in range(2, 32)]
        theirs.add_tokens([tokenizers.AddedToken(run, normalized=False) for run in runs])
    theirs.save(str(folder / "tokenizer.json"))
    save_settings(folder, tokenizer_class="PreTrainedTokenizerFast", add_bos_token=None,
                  bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def add_tokens(folder: Path, *contents: str, **flags: bool) -> None:
    """Add tokens with these flags to a tokenizer.json, as `tokenizers` does."""
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.add_tokens([tokenizers.AddedToken(content, **flags) for content in contents])
    theirs.save(str(folder / "tokenizer.json"))


def described():
    """The tokenizer.json of a byte-level tokenizer."""
    return json.loads(Path(__file__).with_name("llama3.json").read_text(encoding="utf-8"))


def byte_level_fields(pre="smollm", **changes):
    """The fields of a GGUF with the tokens and merges of `described`, and some special ones."""
    model = described()["model"]
    tokens = [*model["vocab"], "<|bos|>", "<|eos|>", "<|im_end|>", "<think>"]
    fields = {
        "model": "gpt2", "pre": pre, "tokens": tokens,
        "token_type": [1] * len(model["vocab"]) + [3, 3, 3, 4],
        "merges": [" ".join(merge) for merge in model["merges"]],
        "bos_token_id": 298, "eos_token_id": 299, "padding_token_id": 299, **changes}
    return {f"tokenizer.ggml.{name}": v for name, v in fields.items() if v is not None}


SAVE = {"ours": train_tokenizer, "llama2": save_llama2, "llama2-json": save_llama2_json,
        "llama2-runs": save_llama2_runs, "llama2-of-4": save_llama2_of_4, "llama3": save_llama3}
