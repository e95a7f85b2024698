"""Chat templates of other people's models: from what a user says to the text of a prompt."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from data.tokenizer import (
    CHAT_FILE,
    JSON_FILE,
    MODEL_FILE,
    SETTINGS_FILE,
    SPECIAL,
    JsonTokenizer,
    Tokenizer,
    read_optional,
    token_text,
)
from errors import UserError


def chat_template(folder: Path) -> str | None:
    """The Jinja template of a folder's chats: a file, or a field of the settings, which may be a
    list of named templates. UserError for a field with anything else."""
    file = folder / CHAT_FILE
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{file} is not UTF-8: save it as UTF-8 ({error})") from None
    template = read_optional(folder / SETTINGS_FILE).get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template
                 if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else None
    if template is not None and not isinstance(template, str):
        raise UserError(f"chat_template in {folder / SETTINGS_FILE} is no text, and no list of "
                        "texts with names: mend it, or remove it")
    return template


@dataclass(frozen=True)
class Chat:
    """A chat template, and the special tokens that it can name."""

    template: str
    tokens: dict[str, str]


def read_chat(folder: Path) -> Chat:
    """The chat template of a folder. Raises UserError where it has none, or a tokenizer.model whose
    ids behind a special token are not known."""
    template = chat_template(folder)
    if template is None:
        raise UserError(f"{folder} has no chat template ({CHAT_FILE}, or chat_template in "
                        f"{SETTINGS_FILE}, and of several the one called default): leave --chat "
                        "out. After a training on chats, say in bash "
                        "--prompt $'user: Hello\\nassistant:' --stop $'\\nuser:'")
    stated = read_optional(folder / SETTINGS_FILE)
    if not (folder / JSON_FILE).is_file() and stated.get("legacy") is not True:
        raise UserError(f"--chat needs a {JSON_FILE}, and {folder} has none: without `legacy: "
                        f"true` in {SETTINGS_FILE}, a {MODEL_FILE} does not say which ids follow "
                        "a special token")
    tokens = {}
    for name in SPECIAL:
        text = token_text(stated.get(name))
        if text is not None:
            tokens[name] = text
    return Chat(template, tokens)


def render_chat(chat: Chat, text: str, exchanges: Sequence[tuple[str, str]] = ()) -> str:
    """The text of a prompt in which a user has said `text`, and the answer comes next.

    Before it stand `exchanges`, each what the user has said and what the model has answered. A
    special token that is spelt in `text` becomes one, as those of the template do. Raises UserError
    where the template fails.
    """
    messages = []
    for said, answered in exchanges:
        messages.append({"role": "user", "content": said})
        messages.append({"role": "assistant", "content": answered})
    messages.append({"role": "user", "content": text})
    try:
        return make_environment().from_string(chat.template).render(
            messages=messages, tools=None, documents=None, add_generation_prompt=True,
            **chat.tokens)
    except Exception as error:  # a template is code of other people, run in a sandbox
        advice = "leave --chat out, or mend it"
        if exchanges:
            advice = f"begin a new conversation with :new, {advice}"
        raise UserError(f"the chat template fails for this prompt ({type(error).__name__}: "
                        f"{error}): {advice}") from error


def encode_chat(
    chat: Chat, tokenizer: Tokenizer, text: str, exchanges: Sequence[tuple[str, str]] = ()
) -> list[int]:
    """The ids of the prompt that `render_chat` makes. The template has the prefix of a text, so
    the tokenizer adds none.

    Raises UserError where the template fails.
    """
    rendered = render_chat(chat, text, exchanges)
    if isinstance(tokenizer, JsonTokenizer):
        return tokenizer.encode(rendered)
    # sentencepiece reads no special token out of a text, so cut it at them. What is between them
    # gets the tokenizer's own space in front each time, as in llama.cpp and with `legacy: true` in
    # transformers.
    special = special_pieces(tokenizer)
    longest_first = sorted(special, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    ids = []
    for part in re.split(f"({pattern})", rendered):
        if part in special:
            ids.append(special[part])
        elif part:
            ids += tokenizer.encode(part)
    return ids


def special_pieces(tokenizer: Tokenizer) -> dict[str, int]:
    """{piece: id} of the pieces of a sentencepiece tokenizer that stand for themselves in the text
    of a template: control pieces, the unknown one, and those that a user has defined."""
    # pyrefly does not see its names, which are made when it is imported.
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore

    kind = ModelProto.SentencePiece
    kinds = (kind.CONTROL, kind.UNKNOWN, kind.USER_DEFINED)
    pieces = ModelProto.FromString(tokenizer.processor.serialized_model_proto()).pieces
    return {piece.piece: i for i, piece in enumerate(pieces) if piece.type in kinds}


def make_environment() -> Any:
    """The sandbox in which templates run, with what transformers gives them.

    (transformers 5.23, utils/chat_template_utils.py)
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """{% generation %} marks what the model says, for training. Here it changes nothing."""

        tags = {"generation"}

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    class PlainNamespace(Namespace):
        """A namespace without the attributes by which a template could leave the sandbox."""

        def __init__(self, /, *pairs: Any, **fields: Any) -> None:
            super().__init__()
            for name, value in dict(*pairs, **fields).items():
                self[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                raise TemplateError(f"a namespace cannot have an attribute {name}")
            super().__setitem__(name, value)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None,
                separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
        # Jinja's own filter escapes <, > and &, for HTML.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = to_json
    functions: dict[str, Any] = {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "namespace": PlainNamespace,
    }
    environment.globals.update(functions)
    return environment
