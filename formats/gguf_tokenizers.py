"""The tokenizer in a GGUF file, written as the files that a run has.

llama.cpp reads no special token out of a text unless asked to; these files do it as others of their
kind do (data/tokenizer.py). (ggml, docs/gguf.md; llama.cpp, src/llama-vocab.cpp)
"""

from pathlib import Path
from typing import Any

from data.tokenizer import CHAT_FILE, GENERATION_FILE, JSON_FILE, MODEL_FILE, SETTINGS_FILE
from files import stage_json
from formats.tokenizers import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    beginning_with,
    pack_pieces,
)

PREFIX = "tokenizer.ggml."

# Patterns that cut a text before byte pairs are merged, one after the other, as the models' own
# tokenizer.json have them.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# By tokenizer.ggml.pre.
PATTERNS = {
    "gpt-2": [GPT2], "phi-2": [GPT2], "olmo": [GPT2],
    "smollm": [r"\p{N}", GPT2], "starcoder": [r"\p{N}", GPT2], "refact": [r"\p{N}", GPT2],
    "codeshell": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3], "llama3": [LLAMA3], "llama-v3": [LLAMA3], "falcon3": [LLAMA3],
    "smaug-bpe": [LLAMA3], "dbrx": [LLAMA3],
    "qwen2": [QWEN2], "deepseek-r1-qwen": [QWEN2], "stablelm2": [QWEN2],
    "tekken": [TEKKEN],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+",
                       r"\p{N}"],
}

# Those with which a word that is a piece is taken whole, without merging. They also begin texts
# with BOS by default.
WHOLE_WORDS = {"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"}

# Tokens that end a text, a turn or a message, whatever the fields of a file say, as in llama.cpp.
# Many files give them a wrong type.
ENDS = {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<EOT>", "</s>", "<eos>", "<｜end▁of▁sentence｜>"}


def write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """Write the tokenizer of a GGUF with these fields into a folder: its files, and those that say
    how texts begin and end and what a chat looks like.

    Raises ValueError for a tokenizer that we do not know, and for damaged fields.
    """
    theirs = read_fields(fields)
    kind = theirs["model"]
    tokens = theirs["tokens"]
    types = theirs["token_type"]
    ids = special_ids(theirs)
    adds_bos = theirs["add_bos_token"]
    # The settings say how texts begin and end. Left out are:
    # - unk, which says nothing of that;
    # - an ordinary piece as the padding token, which would be cut out of texts if it stood here;
    # - an unused piece as the padding token, which no tokenizer.json has as a special token.
    settings = {}
    for name, i in ids.items():
        pads_unused = name == "pad" and types[i] == UNUSED
        if name != "unk" and types[i] != NORMAL and not pads_unused:
            settings[f"{name}_token"] = tokens[i]
    if kind == "llama":
        (folder / MODEL_FILE).write_bytes(to_sentencepiece(theirs, ids))
        # legacy: as in llama.cpp, the space in front of a text follows each special token too.
        settings |= {"tokenizer_class": "LlamaTokenizer", "add_bos_token": adds_bos,
                     "legacy": True}
    else:
        front = [ids["bos"]] if adds_bos and "bos" in ids else []
        stage_json(folder / JSON_FILE, beginning_with(front, to_byte_level(theirs)))
        settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    stage_json(folder / SETTINGS_FILE, settings)
    stage_json(folder / GENERATION_FILE, {"eos_token_id": end_ids(theirs, ids)})
    template = fields.get("tokenizer.chat_template")
    if template is not None:
        (folder / CHAT_FILE).write_text(template, encoding="utf-8", newline="")


def read_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the tokenizer in a GGUF without their prefix. `add_bos_token` is always
    there.

    Tokens that begin or end texts in llama.cpp are control tokens. Raises ValueError for a
    tokenizer that we do not know, and for damaged fields.
    """
    theirs = {name.removeprefix(PREFIX): value for name, value in fields.items()
              if name.startswith(PREFIX)}
    kind = theirs.get("model")
    if kind not in ("llama", "gpt2"):
        raise ValueError(f"tokenizer.ggml.model is {kind!r}: we have llama (sentencepiece) and "
                         "gpt2 (byte-level)")
    tokens = theirs.get("tokens", [])
    types = theirs.get("token_type", [])
    if not tokens or len(types) != len(tokens):
        raise ValueError(f"the tokenizer has {len(tokens)} tokens and {len(types)} types: the file "
                         "is damaged, or too old to say which of them are special")
    if theirs.get("add_eos_token"):
        raise ValueError("tokenizer.ggml.add_eos_token would end every prompt")
    adds_by_default = kind == "llama" or theirs.get("pre") in WHOLE_WORDS
    adds_bos = theirs.get("add_bos_token", adds_by_default)
    types = [CONTROL if token in ENDS else stated
             for token, stated in zip(tokens, types, strict=True)]
    bos_id = special_ids(theirs).get("bos")
    if adds_bos and bos_id is not None and types[bos_id] == NORMAL:
        types[bos_id] = CONTROL  # what begins every text is no part of it
    return theirs | {"add_bos_token": adds_bos, "token_type": types}


def special_ids(theirs: dict[str, Any]) -> dict[str, int]:
    """{bos, eos, unk, pad: id} of a tokenizer with these fields, as far as it has them.

    Raises ValueError for an id that is no token's.
    """
    # llama.cpp's defaults for sentencepiece. Those for byte-level ones are GPT-2's, and a guess.
    ids = {"unk": 0, "bos": 1, "eos": 2} if theirs["model"] == "llama" else {}
    for name, field in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        if f"{field}_token_id" in theirs:
            ids[name] = theirs[f"{field}_token_id"]
    for name, i in ids.items():
        if not 0 <= i < len(theirs["tokens"]):
            raise ValueError(f"the tokenizer has no token {i}, which {name} is to be")
    return ids


def end_ids(theirs: dict[str, Any], ids: dict[str, int]) -> list[int]:
    """The ids that a text may end with: those that the fields name, and ENDS."""
    ends = [ids["eos"]] if "eos" in ids else []
    ends += [theirs[f"{name}_token_id"] for name in ("eot", "eom") if f"{name}_token_id" in theirs]
    ends += [i for i, text in enumerate(theirs["tokens"]) if text in ENDS]
    return list(dict.fromkeys(ends))


def to_sentencepiece(theirs: dict[str, Any], ids: dict[str, int]) -> bytes:
    """The sentencepiece file of a tokenizer with these fields and special ids."""
    tokens = theirs["tokens"]
    scores = theirs.get("scores", [])
    if "" in tokens:
        raise ValueError(f"the token {tokens.index('')} of the tokenizer is empty")
    if len(scores) != len(tokens):
        raise ValueError(f"the tokenizer has {len(tokens)} tokens and {len(scores)} scores")
    types = dict(enumerate(theirs["token_type"]))
    while types and types[len(types) - 1] == UNUSED:  # embeddings without a piece
        types.popitem()
    normal = {tokens[i]: scores[i] for i, kind in types.items() if kind == NORMAL}
    special = {name: ids.get(name) for name in ("unk", "bos", "eos")}
    adds_space = theirs.get("add_space_prefix", True)
    return pack_pieces(dict(enumerate(tokens)), types, normal, special, adds_space)


def to_byte_level(theirs: dict[str, Any]) -> Any:
    """The byte-level tokenizer with these fields, as an object of `tokenizers`.

    Raises ValueError for a pre-tokenizer that we do not know, and for damaged fields.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    name = theirs.get("pre")
    if name not in PATTERNS:
        raise ValueError(f"tokenizer.ggml.pre is {name!r}, and we know how to cut a text for "
                         f"{', '.join(PATTERNS)}: import the folder that the file was made from")
    tokens = theirs["tokens"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise ValueError("two tokens of the tokenizer have the same text")
    merges = []
    for merge in theirs.get("merges", []):
        left, _, right = merge.partition(" ")
        if left + right not in vocabulary or left not in vocabulary or right not in vocabulary:
            raise ValueError(f"the merge {merge!r} of the tokenizer is not one of its tokens")
        merges.append((left, right))
    model = models.BPE(vocabulary, merges, ignore_merges=name in WHOLE_WORDS)
    tokenizer = Tokenizer(model)
    cuts: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated")
                       for pattern in PATTERNS[name]]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, level])
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, theirs["token_type"], strict=True):
        if kind in (CONTROL, UNKNOWN):
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    return tokenizer
