"""The prompt that is taken from a text: its first plain words."""

from types import SimpleNamespace
from typing import Any

import pytest

from data.prompt import choose_line, first_plain_words, first_words


@pytest.mark.parametrize("text, words", [
    ("Once upon a time there was a king who had three sons.", "Once upon a time there was a"),
    ("\n\n  ***\n\tdef read_file(path):\n", "def read_file(path"),
    ("Moby-Dick; or, \nThe Whale", "Moby-Dick; or"),
    ("\0\x1b[1m no line of text\nbut this", "but this"),
    ("\u4e00" * 99, "\u4e00" * 30), ("\u4e00\u3002\n", "\u4e00"), ("12 34\n", ""), ("", ""),
    ("3/20/24, 7:41\u202fAM - Anna: ok\n", "3/20/24, 7:41\u202fAM - Anna: ok"),
    ("Il dit\u00a0: viens\n", "Il dit\u00a0: viens"), ("\u200e12:00 Anna\n", "\u200e12:00 Anna"),
    ("\u0646\u0645\u06cc\u200c\u0634\u0648\u062f.\n", "\u0646\u0645\u06cc\u200c\u0634\u0648\u062f"),
    ("\u0915\u0940.\n", "\u0915\u0940"),  # a Hindi word that ends with a vowel sign
    ("\u4e00" * 9 + "\uff0c" + "\u4e8c" * 40, "\u4e00" * 9)])
def test_the_first_words_of_a_text_are_cut_at_a_word(text, words):
    assert first_words(choose_line([text]), 30) == words


@pytest.mark.parametrize("text, words", [
    ("<div class=\"post\">\n<p>Hello <b>you</b></p>\nIt was a day.", "It was a day"),
    ("---\ntitle: My day\ntags:\n  Days of Ann\n---\nIt was a day.", "It was a day"),
    ("---\r\nDays of Ann\r\n---\r\n\r\nIt was a day.\r\n", "It was a day"),
    ("# Days\n\nStatus: not done\nSUMMARY:It was\n\nIt was a day.", "It was a day"),
    ("12\teng\tIt was a day.\n", "It was a day"),
    ("Ann: I do\nBob: no, I do\n", "Ann: I do"),
    ("| Name | Age |\n|---|---|\n| Ann | 7 |\n\nIt was a day.", "It was a day"),
    ("[[Category:Days]]\n''It'' was\n\n* a [[day]]\nIt was a day.", "It was a day"),
    ("# Days\n\n- [ ] buy milk\n* a day\n> You\nIt was a day.", "It was a day"),
    ("\\documentclass{article}\n% By Ann Lee\nIt was a day.", "It was a day"),
    ("ROMEO:\n\u2018It was a day.", "\u2018It was a day"),
    ("\"It was a day.\"", "\"It was a day"),
    (".TH LS 1\n.SH NAME\nls lists a folder", "ls lists a folder"),
    ("#include <math.h>\n\nint main(void) {", "#include <math.h"),
    ("**\u4e00**\n\u4e00\u4e8c\u4e09\u3002", "\u4e00\u4e8c\u4e09"),
    ("[1:00] Ann: I do\n[1:01] Bob: no\n", "[1:00] Ann: I do"),
    ("---\ntitle: My day\n", "title: My day")], ids=range(17))
def test_the_prompt_is_rather_plain_words_than_markup(text, words):
    assert first_words(choose_line([text]), 30) == words


def test_a_prompt_without_room_has_up_to_eight_characters():
    tokenizer: Any = SimpleNamespace(eos_id=0, encode_prompt=list,
                                     decode=lambda ids: "Snow fell on the hills.")
    assert first_plain_words(tokenizer, [1], room=0) == "Snow"


def test_the_prompt_of_short_rows_is_of_the_same_line():
    """Fewer characters of it have no two words."""
    text = "<p>\nConstantinople fell.\n"
    assert first_words(choose_line([text]), 15) == "Constantinople"
