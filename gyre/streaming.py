"""Text as it is generated: of every token, what can be shown already."""

import codecs
from collections.abc import Sequence

from data.tokenizer import Tokenizer


class Row:
    """A prompt and its continuation: tokens in, text out, up to the first stop string.

    The prompt comes with the first text. The bytes of an unfinished character, and what may be the
    start of a stop string, are held back. `text` is all that was given out.
    """

    def __init__(self, prompt: str, tokenizer: Tokenizer, stops: Sequence[str] = ()):
        self.text = ""
        self.stopped = False
        self._prompt = prompt
        if "" in stops:
            raise ValueError("an empty stop would end every text before it begins")
        self._piece = tokenizer.piece
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = stops
        self._held = ""

    def push(self, token: int) -> str:
        """More text; `stopped` is set when a stop string was complete, and cut off."""
        return self._release(self._decoder.decode(self._piece(token)))

    def finish(self) -> str:
        """The rest, once no token follows."""
        return self._release(self._decoder.decode(b"", final=True), last=True)

    def _release(self, text: str, last: bool = False) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        # Of the stop strings that are complete first, the longest: where the text ends must not
        # depend on how it was cut into tokens.
        ends = [(text.index(stop) + len(stop), -len(stop)) for stop in self._stops if stop in text]
        if ends:
            self.stopped = True
            safe = sum(min(ends))
        else:
            held = 0 if last else max((overlap(text, stop) for stop in self._stops), default=0)
            safe = len(text) - held
        shown, self._held = self._prompt + text[:safe], text[safe:]
        self._prompt = ""
        self.text += shown
        return shown


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`, and not all of it."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
