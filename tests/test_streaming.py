"""Text that comes token by token is the text that comes at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noise import FIRST_BYTE, VOCAB, train_tokenizer

from data.tokenizer import Tokenizer
from gyre.load import Row


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer(train_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def until_stop(text, stops):
    """What is left of `text` if it is read one character at a time."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], True
    return text, False


def play(row, ids):
    shown = ""
    for i in ids:
        shown += row.push(i)
        if row.stopped:
            break
    shown += row.finish()
    assert shown == row.text
    return shown, row.stopped


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    text=st.text("ab中 \n", max_size=14),
    stops=st.lists(st.text("ab中 \n", min_size=1, max_size=4), max_size=3),
)
def test_where_a_row_stops_does_not_depend_on_its_tokens(tokenizer, text, stops):
    expected, stopped = until_stop(text, stops)
    for ids in (tokenizer.encode(text), [FIRST_BYTE + byte for byte in text.encode()]):
        assert play(Row("ab", tokenizer, stops), ids) == ("ab" + expected, stopped)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, VOCAB - 1) | st.integers(FIRST_BYTE, FIRST_BYTE + 255)))
def test_a_row_of_any_ids_equals_the_one_shot_decode(tokenizer, ids):
    """Also of ids that no text has, such as half a character before a whole one."""
    assert play(Row("", tokenizer), ids) == (tokenizer.decode(ids), False)


def test_an_empty_stop_is_refused(tokenizer):
    with pytest.raises(ValueError, match="an empty stop would end every text"):
        Row("", tokenizer, ["a", ""])


def test_a_row_shows_no_half_character_and_ends_it_once(tokenizer):
    row = Row("", tokenizer)
    *first, last = tokenizer.encode("x\U0001f680")
    assert "".join(map(row.push, first)) == "x"
    assert row.push(last) == "\U0001f680"
    row = Row("", tokenizer)
    assert "".join(map(row.push, first)) == "x" and row.finish() == "\ufffd"
