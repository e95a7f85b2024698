"""A prompt for a model that was trained on a text: the first plain words of the text."""

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from data.columns import WORDS_IN_ROW
from data.tokenizer import Tokenizer

TOKENS_FOR_PROMPT = 2000  # at the start of a text; a prompt is chosen from these
LONGEST_PROMPT = 30  # characters
SHORTEST_PROMPT = 8  # characters; so many are taken if they are too many tokens, too
# What lines of HTML, Markdown, wikitext, LaTeX, tables and settings have, and plain words have not;
# and a key at the start of a line, such as "title:".
MARKUP = re.compile(r"^[^\W\d][\w-]*:|''|[<>\[\]{}|\\=#*~^@$`]|://|&\w+;")


def first_plain_words(tokenizer: Tokenizer, ids: Sequence[int], room: int) -> str:
    """Return the first plain words of the text with these ids, of at most `room` tokens if they
    can be; "" if no line has a letter."""
    documents: list[list[int]] = [[]]
    for token in ids:
        if token == tokenizer.eos_id:
            documents.append([])
        else:
            documents[-1].append(token)
    line = choose_line(tokenizer.decode(document) for document in documents if document)
    words = ""
    for width in range(LONGEST_PROMPT, SHORTEST_PROMPT - 1, -1):
        words = first_words(line, width)
        if len(tokenizer.encode_prompt(words)) <= room:
            break
    return words


def choose_line(documents: Iterable[str]) -> str:
    """Return the first line of documents that begins with plain words.

    If none does, returns the first line with a letter, or "". A tab ends a line, too. Skips lines
    with characters that are not printable, and the front matter of a document.
    """
    usable = ""
    for document in documents:
        text = re.sub(r"\A---\r?\n.*?\n---\r?\n", "", document, flags=re.DOTALL)
        for line in map(str.strip, text.replace("\t", "\n").splitlines()):
            if all(map(may_be_in_prompt, line)) and any(map(str.isalpha, line)):
                if begins_plainly(line):
                    return line
                usable = usable or line
    return usable


def begins_plainly(line: str) -> bool:
    """Return whether a line begins with words, or in quotes, and soon has no sign of markup."""
    start = line[:LONGEST_PROMPT]
    opens = start[0] in "\"'\u00a1\u00bf" or unicodedata.category(start[0]) in ("Pi", "Ps")
    if not (start[0].isalnum() or opens):
        return False
    return WORDS_IN_ROW.search(start) is not None and MARKUP.search(start) is None


def first_words(line: str, width: int) -> str:
    """Return the first words of a line, at most `width` characters.

    The words end with a letter or a digit, because after a full stop the model might end the text.
    Inside documents, the tokenizer often merges a full stop with the line break after it. So a full
    stop that is a token of its own is mostly the end of a document.
    """
    if not line:
        return ""
    words = textwrap.wrap(line, width)[0]
    rest = line[len(words):]
    # Is it cut inside a word, or in Chinese, which has no spaces?
    if rest and rest[0].isalnum():
        words = cut_at_mark(words)
    return strip_marks(words) or words


def cut_at_mark(words: str) -> str:
    """Return words up to their last space or punctuation mark, or all of them if they have none."""
    for end in range(len(words) - 1, 0, -1):
        if unicodedata.category(words[end])[0] in "PZ":
            return words[:end]
    return words


def strip_marks(words: str) -> str:
    """Return words without what follows their last letter or digit, but with its accents."""
    while words and not (words[-1].isalnum() or unicodedata.category(words[-1])[0] == "M"):
        words = words[:-1]
    return words


def may_be_in_prompt(character: str) -> bool:
    """Return whether a character is printable, a space, or one of four invisible marks.

    WhatsApp writes times with a narrow space, and French has one before a colon. Persian has
    joiners inside words, and lines from right to left may have marks of their direction.
    """
    is_space = unicodedata.category(character) == "Zs"
    return character.isprintable() or is_space or character in "\u200c\u200d\u200e\u200f"
