"""Rows of tables: which text they have, and what is said where they have none."""

import csv
import io
import json
import shlex
import sys
from contextlib import chdir

import pyarrow.parquet
import pytest
from builders import run_python
from text_files import find_command, gz, notes, read, run_command, short, write, write_parquet, zstd

from data import columns, tables
from errors import UserError


@pytest.mark.parametrize("name, content", [
    ("plain.csv", "id,text,label\n1,a,0\n2,b,1\n"),
    ("excel.csv", "\ufeffid;text\r\n1;a\r\n2;b\r\n"),  # of a country that writes 1,5
    ("hint.csv", "sep=;\r\nid;text\r\n1;a\r\n2;b\r\n"),
    ("commas.csv", "name, first, last;text\nAnn, B., C.;a\nD, E, F;b\n"),
    ("pipes.csv", "id|text\n1|a\n2|b"),
    ("mac.csv", "id,text\r1,a\r2,b\r"), ("mac-end.csv", "text\ra\rb"),
    ("gaps.csv", "text,,\na,,\n\n,,\nb,,,\n"),  # a sheet with empty columns and lines
    ("one.csv", "text\na\nb\n"),
    ("rows.tsv", "id\ttext\n1\ta\n2\tb\n"),
    ("UPPER.TSV", '"id"\t"text"\r\n"1"\t"a"\r\n"2"\t"b"\r\n'),
    ("rows.csv.gz", gz(b"text\na\nb\n")),
    ("rows.ndjson", '{"text": "a"}\n{"text": "b"}\n'),
    ("rows.jsonl.gz", gz(b'{"text": "a"}\n') + gz(b'{"text": "b"}\n')),
    ("rows.jsonl.zst", zstd(b'{"text": "a"}\n{"text": "b"}\n')),
    ("windows.jsonl", '\ufeff{"text": "a"}\r\n\r\n{"text": "b"}\r\n')])
def test_rows_of_a_table_are_documents(tmp_path, name, content):
    assert read(write(tmp_path / name, content)) == ["a", "b"]


@pytest.mark.parametrize("text", [
    "007", "1.50", "2020-01-01", "NA", "null", "true", "  spaces ", 'He said "hi".', "a, b; c\td|e",
    "line\r\nbreak\rs\n\n", "#", "'", "=1+1", "caf\u00e9 \u4e2d\U0001f600\u2028",
    "x" * 200_000], ids=short)
def test_texts_of_a_csv_arrive_byte_for_byte(tmp_path, text):
    """Where a library guesses, 007 becomes 7 and NA nothing."""
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["id", "text"], [1, text], [2, text]])
    assert read(write(tmp_path / "a.csv", table.getvalue())) == [text, text]


def test_reading_a_csv_leaves_the_limit_of_other_readers(tmp_path):
    before = csv.field_size_limit(1000)
    try:
        assert read(write(tmp_path / "a.csv", f"text\n{'x' * 2000}\n")) == ["x" * 2000]
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


def test_quotes_inside_an_unquoted_field_stay(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tid\nHe said "hi"\t1\n5" disk\t2\n')
    assert read(path) == ['He said "hi"', '5" disk']


def test_a_chat_exported_as_csv_has_its_own_column(tmp_path):
    """As DiscordChatExporter writes it."""
    path = write(tmp_path / "general.csv", (
        "AuthorID,Author,Date,Content,Attachments,Reactions\n"
        '"1","ann","2024-05-01T10:00:00","hi, ""all""","",""\n'
        '"2","bob","2024-05-01T10:01:00","two\nlines","","\u2764 (1)"\n'))
    assert read(path, column="Content") == ['hi, "all"', "two\nlines"]


@pytest.mark.parametrize("name, content, words", [
    ("a.csv", "0,a tweet\n1,another\n", "'0', 'a tweet': its first line has to name the columns"),
    ("a.csv", "\nid,text\n1,a\n", "line 1 names no column: remove the lines above .* 'text'"),
    ("a.csv", "sep=,\n,,\nid,text,\n1,a,\n", "line 2 names no column"),
    ("a.csv", "text\na\nDear Sir,\n", "line 3 has 2 fields, .* has 1 column: .*quotes"),
    ("a.csv", "id,text\n1,Hello, world\n", "line 2 has 3 fields, .* has 2 columns: .*quotes"),
    ("a.csv", "id,text,\n1,a,\n2,Hello, world\n",
     "line 3 has 3 fields, .* has 2 columns: .*quotes around it, or name the last column too"),
    ("a.csv", "sep=;\ntext;text\na;b\n", "line 2 names 2 columns 'text'"),
    ("a.csv", 'id,text\n1,a\n2,"b\n3,c\n', "row that begins in line 3 is no CSV"),
    ("a.csv", 'sep=;\nid;text\n1;"a" b\n', "row that begins in line 3 is no CSV"),
    ("a.csv", 'sep=;\nid;text\n1;"a\nb"\n\n2;"a" b', "row that begins in line 6 is no CSV"),
    ("a.csv", b"text\na\ncaf\xe9\n", "byte 0xe9 in line 3 .* cp1252, .*'caf\u00e9'")])
def test_a_csv_that_is_none_names_the_line(tmp_path, name, content, words):
    with pytest.raises(UserError, match=f"{name} cannot be read: .*{words}"):
        read(write(tmp_path / name, content))


def test_commas_do_not_divide_a_tsv(tmp_path):
    path = write(tmp_path / "a.tsv", "id,text\n1,a\n")
    with pytest.raises(UserError, match="no text in a column 'text', only 'id,text': "):
        read(path)


@pytest.mark.parametrize("n_before", [0, 5000])
def test_a_csv_of_another_encoding_says_so_and_names_its_columns(tmp_path, n_before):
    """At once, where a user would else mend one and then meet the other."""
    rows = "1;It is fine\n" * n_before + "2;Es ist sch\u00f6n\n"
    path = write(tmp_path / "a.csv", f"id;review\n{rows}".encode("cp1252"))
    words = (r"the byte 0xf6 in line \d+ is not UTF-8; in cp1252, .* WINDOWS-1252 .*\. Besides, it "
             "has no text in a column 'text', only 'id', 'review': choose ")
    with pytest.raises(UserError, match=words):
        read(path)


@pytest.mark.parametrize("column, header, suggestion", [
    ("review text", "id,Review Text", "'Review Text'"), ("text", "id,Text", "Text"),
    ("reviewtext", "id,Review's text", """'Review'"'"'s text'"""), ("text", "id,texts", "texts"),
    ("Content", "CONTENT,contents", "CONTENT")])
def test_a_column_of_nearly_this_name_is_suggested(tmp_path, column, header, suggestion):
    path = write(tmp_path / "a.csv", f"{header}\n1,a\n")
    with pytest.raises(UserError) as error:
        read(path, column=column)
    assert str(error.value).endswith(f": did you mean --data.column {suggestion}?")


@pytest.mark.parametrize("column, suggestion", [
    ("title,ingredient,steps", "title,ingredients,steps"),
    ("title, Ingredients", "title,ingredients"), ("titel,ingredient", "title,ingredients"),
    ("ingredient,nothing", "ingredients,nothing"), ("title,step", "title,steps")])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_whole_list_of_columns_is_corrected(tmp_path, suffix, column, suggestion):
    path = tmp_path / f"a.{suffix}"
    row = {"title": "Soup", "ingredients": "water", "steps": "Boil it."}
    if suffix == "csv":
        write(path, f"{','.join(row)}\n{','.join(row.values())}\n")
    elif suffix == "jsonl":
        write(path, json.dumps(row))
    else:
        write_parquet(path, {name: [text] for name, text in row.items()})
    with pytest.raises(UserError) as error:
        read(path, column=column)
    assert str(error.value).endswith(f": did you mean --data.column {suggestion}?")


def test_no_column_is_suggested_twice(tmp_path):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / "a.csv", "title,steps\nSoup,Boil it.\n"), column="title,titles")
    assert "did you mean" not in str(error.value)


def test_a_name_with_a_comma_is_suggested_only_alone(tmp_path):
    path = write(tmp_path / "a.csv", 'title,"body, long"\nSoup,Boil it.\n')
    assert read(path, column="body, long") == ["Boil it."]
    with pytest.raises(UserError, match="did you mean --data.column 'body, long'"):
        read(path, column="body long")
    with pytest.raises(UserError, match="choose one with --data.column, as 'body, long'"):
        read(path, column="title,body")


def test_two_wrong_names_are_not_corrected_to_one(tmp_path):
    with pytest.raises(UserError, match="did you mean --data.column titles,titel\\?"):
        read(write(tmp_path / "a.csv", "titles,steps\nSoup,Boil it.\n"), column="title,titel")


def test_no_column_without_text_is_suggested(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"Text": 5, "summary": "b"}\n')
    with pytest.raises(UserError, match="choose its only column of text with .*column summary"):
        read(path)


def test_a_first_line_with_a_long_text_is_not_a_header(tmp_path):
    path = write(tmp_path / "a.csv", f"good,{'a long review ' * 5}\n")
    with pytest.raises(UserError, match="its first line has to name the columns: write such"):
        read(path)


@pytest.mark.parametrize("length, words", [
    (59, "choose one with --data.column"), (60, "its first line has to name the columns")])
def test_a_name_of_60_characters_is_taken_for_a_text(tmp_path, length, words):
    with pytest.raises(UserError, match=words):
        read(write(tmp_path / "a.csv", f"good,{'a' * length}\n1,a\n"))


def test_a_column_that_is_named_by_a_number_hides_no_other(tmp_path):
    path = write(tmp_path / "a.csv", "2024,Text\n1,a\n")
    with pytest.raises(UserError, match="did you mean --data.column Text"):
        read(path)


def test_without_a_column_of_text_none_is_advised(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": {"body": "b"}}\n')
    with pytest.raises(UserError, match="only 'text' .dict.: write its texts into a .jsonl file"):
        read(path)


@pytest.mark.parametrize("row", [
    {"summary": "A fine day. " * 20, "meta": {"by": "An author of it. " * 99}},  # no short text
    {"summary": "A day of high summer" * 10, "meta": {"by": "An author of it. " * 99}},  # 200
    {"title": "A fine day.", "meta": {"by": "Ann Lee and others"}},
    {"title": "A fine day.", "meta": {"by": "Ann and Lee" * 3}},  # three times as much
    {"title": "A fine day.", "meta": {"ids": ["6ba7b810"] * 99}, "ids": ["a", 5]}])
def test_objects_are_not_named_beside_a_column_of_text(tmp_path, row):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / "a.jsonl", json.dumps(row)))
    assert "has more text" not in str(error.value) and "jq" not in str(error.value)


def test_the_object_that_was_chosen_is_named(tmp_path):
    row = {"title": "A fine day.", "meta": {"by": "An author of it. " * 9}, "text": {"body": "b"}}
    words = r"--data.column title; for the texts under KEY .*\{text: .text.KEY"
    with pytest.raises(UserError, match=words):
        read(write(tmp_path / "a.jsonl", json.dumps(row)))


def test_of_two_objects_that_with_most_text_is_named(tmp_path):
    row = {"meta": {"by": "Ann Lee"}, "data": {"body": "A longer text."}}
    with pytest.raises(UserError, match=r"\{text: .data.body\}"):
        read(write(tmp_path / "a.jsonl", json.dumps(row)))


@pytest.mark.parametrize("longer", [
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "2024-05-01 10:00:00 +00:00", "a" * 64,
    "https://example.org/a-fine-day/and-more"])
@pytest.mark.parametrize("text", ["a fine day", "Fine, so.", "\u4eca\u65e5\u306f"])
def test_ids_and_dates_are_not_the_column_with_most_text(tmp_path, longer, text):
    path = write(tmp_path / "a.jsonl", json.dumps({"origin": longer, "title": text}))
    with pytest.raises(UserError, match="as title, which has most text"):
        read(path)
    rows = f"origin,title\n{longer},{json.dumps(text, ensure_ascii=False)}\n"
    path = write(tmp_path / "a.csv", rows)
    with pytest.raises(UserError, match="as title, which has most text"):
        read(path)


POEM = {"title": "Night", "tags": [], "lines of it": ["It is dark.", "It's late."]}


def test_a_list_of_strings_is_one_text(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps(POEM))
    assert read(path, column="lines of it") == ["It is dark.\nIt's late."]


LINK = {"type": "link", "text": "https://a.b"}
BOLD = {"type": "bold", "text": "now"}


@pytest.mark.parametrize("value, text", [
    (["see ", LINK, " and go ", BOLD, "."], "see https://a.b and go now."), ([LINK], "https://a.b"),
    (["", LINK, ""], "https://a.b"), (["two\n", BOLD], "two\nnow"),
    ([{"type": "plain", "text": "so "}, BOLD], "so now")])
def test_the_parts_of_a_telegram_message_are_joined(tmp_path, value, text):
    rows = [{"id": 1, "text": "hi"}, {"id": 2, "text": value}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert read(path) == ["hi", text]


def test_formatted_texts_can_be_the_column_with_most(tmp_path):
    row = {"title": "A day", "body": ["Here it is: ", LINK]}
    with pytest.raises(UserError, match="as body, which has most text"):
        read(write(tmp_path / "a.jsonl", json.dumps(row)))


@pytest.mark.parametrize("lines, words", [
    (["a line that is longer"], "--data.column, as lines, which has most"),
    (["line"], "--data.column, as title, which has most")])
def test_the_longest_of_texts_and_lists_is_named(tmp_path, lines, words):
    path = write(tmp_path / "a.jsonl", json.dumps({"title": "a title", "lines": lines}))
    with pytest.raises(UserError, match=words):
        read(path)


def test_lists_of_lines_are_named_where_a_later_row_has_none(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"lines": ["a", "b"]}\n{"lines": null}\n')
    with pytest.raises(UserError, match=r"only column of text with --data.column lines$"):
        read(path)


def test_lists_of_lines_in_parquet_are_named(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"id": [1], "lines": [["b", "c"]]})
    with pytest.raises(UserError, match=r"only column of text with --data.column lines$"):
        read(path)


def test_lists_of_lines_in_parquet_are_read(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"id": [1, 2], "lines": [["b", "c"], ["d"]]})
    assert read(path, column="lines") == ["b\nc", "d"]


def test_advice_for_a_csv_mentions_a_missing_header(tmp_path):
    path = write(tmp_path / "a.csv", "I love it,positive\nI hate it,negative\n")
    with pytest.raises(UserError, match="if its first line is a row already, write a line above"):
        read(path)


def test_a_table_with_two_columns_of_text_says_how_to_join_them(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"headline": "a", "body": "b"}\n')
    with pytest.raises(UserError, match="as headline, which has most text; --data.column A,B"):
        read(path)


@pytest.mark.parametrize("columns, advised", [
    (["instruction", "input", "output"], "instruction,input,output"),
    (["rejected", "chosen", "prompt"], "prompt,chosen"),
    (["answer", "id", "question"], "question,answer")])
def test_columns_that_belong_together_are_named_together(tmp_path, columns, advised):
    row = {name: f"{name} of some words" for name in columns}
    if "rejected" in row:
        row["rejected"] *= 9  # the longest one is no advice
    path = write(tmp_path / "a.jsonl", f"{json.dumps(row)}\n" * 2)
    assert find_command(path, ": --data.column (.*) reads these as one text$") == advised
    joined = "\n".join(row[name] for name in advised.split(","))
    assert read(path, column=advised)[0] == joined


def test_a_column_that_has_the_same_text_in_all_rows_is_not_advised(tmp_path):
    rows = [{"system": "You are a helpful person. " * 9, "reply": f"It was {day}."}
            for day in ("Monday", "Tuesday")]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert find_command(path, "with --data.column, as (.*), which has most text") == "reply"


def test_columns_without_words_are_not_advised_beside_objects(tmp_path):
    rows = [{"id": f"r{n}", "url": "/v1/chat", "body": {"of": [{"text": "It was."}]}}
            for n in range(2)]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert find_command(path, "'body' .dict.: (column body has more text): for the texts under KEY")


CHAT_ROWS = [
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes\n"}]},
    {"conversations": [{"from": "user", "value": "hi"}, {"from": "assistant", "value": "yes\n"}]},
    {"chat_messages": [  # of Claude
        {"text": "hi", "sender": "user"}, {"text": "yes\n", "content": [{"text": "yes\n"}],
                                           "sender": "assistant"}]},
    {"contents": [  # of Gemini
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "assistant", "parts": [{"text": "yes\n"}]}]},
    {"turns": [{"speaker": "user", "text": "hi"}, {"speaker": "assistant", "text": "yes\n"}]}]


@pytest.mark.parametrize("row", CHAT_ROWS)
def test_chat_rows_are_named_as_such(tmp_path, row):
    path = write(tmp_path / "a.jsonl", json.dumps({"id": 1, **row}))
    (name,) = row
    with pytest.raises(UserError, match=f"rows are chats.* --data.column {name} reads each"):
        read(path)


@pytest.mark.parametrize("row", CHAT_ROWS)
def test_a_chat_is_a_text_with_a_line_for_each_turn(tmp_path, row):
    path = write(tmp_path / "a.jsonl", json.dumps({"id": 1, **row}))
    (name,) = row
    assert read(path, column=name) == ["user: hi\nassistant: yes\n"]


@pytest.mark.parametrize("content, expected", [
    ([{"type": "text", "text": "see"}, {"type": "image"}, {"type": "text", "text": "this"}],
     "user: see\nthis"),
    (["see", {"type": "text", "text": "this"}], "user: see\nthis"),
    ([{"type": "text", "text": {"value": "see"}}], "user: see"), ({"text": "see"}, "user: see"),
    ({"content_type": "text", "parts": ["see", {"asset": 1}, "this"]}, "user: see\nthis"),
    (None, None), ("", None), (5, None)])
def test_what_a_turn_says_may_have_parts_or_be_missing(content, expected):
    row = {"messages": [{"role": "tool", "content": None}, {"role": "user", "content": content}]}
    assert columns.row_text(row, "messages") == expected


@pytest.mark.parametrize("content", [
    5, {"answer": "a long text"}, [{"type": "output_text", "content": "a long text"}],
    [{"type": "image"}]])
def test_turns_whose_words_are_not_found_are_counted(tmp_path, capsys, content):
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
    rows = f"{json.dumps({'messages': turns})}\n" * 3
    assert read(write(tmp_path / "a.jsonl", rows), column="messages") == ["user: hi"] * 3
    assert ("note: 3 turns of chats in column messages have no words that can be read, and are "
            "left out\n") in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "", [], {}])
def test_turns_that_say_nothing_are_left_out_without_a_note(tmp_path, capsys, content):
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
    rows = f"{json.dumps({'messages': turns})}\n" * 3
    assert read(write(tmp_path / "a.jsonl", rows), column="messages") == ["user: hi"] * 3
    assert "turns of chats" not in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", [], None, {}])
def test_words_beside_an_empty_content_are_read(content):
    turn = {"role": "user", "content": content, "parts": [{"type": "text", "text": "hi"}]}
    assert columns.row_text({"messages": [turn]}, "messages") == "user: hi"


@pytest.mark.parametrize(
    "value", [5, None, {}, [], [5], ["a", 5], [{"id": 1}], ["a", {"role": "b"}], [LINK, 5],
              ["a", {"type": "link"}], [{"text": "a"}], [{"type": 1, "text": "a"}],
              [{"role": "user", "body": "hi"}]])
def test_other_values_have_no_text(value):
    assert columns.row_text({"text": value}, "text") is None


def test_a_chat_without_known_words_is_refused(tmp_path):
    row = {"messages": [{"role": "user", "body": "hi"}]}
    with pytest.raises(UserError, match="no text in a column 'messages', only 'messages' .list."):
        read(write(tmp_path / "a.jsonl", json.dumps(row)), column="messages")


def test_the_keys_of_a_turn_may_be_mixed():
    assert columns.row_text({"a": [{"from": "user", "content": "hi"}]}, "a") == "user: hi"


@pytest.mark.parametrize("name", ["completion", "it's"])
def test_two_columns_of_jsonl_are_joined(tmp_path, name):
    rows = [{"prompt": "Who?", name: "I."}, {"prompt": "caf\u00e9", name: None}, {name: ["a", "b"]}]
    path = write(tmp_path / "qa.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read(path, column=f"prompt,{name}") == ["Who?\nI.", "caf\u00e9", "a\nb"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_two_columns_of_a_csv_are_joined(tmp_path, delimiter):
    rows = [["Date", "Sender", "it's"], ["Mo", "Anna", "hi,\nyou; caf\u00e9"], ["Tu", "Bob"]]
    path = tmp_path / "chats.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    assert read(path, column="Sender, it's") == ["Anna\nhi,\nyou; caf\u00e9", "Bob"]


def test_all_columns_of_a_csv_are_joined(tmp_path):
    """With a semicolon between columns, their names would be the name of one."""
    path = write(tmp_path / "qa.csv", "prompt,completion\nWho?,I.\n")
    assert read(path, column="prompt,completion") == ["Who?\nI."]


def test_two_columns_of_parquet_are_joined(tmp_path):
    table = {"prompt": ["hi"], "id": [1], "answer": [["a", "b"]]}
    path = write_parquet(tmp_path / "a.parquet", table)
    assert read(path, column="prompt,answer") == ["hi\na\nb"]


@pytest.mark.parametrize("name, content", [
    ("a.jsonl", '{"prompt": "hi", "body": "b"}\n'), ("a.csv", "prompt,body\nhi,b\n")])
def test_a_missing_one_of_two_columns_is_named(tmp_path, name, content):
    with pytest.raises(UserError, match="no text in a column 'answer', only 'prompt', 'body'"):
        read(write(tmp_path / name, content), column="prompt,answer")


def test_a_tsv_with_plain_quotes_is_read_as_advised(tmp_path):
    rows = 'label\ttext\r\n1\t"Yes," she said\r\n0\t"so\r\n1\tcaf\u00e9"\r\n'
    run_command(write(tmp_path / "a.tsv", rows), "python -c .* > NEW.jsonl")
    assert read(tmp_path / "NEW.jsonl") == ['"Yes," she said', '"so', 'caf\u00e9"']


def test_a_tsv_without_names_is_read_as_advised(tmp_path):
    rows = '1\t"Yes," she said\n0\t"so\n'
    path = write(tmp_path / "a.tsv", rows)
    words = r"that begins in line 1 .*; if that line is a row already, write a line of names above"
    with pytest.raises(UserError, match=words):
        read(path)
    write(path, "label\ttext\n" + rows)
    with pytest.raises(UserError, match="that begins in line 2 .* > NEW.jsonl reads them as such$"):
        read(path)
    run_command(path, "python -c .* > NEW.jsonl")
    assert read(tmp_path / "NEW.jsonl") == ['"Yes," she said', '"so']


@pytest.mark.parametrize("rows", [
    '1\t"I went home.\n0\tThen I slept."\n', '1\t"I went\n0\thome.\n1\tThen I slept."\n',
    '1\t"I went home.\r\n0\tThen I slept."\r\n'])
def test_a_quote_over_several_rows_of_a_tsv_is_refused(tmp_path, rows):
    path = write(tmp_path / "a.tsv", "label\ttext\n" + rows)
    with pytest.raises(UserError, match="that begins in line 2 has whole rows in it: if quotes"):
        read(path)


@pytest.mark.parametrize("rows, text", [
    ('1\t"two\nlines"\n', "two\nlines"), ('1\t"a\ttab"\n', "a\ttab"),
    ('1\t"if x:\n\t\treturn\n\ty"\n', "if x:\n\t\treturn\n\ty")])
def test_a_quoted_text_of_a_tsv_may_have_lines_and_tabs(tmp_path, rows, text):
    assert read(write(tmp_path / "a.tsv", "label\ttext\n" + rows)) == [text]


def test_a_csv_is_not_advised_to_be_read_without_quotes(tmp_path):
    with pytest.raises(UserError, match="inside a quoted text is written twice$"):
        read(write(tmp_path / "a.csv", 'id,text\n1,"a" b\n'))


# The commands that make lines of a Parquet file, and then texts of the objects in them.
LINES_COMMAND = "first (python -c .*) makes FILE.jsonl, and then jq -c .* FILE.jsonl > NEW.jsonl"


def test_advice_for_a_parquet_file_says_how_jq_gets_its_rows(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"data": [{"body": "caf\u00e9"}]})
    command = find_command(path, LINES_COMMAND)
    assert shlex.split(command) == ["python", "-c", columns.PARQUET_AS_LINES]


def test_a_parquet_file_becomes_lines_as_advised(tmp_path):
    """The test above shows that this is the code of the command."""
    write_parquet(tmp_path / "a.parquet", {"data": [{"body": "caf\u00e9"}]})
    with chdir(tmp_path):
        exec(columns.PARQUET_AS_LINES.replace("FILE", "a.parquet"), {})
    lines = (tmp_path / "a.parquet.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"data": {"body": "caf\u00e9"}}]


@pytest.mark.parametrize("name, content", [
    ("a.csv", '"review, full"\nfine\n'), ("a.csv", "sep=;\nreview, full\nfine\n"),
    ("a.csv", '"review, full";stars\nfine;5\n'), ("a.tsv", "review, full\nfine\n")])
def test_the_name_of_a_column_may_have_a_comma(tmp_path, name, content):
    assert read(write(tmp_path / name, content), column="review, full") == ["fine"]


@pytest.mark.parametrize("column", ["q,a,q", "q, a,q"])
def test_a_column_that_is_named_twice_is_read_once(tmp_path, column):
    path = write(tmp_path / "a.jsonl", '{"q": "one", "a": "two"}')
    assert read(path, column=column) == ["one\ntwo"]


@pytest.mark.parametrize("value, kind", [("7", "int"), ('["x", null]', "list"), ("true", "bool")])
def test_values_that_are_no_text_beside_one_that_is_are_noted(tmp_path, capsys, value, kind):
    rows = ['{"a": 0.5}', '{"q": "Q", "a": "A"}', f'{{"q": "Q", "a": {value}}}', '{"q": "Q"}']
    assert read(write(tmp_path / "a.jsonl", "\n".join(rows)), column="q,a") == ["Q\nA", "Q", "Q"]
    assert notes(capsys)[-1] == f"1 of 4 rows are read without column a, which has {kind} there"


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", "text,text\nfirst,second\n")
    with pytest.raises(UserError, match="names 2 columns 'text': give each another name"):
        read(path)


@pytest.mark.parametrize("values", [
    ["a"], pyarrow.array(["a"]).dictionary_encode(), pyarrow.array(["a"], pyarrow.large_string()),
    pyarrow.array(["a"], pyarrow.string_view())])
def test_every_type_of_text_is_read_of_parquet(tmp_path, values):
    path = write_parquet(tmp_path / "a.parquet", {"text": values})
    assert list(tables.read_parquet(str(path), "text")) == [{"text": "a"}]


def test_two_columns_of_parquet_with_one_name_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    first, second = pyarrow.array(["first"]), pyarrow.array(["second"])
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([first, second], ["text", "text"]), path)
    with pytest.raises(UserError, match="names 2 columns 'text': give each another name"):
        read(path)


def test_categories_of_text_in_parquet_are_advised(tmp_path):
    words = pyarrow.array(["a"]).dictionary_encode()
    path = write_parquet(tmp_path / "a.parquet", {"id": [5], "words": words})
    with pytest.raises(UserError, match="choose its only column of text with --data.column words"):
        read(path)


@pytest.mark.parametrize("values", [
    [{"body": "a"}], [[5]], [[{"id": "a"}]], [b"a"], [[{"tags": ["a"], "n": 1}]]])
def test_columns_of_other_types_are_not_read_of_parquet(tmp_path, values):
    path = write_parquet(tmp_path / "a.parquet", {"text": values})
    with pytest.raises(columns.NoText, match="no text in a column 'text', only"):
        next(tables.read_parquet(str(path), "text"))


@pytest.mark.parametrize("row", CHAT_ROWS)
def test_chats_in_parquet_are_named_and_read(tmp_path, row):
    ((name, turns),) = row.items()
    path = write_parquet(tmp_path / "a.parquet", {name: [turns]})
    with pytest.raises(UserError, match=f"rows are chats.* --data.column {name} reads each"):
        read(path)
    assert read(path, column=name) == ["user: hi\nassistant: yes\n"]


def test_objects_with_a_sender_in_parquet_are_not_always_chats(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"mails": [[{"sender": "a", "subject": "b"}]]})
    with pytest.raises(UserError) as error:
        read(path)
    assert "chats" not in str(error.value)


@pytest.fixture(scope="module", params=[500, 50_000], ids=["many", "one"])
def large_parquet(tmp_path_factory, request):
    """A Parquet file of 250 MB of text, in row groups of so many rows."""
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    texts = [f"{i:5}" + "word " * 999 for i in range(50_000)]
    table = pyarrow.table({"text": texts})
    pyarrow.parquet.write_table(table, path, row_group_size=request.param, use_dictionary=False)
    return path


READ_AND_MEASURE = """
import sys
import pyarrow.parquet
from data.tables import read_rows

def peak():
    lines = open("/proc/self/status", encoding="utf-8").readlines()
    return [int(line.split()[1]) for line in lines if line.startswith("VmHWM")][0] // 1024

before = peak()
n = sum(len(row["text"]) for row in read_rows(sys.argv[1], "text"))
print(n, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_parquet_file_is_never_held(large_parquet):
    """The peak of memory grows by less than 100 MiB, while 250 MB are read."""
    size, grown = map(int, run_python(READ_AND_MEASURE, large_parquet).split())
    assert size == 250_000_000
    assert grown < 100
