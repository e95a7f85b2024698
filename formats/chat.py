"""Chat templates of other people's models: from what a user says to the text of a prompt."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from data.tokenizer import CHAT, JSON, SETTINGS, read_optional
from errors import UserError

# The special tokens that a template can name.
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def chat_template(folder: Path) -> str | None:
    """The Jinja template of a folder's chats: a file, or a field of the settings, which may be a
    list of named templates."""
    file = folder / CHAT
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{file} is not UTF-8: save it as UTF-8 ({error})") from None
    template = read_optional(folder / SETTINGS).get("chat_template")
    if isinstance(template, list):
        return {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template


@dataclass(frozen=True)
class Chat:
    """A chat template, and the special tokens that it can name."""

    template: str
    tokens: dict[str, str]


def read_chat(folder: Path) -> Chat:
    """The chat template of a folder. Raises UserError where it has none, or a tokenizer that reads
    no special tokens out of a text."""
    template = chat_template(folder)
    if template is None:
        raise UserError(f"{folder} has no chat template ({CHAT}, or chat_template in {SETTINGS}, "
                        "and of several the one called default): leave --chat out")
    if not (folder / JSON).is_file():
        raise UserError(f"--chat needs a {JSON}, and {folder} has none: special tokens in the text "
                        "of a chat would be read as ordinary characters")
    stated = read_optional(folder / SETTINGS)
    tokens = {}
    for name in NAMES:
        token = stated.get(name)
        content = token["content"] if isinstance(token, dict) else token
        if content is not None:
            tokens[name] = content
    return Chat(template, tokens)


def render_chat(chat: Chat, text: str) -> str:
    """The text of a prompt in which a user has said `text`, and the answer comes next.

    It holds its special tokens, and so does a `text` that spells one. Raises UserError where the
    template fails.
    """
    from jinja2 import TemplateError  # only --chat needs it

    try:
        return make_environment().from_string(chat.template).render(
            messages=[{"role": "user", "content": text}], tools=None, documents=None,
            add_generation_prompt=True, **chat.tokens)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"the chat template fails for this prompt ({type(error).__name__}: "
                        f"{error}): leave --chat out, or mend it") from error


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
