"""Tokenizers of other people, read, and ours written for Hugging Face and for GGUF."""

import json
import re
import shutil
from collections.abc import Container, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from data.tokenizer import (
    GENERATION_FILE,
    JSON_FILE,
    MODEL_FILE,
    PROBE,
    SETTINGS_FILE,
    SPACE,
    SPECIAL,
    Tokenizer,
    open_tokenizer,
    read_optional,
    stated_eos_ids,
    token_text,
    tokenizer_files,
)
from errors import UserError
from files import read_json, stage_json
from formats.chat import chat_template

# Types of pieces, in sentencepiece's own files and in GGUF.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def read_tokenizer(folder: Path, vocab_size: int, spare: Path) -> tuple[int, list[Path]]:
    """How many ids the tokenizer of an imported folder has, and the files of it that a run has.

    Files that only say what transformers reads elsewhere, or has as a default, are written into the
    empty folder `spare`. UserError where the tokenizer does not fit a model of `vocab_size` ids.
    """
    tokenizer = open_tokenizer(folder)
    stated = stated_eos_ids(folder / "config.json")  # Meta's folders have none
    if tokenizer.vocab_size > vocab_size:
        raise UserError(f"the tokenizer of {folder} has ids up to {tokenizer.vocab_size - 1}, and "
                        f"the model {vocab_size} embeddings: a text could hold ids that have none")
    beyond = [i for i in (*tokenizer.eos_ids, *stated) if not 0 <= i < vocab_size]
    if beyond:
        raise UserError(f"{folder} has an eos_token_id {beyond[0]} in config.json or "
                        f"{GENERATION_FILE}, and the model's ids are 0 to {vocab_size - 1}")
    files = {file.name: file for file in tokenizer_files(folder)}
    settings = read_optional(folder / SETTINGS_FILE)
    if JSON_FILE in files:
        check_special_tokens(folder, settings)
    if JSON_FILE not in files and "add_bos_token" not in settings:
        # This is LlamaTokenizer's default in transformers 4; version 5 would add no BOS. No file at
        # all would mean a tokenizer of our own.
        files[SETTINGS_FILE] = spare / SETTINGS_FILE
        stage_json(files[SETTINGS_FILE], settings | {"add_bos_token": True})
    if set(stated) - set(tokenizer.eos_ids):
        files[GENERATION_FILE] = spare / GENERATION_FILE
        all_ends = list(dict.fromkeys([*stated, *tokenizer.eos_ids]))
        generation = read_optional(folder / GENERATION_FILE)
        stage_json(files[GENERATION_FILE], generation | {"eos_token_id": all_ends})
    return tokenizer.vocab_size, list(files.values())


def check_special_tokens(folder: Path, settings: dict[str, Any]) -> None:
    """Raise UserError for a special token of the settings that is none in the tokenizer.json of a
    folder: transformers would make it one, and so give other ids."""
    file = folder / SETTINGS_FILE
    stated = [settings.get(name) for name in SPECIAL]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(name)
        if isinstance(more, dict):
            stated += more.values()
        elif isinstance(more, list):
            stated += more
        elif more is not None:
            raise UserError(f"{file}: {name} is {more!r}, neither a list nor an object of tokens, "
                            "which transformers refuses: write it as a list")
    added = list((settings.get("added_tokens_decoder") or {}).values())
    added += read_json(folder / JSON_FILE).get("added_tokens", [])
    known = {*map(token_text, added)}
    for token in stated:
        if token is None:
            continue
        text = token.get("content") if isinstance(token, dict) else token
        if not isinstance(text, str):
            raise UserError(f"{file} names the special token {token!r}, which has no text: correct "
                            "it, or take it out")
        if text not in known:
            raise UserError(f"{file} names the special token {text!r}, which is none in "
                            f"{JSON_FILE}: take it out, or save the tokenizer again with "
                            "transformers")


def read_pieces(tokenizer: Tokenizer) -> list[Any]:
    """Every piece of a sentencepiece tokenizer, by id: `piece`, with sentencepiece's mark for a
    space, `score` and `type`.

    Raises UserError unless the scores say in which order pieces merge:

    - Pieces that were given and not learned (`user_defined_symbols`) are refused: text is cut at
      them before anything merges, and their score is 0, like that of the first merge. (With other
      scores, the caller finds that ids differ.)
    - Runs of spaces may share the lowest score, as Llama 2's do with -1e9: everything else has
      merged by then, and a run grows from its left end, see `_merges`.
    """
    # pyrefly does not see its names, which are made when it is imported.
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore

    pieces = list(ModelProto.FromString(tokenizer.processor.serialized_model_proto()).pieces)
    scored = [piece for piece in pieces if piece.type in (NORMAL, USER_DEFINED)]
    lowest = min((piece.score for piece in scored), default=0.0)
    by_score: dict[float, str] = {}
    for piece in scored:
        first = by_score.setdefault(piece.score, piece.piece)
        may_share = piece.score == lowest and is_run_of_spaces(first + piece.piece)
        if first != piece.piece and not may_share:
            raise UserError(f"the scores of the tokenizer ({piece.score + 0:g} of {first!r}, say) "
                            "do not number its merges: others would give other ids")
    return pieces


def are_equal(first: Tokenizer, second: Tokenizer) -> bool:
    """Whether two files hold the same tokenizer, as far as probing can tell.

    No probe begins with a space: sentencepiece and transformers differ there (`JsonTokenizer`).
    """
    probes = [PROBE.lstrip(), "e\u0301", *(f"a{n * ' '}b" for n in range(2, 99))]  # NFC joins two
    probes += [text.decode(errors="ignore").lstrip() for text in first.bytes.values()]

    def facts(tokenizer: Tokenizer) -> tuple[Any, ...]:
        return (tokenizer.bytes, tokenizer.vocab_size, tokenizer.prefix_ids, tokenizer.eos_id,
                tokenizer.encode_batch(probes))

    return facts(first) == facts(second)


def open_equal(model: bytes, tokenizer: Tokenizer, settings: dict[str, Any]) -> Tokenizer | None:
    """The tokenizer in a sentencepiece file with these settings beside it, or None if it is not the
    same as `tokenizer`."""
    with TemporaryDirectory() as spare:
        (Path(spare) / MODEL_FILE).write_bytes(model)
        stage_json(Path(spare) / SETTINGS_FILE, settings)
        try:
            opened = open_tokenizer(Path(spare))
        except UserError:  # it may lack a special token that the tokenizer.json has
            return None
    return opened if are_equal(opened, tokenizer) else None


def to_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of a tokenizer.json that gives the same ids as a sentencepiece file, but for
    texts that spell a special token.

    Pieces are spelt with spaces instead of sentencepiece's mark, so that the mark is an ordinary
    character in a text there too.
    """
    import tokenizers  # training and generating do not need it
    from tokenizers import decoders, models, normalizers

    pieces = read_pieces(tokenizer)
    texts = [p.piece.replace(SPACE, " ") if p.type == NORMAL else p.piece for p in pieces]
    scores = {text: p.score for text, p in zip(texts, pieces, strict=True) if p.type == NORMAL}
    ids = {text: i for i, text in enumerate(texts)}
    model = models.BPE(vocab=ids, merges=_merges(scores, ids), unk_token=texts[tokenizer.unk_id],
                       fuse_unk=True, byte_fallback=True)
    theirs = tokenizers.Tokenizer(model)
    theirs.add_special_tokens([p.piece for p in pieces if p.type in (CONTROL, UNKNOWN)])
    steps: list[decoders.Decoder] = [decoders.ByteFallback(), decoders.Fuse()]
    if tokenizer.adds_space:
        space = [normalizers.Prepend(" "), normalizers.Replace(SPACE, " ")]
        theirs.normalizer = normalizers.Sequence(space)
        steps.append(decoders.Strip(" ", 1, 0))
    theirs.decoder = decoders.Sequence(steps)
    return beginning_with(tokenizer.prefix_ids, theirs)


def beginning_with(prefix_ids: list[int], theirs: Any) -> dict[str, Any]:
    """The tokenizer.json of a `tokenizers` object, with texts that begin with these ids."""
    described = json.loads(theirs.to_str())
    texts = {i: theirs.id_to_token(i) for i in prefix_ids}
    front = [{"SpecialToken": {"id": texts[i], "type_id": 0}} for i in prefix_ids]
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    # The constructor of TemplateProcessing would read ":" and "$" in a text as signs of its own.
    described["post_processor"] = {
        "type": "TemplateProcessing", "single": [*front, first], "pair": [*front, first, second],
        "special_tokens": {text: {"id": text, "ids": [i], "tokens": [text]}
                           for i, text in sorted(texts.items(), key=lambda item: item[1])},
    }
    return described


def _merges(scores: dict[str, float], ids: dict[str, int]) -> list[tuple[str, str]]:
    """The list of merges for `tokenizers` that does what sentencepiece's scores do.

    sentencepiece merges the pair whose piece has the best score, and `tokenizers` the pair that
    comes first in the list. So the list has all pairs that make up the piece with the best score,
    then those of the next one. Only runs of spaces share a score. Of equal pairs sentencepiece
    merges the leftmost, so that the run at the left end grows. In the list the longest run comes
    first, which lets the same run grow.
    """
    merges = []
    for text in sorted(scores, key=lambda text: (-scores[text], -len(text))):
        cuts = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        pairs = [pair for pair in cuts if pair[0] in scores and pair[1] in scores]
        merges += sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges


def to_sentencepiece(described: dict[str, Any], tokenizer: Tokenizer) -> bytes | None:
    """A sentencepiece file that gives the ids of `tokenizer`, whose tokenizer.json is `described`.

    None if there is no such file: for byte-level pairs, for merges in an order that no scores have,
    and where a pair that makes up a piece is not among the merges.
    """
    model = described["model"]
    added = described["added_tokens"]
    if model["type"] != "BPE" or not model["byte_fallback"]:
        return None
    if not all(token["special"] for token in added):
        return None
    ids = model["vocab"] | {token["content"]: token["id"] for token in added}
    unk_id = ids.get(model["unk_token"] or "<unk>")
    texts = {i: text for text, i in ids.items()}
    special = {token["id"] for token in added}
    types = {i: piece_type(i, texts.get(i), unk_id, special) for i in range(tokenizer.vocab_size)}
    normal = {i: texts[i] for i, kind in types.items() if kind == NORMAL}
    merges = [tuple(pair) for pair in model["merges"]]
    order = merge_order(merges)
    if order is None:
        return None
    scores = piece_scores(normal, order)
    if set(_merges(scores, ids)) != set(merges):
        return None
    special_ids = {"unk": unk_id, "bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    content = pack_pieces(texts, types, scores, special_ids, tokenizer.adds_space)
    settings = {"add_bos_token": bool(tokenizer.prefix_ids)}
    return content if open_equal(content, tokenizer, settings) else None


def pack_pieces(
    texts: dict[int, str], types: dict[int, int], scores: dict[str, float],
    special_ids: dict[str, int | None], adds_space: bool,
) -> bytes:
    """A sentencepiece file of BPE with byte fallback, which normalises nothing.

    It has a piece for each id in `types`. `scores` are those of the normal pieces; `special_ids`
    are those of unk, bos and eos.
    """
    # pyrefly does not see its names, which are made when it is imported.
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore

    proto = ModelProto()
    normal = {text.replace(" ", SPACE) for text in scores}
    for i, kind in types.items():
        text = texts.get(i, f"[PAD{i}]")
        score = scores[text] if kind == NORMAL else 0.0
        spelt = text.replace(" ", SPACE)  # as it is found in a text
        if kind == NORMAL or (kind == USER_DEFINED and spelt not in normal):
            text = spelt
        proto.pieces.add(piece=text, score=score, type=kind)
    spec = proto.trainer_spec
    spec.model_type = 2  # BPE
    spec.byte_fallback = True
    for name, i in special_ids.items():
        setattr(spec, f"{name}_id", -1 if i is None else i)
        if i is not None:
            setattr(spec, f"{name}_piece", texts[i])
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = adds_space
    proto.normalizer_spec.remove_extra_whitespaces = False
    return proto.SerializeToString()


def piece_type(i: int, text: str | None, unk_id: int | None, special: Container[int]) -> int:
    """The type of the piece of id `i`; `text` is None for an id that no text has."""
    if i == unk_id:
        return UNKNOWN
    if i in special:
        return CONTROL
    if text is None:
        return UNUSED
    return BYTE if re.fullmatch("<0x[0-9A-F]{2}>", text) else NORMAL


def merge_order(merges: Sequence[tuple[str, ...]]) -> list[str] | None:
    """The pieces that these merges make, in the order of the merges; None if no scores have it.

    No scores have it if the merges of a piece go on after those of another piece, as in ab, cd, ab.
    But runs of spaces at the end may share a score. If only their merges go on in this way, the
    runs are left out.
    """
    order = [text for text, _ in groupby(map("".join, merges))]
    if len(set(order)) == len(order):
        return order
    others = [text for text in order if not is_run_of_spaces(text)]
    runs_come_last = order[: len(others)] == others
    others_go_on = len(set(others)) < len(others)
    return others if runs_come_last and not others_go_on else None


def is_run_of_spaces(text: str) -> bool:
    """Whether a piece is nothing but spaces, or sentencepiece's mark for them."""
    return not text.strip(SPACE + " ")


def piece_scores(normal: dict[int, str], order: Sequence[str]) -> dict[str, float]:
    """The score of each normal piece, given by id: -n for the n-th in the `order` of merges.

    Runs of spaces that are not in the order share the lowest score. Other pieces that are never
    merged get distinct scores behind all others.
    """
    merged = {text: -float(n) for n, text in enumerate(order)}
    scores = {}
    for i, text in normal.items():
        if text in merged:
            scores[text] = merged[text]
        elif is_run_of_spaces(text):
            scores[text] = -1e9
        else:
            scores[text] = -float(len(order) + i)
    return scores


def write_hf_tokenizer(source: Path, tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    """Write the tokenizer of the folder `source` into `folder` as transformers wants it.

    A sentencepiece file gets a tokenizer.json of the same ids. A text that spells a special token
    is the exception: sentencepiece never reads one out of a text, and transformers must, since
    `text + tokenizer.eos_token` is how trainers end a text. So there is no split_special_tokens.
    A tokenizer.json alone gets the sentencepiece file of the same ids if there is one: without it,
    llama.cpp's converter ignores the order of the merges. Raises UserError where no tokenizer.json
    gives the same ids.
    """
    for file in tokenizer_files(source):
        shutil.copyfile(file, folder / file.name)
    settings = read_optional(folder / SETTINGS_FILE)
    # For a class of its own, such as LlamaTokenizer, transformers 5 builds a tokenizer without some
    # parts of the file.
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings.setdefault("padding_side", "left")  # for generation in batches
    # transformers 4 would add token_type_ids, which `generate` of LlamaForCausalLM refuses.
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    if (folder / JSON_FILE).exists():
        settings |= _complete_json(folder, tokenizer)
        stage_json(folder / SETTINGS_FILE, settings)
        return
    stage_json(folder / JSON_FILE, to_json(tokenizer))
    settings |= _settings_of_sentencepiece(tokenizer, max_length)
    stage_json(folder / SETTINGS_FILE, settings)
    if not are_equal(tokenizer, open_tokenizer(folder)):
        raise UserError(f"{source / MODEL_FILE} gives ids that no tokenizer.json gives: is it not "
                        "a BPE model?")


def _complete_json(folder: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """Let the tokenizer.json in `folder` begin texts as `tokenizer` does, and put the sentencepiece
    file of the same ids beside it if there is one. Returns the settings for llama.cpp's converter.
    """
    import tokenizers

    theirs = tokenizers.Tokenizer.from_file(str(folder / JSON_FILE))
    if theirs.encode("a").ids != tokenizer.prefix_ids + tokenizer.encode("a"):
        # Llama's class reads add_bos_token, and this class does not.
        stage_json(folder / JSON_FILE, beginning_with(tokenizer.prefix_ids, theirs))
    if not (folder / MODEL_FILE).exists():
        described = json.loads(theirs.to_str())  # the same form for every version of tokenizers
        model = to_sentencepiece(described, tokenizer)
        if model is None:
            return {}
        (folder / MODEL_FILE).write_bytes(model)
    return {"add_bos_token": bool(tokenizer.prefix_ids), "add_prefix_space": tokenizer.adds_space}


def _settings_of_sentencepiece(tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    """The settings of a tokenizer.json that was made from a sentencepiece file."""
    text_of = tokenizer.processor.id_to_piece
    return {
        "bos_token": None if tokenizer.bos_id is None else text_of(tokenizer.bos_id),
        "eos_token": text_of(tokenizer.eos_id),
        "unk_token": text_of(tokenizer.unk_id),
        "pad_token": text_of(tokenizer.unk_id),  # not EOS, which collators would then mask
        "add_bos_token": bool(tokenizer.prefix_ids),
        "add_eos_token": False,
        "add_prefix_space": tokenizer.adds_space,  # read by llama.cpp's converter alone
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }


def to_gguf_fields(source: Path, tokenizer: Tokenizer, vocab_size: int) -> dict[str, Any]:
    """The fields of a GGUF about the tokenizer of the folder `source`, as a sentencepiece file.
    (ggml, docs/gguf.md)

    Ids that a model of `vocab_size` has and the tokenizer has not become unused pieces. Raises
    UserError where llama.cpp could not give the ids of `tokenizer`.
    """
    ours = open_sentencepiece(source, tokenizer)
    pieces = read_pieces(ours)
    padding = range(len(pieces), vocab_size)
    fields = {
        "model": "llama",
        "pre": "default",
        "tokens": [piece.piece for piece in pieces] + [f"[PAD{i}]" for i in padding],
        "scores": [piece.score for piece in pieces] + [-1000.0 for _ in padding],
        "token_type": [piece.type for piece in pieces] + [UNUSED for _ in padding],
        **special_fields(source, tokenizer, ours.unk_id),
        "add_bos_token": bool(ours.prefix_ids),
        "add_eos_token": False,
        "add_space_prefix": ours.adds_space,
        "remove_extra_whitespaces": False,
    }
    fields = {f"tokenizer.ggml.{name}": value for name, value in fields.items()}
    template = chat_template(source)
    return fields if template is None else fields | {"tokenizer.chat_template": template}


def open_sentencepiece(source: Path, tokenizer: Tokenizer) -> Tokenizer:
    """The sentencepiece file of the same ids as `tokenizer`, which is that of the folder `source`.

    Raises UserError if there is none, or if the one in the folder gives other ids.
    """
    with TemporaryDirectory() as spare:
        write_hf_tokenizer(source, tokenizer, Path(spare), 0)
        if not (Path(spare) / MODEL_FILE).is_file():
            raise UserError(f"{source / JSON_FILE} gives ids that no sentencepiece file gives, and "
                            "a GGUF is written with such a file only: export with --to hf, and try "
                            "llama.cpp's convert_hf_to_gguf.py, which knows some byte-level "
                            "tokenizers")
        settings = read_optional(Path(spare) / SETTINGS_FILE)  # most are about the tokenizer.json
        kept = {name: settings.get(name) for name in ("add_bos_token", "bos_token", "eos_token")}
        equal = open_equal((Path(spare) / MODEL_FILE).read_bytes(), tokenizer, kept)
    if equal is None:
        raise UserError(f"{source / MODEL_FILE} and {source / JSON_FILE} give different ids, and "
                        "llama.cpp and its converter read the first: remove the one that is not "
                        "the model's")
    return equal


def special_fields(source: Path, tokenizer: Tokenizer, unk_id: int) -> dict[str, int]:
    """The fields of a GGUF that name special ids of the tokenizer of the folder `source`.

    Raises UserError for more ids that end a text than there are fields.
    """
    ids = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id, "unknown": unk_id,
           "padding": tokenizer.pad_id}
    # llama.cpp looks for further ids that end a text at the ends of a turn and of a message.
    more = [i for i in tokenizer.eos_ids if i != tokenizer.eos_id]
    further_fields = ("eot", "eom")
    if len(more) > len(further_fields):
        raise UserError(f"{source / GENERATION_FILE} ends texts at {tokenizer.eos_ids}, and a GGUF "
                        "has three fields for such ids: import the model again with fewer, or "
                        "export with --to hf")
    ids |= dict(zip(further_fields, more, strict=False))  # `more` may be shorter
    return {f"{name}_token_id": i for name, i in ids.items() if i is not None}
